"""The verdict of a mesh as text, JSON, OpenMetrics and a line for Nagios."""

# SPDX-License-Identifier: MIT

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Optional

from neuca_tools.model import openmetrics, printable
from neuca_tools.model.printable import counted, printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import FAULTY, NAGIOS, WORDS, ExitCode
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.mesh.causes import directed_subject
from neuca_tools.selftest.mesh.model import MeshPlan, Row, plan_identity
from neuca_tools.selftest.mesh.observe import RATE, known_values, nearest_quantile, reference_values
from neuca_tools.selftest.mesh.verdict import MeshFinding, Verdict
from neuca_tools.selftest.report.record import STATES

VERSION = 1
# The most findings that are exported as metrics.
MAX_FINDINGS = 100
# The most hosts that are named in a line.
MAX_NAMES = 20
# The fields of a verdict that are numbers of tests or pairs.
COUNTS = "tested planned pairs good_pairs failed disturbed unexplained".split()
METRICS = {
    "run_info": "The plan of the last mesh, by its seed and what distinguishes it from others.",
    "last_run_timestamp_seconds": "When the last mesh began, in seconds since 1970.",
    "verdict": "The exit code of the mesh: 0 is a pass.",
    "hosts": "The hosts that are good, named in a confirmed finding, or silent.",
    "tests": "The tests that were reported and planned, failed, or ran on busy hosts.",
    "host_rate_ratio": "The median rate of a host's tests, as a share of the reference.",
    "group_rate_ratio": "The same for what crosses the border of a group.",
    "finding_score": "The log-likelihood ratio of a finding.",
}


@dataclass(frozen=True)
class Rates:
    """The median rates of a host or a group as shares of the reference; None if not known."""

    name: str
    group: str
    sent: Optional[float] = None
    received: Optional[float] = None


@dataclass(frozen=True)
class MeshResult:
    """A plan, its rows, what they mean, and when the run began, in seconds since 1970."""

    plan: MeshPlan
    rows: Sequence[Row]
    verdict: Verdict
    began: Optional[float] = None

    @property
    def words(self) -> str:
        """The exit code in words."""
        if self.verdict.exit_code is ExitCode.BELOW:
            return FAULTY
        return WORDS[self.verdict.exit_code]

    @cached_property
    def reference(self) -> Optional[float]:
        """The rate that every path should carry, in bit/s."""
        return reference_values(self.rows, self.plan.expect, self.plan.rate)[RATE]


def rates_of(result: MeshResult, kind: str) -> list[Rates]:
    """The rates of each "host" in the order of the plan, or of each "group" by its name.

    Those of a group are of the tests that cross its border.
    """
    groups = result.plan.group_by_host
    subject_by_host, group_by_subject = {name: name for name in groups}, groups
    if kind == "group":
        subject_by_host = groups
        group_by_subject = {name: name for name in sorted(set(groups.values()) - {""})}
    sent, received = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    for row in result.rows:
        client, server = subject_by_host[row.client], subject_by_host[row.server]
        ways = ((row.rate_out, client, server), (row.rate_back, server, client))
        for rate, sender, receiver in ways:
            if rate is not None and client != server:
                sent[sender].append(rate)
                received[receiver].append(rate)
    return [
        Rates(name, group, _median_share(result, sent[name]), _median_share(result, received[name]))
        for name, group in group_by_subject.items()
    ]


def _median_share(result: MeshResult, rates: Sequence[float]) -> Optional[float]:
    median = nearest_quantile(rates, 0.5)
    return None if median is None or not result.reference else median / result.reference


def verdict_line(result: MeshResult) -> str:
    """The verdict in one line."""
    verdict = result.verdict
    parts = [f"{result.words}: {verdict.tested} of {verdict.planned} tests"]
    if verdict.findings:
        first = verdict.findings[0]
        parts.append(
            f"{first.kind} {directed_subject(first.subject, first.direction)} {first.state}"
        )
    if len(verdict.findings) > 1:
        parts.append(f"{len(verdict.findings) - 1} more")
    if verdict.silent:
        parts.append(f"{counted(len(verdict.silent), 'host')} silent")
    if verdict.untested:
        parts.append(f"{counted(len(verdict.untested), 'pair')} not tested")
    if verdict.is_disturbed:
        parts.append("disturbed by other load")
    return printable_line(f"MESH {', '.join(parts)}")


def report_text(result: MeshResult) -> str:
    """The findings with their evidence, and the verdict as the last line."""
    lines: list[str] = []
    for finding in result.verdict.findings:
        subject = f"{finding.kind} {directed_subject(finding.subject, finding.direction)}"
        lines.append(f"{finding.state.upper():<13}{subject}: {finding.text}")
        lines += [f"             {text}" for text in evidence_lines(finding)]
        lines += [f"             {' > '.join(finding.path)}: {text}" for text in finding.diagnosis]
    lines += [f"{word:<13}{text}" for word, text in verdict_shortcomings(result)]
    if result.reference:
        lines.append(f"{'REFERENCE':<13}{amounts.rate(result.reference)}")
    lines.append(f"{'PAIRS':<13}{pairs_text(result)}")
    return printable.printable_lines([*lines, verdict_line(result)])


def pairs_text(result: MeshResult) -> str:
    """ "6 of 6 pass, at 940 Mbit/s to 942 Mbit/s"."""
    rates = known_values(result.rows, RATE)
    range_of_rates = ""
    if rates:
        range_of_rates = f", at {amounts.rate(min(rates))} to {amounts.rate(max(rates))}"
    return f"{result.verdict.good_pairs} of {result.verdict.pairs} pass{range_of_rates}"


