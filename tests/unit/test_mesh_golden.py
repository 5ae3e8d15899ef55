"""What a user reads of a mesh with each fault, and what is tested again: `golden/meshes.txt`, under the name of the case.

`PYTHONPATH=. python3 tests/unit/test_mesh_golden.py` writes it anew; read the difference before you commit it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from mesh_simulator import FAULTS, Mesh, mac_of
from test_mesh_localise import failing, mesh_of, rows_of, slow

from neuca_tools.selftest.mesh.localise import find_suspects
from neuca_tools.selftest.mesh.report import MeshResult, nagios_line, report_data, report_text
from neuca_tools.selftest.mesh.retest import with_retests
from neuca_tools.selftest.mesh.verdict import judge_mesh, with_diagnosis_slots

GOLDEN = Path(__file__).parent / "golden" / "meshes.txt"
HEADING = "=== "


def played(mesh):
    """A mesh of the simulator, with its retests."""
    rows = mesh.rows(mesh.plan)
    plan = with_retests(mesh.plan, rows, find_suspects(mesh.plan, rows))
    return plan, rows + mesh.rows(plan, len(mesh.plan.slots)), None


def told(plan, change, rate=lambda *_: 1e9):
    """What `change` makes of the rows of a plan."""
    return plan, [change(row) for row in rows_of(plan, rate)], None


def numbers(**values):
    """A change of the rows: the tests of n5 have these values, the others those of a good path."""
    good = {"loss_out": 0.001, "loss_back": 0.001, "rtt": 0.001, "jitter": 0.002}

    def change(row):
        return replace(row, **{**good, **(values if "n5" in (row.client, row.server) else {})})

    return change


def of_server(name, **values):
    return lambda row: replace(row, **values) if row.server == name else row


def of_small_mtu(row):
    own = {name: 1400 if name == "n6" else 9000 for name in (row.client, row.server)}
    smallest = min(own.values())
    return replace(row, nic_mtu=own[row.client], mtu_out=smallest, mtu_back=smallest)


def of_reserved(row):
    if row.client != "n6":
        return row
    return replace(
        row, rate_out=None, rate_back=None, error="wrong-interface", text="it leaves by eth0"
    )


SMALL, LARGE = mesh_of(10), mesh_of(16, groups=2)
MESHES = {
    "healthy": lambda: told(LARGE, lambda row: row),
    **{kind: lambda kind=kind: played(Mesh(16, 2, 3, (kind,))) for kind in FAULTS},
    "a host is suspected": lambda: (SMALL, rows_of(SMALL, slow("n3")), None),
    "all paths are slow": lambda: told(mesh_of(6, expect=2e9), lambda row: row),
    "loss": lambda: told(LARGE, numbers(loss_out=0.05, loss_back=0.04)),
    "delay": lambda: told(LARGE, numbers(rtt=0.05)),
    "jitter": lambda: told(LARGE, numbers(jitter=0.5)),
    "two MACs": lambda: told(LARGE, of_server("n3", macs=(mac_of("n3"), mac_of("n9")))),
    "one MAC of two hosts": lambda: told(LARGE, of_server("n9", macs=(mac_of("n3"),))),
    "another secret": lambda: told(
        LARGE, of_server("n3", rate_out=None, rate_back=None, error="wrong-peer", text="x")
    ),
    "a link flaps": lambda: told(LARGE, numbers(flaps=2), slow("n5")),
    "a small MTU": lambda: told(LARGE, of_small_mtu),
    "another interface": lambda: told(LARGE, of_reserved),
    "no network": lambda: (
        LARGE,
        failing(LARGE, lambda *names: "n5" in names, error="no-network"),
        None,
    ),
    "no connection": lambda: (SMALL, failing(SMALL, lambda *way: way[1] == "n3"), None),
    "no connection of a pair": lambda: (
        SMALL,
        failing(SMALL, lambda *way: set(way) == {"n0", "n1"}),
        None,
    ),
    "hosts are silent": lambda: (
        SMALL,
        [row for row in rows_of(SMALL) if not {"n1", "n2"} & {row.client, row.server}],
        {"n1": "ssh: no route"},
    ),
    "tests say nothing": lambda: (
        SMALL,
        failing(SMALL, lambda *way: way[0] in ("n4", "n5"), error="late"),
        None,
    ),
    "busy hosts": lambda: told(
        SMALL, lambda row: replace(row, disturbed=True), lambda *way: 5e8 if way < ("n3",) else 1e9
    ),
}


def rounded(value):
    """Three digits: libraries of mathematics differ in the last ones."""
    if isinstance(value, float):
        return float(f"{value:.3g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def report(name) -> str:
    plan, rows, reasons = MESHES[name]()
    result = MeshResult(plan, rows, judge_mesh(plan, rows, reasons), 1.7e9)
    data = rounded(report_data(result))
    listed = ("silent", "untested", "findings", "hosts", "groups")
    lines = [report_text(result), nagios_line(result)]
    lines += [json.dumps(each) for each in data.pop("findings")]
    lines += [json.dumps(each) for each in data.pop("groups")]
    lines.append(
        json.dumps({key: data[key] for key in data.keys() - {*listed, "plan"}}, sort_keys=True)
    )
    retests = with_retests(plan, rows, find_suspects(plan, rows)).slots[len(plan.slots) :]
    lines.append(f"retests: {json.dumps(retests)}")
    diagnoses = with_diagnosis_slots(plan, rows)
    lines.append(f"diagnoses: {json.dumps(diagnoses.slots[len(diagnoses.tests) :])}")
    return "\n".join(lines)


def golden() -> dict[str, str]:
    sections = GOLDEN.read_text(encoding="utf-8").split(HEADING)[1:]
    return dict(section.rstrip("\n").split("\n", 1) for section in sections)


@pytest.mark.parametrize("name", MESHES)
def test_a_mesh_is_reported_as_it_always_was(name):
    assert report(name) == golden()[name], "see the docstring of this file"


def test_each_report_belongs_to_a_mesh():
    assert golden().keys() == MESHES.keys()


if __name__ == "__main__":
    text = "\n".join(f"{HEADING}{name}\n{report(name)}\n" for name in MESHES)
    GOLDEN.write_text(text, encoding="utf-8")
