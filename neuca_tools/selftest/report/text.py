"""The report as text: a line for each phase, then LIMIT, FIX, the evidence and the verdict."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from textwrap import shorten, wrap
from typing import Optional

from neuca_tools.model import printable
from neuca_tools.model.printable import counted
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import WORDS, ExitCode
from neuca_tools.selftest.conditions.table import ALONE
from neuca_tools.selftest.diagnosis.compare import Comparison, RateChange
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, PhaseResult
from neuca_tools.selftest.diagnosis.findings import Finding
from neuca_tools.selftest.evidence import Step
from neuca_tools.selftest.evidence.look import Fact
from neuca_tools.selftest.evidence.route import OneWay, Route

LABEL_WIDTH = 12  # columns, of the name of a phase and of a label
# Characters after the label: what is longer is shortened, unless the report is verbose.
SHORTENED_LENGTH = 80 - LABEL_WIDTH
# The rate after slow start is shown as well if it differs by more than this share.
SHOWN_DIFFERENCE = 0.05
ALL = 0.995  # share that is shown as 100%
MAX_PHASES = 4  # lines for phases, unless the report is verbose
# Added to a finding if only one direction is limited.
DIRECTION_WORDS = {"forward": ", to the peer", "reverse": ", from the peer"}
# Put before the advice of a finding, by the end that it is for.
HOST_WORDS = {
    "sender": "on the sender: ",
    "receiver": "on the receiver: ",
    "both": "on both hosts: ",
    "local": "on this host: ",
    "peer": "on the peer: ",
}


def report_text(diagnosis: Diagnosis, verbose: bool = False) -> str:
    """The whole report, without a newline at its end; it fits one screen unless it is `verbose`."""
    phases = diagnosis.phases
    lines = [_phase_line(phase) for phase in phases]
    if not verbose and len(lines) > MAX_PHASES:
        # Those that failed first: the verdict is about them.
        ranks = sorted(range(len(lines)), key=lambda at: phases[at].passed is not False)
        others = f"{len(lines) - MAX_PHASES + 1} more tests (--verbose)"
        lines = [lines[at] for at in sorted(ranks[: MAX_PHASES - 1])]
        lines.append(_labelled_line("", others))
    return printable.printable_lines([*lines, *_conclusion_lines(diagnosis, verbose)])


def conclusion_text(diagnosis: Diagnosis, verbose: bool) -> str:
    """The report without the phases, each of which was printed when it ended."""
    return printable.printable_lines(_conclusion_lines(diagnosis, verbose))


def styled_report(report: str, code: ExitCode, width: int, color: bool) -> str:
    """The report as it is printed: wrapped to `width` characters, and with `color` in colors.

    A `width` of 0 means no limit; a word that is longer than a line stays whole. The verdict, whose
    exit code is `code`, and each FAIL are colored.
    """
    if width > 0:
        report = "\n".join(_wrapped_line(line, width) for line in report.split("\n"))
    if not color:
        return report
    verdict_color = printable.GREEN if code is ExitCode.PASS else printable.RED
    for pattern, ink in (("FAIL", printable.RED), ("VERDICT|^MESH", verdict_color)):
        report = re.sub(rf"(?m)\b({pattern})\b", printable.painted_text(r"\1", ink, color), report)
    return report


def name_with_arrow(name: str, direction: str) -> str:
    """The name of a phase, with an arrow if the peer sends."""
    return f"{name} ←" if direction == "reverse" else name


def step_line(step: Step) -> str:
    word = "FAIL" if step.verdict == "fail" else step.verdict
    return printable.printable_line(f"{step.name:<{LABEL_WIDTH + 1}}{word:<8} {step.text}")


def _conclusion_lines(diagnosis: Diagnosis, verbose: bool) -> Iterator[str]:
    """The limits, what is unknown, the verdict, and causes that are only possible."""
    yield from _limit_lines(diagnosis, verbose)
    if diagnosis.unknown:
        yield _labelled_line("UNKNOWN", diagnosis.unknown)
    yield _labelled_line("VERDICT", verdict_text(diagnosis))
    for finding in diagnosis.possible:
        words = f"{finding.title} ({finding.id}): {finding.text}"
        yield _labelled_line("possible:", words if verbose else _shortened(words))


def _limit_lines(diagnosis: Diagnosis, verbose: bool) -> Iterator[str]:
    """The first limit; if the report is `verbose`, the others too; and the information."""
    limits = [finding for finding in diagnosis.findings if finding.severity != "info"]
    notes = [finding for finding in diagnosis.findings if finding.severity == "info"]
    if not verbose:
        limits = limits[:1]
        # One, if nothing else says why a rate that nobody expected is what it is.
        notes = [] if diagnosis.limit or diagnosis.expect else notes[:1]
    for finding, label in zip(limits, chain(["LIMIT"], repeat("also"))):
        yield from _finding_lines(finding, label, verbose)
    for finding in notes:
        yield _labelled_line("info", f"{finding.text} ({finding.id})")


def phase_words(phase: PhaseResult) -> str:
    """What a phase reached, in words; "not known" if nothing was measured."""
    parts = []
    if phase.rate is not None:
        parts.append(amounts.rate(phase.rate) + _steady_rate_words(phase.rate, phase.steady))
    if phase.protocol == "udp" and phase.loss is not None:
        parts.append(f"{amounts.percent(phase.loss)} lost")
    if phase.protocol == "tcp" and phase.retransmits is not None:
        parts.append(counted(phase.retransmits, "retransmit"))
    if phase.error:
        parts.append(phase.error)
    return ", ".join(parts) or "not known"


def _steady_rate_words(rate: float, steady: Optional[float]) -> str:
    """The rate after slow start (bit/s), in brackets; empty if it differs little from `rate`."""
    if steady is None or abs(steady - rate) <= SHOWN_DIFFERENCE * rate:
        return ""
    return f" ({amounts.rate(steady)} once under way)"


def one_way_words(way: OneWay) -> str:
    """ "0.10% of 10000 lost (by sequence number), 3 out of order, 10001 sent, at 1 Mbit/s"."""
    words = f"{amounts.percent(way.loss or 0.0)} of {way.seen} lost (by sequence number)"
    if way.out_of_order:
        words += f", {way.out_of_order} out of order"
    if way.sent is not None and way.sent != way.seen:
        words += f", {way.sent} sent"
    if way.rate:
        words += f", at {amounts.rate(way.rate)}"
    return words


def route_words(route: Route) -> str:
    """ "3 hops, 1 of them silent, MTU 1400 from hop 3 on, peer reached"."""
    words = [counted(len(route.hops), "hop")]
    silent = sum(not hop.addresses for hop in route.hops)
    if silent:
        words.append(f"{silent} of them silent")
    known = [hop for hop in route.hops if hop.mtu]
    for before, hop in zip(known, known[1:]):
        if hop.mtu != before.mtu:
            words.append(f"MTU {hop.mtu} from hop {hop.number} on")
    words.append("peer reached" if route.reached else "the peer does not respond")
    return ", ".join(words)


def _phase_line(phase: PhaseResult) -> str:
    verdict = {True: "  pass", False: "  FAIL", None: ""}[phase.passed]
    label = f"{name_with_arrow(phase.name, phase.direction)} "
    return f"{label:<{LABEL_WIDTH}}{phase_words(phase)}{verdict}"


def share_words(finding: Finding) -> str:
    """How much a finding explains, and with what confidence if that is not high.

    It is an estimate: almost all of it is all.
    """
    explains = amounts.percent(1 if finding.share >= ALL else finding.share)
    if finding.confidence == "high":
        return explains
    return f"{explains}, {finding.confidence} confidence"


def way_words(finding: Finding) -> str:
    """The direction that a finding limits, if each direction was measured by itself."""
    return DIRECTION_WORDS.get(finding.direction or "", "") if finding.phase == ALONE else ""


def _finding_lines(finding: Finding, label: str, verbose: bool) -> Iterator[str]:
    explains = f"{finding.id}, explains {share_words(finding)}{way_words(finding)}"
    yield _labelled_line(label, f"{finding.title}: {finding.text} ({explains})")
    if verbose:
        for fact in finding.evidence:
            yield _labelled_line("", fact_line(fact))
    if finding.advice:
        yield _labelled_line("FIX", f"{HOST_WORDS.get(finding.end, '')}{finding.advice}")
    if finding.tell and verbose:
        yield _labelled_line("TELL APART", finding.tell)


def verdict_text(diagnosis: Diagnosis) -> str:
    """The verdict in words, with the condition that decided it, or that limits."""
    cause = diagnosis.cause
    condition = f"{cause.id}, {cause.title}" if cause else ""
    if diagnosis.exit_code is ExitCode.PASS and cause is not None:
        return f"limited by {condition}; no rate is expected (--expect)"
    words = diagnosis.words
    if diagnosis.expect:
        words += f", expected {amounts.rate(diagnosis.expect)}"
    causes = "; ".join(filter(None, (*diagnosis.failures, condition)))
    return f"{words}: {causes}" if causes else words


def _labelled_line(label: str, words: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{words}"


def _shortened(words: str) -> str:
    return shorten(words, SHORTENED_LENGTH, placeholder=" …")


def _wrapped_line(line: str, width: int) -> str:
    """The line, wrapped; the lines that continue it are indented past the labels."""
    if len(line) <= width:
        return line
    indent = " " * LABEL_WIDTH
    lines = wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)


def comparison_text(comparison: Comparison) -> str:
    """The differences between two tests (`differences_text`), and the verdict."""
    verdict_line = _labelled_line("VERDICT", WORDS[comparison.exit_code])
    return "\n".join(filter(None, (differences_text(comparison), verdict_line)))


def differences_text(comparison: Comparison) -> str:
    """A line for each rate and for each value that changed."""
    rows = [_rate_line(change) for change in comparison.rates]
    for change in comparison.changes:
        label = "CHANGED" if change.identity else "changed"
        # A NIC may have a thousand addresses.
        before, after = _shortened(change.before or "absent"), _shortened(change.after or "absent")
        rows.append(_labelled_line(label, f"{change.where} {change.field}: {before} → {after}"))
    return printable.printable_lines(rows)


def _usual_rate(change: RateChange) -> str:
    """The median rate of earlier tests and its deviation, or that there is none."""
    if change.before is None:
        return "no earlier test has the same --rate, duration, streams, helper and load"
    usual = f"before {amounts.rate(change.before)}"
    if change.count == 1:
        return f"{usual} (once: its usual variation is not known)"
    return f"{usual} ± {amounts.rate(change.deviation)} of {change.count}"


def _rate_line(change: RateChange) -> str:
    now = "not known" if change.after is None else amounts.rate(change.after)
    name = name_with_arrow(change.name, change.direction) + " "
    words = f"{name:<{LABEL_WIDTH}}{now}, {_usual_rate(change)}"
    if change.loss is not None and change.loss_before is not None:
        words += f", {amounts.percent(change.loss)} lost"
        words += f", before {amounts.percent(change.loss_before)}"
    if change.worse:
        words += "  WORSE"
    return words


Form = Callable[[float], str]  # writes a value with its unit


def _number_text(value: float) -> str:
    if value.is_integer() or value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


# What a field of the evidence is called, and how its value is written. The fields have the short
# names of the kernel (struct tcp_info), of iperf and of our own.
NAME_AND_FORM_BY_FIELD: Mapping[str, tuple[str, Form]] = {
    "rtt": ("round trip", amounts.time),
    "rtt when packets were lost": ("round trip when packets were lost", amounts.time),
    "rtt / min_rtt": ("round trip under load, times the shortest one", _number_text),
    "cwnd": ("congestion window", amounts.size),
    "snd_cwnd": ("congestion window", amounts.size),
    "cwnd at the end": ("congestion window at the end", amounts.size),
    "cwnd / rate, seconds": ("round trip that the congestion window implies", amounts.time),
    "snd_wnd": ("window that the receiver advertises", amounts.size),
    "unacked × mss": ("in flight", amounts.size),
    "tb": ("send buffer", amounts.size),
    "tb full / time": ("time with a full send buffer", amounts.percent),
    "net.ipv4.tcp_wmem maximum": ("net.ipv4.tcp_wmem maximum", amounts.size),
    "Recv-Q / rb": ("of the receive buffer, waiting to be read", amounts.percent),
    "rwnd_limited / busy_time": ("time limited by the receive window", amounts.percent),
    "sndbuf_limited / busy_time": ("time limited by the send buffer", amounts.percent),
    "1 - busy_time / time": ("time with nothing in flight", amounts.percent),
    "bytes_retrans / bytes_sent": ("sent again", amounts.percent),
    "bytes_retrans / bytes_sent, at first": ("sent again at first", amounts.percent),
    "variation": ("variation of the rate", amounts.percent),
    "steal": ("CPU time that the hypervisor took", amounts.percent),
    "-b": ("requested (-b)", amounts.rate),
    "-w": ("requested (-w)", amounts.size),
    "bytes": ("delivered", amounts.size),
    "sent bit/s": ("sent", amounts.rate),
}
# For the other fields: by the end of the name, which is left out of the text.
FORM_BY_SUFFIX: Mapping[str, Form] = {
    ", bit/s": amounts.rate,
    ", bytes": amounts.size,
    ", seconds": amounts.time,
    " / datagrams": amounts.percent,
}
CPU_SHARE_PREFIX = "CPU "  # fields with a share of the CPU time


def fact_line(fact: Fact) -> str:
    """For example "round trip: 40.0 ms" or "eth1 mtu: 9000 bytes → 1500 bytes"."""
    name, form = _name_and_form(fact.field)
    before = "" if fact.before is None else f"{_value_text(fact.before, form)} → "
    return f"{name}: {before}{_value_text(fact.after, form)}"


def _name_and_form(field: str) -> tuple[str, Form]:
    if field in NAME_AND_FORM_BY_FIELD:
        return NAME_AND_FORM_BY_FIELD[field]
    for end, form in FORM_BY_SUFFIX.items():
        if field.endswith(end):
            return field[: -len(end)], form
    # Not "MTU" anywhere: counters have the name of a device, or of the kernel, as TCPMTUPFail.
    if field.startswith(("path MTU", "MTU of")) or field.endswith(" mtu"):
        return field, "{:.0f} bytes".format
    return field, amounts.percent if field.startswith(CPU_SHARE_PREFIX) else _number_text


def _value_text(value: object, form: Form) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return form(float(value))
    return "" if value is None else str(value)
