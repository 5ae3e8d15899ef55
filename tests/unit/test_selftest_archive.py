"""The archive of all tests: bounded, private, whole after faults, and read by history, compare and later tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from selftest_runs import flow_of, receiver, tcp
from selftest_schema import HISTORY_PATH, validated

from neuca_tools.commands.neuca import main
from neuca_tools.errors import SelftestError
from neuca_tools.selftest import ARCHIVE, ARCHIVE_LOCK
from neuca_tools.selftest.diagnosis.compare import compare
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import Evidence, Host, Link
from neuca_tools.selftest.measure import archive
from neuca_tools.selftest.report.record import (
    entry_of,
    history_line,
    report_json,
)

ROOT = Path(__file__).parents[2]
RUN = tcp(
    flow_of(250e6, rwnd=0.8, snd_wnd=3_144_960, snd_cwnd=4000, unacked=2172, rtt=100_000),
    receiver(recv_q=0, rcvbuf=6_291_456),
    expect=1e9,
    local=Host(name="near", links=(Link("eth1", mtu=9000),), path=("eth1",), log=("noise",)),
)


def a_test(number=0, address="172.16.0.2", boot="one", **more):
    taken = f"2026-11-22T20:{number:02}:00Z"
    return replace(RUN, address=address, taken=taken, boot=boot, **more)


def an_entry(evidence, report=None):
    return entry_of(evidence, diagnose(evidence), "quick", 4.0, report)


@pytest.fixture
def keep(tmp_path):
    """Archives a test, with its report or, as if that could not be written, without."""

    def do(evidence, report=True):
        name = None
        if report:
            name = archive.keep_report(
                tmp_path, evidence, report_json(evidence, diagnose(evidence))
            ).name
        archive.append_entry(tmp_path, an_entry(evidence, name))

    return do


def test_each_test_is_a_line_that_only_root_can_read(tmp_path, keep):
    keep(a_test(1))
    keep(a_test(2, label="second"))
    path = tmp_path / ARCHIVE
    assert path.stat().st_mode & 0o777 == 0o600
    reports = {one.name for one in archive.report_paths(tmp_path)}
    assert {one.name for one in tmp_path.iterdir()} == {ARCHIVE, ARCHIVE_LOCK, *reports}
    first, second = map(json.loads, path.read_text().splitlines())
    assert archive.read_entries(tmp_path) == ([first, second], 0)
    (phase,), (finding, *_) = first.pop("phases"), first.pop("findings")
    assert first == {
        "version": 1,
        "taken": "2026-11-22T20:01:00Z",
        "boot": "one",
        "label": None,
        "peer": "172.16.0.2",
        "interface": "eth1",
        "plan": "quick",
        "seconds": 4.0,
        "verdict": "below threshold",
        "exit_code": 4,
        "expect": 1e9,
        "report": "selftest-20261122T200100Z.json.gz",
    }
    assert (phase["name"], phase["direction"], phase["rate"]) == ("tcp", "forward", 250e6)
    assert (finding["id"], finding["severity"], "text" in finding) == ("D01", "limit", False)


def test_the_last_thousand_tests_are_archived(tmp_path, keep):
    line = '{"version": 1, "taken": "2026-11-22T19:00:00Z", "peer": "%d"}\n'
    lines = "".join(line % number for number in range(archive.MAX_ENTRIES))
    (tmp_path / ARCHIVE).write_text(lines)
    keep(a_test(1))
    found, damaged = archive.read_entries(tmp_path)
    assert (len(found), damaged) == (archive.MAX_ENTRIES, 0)
    assert (found[0]["peer"], found[-1]["peer"]) == ("1", "172.16.0.2")
    assert (tmp_path / ARCHIVE).stat().st_mode & 0o777 == 0o600


def test_the_archive_has_a_largest_size(tmp_path, keep):
    (tmp_path / ARCHIVE).write_text((" " * (archive.MAX_BYTES // 2) + "\n") * 2)
    keep(a_test(1))
    assert (tmp_path / ARCHIVE).stat().st_size <= archive.MAX_BYTES
    found, damaged = archive.read_entries(tmp_path)
    assert (len(found), damaged) == (1, 1)


def test_a_line_that_a_power_cut_left_is_skipped(tmp_path, keep):
    keep(a_test(1))
    with (tmp_path / ARCHIVE).open("a") as stream:
        stream.write('{"version": 1, "taken": "2026-')
    keep(a_test(2))
    found, damaged = archive.read_entries(tmp_path)
    assert ([one["taken"][14:16] for one in found], damaged) == (["01", "02"], 1)


@pytest.mark.parametrize(
    "line", ["[]", "7", '"x"', "{}", '{"version": 2}', "[" * 100_000, "\xff", "\0", "9" * 5000]
)
def test_a_line_that_is_no_entry_is_skipped(tmp_path, line):
    (tmp_path / ARCHIVE).write_text(f"{line}\n", encoding="latin-1")
    assert archive.read_entries(tmp_path) == ([], 1)
    assert archive.reported_tests(tmp_path) == []


ODD = {
    "types": {"taken": 5, "boot": [], "label": {}, "peer": 7, "report": [], "evidence": "x"},
    "a path": {"peer": "172.16.0.2", "report": "../../etc/passwd", "evidence": {"version": 1}},
    "evidence of another version": {"peer": "172.16.0.2", "evidence": {"version": 99}},
    "nothing": {},
    "phases": {"peer": "172.16.0.2", "phases": [7, {"rate": "x"}, {"rate": True}], "findings": 5},
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_entry_harms_nothing(tmp_path, name):
    (tmp_path / ARCHIVE).write_text(json.dumps({"version": 1, **ODD[name]}) + "\n")
    assert archive.earlier_tests(tmp_path, "172.16.0.2") == []
    assert history(tmp_path)[0] == 0
    assert history(tmp_path, "--json")[0] == 0


def test_a_disk_without_room_costs_the_entry_alone(tmp_path, keep):
    """A limit on the size of files ends a write in the middle, as a full disk does."""
    keep(a_test(1))
    before = (tmp_path / ARCHIVE).read_bytes()
    program = (
        "import resource, signal, sys; from pathlib import Path;"
        " from neuca_tools.errors import ApplyError; from neuca_tools.selftest.measure import archive;"
        " signal.signal(signal.SIGXFSZ, signal.SIG_IGN); state = Path(sys.argv[1]);"
        f" resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 100},) * 2)\n"
        "try: archive.append_entry(state, {'version': 1, 'label': 'x' * 1000})\n"
        "except ApplyError as error: print(error.text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=True,
    )
    assert done.stdout == f'write "{tmp_path}/{ARCHIVE}": File too large\n'
    assert (tmp_path / ARCHIVE).read_bytes() == before


def test_tests_that_end_at_once_are_all_archived(tmp_path):
    program = (
        "import sys; from pathlib import Path; from neuca_tools.selftest.measure import archive;"
        " state = Path(sys.argv[1]);"
        " [archive.append_entry(state, {'version': 1, 'n': n}) for n in range(50)]"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(3)
    ]
    assert [child.wait(120) for child in children] == [0, 0, 0]
    found, damaged = archive.read_entries(tmp_path)
    assert (sorted(one["n"] for one in found), damaged) == (
        sorted([*range(50)] * 3),
        0,
    )


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "target").write_text("untouched")
    (tmp_path / ARCHIVE).symlink_to(tmp_path / "target")
    archive.append_entry(tmp_path, {"version": 1})
    assert not (tmp_path / ARCHIVE).is_symlink()
    assert (tmp_path / "target").read_text() == "untouched"


def test_an_archive_that_cannot_be_read_is_not_empty(tmp_path):
    (tmp_path / ARCHIVE).mkdir()
    with pytest.raises(SelftestError) as raised:
        archive.read_entries(tmp_path)
    assert raised.value.text == f'read "{tmp_path}/{ARCHIVE}": Is a directory'
    assert history(tmp_path)[0] == 1


# --- What is compared with it ---------------------------------------------------------------------------------------------


def test_a_test_is_compared_with_those_of_its_peer_whose_report_is_kept(tmp_path, keep):
    for number in range(3):
        keep(a_test(number))
    keep(a_test(3), report=False)
    keep(a_test(4, address="172.16.0.9"))
    archive.report_paths(tmp_path)[0].unlink()
    earlier = archive.earlier_tests(tmp_path, "172.16.0.2")
    assert earlier == [a_test(1), a_test(2)]
    compared = compare(earlier, a_test(5))
    assert ([(one.before, one.count) for one in compared.rates], compared.changes) == (
        [(250e6, 2)],
        (),
    )


def test_the_last_ten_are_compared(tmp_path, keep):
    for number in range(12):
        keep(Evidence(address="172.16.0.2", taken=f"2026-11-22T20:{number:02}:00Z"))
    found = archive.earlier_tests(tmp_path, "172.16.0.2")
    assert [one.taken[14:16] for one in found] == [f"{n:02}" for n in range(2, 12)]


# --- Commands -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def said(capsys):
    return lambda code: (code, *capsys.readouterr())


def configured(state):
    path = state / "config"
    path.write_text(f"[runtime]\nstate-directory = {state}\nrun-directory = {state}\n")
    return ["--config", str(path)]


def history(state, *words):
    return (main(["history", *configured(state), *words], "neuca-selftest"),)


def test_history_lists_the_tests(tmp_path, keep, said):
    keep(a_test(1))
    keep(a_test(2, label="second\x1b[2J"))
    keep(a_test(3, address="fd00::2"))
    found = "  below threshold  tcp 250 Mbit/s; D01 receive window too small"
    lines = [
        f"2026-11-22T20:01:00Z  172.16.0.2       eth1       quick   {found}",
        f'2026-11-22T20:02:00Z  172.16.0.2       eth1       quick   {found}; "second\\x1b[2J"',
        f"2026-11-22T20:03:00Z  fd00::2          eth1       quick   {found}",
    ]
    assert said(history(tmp_path)[0]) == (0, "\n".join(lines) + "\n", "")
    assert said(history(tmp_path, "--last", "1")[0]) == (0, lines[2] + "\n", "")
    assert said(history(tmp_path, "--peer", "172.16.0.2", "--last", "1")[0])[1] == lines[1] + "\n"
    code, out, _ = said(history(tmp_path, "--json", "--peer", "fd00::2")[0])
    (found,) = validated(json.loads(out), HISTORY_PATH)
    assert (code, found["peer"], "evidence" in found) == (0, "fd00::2", False)


def test_history_fits_the_terminal(tmp_path, keep, said, monkeypatch):
    keep(a_test(1, label="a label"))
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = said(history(tmp_path)[0])
    assert max(map(len, out.splitlines())) <= 60
    assert " ".join(out.split()).endswith('D01 receive window too small; "a label"')


def test_history_says_what_it_skips_and_that_there_is_nothing(tmp_path, said):
    assert said(history(tmp_path)[0]) == (
        *(0, ""),
        f'neuca-selftest: no test is archived in "{tmp_path}"\n',
    )
    assert said(history(tmp_path, "--peer", "FD00:0:0::2")[0])[2] == (
        f'neuca-selftest: no test of fd00::2 is archived in "{tmp_path}"\n'
    )
    (tmp_path / ARCHIVE).write_text("{broken\n")
    assert said(history(tmp_path, "--json")[0]) == (
        *(0, "[]\n"),
        "neuca-selftest: 1 line of the archive cannot be read, ignoring\n",
    )


def test_a_line_of_history_for_a_test_without_rates():
    found = an_entry(Evidence(address="172.16.0.2", taken="2026-11-22T20:01:00Z"))
    assert history_line(found) == (
        "2026-11-22T20:01:00Z  172.16.0.2       -          quick     inconclusive"
    )


@pytest.mark.parametrize("value", [[], {}, ["x"], {"a": 1}, 5, True, None])
@pytest.mark.parametrize("name", ["taken", "peer", "verdict", "phases", "findings", "label"])
def test_a_damaged_entry_is_a_line_of_history_too(name, value):
    assert history_line({**an_entry(Evidence(address="172.16.0.2")), name: value})


def test_of_the_tests_of_two_boots_only_the_earlier_ones_are_of_the_previous_boot(tmp_path, keep):
    for number, boot in enumerate(("one", "one", "two")):
        keep(a_test(number, boot=boot))
    table = tmp_path / "rates.csv"
    words = ["compare", *configured(tmp_path), "last-boot", "--csv", str(table)]
    assert main(words, "neuca-selftest") == 0
    names = [line.partition(",")[0] for line in table.read_text().splitlines()[1:]]
    assert list(dict.fromkeys(names)) == ["previous boot (1)", "previous boot (2)", "last test"]


def test_compare_finds_labels_and_boots_in_the_archive(tmp_path, keep, said):
    keep(a_test(1, label="monday"))
    keep(a_test(2, boot="two", label="tuesday"))
    words = ["compare", *configured(tmp_path)]
    assert said(main([*words, "monday", "tuesday"], "neuca-selftest"))[0] == 0
    assert said(main([*words, "last-boot"], "neuca-selftest"))[0] == 0
    code, _, error = said(main([*words, "monday", "wednesday"], "neuca-selftest"))
    assert code == 1
    assert error == (
        'neuca-selftest: read "wednesday": No such file or directory\n'
        "       no kept report that can be read has this label either\n"
    )
    # A damaged report is not there, although `history` has its test.
    archive.report_paths(tmp_path)[0].write_bytes(b"\x1f\x8b")
    code, _, error = said(main([*words, "tuesday", "monday"], "neuca-selftest"))
    assert (code, "no kept report that can be read has this label either\n" in error) == (1, True)
    code, _, error = said(
        main(["compare", *configured(tmp_path), "x" * 300, "monday"], "neuca-selftest")
    )
    assert (code, "File name too long" in error) == (1, True)
