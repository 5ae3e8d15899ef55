"""The page of a report, its series and metrics as they always were: `golden/reports.txt`, under the name of the form.

`PYTHONPATH=. python3 tests/unit/test_selftest_page_golden.py` writes it anew; look at the pages before you commit it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from selftest_pages import large
from selftest_runs import PUBLISHED
from test_mesh_localise import mesh_of, rows_of, slow

from neuca_tools import __version__
from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.mesh.page import mesh_page
from neuca_tools.selftest.mesh.report import MeshResult, report_metrics
from neuca_tools.selftest.mesh.verdict import judge_mesh
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import (
    OWN_STYLE,
    STYLE,
    comparison_page,
    csv_of,
    overlay_figure,
    report_page,
)
from neuca_tools.selftest.report.record import entry_of, history_line, prometheus_text
from neuca_tools.selftest.report.text import comparison_text, conclusion_text, report_text

GOLDEN = Path(__file__).parent / "golden" / "reports.txt"
HEADING = "=== "


def thin(evidence, *places):
    """With a few phases, and a few of their samples."""
    kept = (evidence.phases[place] for place in places)
    return replace(
        evidence,
        phases=tuple(
            replace(
                phase,
                sender=phase.sender[::3],
                receiver=phase.receiver[::3],
            )
            for phase in kept
        ),
    )


WHOLE = thin(large(), 0, 1, 3, 4)
PRINTED = evidence_of(PUBLISHED["vm-tuned-tcp"])
LOST = evidence_of(PUBLISHED["vm-untuned-udp-4000M"])


def mesh():
    plan = mesh_of(6, groups=2)
    rows = rows_of(plan, slow("n3"))
    return MeshResult(plan, rows, judge_mesh(plan, rows, {"n9": "no route"}), 1.7e9)


def entry():
    entry = entry_of(WHOLE, diagnose(WHOLE), "standard", 10.0, "report.json")
    return json.dumps({key: entry[key] for key in sorted(entry) if key != "evidence"}, indent=1)


REPORTS = {
    "page": lambda: report_page(WHOLE, diagnose(WHOLE)),
    "page of a text": lambda: report_page(PRINTED, diagnose(PRINTED)),
    "page of datagrams": lambda: report_page(LOST, diagnose(LOST)),
    "page of a mesh": lambda: mesh_page(mesh()),
    "page of two runs": lambda: comparison_page(
        [("a", PRINTED), ("=b", LOST)], comparison_text(compare([PRINTED], LOST)), "bad"
    ),
    "plot of two runs": lambda: overlay_figure([("a", PRINTED), ("b", PRINTED)]),
    "series": lambda: csv_of([("a", PRINTED), ("=b", thin(large(), 0))]),
    "metrics": lambda: prometheus_text([(WHOLE, diagnose(WHOLE)), (PRINTED, diagnose(PRINTED))]),
    "metrics of a mesh": lambda: report_metrics(mesh()),
    "text": lambda: report_text(diagnose(large())),
    "text after the steps": lambda: conclusion_text(diagnose(large()), verbose=False),
    "entry of the archive": entry,
    "line of the history": lambda: history_line(
        entry_of(WHOLE, diagnose(WHOLE), "standard", 10.0, "report.json")
    ),
}


def report(name) -> str:
    text = REPORTS[name]().replace(STYLE, "").replace(OWN_STYLE, "")
    text = text.replace(__version__, "VERSION").replace("><", ">\n<")
    return text.rstrip("\n")


def golden() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split(HEADING)[1:]
    return dict(section.rstrip("\n").split("\n", 1) for section in sections)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_as_it_always_was(name):
    assert report(name) == golden()[name], "see the docstring of this file"


if __name__ == "__main__":
    text = "\n".join(f"{HEADING}{name}\n{report(name)}\n" for name in REPORTS)
    GOLDEN.write_text(text, encoding="utf-8")
