"""Several paths against the first: what each costs, what only varies, and what is said of an overlay."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import pytest
from selftest_runs import PUBLISHED, flow_of, tcp
from selftest_schema import PATHS_PATH, validated

from neuca_tools.commands.neuca import main
from neuca_tools.commands.selftest_paths import (
    Path,
    _parse_path,
    _path_options,
    _rounds,
    compare_paths_parser,
)
from neuca_tools.config import Config
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.diagnosis.paths import Tests as Rounds
from neuca_tools.selftest.diagnosis.paths import compare_paths
from neuca_tools.selftest.evidence import Connections, Evidence, Host, Latency, Link, PathMtu, Phase
from neuca_tools.selftest.evidence.run import Flow, Run, Total
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.paths import path_record, path_table


def phase(rate: float, name="tcp", streams=1, **facts) -> Phase:
    flow = Flow(
        "forward", (), Total(10.0, rate * 10 / 8, rate, 0), Total(10.0, rate * 10 / 8, rate)
    )
    return Phase(
        name, Run("iperf3", "3.12", "tcp", (flow,), streams=streams, duration=10.0), **facts
    )


def measured(*rates: float, **facts) -> Rounds:
    return Rounds(
        facts.pop("label", "host"),
        tuple(Evidence(phases=(phase(rate),), **facts) for rate in rates),
    )


def taxes(*paths: Rounds):
    return [
        [(value.label, value.tax and round(value.tax, 3), value.alike) for value in row.values]
        for row in compare_paths(paths).rows
    ]


HOST = measured(6.0e9, 6.1e9, 5.9e9)


def test_what_an_overlay_costs():
    """The rates of the facts, E5: 56 and 36 Gbit/s."""
    assert taxes(measured(56e9, 55e9, 57e9), measured(36e9, 36.5e9, 35e9, label="vxlan")) == [
        [("host", None, None), ("vxlan", 0.357, False)]
    ]


def test_what_only_varies_is_no_difference():
    assert taxes(measured(6e9, 5e9, 7e9), measured(5.8e9, 6.2e9, 5.5e9, label="macvlan"))[0][1] == (
        "macvlan",
        0.033,
        True,
    )
    assert taxes(measured(6e9), measured(3e9, label="once"))[0][1] == ("once", 0.5, None)


def test_a_path_as_fast_as_the_baseline_has_a_tax_of_zero_without_a_sign():
    paths = (measured(6e9), measured(6e9, label="same"))
    assert [str(row.values[1].tax) for row in compare_paths(paths).rows] == ["0.0"]


def test_a_time_that_grows_is_a_tax_too_and_a_better_path_has_none():
    quick, slow = (
        measured(
            1e9,
            label=label,
            idle=Latency(100, 0, p50),
            connections=Connections(rate, 0),
            path_mtu=PathMtu(mtu),
        )
        for label, p50, rate, mtu in (("host", 100e-6, 2000.0, 1500), ("nat", 150e-6, 2500.0, 1450))
    )
    found = {row.name: row for row in compare_paths([quick, slow]).rows}
    units = ["bit/s", "connections/s", "bytes", "s"]
    assert [row.unit for row in found.values()] == units
    assert {name: row.values[1].tax for name, row in found.items()} == pytest.approx(
        {"tcp": 0.0, "connections": -0.25, "path MTU": None, "latency": 0.5}
    )
    assert path_table(compare_paths([quick, slow])).splitlines()[:8] == [
        "tcp               host  1.00 Gbit/s",
        "                  nat   1.00 Gbit/s                   the same",
        "connections       host  2000 connections/s",
        "                  nat   2500 connections/s            25% more",
        "path MTU          host  1500 bytes",
        "                  nat   1450 bytes",
        "latency           host  100 µs",
        "                  nat   150 µs                        50% more",
    ]


def test_one_stream_and_many_are_two_measurements():
    def both(label, one, many):
        return Rounds(
            label,
            (
                Evidence(
                    phases=(
                        phase(one),
                        phase(many, "tcp-parallel", 8),
                        phase(many, "tcp-parallel", 128),
                    )
                ),
            ),
        )

    found = compare_paths([both("host", 6e9, 8e9), both("overlay", 1e9, 8e9)])
    assert [(row.name, row.values[1].tax) for row in found.rows] == [
        ("tcp", pytest.approx(5 / 6)),
        ("tcp-parallel 8", 0.0),
        ("tcp-parallel 128", 0.0),
    ]


def test_a_search_offers_each_path_other_rates_and_is_not_compared():
    searched = Rounds(
        "host", (Evidence(phases=(phase(6e9), replace(phase(1e9, "udp"), search=True))),)
    )
    assert [
        row.name for row in compare_paths([searched, searched._replace(label="same")]).rows
    ] == ["tcp"]


def test_a_path_that_carries_nothing_is_its_own_verdict():
    broken = Rounds(
        "vlan",
        (
            Evidence(
                phases=(Phase("tcp", Run("iperf3", error="unable to connect: Connection refused")),)
            ),
        ),
    )
    found = compare_paths([HOST, broken])
    assert [[value.label for value in row.values] for row in found.rows] == [["host"]]
    assert [one.diagnosis.exit_code for one in found.verdicts] == [
        ExitCode.PASS,
        ExitCode.UNREACHABLE,
    ]
    turned = compare_paths([broken, HOST])
    assert [[(value.label, value.tax) for value in row.values] for row in turned.rows] == [
        [("host", None)]
    ]


VXLAN = Host(
    links=(
        Link("vx0", "vxlan", "eth1", 1450, offloads={"tx-udp_tnl-segmentation": False}),
        Link("eth1", "physical", mtu=1500),
    ),
    path=("vx0", "eth1"),
)


def test_an_overlay_without_offload_is_told_with_the_rate_below_it():
    found = compare_paths([HOST, measured(0.97e9, 0.98e9, 0.96e9, label="vxlan", local=VXLAN)])
    limit = found.verdicts[1].diagnosis.limit
    assert (limit.id, limit.evidence[0].before, limit.evidence[0].after) == ("D24", 6.0e9, 0.97e9)
    assert len(found.verdicts[1].diagnosis.phases) == 1
    no_tunnel = compare_paths(
        [HOST, measured(0.97e9, label="nat", local=replace(VXLAN, path=("eth1",)))]
    )
    assert no_tunnel.verdicts[1].diagnosis.limit is None
    small = compare_paths(
        [HOST, measured(5.5e9, label="vxlan", local=replace(VXLAN, path=("vx0",)))]
    )
    assert small.verdicts[1].diagnosis.limit is None


def test_the_article_s_overlay():
    """FOSDEM's figures: 0.97 of 6.37 Gbit/s."""
    found = compare_paths(
        [measured(6.37e9), measured(0.969e9, label="docker overlay", local=VXLAN)]
    )
    assert found.rows[0].values[1].tax == pytest.approx(0.848, abs=1e-3)
    assert found.verdicts[1].diagnosis.limit.id == "D24"


