"""The self-test's runs again, with the oldest iperf3 that is promised and with a newer one than the distribution's."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from iperf3s import SOURCES, built

ROOT = Path(__file__).parents[2]
LIMIT = 3600  # seconds, for what hangs
# What iperf3 itself has a part in: its results, and every way in which it fails.
CHOSEN = (
    "sees_both_ends or one_ends_evidence or every_other_step or ipv6 or rates_are_those or nobody_listens"
    " or somebody_else_is_being_served or dies_in_the_midst or killed_in_the_midst or gets_no_answer or something_else"
    " or hangs"
)


@pytest.mark.long
@pytest.mark.parametrize("version", SOURCES)
def test_lane_of_iperf3(version, record_property, tmp_path):
    program = built(version)
    if program is None:
        pytest.skip(f"no mirror has the source of iperf3 {version}")
    said = subprocess.run(
        [program, "--version"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert said.split()[1] == version
    output = tmp_path / "output"
    with output.open("w") as stream:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "tests/netns/test_netns_selftest.py",
                "-k",
                CHOSEN,
            ],
            cwd=ROOT,
            env={**os.environ, "NEUCA_IPERF3": str(program)},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            timeout=LIMIT,
            check=False,
        )
    if done.returncode:
        pytest.fail(f"iperf3 {version}\n{output.read_text()}", pytrace=False)
    record_property("lane", f"lane of iperf3 {version}: {output.read_text().splitlines()[-1]}")
