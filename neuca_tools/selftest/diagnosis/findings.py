"""What is reported: causes before symptoms, in the order of weight, and what has failed."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.capacity import path_capacity
from neuca_tools.selftest.conditions.datagrams import is_same_way
from neuca_tools.selftest.conditions.figures import buffered_bytes
from neuca_tools.selftest.conditions.overflow import overflows
from neuca_tools.selftest.conditions.table import ALONE, BOTH_WAYS, CAUSES, is_explained, tell_apart
from neuca_tools.selftest.conditions.thresholds import PARALLEL, has_passed, is_crowded
from neuca_tools.selftest.conditions.udp import is_losing, offered_rate, share_lost_by_busy_receiver
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.codec import INTERNAL
from neuca_tools.selftest.evidence.look import Fact, Look
from neuca_tools.selftest.evidence.run import Interval, known_rates, known_windows

FAULT_FIRST = 0.15  # how much more a fault weighs than a limit that explains the same share
TRIFLING_SHARE = 0.1  # of the lost time, or of the lost packets: less is no cause of anything else
BOTH = "both"
LIMITS = frozenset(cause.id for cause in CAUSES if cause.severity == "limit")


@dataclass(frozen=True)
class Finding:
    """One condition that applies.

    See `Hit` for `share`, `end` and `confidence`. `severity` is "fault", "limit" or "info".
    `advice` starts with the command that sets `sysctls`, if there are any. `direction` is
    "forward", "reverse" or "both"; None if only one was measured, or if the finding is about the
    hosts or the path as a whole. `tell` says how to tell it from another that the same evidence
    allows.
    """

    id: str
    title: str
    severity: str
    share: float
    confidence: str
    phase: Optional[str]
    end: str
    text: str
    evidence: tuple[Fact, ...]
    advice: str
    sysctls: Mapping[str, str] = field(default_factory=dict, metadata=INTERNAL)
    direction: Optional[str] = None
    tell: Optional[str] = None

    @property
    def is_possible(self) -> bool:
        """Whether it is a guess: it explains nothing, and decides nothing."""
        return self.severity != "info" and self.confidence == "low"


def of_each_direction(findings: Sequence[Finding], worse: Optional[str]) -> Iterator[Finding]:
    """Each condition once, of the phase in which it explains most.

    Where one direction is `worse`, the findings of each direction are kept.
    """
    best: dict[tuple[str, str, Optional[str]], Finding] = {}
    for finding in findings:
        is_kept = worse and finding.phase == ALONE and finding.severity != "info"
        key = (finding.id, finding.title, finding.direction if is_kept else None)
        best[key] = max(best.get(key, finding), finding, key=_weight_in_phase)
    kept = {key[:2] for key in best if key[2] is not None}
    for (name, title, way), finding in best.items():
        if way is not None:
            yield finding
        elif (name, title) not in kept:  # of several streams: each direction alone has it
            yield _in_both(finding, findings)


def _in_both(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """The finding of both directions if each of them alone has it."""
    alike = (
        other
        for other in findings
        if (other.id, other.title) == (finding.id, finding.title) and other.severity != "info"
    )
    is_in_both = finding.phase == ALONE and len({other.direction for other in alike}) > 1
    return replace(finding, direction=BOTH) if is_in_both else finding


def _weight_in_phase(finding: Finding) -> tuple[bool, bool, float]:
    return finding.severity != "info", not finding.is_possible, finding.share


def rank_findings(findings: Sequence[Finding], worse: Optional[str]) -> tuple[Finding, ...]:
    """The most important first; what another one explains (EXPLANATIONS) is information.

    Each direction is judged by itself, and what is left of a condition is then put together.
    """
    certain = list(filter(_is_certain, findings))
    judged = of_each_direction([_unless_explained(finding, certain) for finding in findings], worse)
    ordered = sorted(judged, key=lambda finding: _sort_key(finding, worse))
    return tuple(_with_alternative(finding, ordered) for finding in ordered)


def _is_certain(finding: Finding) -> bool:
    """Whether a finding is certain and large enough to be the cause of another."""
    return (
        finding.severity != "info" and not finding.is_possible and finding.share >= TRIFLING_SHARE
    )


def _unless_explained(finding: Finding, certain: Sequence[Finding]) -> Finding:
    there = [other for other in certain if other.id in BOTH_WAYS or _is_same_way(finding, other)]
    names = {other.id for other in there} | {other.title for other in there}
    if not is_explained((finding.id, finding.title), finding.phase, names):
        return finding
    return replace(finding, severity="info")


def _is_same_way(finding: Finding, other: Finding) -> bool:
    """Whether one can be the cause of the other: what limits one direction leaves the other."""
    known = {finding.direction, other.direction} - {None, BOTH}
    return len(known) < 2


def _sort_key(finding: Finding, worse: Optional[str]) -> tuple[bool, bool, bool, float, str]:
    """By weight, what limits the worse direction first.

    Information comes last, and limits last of it, because every path has one.
    """
    is_information = finding.severity == "info"
    weight = finding.share + (FAULT_FIRST if finding.severity == "fault" else 0.0)
    is_of_one = worse is not None and finding.phase in (ALONE, PARALLEL)
    is_of_better = is_of_one and finding.direction not in (worse, BOTH)
    is_limit = is_information and finding.id in LIMITS
    return is_information, is_limit, is_of_better, -weight, finding.id


def _with_alternative(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """With the test that tells this finding from those that may be meant instead."""
    if finding.severity == "info" or finding.is_possible:
        return finding
    tests = (
        tell_apart(finding.id, other.id)
        for other in findings
        if other.severity != "info" and _is_same_way(finding, other)
    )
    return replace(finding, tell=next(filter(None, tests), None))


# --- What is wrong, whatever causes it ------------------------------------------------------------


# Shares of the packets, bounds of our own. A host that is busy for a moment loses up to LOST; of
# what is sent slowly and evenly, to see each direction by itself, hardly any is lost.
LOST_SHARE, GENTLY_LOST_SHARE = 0.02, 0.01
# Seconds without any data: two intervals of iperf, because a slow one may carry no whole block.
PAUSE_SECONDS = 2.0
# Of the bytes: what arrives beyond what was sent was duplicated on the path.
DUPLICATED_SHARE = 0.02
# The findings, by their IDs in `conditions.table`, that say the same as a failed step. Other steps
# are throughput tests, which are judged by their rates.
SAID_BY = {
    "reach": {"D16", "D29", "D30", "D31", "D32", "D33", "D34", "D35", "D43"},
    "as-planned": {"D37", "D38", "D46"},
    "latency": {"D33"},
    "path-mtu": {"D21", "D23"},
    "connections": {"D42"},
    "one-way": {"one-way"},  # its losses, of which there is a sentence
    "path": set(),
}
WAYS = {"forward": "to the peer", "reverse": "from the peer"}


def failures(
    evidence: Evidence, looks: Sequence[Look], findings: Sequence[Finding]
) -> tuple[str, ...]:
    """In words, each once."""
    known = {finding.id for finding in findings if finding.severity != "info"}
    lost_one_way = tuple(_lost_one_way(evidence))
    known |= {"one-way"} if lost_one_way else set()
    steps = (
        f"{step.name}: {step.text}"
        for step in evidence.steps
        if step.verdict == "fail" and step.name in SAID_BY and not SAID_BY[step.name] & known
    )
    losses, pauses = _loss_failures(looks, findings), _pauses(looks, findings)
    return tuple(dict.fromkeys([*steps, *losses, *pauses, *lost_one_way]))


def _loss_failures(looks: Sequence[Look], findings: Sequence[Finding]) -> Iterator[str]:
    """The worst loss of each protocol and direction, and the most that arrived twice in each."""
    worst: dict[str, float] = {}
    for look in looks:
        way = WAYS[look.phase.direction]
        lost = f"datagrams {way} were lost"
        if look.protocol == "tcp":  # what was sent again may have arrived late, or twice
            lost = f"segments {way} were retransmitted"
        twice = f"datagrams {way} arrived twice"
        if _is_unexplained(look, findings) and _loses_too_much(look, looks):
            worst[lost] = max(worst.get(lost, 0.0), look.known_loss)
        if look.duplicated >= DUPLICATED_SHARE:
            worst[twice] = max(worst.get(twice, 0.0), look.duplicated)
    for what, share in worst.items():
        yield f"{amounts.percent(share)} of the {what}"


def _is_unexplained(look: Look, findings: Sequence[Finding]) -> bool:
    """Whether a loss is worth a sentence of its own.

    Every search for what the path can carry (`Phase.search`) loses packets in the end, and so does
    TCP on a full path; a finding about this direction says why the path is full. Several streams of
    BBR lose much in a queue of a round trip, or where the path has no room for all of them, and
    fill it all the same.
    """
    if look.phase.search:
        return False
    if look.protocol == "udp":
        return True
    if has_passed(look) and (overflows(look) or path_capacity(look) or is_crowded(look)):
        return False
    return not _has_finding(findings, look.phase.direction)


def _has_finding(findings: Sequence[Finding], direction: str) -> bool:
    return any(
        finding.severity != "info" and finding.direction in (None, BOTH, direction)
        for finding in findings
    )


def _loses_too_much(look: Look, looks: Sequence[Look]) -> bool:
    """Whether a test lost as much as LOST, and UDP did so at every higher rate too.

    If a faster test lost nothing, it is not the path: a host was busy for a moment.
    """
    loss = look.known_loss * (1 - share_lost_by_busy_receiver(look))
    if loss < LOST_SHARE or look.protocol == "tcp":
        return loss >= LOST_SHARE
    faster = (
        other
        for other in looks
        if is_same_way(other, look) and offered_rate(other) > offered_rate(look)
    )
    return is_losing(look) and all(map(is_losing, faster))


def _pauses(looks: Sequence[Look], findings: Sequence[Finding]) -> Iterator[str]:
    """How long nothing was transferred."""
    for look in looks:
        groups = groupby(look.all_intervals, key=lambda interval: interval.rate == 0)
        pauses = (list(group) for is_idle, group in groups if is_idle)
        pause = max(pauses, key=_seconds_of, default=[])
        if _seconds_of(pause) >= PAUSE_SECONDS and _is_unexplained_pause(look, pause, findings):
            yield f"for {amounts.time(_seconds_of(pause))} nothing was transferred"


def _is_unexplained_pause(
    look: Look, pause: Sequence[Interval], findings: Sequence[Finding]
) -> bool:
    """Whether no finding explains the pause; only a fault explains a timeout of TCP."""
    if _is_timed_out(look, pause):
        findings = [finding for finding in findings if finding.severity == "fault"]
    elif _may_be_buffered(look, pause):
        return False
    return not _has_finding(findings, look.phase.direction)


def _seconds_of(intervals: Sequence[Interval]) -> float:
    return sum(each.seconds for each in intervals)


def _is_timed_out(look: Look, pause: Sequence[Interval]) -> bool:
    """Whether TCP had a timeout, after which its window is one segment (RFC 5681, section 3.1)."""
    windows = known_windows(pause)
    return bool(windows) and max(windows) < 2 * look.mss * look.streams


def _may_be_buffered(look: Look, pause: Sequence[Interval]) -> bool:
    """Whether data may have moved in a pause: what a buffer holds is counted in bursts."""
    rates = list(filter(None, known_rates(look.all_intervals)))
    return bool(rates) and _seconds_of(pause) * median(rates) / 8 <= buffered_bytes(look)


def _lost_one_way(evidence: Evidence) -> Iterator[str]:
    """By the sequence numbers of both hosts, of what was sent slowly."""
    for test in evidence.one_way:
        if (test.loss or 0.0) >= GENTLY_LOST_SHARE:
            share, way = amounts.percent(test.loss or 0.0), WAYS[test.direction]
            yield f"{share} of slowly sent datagrams {way} were lost"
