"""What is read of each stored run and of each case in text: `golden/runs.txt`, under the name of the run.

`PYTHONPATH=. python3 tests/unit/test_selftest_runs_golden.py` writes it anew; read the difference before you commit it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from selftest_runs import PUBLISHED
from test_selftest_printed import CAUSES

from neuca_tools.selftest.readers.documents import read_all

DATA = Path(__file__).parent / "data" / "iperf"
GOLDEN = Path(__file__).parent / "golden" / "runs.txt"
HEADING = "=== "
RUNS = {
    **{file.name: file.read_bytes() for file in sorted(DATA.iterdir())},
    **PUBLISHED,
    **{name: run.encode() for name, (_, run) in CAUSES.items() if isinstance(run, str)},
}


def known(document, *left_out) -> str:
    """The fields that are known: zero is not unknown."""
    texts = []
    for name in (field.name for field in fields(document)):
        value = getattr(document, name)
        is_known = value is not None and value is not False and value != ()
        if name not in left_out and is_known:
            texts.append(f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}")
    return " ".join(texts)


def report(name) -> str:
    lines = []
    for run in read_all(RUNS[name]):
        lines.append(known(run, "flows", "connections"))
        lines += [f"  connection {known(each)}" for each in run.connections]
        for flow in run.flows:
            lines += [f"  {flow.direction}"]
            lines += [f"    {known(each)}" for each in flow.intervals[:3]]
            lines += [f"    {len(flow.intervals)} intervals, sent {known(flow.sent)}"]
            lines += [f"    received {known(flow.received)}"]
    return "\n".join(lines)


def golden() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split(HEADING)[1:]
    return dict(section.rstrip("\n").split("\n", 1) for section in sections)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_read_as_it_always_was(name):
    assert report(name) == golden()[name], "see the docstring of this file"


def test_what_is_read_belongs_to_a_run():
    assert golden().keys() == RUNS.keys()


if __name__ == "__main__":
    text = "\n".join(f"{HEADING}{name}\n{report(name)}\n" for name in RUNS)
    GOLDEN.write_text(text, encoding="utf-8")