def evidence_lines(finding: MeshFinding) -> Iterator[str]:
    """What the tests of a finding measured, and which they are."""
    if finding.measured:
        yield ", ".join(finding.measured)
    tests = f"{finding.bad} bad, {finding.good} good tests of {finding.symptom}"
    yield f"{tests}, score {finding.score:.1f}"
    if finding.equivalent:
        yield f"or: {', '.join(finding.equivalent)}"
    if finding.tests:
        yield ", ".join(finding.tests[-4:])


def verdict_shortcomings(result: MeshResult) -> Iterator[tuple[str, str]]:
    """Why the verdict does not speak for the whole mesh: a heading and a text for each reason."""
    verdict = result.verdict
    hosts_by_reason = defaultdict[str, list[str]](list)
    for name, reason in verdict.reason_by_silent_host.items():
        hosts_by_reason[reason].append(name)
    for reason, names in hosts_by_reason.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield "SILENT", f"{', '.join(names[:MAX_NAMES])}{more}: {reason}"
    if verdict.untested:
        pairs = verdict.untested
        verb = "has" if len(pairs) == 1 else "have"
        text = f"{counted(len(pairs), 'pair')} {verb} no result: {_hosts_of_pairs(pairs)}"
        yield "NOT TESTED", text + _usual_reason(result.rows, pairs)
    if verdict.is_disturbed:
        text = (
            f"in {verdict.disturbed} of {verdict.tested} tests, other load kept processors of the"
            f" hosts busy; {verdict.unexplained} are bad or failed without another reason"
        )
        yield "DISTURBED", text


def _usual_reason(rows: Iterable[Row], pairs: Iterable[tuple[str, str]]) -> str:
    """What most tests of these pairs say, after a colon; empty if they say nothing."""
    hosts = set(map(frozenset, pairs))
    own = (row for row in rows if {row.client, row.server} in hosts)
    reasons = Counter(f": {row.text}" for row in own if row.text).most_common(1)
    return reasons[0][0] if reasons else ""


def _hosts_of_pairs(pairs: Sequence[tuple[str, str]]) -> str:
    """The hosts of these pairs, those with the most pairs first; each pair counts once."""
    texts: list[str] = []
    while pairs and len(texts) < MAX_NAMES:
        ((name, count),) = Counter(chain(*pairs)).most_common(1)
        texts.append(f"{name} with {counted(count, 'host')}")
        pairs = [pair for pair in pairs if name not in pair]
    return ", ".join([*texts, "…"] if pairs else texts)


def nagios_line(result: MeshResult) -> str:
    """One line with performance data; the exit code is `NAGIOS[verdict.exit_code]`."""
    verdict = result.verdict
    state = STATES[NAGIOS[verdict.exit_code]]
    text = verdict_line(result).replace("|", "/").replace("MESH", f"MESH {state} -", 1)
    return (
        f"{text} | 'tests'={verdict.tested};;;0;{verdict.planned}"
        f" 'confirmed'={len(verdict.confirmed)} 'findings'={len(verdict.findings)}"
        f" 'silent'={len(verdict.silent)}"
    )


def report_data(result: MeshResult) -> dict[str, object]:
    """The JSON of a mesh. Within a version, keys may be added but not removed."""
    verdict = result.verdict
    return {
        "version": VERSION,
        "verdict": result.words,
        "exit_code": int(verdict.exit_code),
        "plan": plan_identity(result.plan),
        "began": result.began,
        "seed": result.plan.seed,
        "rounds": result.plan.rounds,
        "reference": result.reference,
        **{name: getattr(verdict, name) for name in COUNTS},
        "silent": list(verdict.silent),
        "reasons": dict(verdict.reason_by_silent_host),
        "untested": [list(pair) for pair in verdict.untested],
        "findings": encode(verdict.findings),
        "hosts": encode(rates_of(result, "host")),
        "groups": encode(rates_of(result, "group")),
    }


def report_json(result: MeshResult) -> str:
    return printable.json_document(report_data(result))


def report_metrics(result: MeshResult) -> str:
    """OpenMetrics; their number grows with the hosts, not with the pairs."""
    return openmetrics.metrics_text("neuca_mesh_", METRICS, _metric_samples(result), 10)


def _metric_samples(result: MeshResult) -> Iterator[openmetrics.Sample]:
    verdict, plan = result.verdict, result.plan
    yield "run_info", {"plan": plan_identity(plan), "seed": str(plan.seed)}, 1.0
    yield "last_run_timestamp_seconds", {}, result.began
    yield "verdict", {}, float(verdict.exit_code)
    silent = set(verdict.silent)
    named = {name for finding in verdict.confirmed for name in finding.names}
    hosts = {host.name for host in plan.hosts} - silent
    for state, names in (("good", hosts - named), ("named", hosts & named), ("silent", silent)):
        yield "hosts", {"state": state}, float(len(names))
    states = {"done": verdict.tested, "planned": verdict.planned, "failed": verdict.failed}
    for state, count in {**states, "disturbed": verdict.disturbed}.items():
        yield "tests", {"state": state}, float(count)
    for kind in ("host", "group"):
        for shares in rates_of(result, kind):
            yield f"{kind}_rate_ratio", {kind: shares.name, "direction": "out"}, shares.sent
            yield f"{kind}_rate_ratio", {kind: shares.name, "direction": "in"}, shares.received
    for finding in verdict.findings[:MAX_FINDINGS]:
        fields = ("kind", "subject", "direction", "symptom", "state")
        labels = {name: str(getattr(finding, name)) for name in fields}
        yield "finding_score", labels, finding.score
