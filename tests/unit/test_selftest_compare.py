"""A test against earlier ones: what is worse is told, and what only varies is not."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from selftest_runs import PUBLISHED, flow_of, tcp, udp_phase
from selftest_schema import COMPARISON_PATH, validated

from neuca_tools.commands.neuca import main
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.compare import Change, compare
from neuca_tools.selftest.evidence import Cpu, Evidence, Host, Link, Step
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import csv_of
from neuca_tools.selftest.report.text import comparison_text

ETH1 = Link(
    "eth1",
    "physical",
    mac="02:00:00:00:00:01",
    mtu=9000,
    addresses=("172.16.0.1/24",),
    offloads={"tso": True},
)
ETH2 = Link("eth2", "physical", mac="02:00:00:00:00:02", mtu=1500)
HOST = Host("a", kernel="6.1.0-56", sysctls={"net.core.rmem_max": "16777216"}, links=(ETH1, ETH2))


def measured(rate: float, **facts) -> Evidence:
    return tcp(flow_of(rate), **facts)


def on(**facts) -> Evidence:
    return Evidence(local=replace(HOST, **facts))


def changes(after: Evidence) -> list[Change]:
    return list(compare([Evidence(local=HOST)], after).changes)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ((940e6,), 930e6, False),
        ((940e6,), 740e6, True),
        ((940e6, 945e6), 840e6, False),  # nobody knows yet how much they vary
        ((940e6, 935e6, 945e6), 840e6, True),
        ((940e6, 700e6, 990e6), 840e6, False),  # they vary by more than that
        ((940e6, 100e6, 945e6), 840e6, True),  # one bad day is not the rule
        ((940e6,), 5e9, False),
    ],
)
def test_a_rate_is_worse_that_fell_by_more_than_it_varies(before, after, worse):
    found = compare([measured(rate) for rate in before], measured(after))
    assert [one.worse for one in found.rates] == [worse]
    assert found.exit_code is (ExitCode.WORSE if worse else ExitCode.PASS)


def test_the_steps_of_a_ladder_are_compared_each_with_its_own():
    def steps(*rates):
        return Evidence(
            phases=tuple(replace(measured(rate).phases[0], name="udp") for rate in rates)
        )

    assert [one.worse for one in compare([steps(10e6, 100e6)], steps(10e6, 50e6)).rates] == [
        False,
        True,
    ]


def test_the_tries_of_a_search_and_other_rates_are_not_compared():
    """Where a search goes depends on what it finds; and less arrives of what was sent more slowly."""

    def ladder(*steps):
        phases = [
            replace(udp_phase(asked, asked, got), search=search) for asked, got, search in steps
        ]
        return Evidence(phases=tuple(phases))

    before = ladder(
        (10e6, 10e6, False), (100e6, 60e6, False), (30e6, 30e6, True), (55e6, 55e6, True)
    )
    after = ladder((10e6, 9e6, False), (50e6, 30e6, False), (22e6, 22e6, True), (15e6, 15e6, True))
    assert [
        (round(one.before / 1e6), round(one.after / 1e6)) for one in compare([before], after).rates
    ] == [(10, 9)]


def test_nothing_changed_is_a_pass():
    assert (changes(on()), compare([on()], on()).exit_code) == ([], ExitCode.PASS)


@pytest.mark.parametrize(
    ("after", "change"),
    [
        (
            on(links=(replace(ETH1, name="eth5"), ETH2)),
            Change("local", "eth1 name", "eth1", "eth5", True),
        ),
        (
            on(links=(replace(ETH1, mac="02:00:00:00:00:09"), ETH2)),
            Change("local", "eth1 mac", ETH1.mac, "02:00:00:00:00:09", True),
        ),
        (
            on(links=(replace(ETH1, mtu=1500), ETH2)),
            Change("local", "eth1 mtu", "9000", "1500", True),
        ),
        (
            on(links=(replace(ETH1, addresses=("172.16.0.9/24",)), ETH2)),
            Change("local", "eth1 addresses", "172.16.0.1/24", "172.16.0.9/24", True),
        ),
        (on(links=(ETH1,)), Change("local", "eth2", "present", None, True)),
        (on(links=(ETH1, ETH2, Link("eth3"))), Change("local", "eth3", None, "present", True)),
        (
            on(links=(replace(ETH1, offloads={"tso": False}), ETH2)),
            Change("local", "eth1 tso", "on", "off"),
        ),
        (on(kernel="6.12.0"), Change("local", "kernel", "6.1.0-56", "6.12.0")),
        (
            on(sysctls={"net.core.rmem_max": "212992"}),
            Change("local", "net.core.rmem_max", "16777216", "212992"),
        ),
    ],
)
def test_what_changed_is_named_with_both_values(after, change):
    assert changes(after) == [change]
    assert compare([on()], after).exit_code is (
        ExitCode.NOT_AS_PLANNED if change.identity else ExitCode.PASS
    )


def test_what_was_asked_for_is_told_and_no_failure():
    """A document that asks for another MTU, or a DHCP server of the management NIC: the agent finds all as planned."""
    after = on(
        links=(
            replace(ETH1, name="eth5", mtu=1500, addresses=("172.16.0.9/24",)),
            Link("eth1.9", "vlan"),
        )
    )
    found = compare([on()], replace(after, steps=(Step("as-planned", "pass"),)))
    assert [(one.field, one.identity) for one in found.changes] == [
        ("eth1 name", True),
        ("eth1 mtu", False),
        ("eth1 addresses", False),
        ("eth2", False),
        ("eth1.9", False),
    ]
    assert {
        one.identity for one in changes(replace(after, steps=(Step("as-planned", "fail"),)))
    } == {True}
    other = [
        Evidence(peer=host) for host in (HOST, replace(HOST, links=(replace(ETH1, mtu=1500), ETH2)))
    ]
    assert (
        compare(other[:1], replace(other[1], steps=(Step("as-planned", "pass"),)))
        .changes[0]
        .identity
    )


def test_names_that_were_swapped_are_two_changes_of_names():
    swapped = on(links=(replace(ETH1, name="eth2"), replace(ETH2, name="eth1")))
    assert [(one.field, one.after) for one in changes(swapped)] == [
        ("eth1 name", "eth2"),
        ("eth2 name", "eth1"),
    ]


def test_what_one_of_them_does_not_know_is_no_change():
    assert (
        changes(Evidence())
        == changes(on(links=(Link("eth1"), Link("eth2")), sysctls={}, kernel=None))
        == []
    )


def test_white_space_in_a_sysctl_is_no_change():
    one, other = (
        Evidence(local=Host(sysctls={"net.ipv4.tcp_rmem": value}))
        for value in ("4096\t131072\t9", "4096 131072 9")
    )
    assert compare([one], other).changes == ()


def test_the_text_has_a_line_for_each_rate_and_each_change():
    before = [replace(measured(rate), local=HOST) for rate in (940e6, 935e6, 945e6)]
    after = replace(
        measured(400e6), local=replace(HOST, kernel="6.12.0", links=(replace(ETH1, mtu=1500), ETH2))
    )
    assert (
        comparison_text(compare(before, after))
        == """\
