"""What a finding advises, beside what the hosts already have, and what limits after that."""

# SPDX-License-Identifier: MIT

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.application import NEGLIGIBLE_LOSS, RMEM, WMEM
from neuca_tools.selftest.conditions.base import Hit
from neuca_tools.selftest.conditions.capacity import path_capacity
from neuca_tools.selftest.conditions.figures import goodput, mathis_rate
from neuca_tools.selftest.conditions.table import causes_of
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL, PARALLEL
from neuca_tools.selftest.conditions.udp import CLEAR_LOSS, is_losing
from neuca_tools.selftest.evidence import Evidence, Host, Phase
from neuca_tools.selftest.evidence.look import Look

LINUX = "Linux"  # as uname(1)
IN_FLIGHT = 0.9  # of tcp_wmem: 4 MB allowed 3.8 MB in flight at 100 ms
NOTICEABLE_LOAD = 0.05  # of a CPU's time: below it, the rate that would fill the CPU is a guess
NOTICEABLE_GAIN = 1.05  # times the present rate
# Conditions whose `fixed` was measured on this path: by datagrams, several streams, the underlay.
MEASURED_REMEDIES = frozenset({"D17", "D24", "D26"})


class Limit(NamedTuple):
    """One thing that keeps the rate below `rate`, in bit/s."""

    name: str
    condition: str
    rate: float


# A limit of the path in the direction of one phase, as this phase measured it.
Capacity = tuple[Phase, Limit]


def limits(look: Look, capacities: Iterable[Capacity]) -> list[Limit]:
    """Every limit that can be computed as a rate, the lowest first."""
    known = [*_of_links(look), *_of_path(look, capacities), *_of_buffers(look)]
    for end, _, load in reversed(look.ends):
        if look.rate and load.used > NOTICEABLE_LOAD:
            which = "CPU" if load.cpu is None else f"CPU {load.cpu}"
            known.append(Limit(f"the {end}'s {which}", "D09", look.rate / load.used))
    return sorted(known, key=lambda limit: limit.rate)


def _of_links(look: Look) -> list[Limit]:
    links = look.evidence.links
    rates = [goodput(link.real_speed, link.mtu or 1500) for link in links if link.real_speed]
    return [Limit("the link", "D18", rate) for rate in sorted(rates)[:1]]


def _of_path(look: Look, capacities: Iterable[Capacity]) -> list[Limit]:
    """The capacity of the path in this direction, as other phases measured it."""
    return [
        limit
        for phase, limit in capacities
        if phase is not look.phase and phase.direction == look.phase.direction
    ]


def measured_capacities(looks: Iterable[Look]) -> Iterator[Capacity]:
    """What each phase says about the path, if not both directions sent at once."""
    for look in looks:
        hit = path_capacity(look) if look.phase.name != BIDIRECTIONAL else None
        if hit is not None and hit.fixed:
            which = ", which several streams fill" if look.phase.name == PARALLEL else ""
            yield look.phase, Limit(f"the path{which}", "D18", hit.fixed)
        if is_losing(look) and look.rate and look.known_loss >= CLEAR_LOSS:
            yield look.phase, Limit("the path, which loses more datagrams", "D18", look.rate)


def _of_buffers(look: Look) -> Iterator[Limit]:
    """What buffers and loss allow at the round trip of this phase; nothing if that is not known."""
    rtt = look.rtt or look.shortest_rtt
    if not rtt:
        return
    rmem, wmem = look.receiver.sysctl_max(RMEM), look.sender.sysctl_max(WMEM)
    if rmem:
        yield Limit("the receive window", "D01", rmem / 2 * 8 / rtt)
    if wmem:
        yield Limit("the send buffer", "D03", IN_FLIGHT * wmem * 8 / rtt)
    if look.loss and look.loss > NEGLIGIBLE_LOSS:
        yield Limit("loss", "D05", mathis_rate(look.mss, rtt, look.loss))


def next_after(
    condition: str, hit: Hit, look: Look, capacities: Iterable[Capacity]
) -> tuple[Optional[float], Optional[str]]:
    """The rate in bit/s once `condition` is fixed, and what limits then, in words.

    (None, None) if no limit can be computed, or if no data got through. No rate is predicted
    that nothing of the path bounds, because larger buffers alone promise any rate, and none that
    is hardly above the present one.
    """
    if look.protocol != "tcp" or not look.rate:
        return None, None
    lifted, predicted, words = _lifted_with(condition, hit), math.inf, "not known: measure again"
    for limit in limits(look, capacities):
        if limit.condition not in lifted and limit.rate >= look.rate:
            predicted, words = limit.rate, f"{limit.name}, {amounts.rate(limit.rate)}"
            break
    if hit.fixed and look.rate <= hit.fixed < predicted:
        predicted = hit.fixed
    if predicted == math.inf:
        return None, None
    return _promised_rate(condition, hit, predicted, look, capacities), words


def _promised_rate(
    condition: str, hit: Hit, predicted: float, look: Look, capacities: Iterable[Capacity]
) -> Optional[float]:
    """The predicted rate, as far as the path is known to carry it; None if that is no more."""
    bound = _carried_rate(look, capacities)
    if condition in MEASURED_REMEDIES and hit.fixed:
        bound = hit.fixed
    predicted = min(predicted, bound)
    return predicted if predicted > NOTICEABLE_GAIN * look.known_rate else None


def _carried_rate(look: Look, capacities: Iterable[Capacity]) -> float:
    """The highest rate in bit/s that the path is known to carry; 0 if none is.

    Several streams or datagrams that were faster tell more than the speed of the links.
    """
    flows = [
        phase.run.flow(look.phase.direction)
        for phase in look.evidence.phases
        if phase.run and phase.direction == look.phase.direction and phase.name in (PARALLEL, "udp")
    ]
    measured = max((flow.rate or 0.0 for flow in flows if flow), default=0.0)
    if measured > NOTICEABLE_GAIN * look.known_rate:
        return measured
    known = (*_of_links(look), *_of_path(look, capacities))
    return min((limit.rate for limit in known), default=0.0)


def _lifted_with(condition: str, hit: Hit) -> set[str]:
    """The conditions that no longer limit once this one is fixed."""
    of_loss = {"D05"} if condition in causes_of("D05") else set()
    of_both_buffers = {"D01", "D03"} if hit.end == "both" else set()
    of_slow_link = {"D18"} if condition == "D40" and hit.fixed else set()
    return {condition} | of_loss | of_both_buffers | of_slow_link


# --- Advice ---------------------------------------------------------------------------------------


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
