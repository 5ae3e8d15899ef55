"""What a finding recommends, beside what the hosts already have: no advice lowers a value."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.selftest.conditions.base import Hit
from neuca_tools.selftest.evidence import Evidence, Host
from neuca_tools.selftest.evidence.look import Look

# The first number of this sysctl is a lower bound (ip-sysctl.rst).
RANGE = "net.ipv4.ip_local_port_range"
KEEP = "keep values that are already larger"


def hosts_of(hit: Hit, evidence: Evidence, of: Optional[Look]) -> tuple[Host, ...]:
    """The hosts to which the advice applies; none if that is not known."""
    ends = {
        "local": (evidence.local,),
        "peer": (evidence.peer,),
        "both": (evidence.local, evidence.peer),
        "path": (evidence.local, evidence.peer),
    }
    if of is not None:
        ends["sender"], ends["receiver"] = (of.sender,), (of.receiver,)
    return ends.get(hit.end, ())


def never_lower(hit: Hit, hosts: Sequence[Host]) -> Hit:
    """The same advice without a value that would be lower than that of any of `hosts`."""
    if not hit.sysctls:
        return hit
    raised, is_known = {}, True
    for name, wanted in hit.sysctls.items():
        present = [host.sysctls[name] for host in hosts if name in host.sysctls]
        is_known = is_known and len(present) == len(hosts) > 0
        value = _largest_values(name, [wanted, *present])
        if len(present) < max(1, len(hosts)) or any(
            _differs_in_fields(value, other) for other in present
        ):
            raised[name] = value
    if not raised:
        return replace(hit, sysctls={}, advice=_nothing_to_raise(hit))
    advice = hit.advice if is_known else "; ".join(filter(None, (KEEP, hit.advice)))
    return replace(hit, sysctls=raised, advice=advice)


def _nothing_to_raise(hit: Hit) -> str:
    names = ", ".join(hit.sysctls)
    text = (
        f"{names}: already as large as this needs; look for a program that sets its own buffer "
        "(SO_RCVBUF, SO_SNDBUF, -w), and for memory pressure (tcp_mem)"
    )
    return "; ".join(filter(None, (text, hit.advice)))


def _differs_in_fields(value: str, other: str) -> bool:
    return value.split() != other.split()


def _largest_values(name: str, values: Iterable[str]) -> str:
    """Number by number the largest; the first value if others have another form."""
    rows = [value.split() for value in values]
    wanted = rows[0]
    known = [row for row in rows if len(row) == len(wanted) and all(map(str.isdecimal, row))]
    if wanted not in known:
        return " ".join(wanted)
    largest = [max(map(int, column)) for column in zip(*known)]
    if name == RANGE:
        largest[0] = min(int(row[0]) for row in known)
    return " ".join(map(str, largest))