tcp         400 Mbit/s, before 940 Mbit/s ± 5.00 Mbit/s of 3  WORSE
changed     local kernel: 6.1.0-56 → 6.12.0
CHANGED     local eth1 mtu: 9000 → 1500
VERDICT     worse than before"""
    )


def test_the_command_compares_files(tmp_path, capsys):
    for name in ("vm-untuned-tcp", "vm-tuned-tcp"):
        (tmp_path / name).write_bytes(PUBLISHED[name])
    words = [str(tmp_path / name) for name in ("vm-tuned-tcp", "vm-untuned-tcp")]
    assert main(["compare", *words], "neuca-selftest") == 7
    assert (
        capsys.readouterr().out
        == "tcp         1.54 Gbit/s, before 4.11 Gbit/s (once: its usual variation is not known)  "
        "WORSE\nVERDICT     worse than before\n"
    )
    assert main(["compare", "--json", *words[::-1]], "neuca-selftest") == 0
    document = validated(json.loads(capsys.readouterr().out), COMPARISON_PATH)
    assert (document["version"], document["verdict"], document["rates"][0]["worse"]) == (
        1,
        "pass",
        False,
    )


def test_runs_without_a_rate_in_common_do_not_pass(capsys):
    data = Path(__file__).parent / "data/iperf"
    tcp_run, udp_run, refused = (
        str(data / f"3.12-{name}.json") for name in ("tcp", "udp", "refused")
    )
    for runs in (refused, refused), (refused, tcp_run), (tcp_run, udp_run):
        assert main(["compare", *runs], "neuca-selftest") == 1
        assert capsys.readouterr() == (
            "",
            "neuca-selftest: compare: no test of the last run has a rate in an earlier one\n",
        )


def test_the_file_that_cannot_be_compared_is_named(tmp_path, capsys):
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(PUBLISHED["vm-tuned-tcp"])
    bad.write_bytes(b"")
    assert main(["compare", str(good), str(bad)], "neuca-selftest") == 1
    assert capsys.readouterr().err.startswith(
        f'neuca-selftest: compare "{bad}": read the output of iperf: this is neither '
    )


# --- Only what was measured alike ------------------------------------------------------------------------------------------


def run(rate=940e6, **facts) -> Evidence:
    """One TCP test; `seconds`, `streams`, `limit` and whether other programs were `busy`."""
    seconds, busy = facts.pop("seconds", 10.0), facts.pop("busy", False)
    run = Run("iperf3", protocol="tcp", duration=seconds, cpu_local=1.0, cpu_remote=1.0)
    run = replace(run, streams=facts.pop("streams", 1), target=facts.pop("limit", 0.0))
    evidence = tcp(flow_of(rate), **facts)
    cpus = (Cpu(idle=0.0), Cpu(user=10.0 * busy, idle=10.0 * (not busy)))
    ends = (evidence.phases[0].sender[0], evidence.phases[0].sender[-1])
    sender = tuple(replace(one, cpus=(cpu,)) for one, cpu in zip(ends, cpus))
    phase = replace(evidence.phases[0], run=run, sender=sender, receiver=())
    return replace(evidence, phases=(phase,))


@pytest.mark.parametrize(
    "other", [{"limit": 20e6}, {"seconds": 4.0}, {"streams": 8}, {"busy": True}]
)
def test_a_test_that_was_measured_otherwise_is_not_compared(other):
    found = compare([run(**other)], run(100e6))
    assert [(one.before, one.worse) for one in found.rates] == [(None, False)]
    assert found.exit_code is ExitCode.PASS
    assert comparison_text(found).splitlines()[0] == (
        "tcp         100 Mbit/s, no earlier test has the same --rate, duration, streams, helper and load"
    )


def test_those_that_were_measured_alike_are_compared_and_the_others_left_out():
    before = [run(), run(935e6), run(945e6), run(5e9, streams=8), run(2e9, seconds=4.0)]
    (found,) = compare(before, run(100e6)).rates
    assert (found.before, found.deviation, found.count, found.worse) == (940e6, 5e6, 3, True)


def test_tests_of_another_peer_are_not_compared():
    assert compare([run(address="172.16.0.2")], run(1e6, address="172.16.0.3")).rates == ()
    assert compare([run(address="172.16.0.2")], run(1e6)).exit_code is ExitCode.WORSE


def test_a_run_is_worse_only_with_three_earlier_ones():
    earlier, now = [tcp(flow_of(940e6))] * 2, tcp(flow_of(200e6))
    assert compare(earlier, now, 3).exit_code is ExitCode.PASS
    assert compare([*earlier, *earlier[:1]], now, 3).exit_code is ExitCode.WORSE


def test_loss_is_compared_as_well_as_the_rate():
    earlier, now = [tcp(flow_of(46e6))] * 3, tcp(flow_of(46e6, retrans=0.03))
    found = compare(earlier, now)
    assert found.exit_code is ExitCode.WORSE
    assert "3.0% lost, before 0%  WORSE" in comparison_text(found)


def test_a_test_with_a_helper_is_not_compared_with_one_without():
    helped = replace(tcp(flow_of(940e6)), peer=Host(kernel="6.1"))
    (found,) = compare([helped] * 3, tcp(flow_of(200e6))).rates
    assert (found.worse, found.before) == (False, None)


def runs_of(tmp_path, *rates):
    """Files of runs whose intervals have these rates."""
    paths = []
    for number, rate in enumerate(rates):
        paths.append(tmp_path / f"run-{number}.json")
        paths[-1].write_text(json.dumps(iperf(rate)))
    return paths


def iperf(rate):
    """iperf3's JSON of five seconds at this rate."""
    second = {"bytes": rate / 8, "bits_per_second": rate, "retransmits": 0, "omitted": False}
    intervals = [
        {"streams": [], "sum": {**second, "start": at, "end": at + 1, "seconds": 1, "sender": True}}
        for at in range(5)
    ]
    total = {"start": 0, "end": 5, "seconds": 5, "bytes": rate * 5 / 8, "bits_per_second": rate}
    test = {"protocol": "TCP", "num_streams": 1, "reverse": 0}
    return {
        "start": {"version": "iperf 3.12", "test_start": test},
        "intervals": intervals,
        "end": {"sum_sent": {**total, "retransmits": 0}, "sum_received": total},
    }


