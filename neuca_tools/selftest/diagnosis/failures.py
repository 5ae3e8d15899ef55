"""What is wrong, whatever causes it: steps that failed, and packets that were lost.

These facts decide the exit code together with the findings, which explain them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import INFO
from neuca_tools.selftest.conditions.datagrams import is_same_way
from neuca_tools.selftest.conditions.udp import is_losing, offered_rate
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.look import Look

# Shares of the packets, bounds of our own. A host that is busy for a moment loses up to LOST; of
# what is sent slowly and evenly, to see each direction by itself, hardly any is lost.
LOST, GENTLY_LOST = 0.02, 0.01
# Of the bytes: what arrives beyond what was sent was duplicated on the path.
DUPLICATED = 0.02
# The findings, by their IDs in `conditions.table`, that say the same as a failed step. Other steps
# are throughput tests, which are judged by their rates.
SAID_BY = {
    "reach": {"D16", "D29", "D30", "D31", "D32", "D33", "D34", "D35", "D43"},
    "as-planned": {"D37", "D38", "D46"},
    "latency": {"D33"},
    "path-mtu": {"D21", "D23"},
    "connections": {"D42"},
    "one-way": set(),
    "rpm": set(),
}
WAYS = {"forward": "to the peer", "reverse": "from the peer"}


def failures(
    evidence: Evidence, looks: Sequence[Look], findings: Sequence[Finding]
) -> tuple[str, ...]:
    """In words, each once."""
    known = {finding.id for finding in findings if finding.severity != INFO}
    steps = (
        f"{step.name}: {step.text}"
        for step in evidence.steps
        if step.verdict == "fail" and step.name in SAID_BY and not SAID_BY[step.name] & known
    )
    return tuple(
        dict.fromkeys([*steps, *_loss_failures(looks, findings), *_lost_one_way(evidence)])
    )


def _loss_failures(looks: Sequence[Look], findings: Sequence[Finding]) -> Iterator[str]:
    """The worst loss of each protocol and direction, and datagrams that arrived twice."""
    worst: dict[tuple[str, str], float] = {}
    for look in looks:
        key = look.protocol, look.phase.direction
        if _is_unexplained(look, findings) and _loses_too_much(look, looks):
            worst[key] = max(worst.get(key, 0.0), look.known_loss)
    for (protocol, direction), loss in worst.items():
        what = "datagrams" if protocol == "udp" else "segments"
        yield f"{amounts.percent(loss)} of the {what} {WAYS[direction]} were lost"
    for look in looks:
        if look.duplicated >= DUPLICATED:
            share, way = amounts.percent(look.duplicated), WAYS[look.phase.direction]
            yield f"{share} of the datagrams {way} arrived twice"


def _is_unexplained(look: Look, findings: Sequence[Finding]) -> bool:
    """Whether a loss is worth a sentence of its own.

    Every search for what the path can carry (`Phase.search`) loses packets in the end, and so does
    TCP on a full path; a finding about this direction says why the path is full.
    """
    if look.phase.search:
        return False
    return look.protocol == "udp" or not _has_finding(findings, look.phase.direction)


def _has_finding(findings: Sequence[Finding], direction: str) -> bool:
    return any(
        finding.severity != INFO and finding.direction in (None, "both", direction)
        for finding in findings
    )


def _loses_too_much(look: Look, looks: Sequence[Look]) -> bool:
    """Whether a test lost as much as LOST, and UDP did so at every higher rate too.

    If a faster test lost nothing, it is not the path: a host was busy for a moment.
    """
    if look.known_loss < LOST or look.protocol == "tcp":
        return look.known_loss >= LOST
    faster = (
        other
        for other in looks
        if is_same_way(other, look) and offered_rate(other) > offered_rate(look)
    )
    return is_losing(look) and all(map(is_losing, faster))


def _lost_one_way(evidence: Evidence) -> Iterator[str]:
    """By the sequence numbers of both hosts, of what was sent slowly."""
    for test in evidence.one_way:
        if (test.loss or 0.0) >= GENTLY_LOST:
            share, way = amounts.percent(test.loss or 0.0), WAYS[test.direction]
            yield f"{share} of slowly sent datagrams {way} were lost"
