"""What a diagnosis does not say: why a test has no result, or its rate no explanation."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator, Sequence
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import table
from neuca_tools.selftest.conditions.base import Session
from neuca_tools.selftest.conditions.capacity import capacity_of_path
from neuca_tools.selftest.conditions.messages import LOST
from neuca_tools.selftest.conditions.thresholds import (
    BIDIRECTIONAL,
    THROUGHPUT,
    has_passed,
    is_held_below,
)
from neuca_tools.selftest.conditions.udp import share_lost_by_busy_receiver
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence
from neuca_tools.selftest.evidence.look import Look

PREPARATIONS = {"as-planned", "reach"}  # steps that measure nothing
MIN_DURATION = 0.9  # of the duration that was asked for


def _is_measured(evidence: Evidence, looks: Sequence[Look]) -> bool:
    """Whether there is a rate, a step without a rate has a result, or all steps passed."""
    asked = [step for step in evidence.steps if step.text != NOT_ASKED]
    results = {step.name for step in asked if step.verdict in ("pass", "fail")}
    if results - PREPARATIONS or any(look.rate is not None for look in looks):
        return True
    return bool(asked) and all(step.verdict == "pass" for step in asked)


def why_inconclusive(
    evidence: Evidence, looks: Sequence[Look], findings: Sequence[Finding]
) -> Optional[str]:
    """Why the test has no result; None if it has one, or if a finding says why it did not run."""
    if any(finding.id in table.UNFINISHED and finding.title != LOST for finding in findings):
        return None
    cut = next(filter(None, map(_cut_short, looks)), None)
    if cut is not None:
        return cut
    if not findings and not _is_measured(evidence, looks):
        return "nothing was measured"
    stolen = (each.text for each in findings if (each.id, each.severity) == ("D10", "fault"))
    return next(stolen, None)


def _cut_short(look: Look) -> Optional[str]:
    """Why a run did not last as long as it should have; None if it did."""
    run = look.run
    if run.error:
        return f"iperf did not finish: {run.error}"
    if not run.duration:
        return None
    # Of several intervals without totals, a text may leave out the rest.
    only = look.flow.intervals if len(look.flow.intervals) == 1 else ()
    seconds = look.flow.sent.seconds or sum(each.end for each in only) or run.duration
    if seconds >= MIN_DURATION * run.duration:
        return None
    return f"the test ended after {amounts.time(seconds)} of {amounts.time(run.duration)}"


def why_unexplained(session: Session, findings: Sequence[Finding]) -> Optional[str]:
    """Why a rate that was measured has no explanation; None if it has one."""
    if any(look.rate and look.is_unanswered for look in session.looks):
        return "how many datagrams arrived is not known: the receiver's line is missing"
    held = next(filter(is_held_below, session.looks), None)
    if held is not None:
        return (
            f"TCP was limited to {amounts.rate(held.target or 0.0)} (--rate, -b), which cannot "
            "show the rate that is expected"
        )
    if any(finding.severity != "info" for finding in findings):
        return None
    return _without_finding(session)


def _without_finding(session: Session) -> Optional[str]:
    slow = (look for look in session.looks if has_passed(look) is False)
    if any(map(share_lost_by_busy_receiver, slow)):
        return "other programs kept the receiver's CPU busy: test again without that load"
    tcp = next(_below_capacity(session), None)
    if tcp is None:
        return None
    return _faster_direction(session, tcp) + (_figures_missing(tcp) or _without_condition(session))


def _faster_direction(session: Session, tcp: Look) -> str:
    """A clause about the opposite direction, if that was clearly faster by itself; else empty."""
    opposite = (look for look in session.tcp if look.phase.direction != tcp.phase.direction)
    rate = max((look.known_rate for look in opposite), default=0.0)
    if tcp.phase.name == BIDIRECTIONAL or tcp.known_rate >= THROUGHPUT * rate:
        return ""
    return (
        f"the other direction carries {amounts.rate(rate)}, so this one is limited by its sender, "
        "its receiver or the path that way; "
    )


def _without_condition(session: Session) -> str:
    if session.evidence.expect is None:
        return (
            "no condition explains this rate, and no rate is expected (--expect): it may be all "
            "that the path can carry"
        )
    return (
        "the rate is below what is expected, and no condition explains it: the counters of both "
        "hosts would show more"
    )


def _figures_missing(tcp: Look) -> Optional[str]:
    """What of a window, and of how it changed, is not known; None if something is."""
    windows = tcp.windows
    if (windows.rwnd_limited, windows.cwnd, windows.snd_wnd) != (None, None, None):
        return None
    figures = {"window": None, "retransmits": tcp.retransmits, "round trip": tcp.rtt}
    *others, last = [name for name, value in figures.items() if value is None]
    if not others:
        return None
    names = f"neither {', '.join(others)} nor {last} is known"
    return f"{names}: iperf3 -J of a Linux sender reports more"


def _below_capacity(session: Session) -> Iterator[Look]:
    """The tests of streams without a rate, or with less than fills the path or another had."""
    full = [look.known_rate for look in session.tcp if capacity_of_path(look)]
    for look in session.looks:
        if look.protocol == "udp" or (full and look.phase.name == BIDIRECTIONAL):
            continue
        rate = look.known_rate
        if not any(THROUGHPUT <= rate / most <= 1 / THROUGHPUT for most in full):
            yield look
