"""The host of `tests/attack`, at the other end of a guest's cable: in a network namespace of its own, from the first second on."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attacker import PATIENCE, Attacker
from lab import OUTSIDE, Done, Namespace
from qemu import link

TAP = Path(__file__).with_name("tap.py")
SECONDS_BETWEEN_ADVERTISEMENTS = 1.0


class _Elsewhere:
    """What an attacker needs of a laboratory: a place of its own, which QEMU's user network does not reach."""

    def host(self):
        return Namespace(OUTSIDE)

    def run(self, *command, where, check=True):
        done = subprocess.run(
            [*where.enter, *map(str, command)],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command}: {done.stderr}"
        return Done(done.returncode, done.stdout, done.stderr)


class Hostile(Attacker):
    """`cable` is the end for the guest's NIC."""

    def __init__(self):
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            pytest.skip("no tap devices for this user (/dev/net/tun)")
        super().__init__(_Elsewhere())
        self.cable, far_end = link()
        self._tap = subprocess.Popen(
            [*self.host.enter, sys.executable, TAP, self.nic, str(far_end.fileno())],
            pass_fds=[far_end.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        far_end.close()
        assert self._tap.stdout.readline() == "ready\n"
        self.run(f"ip link set {self.nic} address {self.mac}")
        self._up()

    def keep_advertising(self, *options, **more):
        """The same router advertisement every second: whenever the guest begins to listen, it gets one."""

        def advertise():
            while not self._stop.wait(SECONDS_BETWEEN_ADVERTISEMENTS):
                self.advertise(*options, **more)

        return self._begin(advertise)

    def close(self):
        super().close()
        self._tap.stdin.close()
        self._tap.wait(PATIENCE)
        self._tap.stdout.close()
        self.cable.close()
        self.host.close()
