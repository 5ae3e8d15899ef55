"""The two ends of a self-test: the guest, as the agent has set it up, and the host at the other end of its NIC."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time

from firstline import first_line
from lab import PATIENCE, mac
from selftest_schema import validated

NEAR, FAR = "172.16.0.1", "172.16.0.2"
NEAR6, FAR6 = "fd00:16::1", "fd00:16::2"
PORT = 45678
SECRET = "a secret that both ends share\n"
DOCUMENT = f"[interface {mac(1)}]\naddresses = {NEAR}/24, {NEAR6}/64\n"
MAIN = "import sys; from neuca_tools.commands.selftest import main; sys.exit(main(sys.argv[1:]))"
TCP = ("--only", "tcp", "--time", "1", "--expect", "1M", "--rate", "20M")
LONG = 240.0  # seconds that a program may take on a busy machine


class Ends:
    """The guest, as the agent has set it up, and the host at the other end of its NIC."""

    def __init__(self, lab):
        self.lab, self.started = lab, []
        lab.management()
        lab.veth("dp1", 1)
        for words in (f"{FAR}/24 dev dp1", f"{FAR6}/64 dev dp1 nodad"):
            lab.run("ip", "address", "add", *words.split(), where=lab.outside)
        lab.document(DOCUMENT)
        assert lab.once().code == 0
        if program := os.environ.get(
            "NEUCA_IPERF3"
        ):  # another version than the distribution's (tests/lanes)
            for where in (lab.guest, lab.outside):
                lab.run("mount", "--bind", program, shutil.which("iperf3"), where=where)
        self.secret = self.write("secret", SECRET)
        self.far = self.write(
            "far.conf",
            f"[runtime]\nstate-directory = {lab.folder}/far\nrun-directory = {lab.folder}/far-run\n"
            "[metadata]\nsources = none\n[tuning]\nprofile = none\n[linux]\nmanagers = none\n",
        )

    def write(self, name, text):
        path = self.lab.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def start(self, *command, where=None):
        process = subprocess.Popen(
            [*(where or self.lab.outside).enter, *map(str, command)],
            env=self.lab.environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def serve(self, *words, secret=None, where=None):
        """A helper at the other end, or in another host's namespace, once it listens."""
        helper = self.start(
            sys.executable,
            "-c",
            MAIN,
            "--serve",
            "--config",
            self.far,
            "--secret-file",
            secret or self.secret,
            *(words or ("--for", "600")),
            where=where,
        )
        assert "serving tests" in first_line(helper.stdout)
        return helper

    def bridge(self, *others):
        """Hosts on the same network, each with its addresses: a bridge at the other end joins them, which has that end's."""
        found = [self.lab.host() for _ in others]
        script = [
            "ip link add br0 type bridge mcast_snooping 0",
            "ip link set dp1 master br0",
            "ip address flush dev dp1",
            "ip link set br0 up",
            f"ip address add {FAR}/24 dev br0",
            f"ip address add {FAR6}/64 dev br0 nodad",
        ]
        for number, host in enumerate(found):
            peer = f"type veth peer name eth0 netns {host.pid}"
            script += [f"ip link add name p{number} master br0 {peer}", f"ip link set p{number} up"]
        self.lab.run("sh", "-ec", "\n".join(script), where=self.lab.outside)
        for host, addresses in zip(found, others):
            script = [f"ip address add {one} dev eth0" for one in addresses]
            script.append("ip link set eth0 up")
            self.lab.run("sh", "-ec", "\n".join(script), where=host)
        return found

    def iperf(self, *words, port=PORT):
        """An iperf3 server at the other end, once it listens."""
        server = self.start("iperf3", "-s", "-p", port, *words)
        self.until(lambda: port in self.listening())
        return server

    def listening(self):
        """The TCP ports that somebody listens at, at the other end."""
        out = self.lab.run("cat", "/proc/net/tcp", "/proc/net/tcp6", where=self.lab.outside).out
        rows = [line.split() for line in out.splitlines()]
        return {
            int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"
        }

    def until(self, condition, seconds=LONG):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.started[-1].wait(0.05)

    def test(self, *words, peer=FAR):
        """A test from the guest, in words."""
        return self.lab.run(
            sys.executable,
            "-c",
            MAIN,
            "--config",
            self.lab.config_file,
            *words,
            *([peer] if peer else []),
            check=False,
        )

    def begin(self, *words, seconds=20, steps="tcp"):
        """A slow test from the guest, which goes on for so long or until it is ended."""
        limits = ("--only", steps, "--time", seconds, "--rate", "1M")
        command = (sys.executable, "-c", MAIN, "--config", self.lab.config_file)
        return self.start(*command, *words, *limits, FAR, where=self.lab.guest)

    def transferring(self):
        """Wait until a test has its control connection and its first stream (state 01 is ESTABLISHED)."""
        self.until(lambda: self.lab.run("cat", "/proc/net/tcp").out.count(f":{PORT:04X} 01") >= 2)

    def report(self, *words, peer=FAR):
        """A test from the guest, as its exit code and its report."""
        done = self.test("--json", *words, peer=peer)
        assert done.out, done
        return done.code, validated(done.json)

    def helped(self, *words, peer=FAR):
        return self.report("--secret-file", self.secret, *words, peer=peer)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            process.stdout.close()


def steps(report):
    return {
        one["name"]: one["verdict"]
        for one in report["evidence"]["steps"]
        if one["verdict"] != "skipped"
    }


def findings(report):
    return {one["id"] for one in report["findings"] if one["severity"] != "info"}
