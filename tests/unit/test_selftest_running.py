"""The running self-test: command lines, what an ended iperf3 is taken for, the search, what may be tested, and what is kept."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from ipaddress import ip_address, ip_interface
from types import SimpleNamespace

import pytest

from neuca_tools.commands import selftest_agent
from neuca_tools.commands.selftest_agent import desired_sysctls
from neuca_tools.commands.selftest_options import (
    configured_peers,
    literal_address,
    measurement_options,
    read_secret,
    run_parser,
)
from neuca_tools.commands.selftest_serve import check_servable
from neuca_tools.config import Config
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import Roles
from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.model import Device, LinkKey, NetworkState, OwnedObjects, Problem
from neuca_tools.plan.operation import Target
from neuca_tools.plan.operations import WriteSysctl
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.evidence.run import Flow, Run, Total
from neuca_tools.selftest.measure import archive, program
from neuca_tools.selftest.measure.host import planned
from neuca_tools.selftest.measure.host.kernel import KernelRoute
from neuca_tools.selftest.measure.host.planned import AgentPlan, permitted_device, permitted_route
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.iperf.command import Test as Asked
from neuca_tools.selftest.measure.iperf.phases import ThroughputSteps, datagram_size
from neuca_tools.selftest.measure.iperf.plans import (
    LADDER,
    SEARCH_STEPS,
    Options,
    Rung,
    loss_free_rate,
    next_rate,
)
from neuca_tools.selftest.measure.probes.path_mtu import largest_carried
from neuca_tools.selftest.measure.program import ProgramResult
from neuca_tools.tuning.layer import CONGESTION, JudgedValue, Layer

PEER = ip_address("172.16.0.2")
ASKED = Asked(PEER, 45678, 10)
WHOLE = (
    b'{"start": {"test_start": {"protocol": "TCP", "num_streams": 1, "duration": 10}}, "intervals": [],'
    b' "end": {"sum_sent": {"bytes": 9, "seconds": 10, "bits_per_second": 7},'
    b' "sum_received": {"bytes": 9, "seconds": 10, "bits_per_second": 7}}}'
)


def test_the_clients_command_line():
    start = "iperf3 -c 172.16.0.2 -p 45678 -t 10 -i 1 -J --connect-timeout 3000 --get-server-output"
    assert " ".join(command.client_command(ASKED)) == start
    assert " ".join(
        command.client_command(
            ASKED._replace(
                streams=8, direction="reverse", source=ip_address("172.16.0.1"), rate=8e6
            )
        )
    ) == (f"{start} -B 172.16.0.1 -P 8 -R -b 1000000")
    assert " ".join(command.client_command(ASKED._replace(udp=True, rate=1e9, numa_nodes="1"))) == (
        f"numactl --cpunodebind=1 --membind=1 {start} -u -b 1000000000"
    )
    assert command.client_command(ASKED._replace(direction="both"))[-1] == "--bidir"
    assert command.client_command(ASKED._replace(udp=True, length=312))[-3:] == ["-u", "-l", "312"]
    assert " ".join(command.server_command(PEER, 5201)) == "iperf3 -s -1 -i 1 -B 172.16.0.2 -p 5201"


def test_an_hour_of_all_streams_fits_into_the_output_that_is_kept():
    """iperf 3.12 prints 51 KB a second with 128 streams; beyond the limit SIGXFSZ ends it."""
    hour = ASKED._replace(seconds=3600.0, streams=128)
    for test in (hour, hour._replace(direction="both")):
        command_line = command.client_command(test)
        interval = int(command_line[command_line.index("-i") + 1])
        flows = 256 if test.direction == "both" else 128
        assert 3600 / interval * flows * 500 < program.MAX_OUTPUT
        assert interval <= 60  # the longest one of iperf3
    assert " -i 4 " in " ".join(command.server_command(PEER, 5201, 3600.0))
    assert " -i 1 " in " ".join(command.client_command(hour._replace(seconds=300.0)))


@pytest.mark.parametrize(
    ("rate", "size"), [(1e6, 312), (0.5e6, 256), (2e6, 625), (4.4e6, 1375), (4.5e6, 0), (1e9, 0)]
)
def test_one_way_loss_is_measured_with_enough_datagrams_on_slow_paths_too(rate, size):
    assert datagram_size(rate, 5.0) == size


def throughput(protocol, rate, direction="forward"):
    flow = Flow(direction, received=Total(10.0, rate * 10 / 8, rate))
    return Phase(protocol, Run("iperf3", protocol=protocol, flows=(flow,)), direction)


def test_the_slowest_rate_of_a_path_is_not_the_little_that_was_offered_first():
    """The step one-way sends at a part of the slowest rate."""
    steps = ThroughputSteps(PEER, Options(), lambda _: None)
    steps._evidence = Evidence(
        phases=(
            throughput("tcp", 90e6),
            throughput("tcp", 40e6, "reverse"),
            throughput("tcp", 94e6),
            *(throughput("udp", share * 94e6) for share in LADDER),
        )
    )
    assert sorted(steps._measured_rates()) == [40e6, 94e6, 94e6]


def test_a_udp_test_that_failed_is_the_error_alone():
    steps = ThroughputSteps(PEER, Options(), lambda _: None)
    failed = Phase("udp", Run("iperf3", protocol="udp", error="Connection refused"))
    assert list(steps._add("udp", [failed], " of 1.00 Mbit/s")) == [("fail", "Connection refused")]


ENDS = {
    "all went well": (ProgramResult(0, WHOLE, b""), None),
    "3.12: refused, and exit code 0": (
        ProgramResult(
            0,
            b'{"start": {}, "intervals": [], "end": {}, "error": "unable to connect to server: Connection refused"}',
            b"",
        ),
        "unable to connect to server: Connection refused",
    ),
    "3.9: no word in the JSON": (
        ProgramResult(
            1,
            b'{"start": {}, "intervals": [], "end": {}}',
            b"iperf3: error - unable to connect to server: Bad file descriptor\n",
        ),
        "unable to connect to server: Bad file descriptor",
    ),
    "no JSON at all": (
        ProgramResult(1, b"", b"iperf3: unrecognized option '--bidir'\n"),
        "iperf3: unrecognized option '--bidir'",
    ),
    "nothing at all": (
        ProgramResult(1, b"", b""),
        "iperf3 ended without a result or an error message",
    ),
    "truncated": (
        ProgramResult(0, WHOLE[:80], b""),
        "the JSON ends at line 1: it was truncated",
    ),
    "rubbish": (
        ProgramResult(0, b"\xff\xfe\x00", b""),
        "this is neither iperf3's JSON, nor its text, nor iperf 2's text",
    ),
    "killed": (ProgramResult(-9, WHOLE, b""), "iperf3 was terminated by signal 9"),
    "killed by a signal without a name": (
        ProgramResult(-63, b"", b""),
        "iperf3 was terminated by signal 63",
    ),
    "hung": (ProgramResult(-9, b"", b"", was_killed=True), command.NOT_ENDED),
    "all went well, and nothing arrived": (
        ProgramResult(
            0, b'{"start": {}, "intervals": [{}], "end": {"sum_sent": {"bytes": 0}}}', b""
        ),
        "iperf3 reported success, but nothing arrived",
    ),
    "a result, and another exit code": (ProgramResult(3, WHOLE, b"iperf3: error - odd\n"), "odd"),
    "a result, and another exit code without a word": (
        ProgramResult(3, WHOLE, b""),
        "iperf3 exited with 3 without an error message",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_an_iperf3_may_end(name):
    ended, error = ENDS[name]
    run = command.run_of(ASKED, ended)
    assert (run.error, run.protocol, run.streams, run.duration) == (error, "tcp", 1, 10)


def test_the_version_of_iperf3():
    assert command.parse_version(b"iperf 3.12 (cJSON 1.7.15)\nLinux") == "3.12"
    assert [command.parse_version(text) for text in (b"", b"iperf version 2.1.8", b"\xff")] == [
        None
    ] * 3


# --- The search for the loss-free rate ------------------------------------------------------------------------------------


def climb(capacity: float, top: float, able: float = 1e12) -> list[Rung]:
    """The rungs that are tried on a path that drops all above `capacity`, by a sender that offers `able` at most."""
    rungs: list[Rung] = []
    while (rate := next_rate(rungs, top)) is not None:
        sent = min(rate, able)
        rungs.append(Rung(rate, sent, max(0.0, 1 - capacity / sent)))
        assert len(rungs) <= len(LADDER) + SEARCH_STEPS
    return rungs


def test_a_path_that_takes_all_is_climbed_to_the_top():
    assert [one.offered for one in climb(2e9, 1e9)] == [1e7, 1e8, 5e8, 1e9]


@pytest.mark.parametrize("capacity", [1e5, 4e5, 2e9])
def test_no_more_than_the_highest_rate_is_offered_however_low_that_is(capacity):
    assert max(one.offered for one in climb(capacity, 5e5)) <= 5e5


@pytest.mark.parametrize("capacity", [3e6, 12e6, 96.7e6, 440e6, 730e6, 970e6])
def test_the_search_ends_near_what_a_policer_lets_through(capacity):
    found = loss_free_rate(climb(capacity, 1e9))
    assert found is not None
    assert capacity / 2 <= found <= capacity


def test_a_sender_that_cannot_offer_more_ends_the_search():
    assert [one.offered for one in climb(2e9, 1e9, able=3e8)] == [1e7, 1e8, 5e8]


def test_a_path_that_always_loses_is_not_searched():
    assert len(climb(1.0, 1e9)) == 1


def test_half_of_what_got_through_tells_a_policer_from_loss_at_random():
    assert next_rate([Rung(1e6, 1e6, 0.7)], 2e6) == pytest.approx(150e3)
    assert next_rate([Rung(1e6, 1e6, 0.7), Rung(150e3, 150e3, 0.7)], 2e6) is None  # at random
    assert next_rate([Rung(1e6, 1e6, 0.7), Rung(150e3, 150e3, 0.0)], 2e6) == pytest.approx(
        387e3, rel=0.01
    )
    assert next_rate([Rung(1e6, 1e6, 0.95)], 2e6) is None


def test_a_few_losses_in_the_middle_do_not_end_the_climb():
    few = [Rung(1e7, 1e7, 0.0), Rung(1e8, 1e8, 0.003)]
    assert next_rate(few, 1e9) == 5e8
    assert next_rate([*few, Rung(5e8, 5e8, 0.4)], 1e9) == pytest.approx(3.16e7, rel=0.01)


def test_what_gets_through_above_a_few_losses_tells_that_they_were_chance():
    assert next_rate([Rung(1e7, 1e7, 0.002)], 1e9) == 1e8
    assert next_rate([Rung(1e7, 1e7, 0.002), Rung(1e8, 1e8, 0.005)], 1e9) is None
    assert next_rate([Rung(1e7, 1e7, 0.002), Rung(1e8, 1e8, 0.0)], 1e9) == 5e8


@pytest.mark.parametrize("carried", [576, 577, 1400, 1499, 1500, 8999, 9000])
def test_the_largest_packet_that_is_carried(carried):
    asked: list[int] = []
    assert largest_carried(lambda size: asked.append(size) or size <= carried, 576, 9000) == carried
    assert len(asked) <= 16
    assert largest_carried(lambda size: size < 1, 576, 9000) is None


# --- Who may be tested ----------------------------------------------------------------------------------------------------


def device(index: int, name: str) -> Device:
    return Device(index, name)


OUTLOOK = AgentPlan(
    {2: "the management NIC", 9: "an ignored NIC"},
    (("eth1", (ip_interface("172.16.0.1/24"),)), ("eth2", (ip_interface("172.16.0.129/25"),))),
)
SOURCE = ip_address("172.16.0.1")


def to_device(index: int, **more) -> KernelRoute:
    return KernelRoute(index, SOURCE, None, None, **{"is_local": False, **more})


def test_the_device_that_is_meant():
    assert permitted_device(PEER, to_device(3), device(3, "eth1"), OUTLOOK, None) == "eth1"
    assert (
        permitted_device(ip_address("172.16.0.200"), to_device(3), device(3, "eth1"), OUTLOOK, None)
        == "eth2"
    )
    assert (
        permitted_device(ip_address("10.9.9.9"), to_device(7), device(7, "eth7"), OUTLOOK, None)
        == "eth7"
    )
    behind_nat64 = ip_address("64:ff9b::c000:201")
    assert permitted_device(behind_nat64, to_device(7), device(7, "eth7"), OUTLOOK, None) == "eth7"
    assert permitted_device(PEER, to_device(3), device(3, "eth1"), OUTLOOK, "eth2") == "eth2"
    assert permitted_device(PEER, to_device(2), device(2, "eth0"), OUTLOOK, "eth0") == "eth0"


REFUSED = {
    "the management NIC": (
        PEER,
        to_device(2),
        "test 172.16.0.2: the route to it leaves through eth0, the management NIC",
    ),
    "an ignored NIC": (
        PEER,
        to_device(9),
        "test 172.16.0.2: the route to it leaves through eth0, an ignored NIC",
    ),
    "ourselves": (
        SOURCE,
        to_device(1, is_local=True),
        "test 172.16.0.1: it is an address of this host",
    ),
    "a broadcast": (
        ip_address("172.16.0.255"),
        to_device(3, is_unicast=False),
        "test 172.16.0.255: it is not the address of a single host",
    ),
    "a group": (
        ip_address("ff02::1"),
        to_device(3),
        "test ff02::1: it is not the address of a single host",
    ),
    "a reserved one": (
        ip_address("240.0.0.1"),
        to_device(3),
        "test 240.0.0.1: it is not the address of a single host",
    ),
    "nobody": (
        ip_address("0.0.0.0"),
        to_device(3),
        "test 0.0.0.0: it is not the address of a single host",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_never_tested(name):
    peer, route, text = REFUSED[name]
    with pytest.raises(UsageError) as raised:
        permitted_device(peer, route, device(route.device_index, "eth0"), OUTLOOK, None)
    assert raised.value.text == text


def test_an_address_that_is_nothing_without_its_link_is_refused_before_anything_is_queried():
    for address in (ip_address("fe80::2%dp1"), ip_address("fe80::2")):
        with pytest.raises(UsageError, match=f"test {address}: it is link-local"):
            permitted_route(address, OUTLOOK)
        with pytest.raises(UsageError, match=f"serve on {address}: it is link-local"):
            check_servable(address, device(3, "eth0"), None, OUTLOOK)


def test_a_container_engine_that_hangs_is_not_a_container_that_does_not_run(tmp_path, monkeypatch):
    engine = tmp_path / "docker"
    engine.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    engine.chmod(0o755)
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    monkeypatch.setattr(planned, "INSPECT_SECONDS", 0.2)
    with pytest.raises(SelftestError) as raised:
        planned.container_namespace("web")
    assert raised.value.text == (
        'enter the container "web": docker: no response in 0.2 s; podman: No such file or directory'
    )


# --- Options --------------------------------------------------------------------------------------------------------------


def asked(*words, **selftest):
    return measurement_options(
        run_parser().parse_args(words),
        Config(selftest={name.replace("_", "-"): value for name, value in selftest.items()}),
    )


def test_the_plans():
    quick, standard, full = (asked("--plan", plan) for plan in ("quick", "standard", "full"))
    assert quick.steps < standard.steps == full.steps
    assert (quick.seconds, standard.seconds, full.seconds, full.parallel) == (
        4.0,
        10.0,
        30.0,
        (1, 8, 128),
    )
    assert asked().steps == standard.steps
    assert asked("--plan", "quick", "--bidir", "--udp", "--parallel", "4").steps - quick.steps == {
        "tcp-bidir",
        "udp",
        "tcp-parallel",
    }
    assert asked("--only", "tcp,udp", "--skip", "udp").steps == {"reach", "tcp"}
    assert asked("--only", "loaded").steps == {"reach", "tcp", "loaded"}


def test_the_command_line_wins_over_the_configuration():
    known = {
        "plan": "quick",
        "port": "5201",
        "expect": "5G",
        "time": "7",
        "rate": "1G",
        "interface": "eth1",
    }
    found = asked(**known)
    assert (found.port, found.expect, found.seconds, found.rate, found.interface) == (
        5201,
        5e9,
        7.0,
        1e9,
        "eth1",
    )
    assert "udp" not in found.steps
    assert asked("--port", "6000", "--expect", "1G", **known).port == 6000


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("port", "80", '"80" is not a port from 1024 to 65533'),
        ("expect", "fast", '"fast" is not a rate such as 5G or 100M'),
        ("plan", "huge", '"huge" is not a plan: quick, standard or full'),
        ("time", "0", '"0" is not a number of seconds from 1 to 3600'),
    ],
)
def test_a_configuration_that_cannot_be_used(name, value, reason):
    with pytest.raises(UsageError) as raised:
        asked(**{name: value})
    assert raised.value.text == f"[selftest] {name}: {reason}"


def test_a_secret_is_a_file_of_its_owner(tmp_path):
    path = tmp_path / "secret"
    path.write_text("0123456789abcdef\n")
    path.chmod(0o600)
    assert (
        asked("--secret-file", str(path)).secret
        == b"0123456789abcdef"
        == asked(secret_file=str(path)).secret
    )
    path.write_text("short")
    with pytest.raises(UsageError, match="it is shorter than 16 bytes"):
        asked("--secret-file", str(path))
    with pytest.raises(UsageError, match="No such file or directory"):
        asked("--secret-file", str(tmp_path / "none"))
    assert asked().secret is None


# --- What is kept ---------------------------------------------------------------------------------------------------------


def test_a_hundred_reports_are_kept(tmp_path):
    for number in range(103):
        peer = "172.16.0.2" if number % 2 else "172.16.0.3"
        evidence = Evidence(address=peer, label=str(number), taken=f"2026-11-21T10:{number:03}Z")
        report = f'{{"version": 1, "evidence": {{"version": 1, "phases": [], "address": "{peer}", "label": "{number}"}}}}'
        last = archive.keep_report(tmp_path, evidence, report)
    assert (len(archive.report_paths(tmp_path)), archive.report_paths(tmp_path)[-1]) == (100, last)
    assert last.stat().st_mode & 0o777 == 0o600
    assert (
        archive.keep_report(tmp_path, evidence, report).name == "selftest-20261121T10102Z-1.json.gz"
    )
    assert archive.earlier_tests(tmp_path / "none", "172.16.0.2") == []


def test_a_test_at_boot_is_quick_and_can_be_off():
    row = run_parser().parse_args(["--at-boot"])
    assert (
        measurement_options(row, Config(selftest={"plan": "full"})).steps
        == asked("--plan", "quick").steps
    )
    assert asked("--at-boot").label == "boot"
    known = {"peers": "a@172.16.0.2, 172.16.0.3"}
    assert configured_peers(row, Config(selftest=known)) == ["a@172.16.0.2", "172.16.0.3"]
    assert configured_peers(row, Config(selftest={**known, "run-at-boot": "no"})) == []
    assert configured_peers(
        run_parser().parse_args([]), Config(selftest={**known, "run-at-boot": "no"})
    ) == [
        "a@172.16.0.2",
        "172.16.0.3",
    ]
    assert [
        literal_address(text) and str(literal_address(text))
        for text in ("a@172.16.0.2", "fd00::1", "host", "a@b")
    ] == ["172.16.0.2", "fd00::1", None, None]


# --- What an advice may set -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("effect", "more"),
    [("unsupported", {"net.ipv4.tcp_congestion_control": "htcp"}), ("overridden", {})],
)
def test_a_congestion_control_that_this_kernel_has_not_is_wanted_all_the_same(effect, more):
    values = (
        JudgedValue(name, asked, "profile own", effect=effect)
        for name, asked in ((CONGESTION, "htcp"), ("net/core/x", "1"))
    )
    tuning = Layer(values=tuple(values))
    desired = NetworkState(sysctls={"net/ipv4/conf/eth1.7/rp_filter": "2"})
    assert desired_sysctls(Resolution(desired, OwnedObjects(), Roles(), {}, {}, tuning=tuning)) == {
        "net.ipv4.conf.eth1/7.rp_filter": "2",
        **more,
    }


def test_a_secret_of_another_user_is_none(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    arguments = run_parser().parse_args(["--secret-file", str(path)])
    with pytest.raises(UsageError, match="No such file") as raised:
        read_secret(arguments, Config())
    assert raised.value.hint.endswith(f"base64 > {path}); copy it to the peer")
    path.write_text("a secret that both sides share")
    path.chmod(0o600)
    assert read_secret(arguments, Config()) == b"a secret that both sides share"
    if os.geteuid() == 0:
        os.chown(path, 12345, 0)
    else:  # who cannot give the file away is somebody else
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    owner = path.stat().st_uid
    with pytest.raises(UsageError) as raised:
        read_secret(arguments, Config())
    assert (raised.value.text, raised.value.hint) == (
        f'read the secret "{path}": it is owned by user {owner}, who can change it',
        f"chown root {path}",
    )


def test_a_host_differs_by_what_its_document_cannot_have_and_by_what_its_nics_lack():
    codes = ("absent", "contested", "name", "mtu", "sysctl")
    problems = tuple(Problem(code, code) for code in codes)
    resolution = Resolution(NetworkState(), OwnedObjects(), Roles(), {}, {}, problems=problems)
    of_link = WriteSysctl(
        "net/ipv4/conf/eth1/rp_filter", "1", "0", Target(LinkKey("02:00:00:00:00:01"), "eth1")
    )
    operations = (WriteSysctl("net/core/rmem_max", "1", "2"), of_link, of_link)
    decision = SimpleNamespace(resolution=resolution, plan=lambda: operations)
    assert selftest_agent._drift_texts(decision) == (*codes[:4], of_link.text)
