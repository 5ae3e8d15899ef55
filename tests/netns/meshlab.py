"""Hosts of a mesh, each in a network namespace, a bridge for each group, and a stand-in for ssh that clush uses to reach them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

import middlebox
from lab import ROOT, Namespace
from middlebox import Way

MAIN = "import sys; from neuca_tools.commands.selftest import main; sys.exit(main(sys.argv[1:]))"
HELD = "mount -t sysfs sysfs /sys; ip link set lo up; echo ready; exec cat"
PATIENCE = 900.0  # seconds, for what never comes
# ssh's options are dropped: none of those that clush gives has a value of its own.
SSH = """#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
export MESH_NAME=$1; shift
[ -e {folder}/hosts/$MESH_NAME ] || exit 255
read -r enter < {folder}/hosts/$MESH_NAME
exec $enter sh -c "$*"
"""


class MeshLab:
    """`count` hosts n0, n1 … in `groups` groups, with 10.9.GROUP.NUMBER. Each group has a bridge; those lead to a core."""

    def __init__(self, folder, count, groups=1):
        self.folder, self._started = folder, []
        self.fabric = Namespace(HELD)
        within = self.fabric.enter if os.geteuid() else ()
        self.names = [f"n{number}" for number in range(count)]
        self.group = {name: f"g{number % groups}" for number, name in enumerate(self.names)}
        self.address = {
            name: f"10.9.{int(self.group[name][1:])}.{int(name[1:]) + 1}" for name in self.names
        }
        # As a plan numbers them, and as bridges are called.
        self.listed, self.groups = sorted(self.names), sorted(set(self.group.values()))
        self.hosts = {name: Namespace(HELD, within) for name in self.names}
        (folder / "hosts").mkdir()
        for name, host in self.hosts.items():
            self.reach(name, host)
        self.ssh = self._write("ssh", SSH.format(folder=folder), 0o755)
        self.config = self._write(
            "config",
            f"[runtime]\nstate-directory = {folder}/state\nrun-directory = {folder}/run\n"
            "[metadata]\nsources = none\n[tuning]\nprofile = none\n[linux]\nmanagers = none\n",
        )
        self._connect(self.groups)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.results = folder / "run.jsonl"

    def reach(self, name, host=None):
        """Let ssh find a host, or not."""
        file = self.folder / "hosts" / name
        if host is None:
            file.unlink()
        else:
            file.write_text(" ".join(host.enter) + "\n")

    def _connect(self, groups):
        lines = ["link add core type bridge", "link set core up"]
        for group in groups:
            lines += [
                f"link add {group} type bridge",
                f"link set {group} up",
                f"link add up-{group} type veth peer name down-{group}",
                f"link set up-{group} master {group} up",
                f"link set down-{group} master core up",
            ]
        for name, host in self.hosts.items():
            lines += [
                f"link add {name} type veth peer name dp1 netns {host.pid}",
                f"link set {name} master {self.group[name]} up",
            ]
        self.run("ip", "-batch", "-", where=self.fabric, text="\n".join(lines))
        for name, host in self.hosts.items():
            words = f"link set dp1 up\naddress add {self.address[name]}/16 dev dp1\n"
            self.run("ip", "-batch", "-", where=host, text=words)

    def close(self):
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        for namespace in (*self.hosts.values(), self.fabric):
            namespace.close()

    def _write(self, name, text, mode=0o600):
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return path

    def run(self, *command, where, text=None):
        done = subprocess.run(
            [*where.enter, *map(str, command)], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        return done.stdout

    def shape(self, device, where, rate="20mbit"):
        """Limit what leaves through a device: 20 Mbit/s, with a queue of 50 ms."""
        words = f"qdisc add dev {device} root tbf rate {rate} burst 16kb latency 50ms"
        self.run("tc", *words.split(), where=where)

    def slow_way(self, device, where, destination, rate):
        """Limit what leaves through a device for some addresses only."""
        for words in (
            f"qdisc add dev {device} root handle 1: htb default 10",
            f"class add dev {device} parent 1: classid 1:10 htb rate 1gbit quantum 60000",
            f"class add dev {device} parent 1: classid 1:20 htb rate {rate} quantum 1514",
            f"qdisc add dev {device} parent 1:20 tbf rate {rate} burst 16kb latency 50ms",
            f"filter add dev {device} parent 1: protocol ip u32 match ip dst {destination} flowid 1:20",
        ):
            self.run("tc", *words.split(), where=where)

    def box(self, name, there=Way(), back=Way()):  # noqa: B008 - it is frozen
        """Put tests/middlebox.py between a host and its bridge; `there` is what the host sends."""
        words = [
            f"link set {name} nomaster gso_max_segs 1",
            f"link add box type veth peer name to-{name}",
            f"link set to-{name} gso_max_segs 1 master {self.group[name]} up",
            "link set box up",
        ]
        self.run("ip", "-batch", "-", where=self.fabric, text="\n".join(words))
        self.run("ip", "link", "set", "dp1", "gso_max_segs", "1", where=self.hosts[name])
        program = [sys.executable, middlebox.__file__, name, "box"]
        process = subprocess.Popen(
            [*self.fabric.enter, *program, middlebox.specification(there, back)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.insert(0, process)
        assert process.stdout.readline() == "ready\n"

    # --- neuca-selftest mesh ---

    def mesh(self, *words):
        done = subprocess.run(
            [sys.executable, "-c", MAIN, "mesh", *map(str, words)],
            env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def plan(self, *words, rate="50M", groups=True):
        """A plan of all hosts, as a file."""
        text = "".join(
            f"{name} {self.address[name]} rack={self.group[name]}\n" for name in self.names
        )
        hosts = self._write("list", text)
        more = ("--group", "rack") if groups else ()
        code, out, err = self.mesh(
            "plan", "--rate", rate, "--time", "1", "--guard", "1", *more, *words, hosts
        )
        assert code == 0, err
        return self._write("plan.json", out)

    def words(self, plan):
        remote = (
            f"{sys.executable} -c '{MAIN}' mesh join - --name $MESH_NAME --config {self.config}"
        )
        return [
            "run", plan, "--output", self.results, "--remote", remote, "--json",
            "--", "-O", f"ssh_path={self.ssh}",
        ]  # fmt: skip

    def go(self, plan, *words):
        """Run a plan to its end: the exit code, the report, and what was said."""
        run = self.words(plan)
        code, out, err = self.mesh(*run[:1], *words, *run[1:])
        assert out, err
        return code, json.loads(out), err

    def start(self, plan, *words):
        """Run a plan, and do not wait."""
        run = self.words(plan)
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "mesh", *map(str, [*run[:1], *words, *run[1:]])],
            env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(process)
        return process

    def rows(self):
        """What the run has recorded so far."""
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        found = [json.loads(line) for line in lines]
        return [one for one in found if "client" in one]

    def until(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._started[-1].wait(0.1)

    def listening(self):
        """The hosts with a server of the self-test: state 0A in /proc/net/tcp is LISTEN."""
        tables = {
            name: self.run("cat", "/proc/net/tcp", where=host) for name, host in self.hosts.items()
        }
        rows = [(name, line.split()) for name, text in tables.items() for line in text.splitlines()]
        return [name for name, row in rows if row[1].endswith(":B26F") and row[3] == "0A"]
