"""The tables of the HTML report."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from neuca_tools.model.printable import escape_markup as escape
from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.compare import with_keys
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.evidence import Evidence, Latency
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.responsiveness import SOURCE, Responsiveness, known_scores
from neuca_tools.selftest.evidence.route import Hop, Narrowing, OneWay, Route
from neuca_tools.selftest.evidence.run import Flow
from neuca_tools.selftest.report.text import name_with_arrow
from neuca_tools.selftest.report.timeline import WAYS

# The columns; the times of responsiveness are trimmed means.
RESPONSIVENESS = (
    *("load", "responsiveness", "grade", "confidence", "handshake", "answer"),
    *("on a loaded connection", "idle", "increase", "probes", "rate"),
)
PATH = ("hop", "routers", "round trip", "MTU", "")
BEFORE = ("test", "before", "after")
LATENCY = ("path", "median", "99 of 100", "longest")
UDP = ("offered", "lost")
LOSS = ("direction", "lost", "of", "out of order", "sent", "rate")


def report_tables(
    evidence: Evidence, diagnosis: Diagnosis, before: Optional[Diagnosis]
) -> Iterator[str]:
    """HTML; nothing for what was not measured. `before` is an earlier test to compare with."""
    yield from _html_table(
        "Before and after", BEFORE, list(_before_and_after(diagnosis, before)), ""
    )
    measured = {"idle": evidence.idle, "loaded": evidence.loaded}
    rows = [_latency_row(name, times) for name, times in measured.items() if times.p50 is not None]
    yield from _html_table("Latency, idle and under load", LATENCY, rows, "")
    yield from _html_table(
        "UDP: datagrams lost, against the rate offered", UDP, _udp_rows(evidence), ""
    )
    known = known_scores(evidence.responsiveness)
    note = f"Formula and grades: {SOURCE}."
    rows = [list(_score_cells(score)) for score in known]
    yield from _html_table("Responsiveness under load", RESPONSIVENESS, rows, note)
    route = evidence.route
    rows = [list(_hop_cells(route, hop)) for hop in route.hops]
    yield from _html_table("Path", PATH, rows, _route_note(route))
    rows = [list(_loss_cells(way)) for way in evidence.one_way if way.loss is not None]
    yield from _html_table("One-way loss, by sequence numbers of both hosts", LOSS, rows, "")


def _before_and_after(diagnosis: Diagnosis, before: Optional[Diagnosis]) -> Iterator[Sequence[str]]:
    """In the order of BEFORE."""
    earlier = dict(with_keys(before.phases)) if before else {}
    for key, phase in with_keys(diagnosis.phases):
        if key in earlier:
            rates = (earlier[key].rate or 0.0, phase.rate or 0.0)
            yield (name_with_arrow(phase.name, phase.direction), *map(amounts.rate, rates))


def _latency_row(name: str, times: Latency) -> Sequence[str]:
    """In the order of LATENCY."""
    values = (times.p50, times.p99, times.maximum)
    return (name, *("" if value is None else amounts.time(value) for value in values))


def _udp_rows(evidence: Evidence) -> list[Sequence[str]]:
    """In the order of UDP."""
    points = []
    for phase in evidence.phases:
        phase_look, offered = look_at_phase(evidence, phase), (phase.flow or Flow()).sent.rate
        if phase_look.protocol == "udp" and offered is not None and phase_look.loss is not None:
            points.append((offered, phase_look.loss))
    return [(amounts.rate(rate), amounts.percent(loss)) for rate, loss in sorted(points)]


def _html_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str
) -> Iterator[str]:
    if not rows:
        return
    yield f"<section><h2>{escape(title)}</h2><table class=columns><tr>"
    yield from (f"<th scope=col>{escape(column)}</th>" for column in columns)
    yield "</tr>"
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        yield f"<tr>{cells}</tr>"
    yield "</table>"
    if note:
        yield f"<p class=quiet>{escape(note)}</p>"
    yield "</section>"


def _score_cells(score: Responsiveness) -> Iterator[str]:
    """In the order of RESPONSIVENESS."""
    yield WAYS[score.direction][1]
    yield f"{score.rpm:.0f} RPM"
    yield score.grade
    yield score.confidence
    for value in (score.handshake, score.answer, score.own, score.idle, score.increase):
        yield "" if value is None else amounts.time(value)
    yield f"{score.probes}, {score.failed} failed"
    yield "" if score.rate is None else amounts.rate(score.rate)


def _hop_cells(route: Route, hop: Hop) -> Iterator[str]:
    """In the order of PATH."""
    yield str(hop.number)
    yield ", ".join(hop.addresses) or "no response"
    yield "" if hop.rtt is None else amounts.time(hop.rtt)
    yield "" if hop.mtu is None else str(hop.mtu)
    narrowings = [narrowing for narrowing in route.narrowings if narrowing.number == hop.number]
    yield "; ".join(map(_narrowing_text, narrowings))


def _narrowing_text(narrowing: Narrowing) -> str:
    if narrowing.reporter:
        return f"smaller from here on, reported by {narrowing.reporter}"
    lost = f"packets of more than {narrowing.mtu} bytes are lost before it"
    return f"{lost}, and no router reports that"


def _route_note(route: Route) -> str:
    words = f"{route.flows} flows with different ports, all through {route.device}"
    if route.ways > 1:
        words += ": packets take different ways by their ports"
    return f"{words}."


def _loss_cells(way: OneWay) -> Iterator[str]:
    """In the order of LOSS."""
    yield WAYS[way.direction][1]
    yield amounts.percent(way.loss or 0.0)
    for count in (way.seen, way.out_of_order, way.sent):
        yield "" if count is None else str(count)
    yield "" if way.rate is None else amounts.rate(way.rate)
