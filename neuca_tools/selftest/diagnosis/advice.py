"""What a finding advises, beside what the hosts already have."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable, Sequence
from typing import Optional

from neuca_tools.selftest.conditions.base import Hit
from neuca_tools.selftest.evidence import Evidence, Host
from neuca_tools.selftest.evidence.look import Look

LINUX = "Linux"  # as uname(1)
# The first number of this sysctl is a lower bound (ip-sysctl.rst).
RANGE = "net.ipv4.ip_local_port_range"
KEEP = "keep values that are already larger"
OTHER_BUFFERS = (
    "look for a program that sets its own buffer (SO_RCVBUF, SO_SNDBUF, -w), and for memory "
    "pressure (tcp_mem)"
)
# What only Linux has, of the advice.
OF_LINUX = re.compile(r"\b(?:sysctl|ethtool|nft|nstat|tc|fq|mpstat|net\.\w+|tcp_[rw]mem)\b")


def advice_for(hit: Hit, look: Optional[Look]) -> str:
    """The recommendation, with a word about its commands if another system printed the output."""
    system = (look.run.system if look else None) or LINUX
    name = (system.split() or [LINUX])[0]
    if name == LINUX or not OF_LINUX.search(hit.recommendation):
        return hit.recommendation
    return f"{hit.recommendation} (this is for Linux; the output is from {name})"


def hosts_of(hit: Hit, evidence: Evidence, look: Optional[Look]) -> tuple[Host, ...]:
    """The hosts to which the advice applies; none if that is not known."""
    ends = {
        "local": (evidence.local,),
        "peer": (evidence.peer,),
        "both": (evidence.local, evidence.peer),
        "path": (evidence.local, evidence.peer),
    }
    if look is not None:
        ends["sender"], ends["receiver"] = (look.sender,), (look.receiver,)
    return ends.get(hit.end, ())


def never_lower(hit: Hit, hosts: Sequence[Host]) -> Hit:
    """The hit with advice that lowers no value of any of `hosts`."""
    if not hit.sysctls:
        return hit
    present = {name: [host.sysctls.get(name, "") for host in hosts] for name in hit.sysctls}
    raised = {}
    for name, wanted in hit.sysctls.items():
        value = _largest_values(name, [wanted, *filter(None, present[name])])
        if not _have_value(present[name], value):
            raised[name] = value
    if not raised:
        return hit._replace(sysctls={}, advice=_nothing_to_raise(hit))
    is_known = all(values and all(values) for values in present.values())
    advice = hit.advice if is_known else "; ".join(filter(None, (KEEP, hit.advice)))
    return hit._replace(sysctls=raised, advice=advice)


def _have_value(present: Sequence[str], value: str) -> bool:
    """Whether there are hosts, and all have this value of several numbers."""
    return bool(present) and all(each.split() == value.split() for each in present)


def _nothing_to_raise(hit: Hit) -> str:
    text = f"{', '.join(hit.sysctls)}: already as large as this needs"
    is_buffer = any("mem" in name for name in hit.sysctls)
    return "; ".join(filter(None, (text, OTHER_BUFFERS if is_buffer else "", hit.advice)))


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