def test_the_typical_round_is_the_one_that_is_told():
    rounds = tuple(
        evidence_of(PUBLISHED[name])
        for name in ("vm-tuned-tcp", "vm-untuned-tcp", "metal-tuned-tcp")
    )
    assert compare_paths([Rounds("host", rounds)] * 2).verdicts[0].evidence == rounds[0]


def test_a_rate_is_judged_only_where_one_is_expected():
    slow = tcp(flow_of(100e6))
    assert (
        compare_paths([Rounds("a", (slow,))] * 2).verdicts[0].diagnosis.exit_code is ExitCode.PASS
    )
    expected = replace(slow, expect=1e9)
    assert (
        compare_paths([Rounds("a", (expected,))] * 2).verdicts[0].diagnosis.exit_code
        is ExitCode.BELOW
    )


def test_the_json_has_every_report():
    paths = [HOST, measured(3e9, 3e9, 3e9, label="vxlan", local=VXLAN)]
    data = json.loads(path_record(compare_paths(paths), paths, ExitCode.PASS))
    validated(data, PATHS_PATH)
    for path in data["paths"]:
        assert [validated(one) for one in path["reports"]] == path["reports"]
    assert (data["version"], data["baseline"], data["verdict"], data["exit_code"]) == (
        1,
        "host",
        "pass",
        0,
    )
    assert data["rows"] == [
        {
            "name": "tcp",
            "direction": "forward",
            "unit": "bit/s",
            "values": [
                {"label": "host", "median": 6e9, "deviation": 1e8, "count": 3},
                {
                    "label": "vxlan",
                    "median": 3e9,
                    "deviation": 0.0,
                    "count": 3,
                    "tax": 0.5,
                    "alike": False,
                },
            ],
        }
    ]
    assert [
        [len(path["reports"]), path["reports"][0]["phases"][0]["rate"]] for path in data["paths"]
    ] == [[3, 6e9], [3, 3e9]]


