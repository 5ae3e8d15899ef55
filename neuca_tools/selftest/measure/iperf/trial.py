"""Sysctls of a recommendation: set for a test, and restored unless it is faster with them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress

from neuca_tools.backends import sysctl
from neuca_tools.errors import ApplyError
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.measure.host.facts import SWAP

# The factor by which the rate has to improve for the settings to be kept.
BETTER = 1.1
# The sysctls that recommendations contain. No others are set, not even for a peer with the secret.
NAMES = frozenset(
    "net.ipv4.tcp_rmem net.ipv4.tcp_wmem net.ipv4.tcp_mtu_probing net.core.rmem_max"
    " net.core.wmem_max net.core.rmem_default net.core.wmem_default net.core.netdev_max_backlog"
    " net.core.netdev_budget net.core.netdev_budget_usecs net.core.somaxconn"
    " net.ipv4.tcp_max_syn_backlog net.ipv4.ipfrag_high_thresh net.ipv4.neigh.default.gc_thresh1"
    " net.ipv4.neigh.default.gc_thresh2 net.ipv4.neigh.default.gc_thresh3".split()
)
VALUE = re.compile(r"[0-9]{1,12}( [0-9]{1,12}){0,2}")


def advised(finding: Finding) -> dict[str, str]:
    """The sysctls that a finding recommends; none if any of them may not be tried."""
    found = dict(finding.sysctls)
    return found if all(map(_allowed, found, found.values())) else {}


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
    return name in NAMES and bool(VALUE.fullmatch(value))


class Trial:
    """The sysctls that were set, with their original values."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def set(self, sysctls: Mapping[str, str]) -> None:
        """Set all of them, or none. Raises ApplyError."""
        refused = sorted(name for name, value in sysctls.items() if not _allowed(name, value))
        if refused:
            raise ApplyError(f"set {refused[0][:80]}: the self-test does not set this sysctl")
        try:
            for name, value in sysctls.items():
                before = sysctl.read(name.translate(SWAP))
                if before is None:
                    raise ApplyError(f"set {name}: there is no such setting here")
                self._before.setdefault(name, before)
                sysctl.write(name.translate(SWAP), value)
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
                sysctl.write(name.translate(SWAP), value)
        self._before.clear()
