"""A test as an entry of the archive: its result, and what later tests are compared with."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.model.printable import printable_line
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, PhaseResult, phase_results
from neuca_tools.selftest.evidence import Evidence, Host, Phase
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.run import Flow, Run
from neuca_tools.selftest.report.text import name_with_arrow, phase_words

VERSION = 1
# The parts of a finding that an entry has.
FINDING = ("id", "title", "severity", "share", "confidence", "phase", "end")
Entry = Mapping[str, Any]
# The columns of a line of history with their widths.
COLUMNS = {"taken": 21, "peer": 16, "interface": 10, "plan": 9, "verdict": 16}


def entry_of(
    evidence: Evidence, diagnosis: Diagnosis, plan: str, seconds: float, report: Optional[str]
) -> dict[str, object]:
    """A test with a plan of `seconds` for each throughput test; `report` names the kept report.

    The plan's name and its seconds are those in effect. Within a version, keys may be added.
    """
    return {
        "version": VERSION,
        "taken": evidence.taken,
        "boot": evidence.boot,
        "label": evidence.label,
        "peer": evidence.address,
        "interface": tested_interface(evidence),
        "plan": plan,
        "seconds": seconds,
        "verdict": diagnosis.words,
        "exit_code": int(diagnosis.exit_code),
        "expect": diagnosis.expect,
        "phases": encode(diagnosis.phases),
        "findings": [
            {name: getattr(finding, name) for name in FINDING} for finding in diagnosis.findings
        ],
        "report": report,
        "evidence": encode(comparable_evidence(evidence)),
    }


def tested_interface(evidence: Evidence) -> Optional[str]:
    """The device of this host through which the test went."""
    return next(iter(evidence.local.path), evidence.reach.route)


def comparable_evidence(evidence: Evidence) -> Evidence:
    """The part that a comparison needs: without iperf's output, samples, intervals and logs.

    Rates that were derived from those become totals. Phases that other programs disturbed are left
    out: a rate is compared with those of the same load, and that is not known without samples.
    """
    phases = [
        _comparable_phase(phase, result)
        for phase, result in zip(evidence.phases, phase_results(evidence))
        if not look_at_phase(evidence, phase).is_disturbed
    ]
    return replace(
        evidence,
        local=_comparable_host(evidence.local),
        peer=_comparable_host(evidence.peer),
        phases=tuple(phases),
        responsiveness=(),
        loads=(),
        one_way=(),
    )


def _comparable_host(host: Host) -> Host:
    return replace(host, log=(), drift=())


def _comparable_phase(phase: Phase, result: PhaseResult) -> Phase:
    flow = phase.flow or Flow(phase.direction)
    received = replace(flow.received, rate=result.rate)
    run = phase.run or Run("iperf3", protocol=result.protocol)
    run = replace(run, flows=(replace(flow, intervals=(), received=received),))
    target, path, search = phase.target, phase.path, phase.search
    return Phase(phase.name, run, phase.direction, target, path=path, search=search)


def without_evidence(entry: Entry) -> Entry:
    return {name: entry[name] for name in entry if name != "evidence"}


def history_line(entry: Entry) -> str:
    """One entry for people: when, peer, interface, plan, rates, verdict, label."""
    words = [f"{entry.get(name) or '-':<{width}}" for name, width in COLUMNS.items()]
    rest = [_rates_text(entry.get("phases")), _first_finding(entry.get("findings"))]
    if entry.get("label"):
        rest.append(f'"{entry["label"]}"')
    return printable_line(f"{' '.join(words)} {'; '.join(filter(None, rest))}".rstrip())


def _rates_text(phases: object) -> str:
    measured = [phase for phase in _json_objects(phases) if isinstance(phase.get("rate"), float)]
    return ", ".join(map(_rate_text, measured))


def _rate_text(phase: Mapping[str, Any]) -> str:
    name = name_with_arrow(str(phase.get("name")), str(phase.get("direction")))
    known = PhaseResult(name, "", "", phase["rate"], None, None, None)
    return f"{name} {phase_words(known)}"


def _first_finding(findings: object) -> str:
    limits = [finding for finding in _json_objects(findings) if finding.get("severity") != "info"]
    return f"{limits[0].get('id')} {limits[0].get('title')}" if limits else ""


def _json_objects(value: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    return [member for member in value if isinstance(member, dict)]
