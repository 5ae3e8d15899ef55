"""The commands of the self-test that measure or serve: whom they take, what they print, and how they end."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import errno
import json
from ipaddress import ip_address, ip_interface
from types import SimpleNamespace

import pytest
from selftest_runs import flow_of, tcp

from neuca_tools.backends.hostid import boot_id
from neuca_tools.commands import (
    selftest,
    selftest_mesh,
    selftest_options,
    selftest_paths,
    selftest_run,
    selftest_serve,
)
from neuca_tools.config import Config
from neuca_tools.errors import ArgumentsError, SelftestError, UsageError
from neuca_tools.model import Device
from neuca_tools.selftest import ARCHIVE
from neuca_tools.selftest.codes import NAGIOS, WORDS, ExitCode
from neuca_tools.selftest.diagnosis.compare import Comparison, RateChange
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.diagnosis.paths import Tests as Rounds
from neuca_tools.selftest.evidence import Evidence, Host, Link, Step
from neuca_tools.selftest.measure import archive, program
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan
from neuca_tools.selftest.mesh.schedule import make_plan

ARGUMENTS = {"json": False, "nagios": False, "html": None, "prometheus": None, "verbose": False}
ARGUMENTS |= {"quiet": False, "color": "never"}


def arguments(**values):
    return argparse.Namespace(**{**ARGUMENTS, **values})


# The exit codes of neuca-selftest(1), and the states of the Monitoring Plugins guidelines.
CODES = [
    ("pass", 0, 0),
    ("error", 1, 3),
    ("usage", 2, 3),
    ("below threshold", 4, 2),
    ("not as planned", 5, 1),
    ("inconclusive", 6, 3),
    ("worse than before", 7, 1),
    ("peer unreachable", 8, 2),
    ("peer busy", 9, 3),
    ("nothing configured", 77, 3),
]


def test_the_exit_codes_are_those_of_the_manual():
    assert [(WORDS[code], int(code), NAGIOS[code]) for code in ExitCode] == CODES


SEVERITY = "ERROR UNREACHABLE BUSY BELOW NOT_AS_PLANNED WORSE INCONCLUSIVE PASS".split()


def result_with(name):
    return None, SimpleNamespace(exit_code=ExitCode[name])


@pytest.mark.parametrize("place", range(len(SEVERITY) - 1))
def test_the_worst_peer_decides(place):
    better, worse = map(result_with, (SEVERITY[place + 1], SEVERITY[place]))
    wanted = ExitCode[SEVERITY[place]]
    assert selftest_run._report_all(arguments(), [better, worse]) == wanted
    assert selftest_run._report_all(arguments(), [worse, better]) == wanted


def test_without_iperf3_there_is_no_test(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    assert not selftest_run.has_iperf3()
    with pytest.raises(SelftestError) as raised:
        selftest_run.without_iperf3()
    assert raised.value.text == "run iperf3: it is not installed"
    assert raised.value.hint == "install the package iperf3 here and on the peer"
    assert selftest_run.without_iperf3(at_boot=True) == ExitCode.NOTHING_CONFIGURED
    assert capsys.readouterr().err == "neuca-selftest: iperf3 is not installed: no test\n"
    (tmp_path / "iperf3").write_text("#!/bin/sh\n")
    (tmp_path / "iperf3").chmod(0o755)
    assert selftest_run.has_iperf3()


def test_unknown_options_of_the_section_are_named(capsys):
    known = dict.fromkeys(selftest_options.SETTINGS, "x")
    selftest_run._warn_of_unknown_options(Config(selftest={**known, "zeal": "1", "ardour": "2"}))
    assert capsys.readouterr().err.splitlines() == [
        'neuca-selftest: warning: [selftest] "ardour": unknown option, ignoring it',
        'neuca-selftest: warning: [selftest] "zeal": unknown option, ignoring it',
    ]


def test_a_peer_that_must_not_be_tested_ends_a_run_before_any_test():
    here = ip_address("127.0.0.1")
    with pytest.raises(UsageError, match="it is an address of this host"):
        selftest_run.check_peers([(here, None)], AgentPlan())


def setup_for(**values):
    return selftest_run._Setup(arguments(**values), Config(), None, "quick", AgentPlan())


@pytest.mark.parametrize(
    ("values", "step", "line"),
    [
        ({}, Step("tcp", "pass", "940 Mbit/s"), "tcp          pass     940 Mbit/s"),
        ({}, Step("tcp", "fail", "1 Mbit/s"), "tcp          FAIL     1 Mbit/s"),
        ({}, Step("udp", "skipped", "not requested"), ""),
        ({}, Step("udp", "skipped", "no helper"), "udp          skipped  no helper"),
        ({"json": True}, Step("tcp", "pass", "940 Mbit/s"), ""),
        ({"nagios": True}, Step("tcp", "pass", "940 Mbit/s"), ""),
    ],
)
def test_a_step_is_a_line_for_people(values, step, line, capsys):
    setup_for(**values).show(step)
    assert capsys.readouterr().out.rstrip("\n") == line


RATE = {"name": "tcp", "direction": "forward", "before": 9e8, "deviation": 1e6, "count": 3}


def compared(after, worse):
    rate = RateChange(**RATE, after=after, worse=worse, loss=None, loss_before=None)
    return Comparison((), (rate,))


def test_a_run_says_what_is_worse_or_has_changed():
    assert selftest_run._differences_text(None) == ""
    assert selftest_run._differences_text(compared(9e8, worse=False)) == ""
    assert selftest_run._differences_text(compared(None, worse=True)) == ""
    worse = selftest_run._differences_text(compared(5e8, worse=True)).splitlines()
    assert worse[0] == "— compared with earlier tests"
    assert worse[1].endswith("WORSE")


# --- A whole run, to peers without a route -----------------------------------------------------------------------------


@pytest.fixture
def unreachable(tmp_path, monkeypatch, capsys):
    """Runs the command on a host without routes: its exit code, and what it prints."""
    program_file = tmp_path / "iperf3"
    program_file.write_text("#!/bin/sh\n")
    program_file.chmod(0o755)
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    monkeypatch.setattr(selftest_run, "is_root", lambda: True)

    def no_route(*_):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(kernel, "route_to", no_route)
    config = tmp_path / "config"
    state = tmp_path / "state"
    state.mkdir()
    config.write_text(f"[runtime]\nstate-directory = {state}\nrun-directory = {tmp_path}/run\n")

    def run(*words):
        code = selftest.main(["run", "--config", str(config), "--color", "never", *words])
        return code, *capsys.readouterr()

    return run, state


def lines_of_reach(text):
    return [line for line in text.splitlines() if line.startswith(("—", "reach", "VERDICT"))]


FIRST, SECOND = "192.0.2.1", "192.0.2.2"


def test_each_peer_of_a_run_has_its_heading_and_its_report(unreachable):
    run, state = unreachable
    failed = "reach        FAIL     this host has no route to {}: Network is unreachable".format
    code, out, err = run(FIRST, f"name@{SECOND}")
    heading, step, verdict = zip(lines_of_reach(out)[:3], lines_of_reach(out)[3:])
    assert (code, err) == (ExitCode.UNREACHABLE, "")
    assert heading == (f"— {FIRST}", f"— name@{SECOND}")
    assert step == (failed(FIRST), failed(SECOND))
    assert [line.split()[:3] for line in verdict] == [["VERDICT", "peer", "unreachable:"]] * 2
    entries = archive.reported_tests(state)
    assert [entry["peer"] for entry in entries] == [FIRST, SECOND]
    assert {entry["boot"] for entry in entries} == {boot_id()}
    assert lines_of_reach(run(FIRST)[1])[0] == failed(FIRST)


def test_programs_get_one_report_or_a_list_of_them(unreachable):
    run, _ = unreachable
    (code, one, _), (_, two, _) = run("--json", FIRST), run("--json", FIRST, SECOND)
    assert (code, json.loads(one)["exit_code"]) == (ExitCode.UNREACHABLE,) * 2
    addresses = [report["evidence"]["address"] for report in json.loads(two)]
    assert (json.loads(one)["evidence"]["address"], addresses) == (FIRST, [FIRST, SECOND])
    code, line, _ = run("--nagios", FIRST)
    assert (code, line.count("\n"), line.split()[:2]) == (2, 1, ["DATAPLANE", "CRITICAL"])


@pytest.mark.parametrize("words", [("--nagios",), ("--html", "page")])
def test_what_is_for_one_peer_is_refused_for_two(unreachable, words):
    code, out, err = unreachable[0](*words, FIRST, SECOND)
    assert "--nagios and --html are for one PEER" in out + err
    assert code == (3 if words[0] == "--nagios" else 2)


def test_tests_of_others_than_root_are_not_kept(unreachable, monkeypatch):
    run, state = unreachable
    monkeypatch.setattr(selftest_run, "is_root", lambda: False)
    assert run(FIRST)[0] == ExitCode.UNREACHABLE
    assert list(state.iterdir()) == []


def test_an_archive_that_cannot_be_read_costs_the_comparison_alone(unreachable):
    run, state = unreachable
    (state / ARCHIVE).mkdir()
    code, out, err = run(FIRST)
    assert (code, len(lines_of_reach(out))) == (ExitCode.UNREACHABLE, 2)
    complaints = [line.rpartition(": ")[2] for line in err.splitlines()]
    assert complaints == ["Is a directory, ignoring"] * 2
    assert len(archive.report_paths(state)) == 1


def test_a_kernel_that_refuses_to_answer_is_the_error_of_the_run(unreachable, monkeypatch):
    def refuse():
        raise OSError(errno.ENOBUFS, "No buffer space available")

    monkeypatch.setattr(kernel, "read_devices", refuse)
    code, out, err = unreachable[0](FIRST)
    assert (code, "VERDICT" in out) == (ExitCode.ERROR, False)
    assert err == f"neuca-selftest: test {FIRST}: No buffer space available\n"


@pytest.mark.parametrize(("boot", "is_identity"), [("this", False), ("earlier", True)])
def test_what_changes_within_one_boot_is_no_defect(boot, is_identity):
    """An administrator changed it; after a reboot, a NIC should have its MTU again."""
    before = Evidence(local=Host(links=(Link("eth1", mac="x", mtu=9000),)), boot=boot)
    after = Evidence(local=Host(links=(Link("eth1", mac="x", mtu=1500),)), boot="this")
    (change,) = selftest_run._compare_with([before], after).changes
    assert (change.field, change.identity) == ("eth1 mtu", is_identity)


# --- compare-paths ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "is_enough"),
    [("a", False), ("a b", True), ("a a", False)]
    + [(" ".join(f"p{at}" for at in range(count)), count == 16) for count in (16, 17)],
)
def test_two_to_sixteen_paths_are_compared(labels, is_enough):
    if is_enough:
        assert selftest_paths._check_labels(labels.split()) is None
        return
    with pytest.raises(ArgumentsError, match="2 to 16 paths with different labels are required"):
        selftest_paths._check_labels(labels.split())


def path_options(words=""):
    parsed = selftest_paths.compare_paths_parser().parse_args(["a=10.0.0.1", *words.split()])
    return selftest_paths._path_options(parsed, Config(selftest={"interface": "eth1"}))


def test_a_path_is_tested_quickly_and_with_several_streams():
    quick = frozenset("reach latency path-mtu tcp tcp-reverse loaded tcp-parallel".split())
    assert (path_options().steps, path_options().seconds) == (quick, 4.0)
    assert path_options().interface is None
    assert path_options("--plan full").seconds == 30.0
    assert path_options("--only tcp").steps == {"reach", "tcp"}
    assert path_options("--skip tcp-parallel").steps == quick - {"tcp-parallel"}


def test_a_round_is_a_line():
    rate = tcp(flow_of(9e8, rtt=1000, min_rtt=900), direction="reverse")
    assert selftest_paths._summary_line(rate) == "tcp ← 900 Mbit/s"
    assert selftest_paths._summary_line(Evidence()) == "nothing was measured"
    steps = (Step("latency", "pass", "x"), Step("reach", "fail", "y"), Step("tcp", "fail", "z"))
    assert selftest_paths._summary_line(Evidence(steps=steps)) == "reach failed: y"
    turn = selftest_paths._Turn(selftest_paths.Path("a", "p"), ip_address("::1"), "round 1 of 3")
    assert turn.name == "round 1 of 3, a"


def test_the_worst_path_decides(capsys):
    slow = tcp(flow_of(1e8, rtt=1000, min_rtt=900), expect=1e9)
    fast = tcp(flow_of(9.4e8, rtt=1000, min_rtt=900), expect=1e9)
    for tests in ([fast, slow], [slow, fast]):
        rounds = [Rounds(name, (evidence,)) for name, evidence in zip("ab", tests)]
        code = selftest_paths._print_comparison(rounds, arguments())
        assert code == diagnose(slow).exit_code == ExitCode.BELOW
    assert "VERDICT" in capsys.readouterr().out


# --- serve --------------------------------------------------------------------------------------------------------------

DEVICES = {
    "10.0.0.1": Device(2, "eth0", up=True),
    "10.1.0.1": Device(3, "eth1", up=True),
    "10.2.0.1": Device(4, "eth2", up=True),
    "10.3.0.1": Device(5, "eth3", up=False),
    "fe80::1": Device(3, "eth1", up=True),
    "127.0.0.1": Device(1, "lo", up=True),
}
RESERVED = AgentPlan(reserved={2: "the management NIC"})
PLANNED = RESERVED._replace(networks=(("eth1", (ip_interface("10.1.0.1/24"),)),))
SERVED = [
    (AgentPlan(), None, "10.0.0.1 10.1.0.1 10.2.0.1"),
    (RESERVED, None, "10.1.0.1 10.2.0.1"),
    (PLANNED, None, "10.1.0.1"),
    (PLANNED, "eth2", "10.2.0.1"),
    (PLANNED, "eth0", "10.0.0.1"),
    (PLANNED, "lo", "127.0.0.1"),
]


@pytest.fixture
def devices(monkeypatch):
    found = {ip_address(text): device for text, device in DEVICES.items()}
    monkeypatch.setattr(kernel, "devices_by_address", lambda: found)


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(("plan", "interface", "addresses"), SERVED)
def test_the_addresses_of_the_dataplane_are_served(plan, interface, addresses):
    served = selftest_serve._addresses_to_serve([], interface, plan)
    assert " ".join(map(str, served)) == addresses


NOT_SERVED = [
    ("10.9.0.1", None, "serve on 10.9.0.1: this host has no such address"),
    ("10.0.0.1", None, "serve on 10.0.0.1: it is on eth0, the management NIC"),
    ("127.0.0.1", None, "serve on 127.0.0.1: it is on lo, which is not on the dataplane"),
    ("10.1.0.1", "eth2", "serve on 10.1.0.1: it is on eth1, another interface"),
    ("fe80::1", None, "serve on fe80::1: it is link-local, which is not supported"),
]


@pytest.mark.usefixtures("devices")
@pytest.mark.parametrize(("address", "interface", "reason"), NOT_SERVED)
def test_an_address_elsewhere_is_refused(address, interface, reason):
    with pytest.raises(UsageError) as raised:
        selftest_serve._addresses_to_serve([ip_address(address)], interface, PLANNED)
    assert raised.value.text == reason
    requested = [ip_address("10.2.0.1")] * 2
    assert selftest_serve._addresses_to_serve(requested, None, PLANNED) == requested[:1]
    with pytest.raises(UsageError, match="serve: no dataplane interface has an address"):
        selftest_serve._addresses_to_serve([], "eth9", PLANNED)


# --- mesh ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "reason"),
    [(4 * 2**20, "it requires 2 to 4096 hosts"), (4 * 2**20 + 1, "larger than")],
)
def test_a_list_of_hosts_has_a_limit(tmp_path, capsys, size, reason):
    path = tmp_path / "hosts"
    path.write_bytes(b"#" * size)
    assert selftest.main(["mesh", "plan", "--rate", "1G", str(path)]) != ExitCode.PASS
    assert reason in capsys.readouterr().err


def test_clush_gets_descriptors_for_each_host():
    hosts = [MeshHost(name, f"10.0.0.{at}", {}) for at, name in enumerate("abc", 1)]
    plan = make_plan(MeshPlan(hosts, (), 1e9))
    command = selftest_mesh.clush_command(plan, ["-l", "root"], "join")
    assert " ".join(command) == "clush -w a -w b -w c -f 3 -O fd_max=268 -l root join"