@pytest.mark.parametrize(
    ("kind", "parent"), [("vxlan", "eth1"), ("vxlan", None), ("vlan", "eth1"), ("vlan", None)]
)
def test_the_nic_below_another_device_is_no_wrong_way(kind, parent):
    """Its bytes are those of the device above it, too."""
    host = Host(
        links=(Link("over", kind, parent), Link("eth1", "physical")), path=("over",), planned="over"
    )
    counted = {"eth1.tx_bytes": (0, 10**9), "over.tx_bytes": (0, 9 * 10**8)}
    found = diagnose(replace(tcp(flow_of(700e6, counters=counted)), local=host)).findings
    assert "D29" not in {one.id for one in found}


def test_the_bytes_of_other_programs_on_another_nic_are_no_wrong_way():
    links = (Link("eth0", "physical"), Link("eth1", "physical"))
    host = Host(links=links, path=("eth1",), planned="eth1")
    counted = {"eth0.tx_bytes": (0, 9 * 10**9), "eth1.tx_bytes": (0, 9 * 10**8)}
    found = diagnose(replace(tcp(flow_of(700e6, counters=counted)), local=host)).findings
    assert "D29" not in {one.id for one in found}


def test_a_planned_nic_that_counted_nothing_is_another_way():
    """Samples leave out what has not changed since the first one."""
    links = (Link("eth0", "physical"), Link("eth1", "physical"))
    host = Host(links=links, path=("eth1",), planned="eth1")
    evidence = replace(
        tcp(flow_of(700e6, counters={"eth0.tx_bytes": (0, 9 * 10**8), "eth1.tx_bytes": (7, 7)})),
        local=host,
    )
    (phase,) = evidence.phases
    first, *later = phase.sender
    changed = [
        replace(sample, counters={"eth0.tx_bytes": sample.counters["eth0.tx_bytes"]})
        for sample in later
    ]
    found = diagnose(replace(evidence, phases=(replace(phase, sender=(first, *changed)),))).findings
    assert found[0].id == "D29"


# --- How paths are written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host=172.16.0.2", Path("host", "172.16.0.2")),
        ("six=fd00::2", Path("six", "fd00::2")),
        (
            "web=far@10.0.0.2,container=web,port=46678",
            Path("web", "far@10.0.0.2", container="web", port=46678),
        ),
        ("vlan=10.0.0.2,interface=eth1.5", Path("vlan", "10.0.0.2", interface="eth1.5")),
        ("blue=10.0.0.2,netns=blue", Path("blue", "10.0.0.2", netns="blue")),
    ],
)
def test_a_path(text, expected):
    assert _parse_path(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("172.16.0.2", "it is not LABEL=PEER[,netns=NAME…]"),
        ("=172.16.0.2", "it is not LABEL=PEER[,netns=NAME…]"),
        ("host=", "it is not LABEL=PEER[,netns=NAME…]"),
        ("a b=10.0.0.2", "it is not LABEL=PEER[,netns=NAME…]"),
        ("a=10.0.0.2,netns=x,netns=y", "it is not LABEL=PEER[,netns=NAME…]"),
        (
            "a=10.0.0.2,mtu=9000",
            '"mtu" is not one of netns, container, interface, port, with a value',
        ),
        (
            "a=10.0.0.2,netns=",
            '"netns" is not one of netns, container, interface, port, with a value',
        ),
        ("a=10.0.0.2,netns=x,container=y", "netns and container cannot be combined"),
    ],
)
def test_what_is_no_path(text, reason):
    with pytest.raises(argparse.ArgumentTypeError) as raised:
        _parse_path(text)
    assert str(raised.value) == f'"{text}": {reason}'


def test_a_port_and_rounds_within_bounds():
    with pytest.raises(argparse.ArgumentTypeError, match='"80" is not a port from 1024 to 65533'):
        _parse_path("a=10.0.0.2,port=80")
    assert [_rounds("1"), _rounds("20")] == [1, 20]
    for word in ("0", "21", "x", "1.5", "9999999999"):
        with pytest.raises(
            argparse.ArgumentTypeError, match="is not a number of rounds from 1 to 20"
        ):
            _rounds(word)


@pytest.mark.parametrize("words", [["a=10.0.0.2"], ["a=10.0.0.2", "a=10.0.0.3"]])
def test_it_takes_two_paths_or_more(words, capsys):
    assert main(["selftest", "compare-paths", *words]) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith("usage: neuca-selftest compare-paths ")
    assert last == "neuca-selftest: compare-paths: 2 to 16 paths with different labels are required"


def test_the_interface_of_the_configuration_is_not_that_of_every_path():
    words = ["host=10.0.0.2", "vxlan=10.9.0.2,interface=vx0"]
    config = Config(selftest={"interface": "eth1", "port": "5201"})
    options = _path_options(compare_paths_parser().parse_args(words), config)
    assert (options.interface, options.port) == (None, 5201)
