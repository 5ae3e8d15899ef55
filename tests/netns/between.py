"""Two hosts, A and B, and a box between them, R: what it does to packets is done by the kernel (tbf), or by tests/middlebox.py."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import middlebox
from firstline import first_line
from lab import ROOT, Namespace
from middlebox import Tally, Way

NEAR, FAR = "172.16.0.1", "172.16.0.2"
MAIN = "import sys; from neuca_tools.commands.selftest import main; sys.exit(main(sys.argv[1:]))"
HELD = "ip link set lo up; echo ready; exec cat"
# It ends with its standard input, however this process ends.
BUSY = "while :; do :; done & cat; kill $!"
PATIENCE = 300.0  # seconds, for what never comes


class Between:
    """The two hosts; `bridged` or `boxed` connects them. See `between`."""

    def __init__(self, folder: Path, mtu: int = 1500, segments: int = 1) -> None:
        """`segments`: how many packets a host gives to its NIC as one."""
        self.folder, self._started = folder, []
        # The mount namespace is A's, for the agent's directories are its own.
        self.near = Namespace(f"mount -t sysfs sysfs /sys; {HELD}")
        within = self.near.enter if os.geteuid() else ()
        self.box, self.far = Namespace(HELD, within), Namespace(HELD, within)
        for where, name, port in ((self.near, "a0", "ra"), (self.far, "b0", "rb")):
            # One index on both sides would look like no pair to the kernel.
            self.run(
                *f"ip link add {name} index 11 mtu {mtu} gso_max_segs {segments} type veth peer".split(),
                *f"name {port} mtu {mtu} netns {self.box.pid}".split(),
                where=where,
            )
            self.run("ip", "link", "set", port, "up", where=self.box)
        for where, name, address in ((self.near, "a0", NEAR), (self.far, "b0", FAR)):
            self.run("ip", "address", "add", f"{address}/24", "dev", name, where=where)
            self.run("ip", "link", "set", name, "up", where=where)
        self.secret = self._write("secret", "a secret that both ends share\n")
        self.configurations = {end: self._configuration(end) for end in ("near", "far")}

    def close(self) -> None:
        for process in self._started:
            process.stdin.close()
        for process in self._started:
            if process.args[-1] == BUSY:
                process.wait(PATIENCE)
            process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        for namespace in (self.far, self.box, self.near):
            namespace.close()

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def _configuration(self, end: str) -> Path:
        places = f"state-directory = {self.folder}/{end}\nrun-directory = {self.folder}/{end}-run\n"
        return self._write(
            f"{end}.conf",
            f"[runtime]\n{places}[metadata]\nsources = none\n[tuning]\nprofile = none\n"
            "[linux]\nmanagers = none\n",
        )

    def run(self, *command: object, where: Namespace, check: bool = True) -> str:
        done = subprocess.run(
            [*where.enter, *map(str, command)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env=self._environment,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
        if not done.stdout and done.returncode:
            print(done.stderr)
        return done.stdout

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT)}

    def start(self, *command: object, where: Namespace, first: str = "") -> subprocess.Popen[str]:
        """A program that ends with the hosts, once it has printed a line with the words `first`."""
        process = subprocess.Popen(
            [*where.enter, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
            cwd="/",
        )
        self._started.append(process)
        if first:
            line = first_line(process.stdout)
            assert first in line, line
        return process

    # --- What is between them ---

    def bridged(self) -> None:
        """A switch."""
        self.run(*"ip link add br0 type bridge".split(), where=self.box)
        for name in ("ra", "rb"):
            self.run("ip", "link", "set", name, "master", "br0", where=self.box)
        self.run(*"ip link set br0 up".split(), where=self.box)

    def shape(self, there: str = "", back: str = "") -> None:
        """Shapers of the kernel, as tbf's words, on a switch."""
        self.bridged()
        for port, words in (("rb", there), ("ra", back)):
            if words:
                self.run(
                    *f"tc qdisc add dev {port} root tbf {words}".split(),
                    where=self.box,
                )

    def boxed(self, there: Way, back: Way, seed: int = 1) -> None:
        """A box in user space."""
        self._boxed = self.start(
            sys.executable,
            middlebox.__file__,
            "ra",
            "rb",
            middlebox.specification(there, back, seed),
            where=self.box,
            first="ready",
        )

    def tallies(self) -> dict[str, Tally]:
        """What the box in user space did to each direction; it does nothing any more."""
        out, _ = self._boxed.communicate(timeout=PATIENCE)
        self._started.remove(self._boxed)
        return {name: Tally(**one) for name, one in json.loads(out).items()}

    def busy(self, loops: int) -> None:
        """Programs beside the test, which compute and nothing else."""
        for _ in range(loops):
            self.start("sh", "-c", BUSY, where=self.near)

    # --- The test ---

    def serve(self) -> None:
        self.start(
            *self._program("far"), "--serve", "--for", "600", where=self.far, first="serving tests"
        )

    def _program(self, end: str, helped: bool = True) -> tuple[object, ...]:
        secret = ("--secret-file", self.secret) if helped else ()
        return (sys.executable, "-c", MAIN, "--config", self.configurations[end], *secret)

    def report(self, *words: str, helped: bool = True) -> dict:
        """The report of a test from A to B; not `helped`: nobody serves there."""
        program = self._program("near", helped)
        out = self.run(*program, "--json", *words, FAR, where=self.near, check=False)
        assert out, words
        found: dict = json.loads(out)
        return found


def told(report: dict) -> list[str]:
    """The conditions above information, the first one first."""
    return [one["id"] for one in report["findings"] if one["severity"] != "info"]


@contextlib.contextmanager
def between(folder: Path, mtu: int = 1500, segments: int = 1):
    """The hosts, and an end to everything that was started."""
    made = Between(folder, mtu, segments)
    try:
        yield made
    finally:
        made.close()