def test_several_runs_are_lines_of_one_plot_with_their_names(tmp_path):
    first, second, third = runs_of(tmp_path, 900e6, 500e6, 100e6)
    page, picture, table = tmp_path / "page", tmp_path / "plot.svg", tmp_path / "series.csv"
    words = ["--html", page, "--svg", picture, "--csv", table, first, second, third]
    assert main(["selftest", "compare", *map(str, words)]) in (0, 7)
    text = page.read_text()
    figure = text[text.index('<svg class="timeline"') :]
    for number, path in enumerate((first, second, third)):
        assert f'class="line s{number}"' in figure
        assert str(path) in figure
    assert figure.count("Rate (bit/s), to the peer") == 1
    assert "<script" not in text
    drawn = ElementTree.parse(picture).getroot()
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    rows = list(csv.DictReader(table.open()))
    rates = {row["run"]: float(row["value"]) for row in rows if row["series"] == "Rate (bit/s)"}
    assert rates == {str(first): 900e6, str(second): 500e6, str(third): 100e6}


def test_the_series_of_one_run_are_exported(tmp_path):
    (path,) = runs_of(tmp_path, 900e6)
    table = tmp_path / "series.csv"
    main(
        ["selftest", "explain", "--csv", str(table), "--svg", str(tmp_path / "plot.svg"), str(path)]
    )
    rows = list(csv.reader(table.open()))
    assert rows[0] == ["run", "series", "line", "seconds", "value"]
    assert [str(path), "Rate (bit/s)", "to the peer", "0", "900000000.0"] in [
        [*row[:3], row[3].replace(".0", "", 1) if row[3] == "0.0" else row[3], row[4]]
        for row in rows
    ]
    assert "<polyline" in (tmp_path / "plot.svg").read_text()


def test_a_thousand_addresses_are_no_screenful():
    links = [
        Link("eth1", addresses=tuple(f"10.0.{n // 250}.{n % 250}" for n in range(count)))
        for count in (1000, 2)
    ]
    before, after = (Evidence(local=Host(links=(link,))) for link in links)
    (line, _) = comparison_text(compare([before], after)).splitlines()
    assert len(line) < 200
    assert line.startswith("CHANGED     local eth1 addresses: 10.0.0.0, ")
    assert line.endswith(" … → 10.0.0.0, 10.0.0.1")


@pytest.mark.parametrize(
    ("label", "cell"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("@a", "'@a"),
        ("-", "-"),
        ("a=b", "a=b"),
    ],
)
def test_no_label_is_a_formula_of_a_spreadsheet(tmp_path, label, cell):
    (path,) = runs_of(tmp_path, 900e6)
    evidence = evidence_of(path.read_bytes())
    rows = list(csv.DictReader(csv_of([(label, evidence)]).splitlines()))
    assert {row["run"] for row in rows} == {cell}
