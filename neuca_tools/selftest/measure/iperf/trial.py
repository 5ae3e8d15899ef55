"""Sysctls of a recommendation: set for a test, and restored unless it is faster with them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from neuca_tools.backends import sysctl
from neuca_tools.errors import ApplyError
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.measure.host.facts import SWAP_SEPARATORS

# The factor by which the rate has to improve for the settings to be kept.
BETTER_FACTOR = 1.1
_INT, _MIB = 2**31 - 1, 2**20
# The sysctls that recommendations contain, with the highest value of each number: that of
# `tuning.allowed_sysctls`. No others are set, not even for a peer with the secret.
NAMES: Mapping[str, tuple[int, ...]] = {
    "net.ipv4.tcp_rmem": (_MIB, 64 * _MIB, _INT),
    "net.ipv4.tcp_wmem": (_MIB, 64 * _MIB, _INT),
    "net.ipv4.tcp_mtu_probing": (2,),
    "net.core.rmem_max": (_INT,),
    "net.core.wmem_max": (_INT,),
    "net.core.rmem_default": (64 * _MIB,),
    "net.core.wmem_default": (64 * _MIB,),
    "net.core.netdev_max_backlog": (1000000,),
    "net.core.netdev_budget": (10000,),
    "net.core.netdev_budget_usecs": (100000,),
    "net.core.somaxconn": (65535,),
    "net.ipv4.tcp_max_syn_backlog": (_MIB,),
    "net.ipv4.ipfrag_high_thresh": (1024 * _MIB,),
    "net.ipv4.neigh.default.gc_thresh1": (_MIB,),
    "net.ipv4.neigh.default.gc_thresh2": (_MIB,),
    "net.ipv4.neigh.default.gc_thresh3": (_MIB,),
}
VALUE = re.compile(r"[0-9]{1,12}( [0-9]{1,12}){0,2}")


def advised(finding: Finding) -> dict[str, str]:
    """The sysctls that a finding recommends; none if any of them may not be tried."""
    sysctls = dict(finding.sysctls)
    return sysctls if all(map(_allowed, sysctls, sysctls.values())) else {}


def ends(finding: Finding, direction: str) -> tuple[bool, bool]:
    """Whether a recommendation is for this end, and whether it is for the peer.

    `direction` is that of the test: forward if this end sends.
    """
    if finding.end in ("both", "path"):
        return True, True
    ours, theirs = ("sender", "local"), ("receiver", "peer")
    if direction != "forward":
        ours, theirs = ("receiver", "local"), ("sender", "peer")
    return finding.end in ours, finding.end in theirs


def _allowed(name: str, value: str) -> bool:
    bounds = NAMES.get(name, ())
    if not VALUE.fullmatch(value) or len(value.split()) != len(bounds):
        return False
    return all(int(number) <= most for number, most in zip(value.split(), bounds))


def _lowers(before: str, value: str) -> bool:
    return any(int(new) < int(old) for new, old in zip(value.split(), before.split()))


class Trial:
    """The sysctls that were set, with their original values.

    Only a higher value than the present one is set: recommendations contain no others, so a lower
    one comes from a peer that means harm.
    """

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def set(self, sysctls: Mapping[str, str]) -> None:
        """Set all of them, or none. Raises ApplyError."""
        refused = sorted(name for name, value in sysctls.items() if not _allowed(name, value))
        if refused:
            raise ApplyError(
                f"set {refused[0][:80]}: the self-test does not set this sysctl,"
                " or not to this value"
            )
        try:
            for name, value in sysctls.items():
                before = sysctl.read(name.translate(SWAP_SEPARATORS))
                if before is None:
                    raise ApplyError(f"set {name}: there is no such setting here")
                if _lowers(before, value):
                    raise ApplyError(f"set {name}: {value} is less than the present {before}")
                self._before.setdefault(name, before)
                sysctl.write(name.translate(SWAP_SEPARATORS), value)
        except ApplyError:
            self.restore()
            raise

    def keep(self) -> None:
        """Do not restore the original values."""
        self._before.clear()

    def restore(self) -> None:
        """Restore the original values, ignoring errors."""
        for name, value in self._before.items():
            with suppress(ApplyError):
                sysctl.write(name.translate(SWAP_SEPARATORS), value)
        self._before.clear()
