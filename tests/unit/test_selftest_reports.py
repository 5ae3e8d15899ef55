"""The reports: exact texts, and pages and lines that stay whole whatever is in the evidence."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client import parser as text_format
from prometheus_client.openmetrics import parser as openmetrics
from selftest_pages import large, traced
from selftest_runs import PUBLISHED, flow_of, receiver, tcp, udp_phase
from test_selftest_conditions import CASES

from neuca_tools import __version__
from neuca_tools.commands.neuca import main
from neuca_tools.selftest.codes import NAGIOS, ExitCode
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.evidence import (
    NOT_ASKED,
    Evidence,
    Host,
    Latency,
    Link,
    Sample,
    Socket,
    Step,
)
from neuca_tools.selftest.evidence.look import Fact
from neuca_tools.selftest.measure import program
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.page import STYLE, report_page
from neuca_tools.selftest.report.panels import round_ticks, ticks_of
from neuca_tools.selftest.report.record import entry_of, nagios_line, prometheus_text, report_json
from neuca_tools.selftest.report.text import fact_line, report_text, styled_report

DATA = Path(__file__).parent / "data" / "iperf"
SMALL = tcp(
    flow_of(
        250e6,
        rwnd=0.8,
        snd_wnd=3_144_960,
        snd_cwnd=4000,
        unacked=2172,
        rtt=100_000,
        min_rtt=100_000,
    ),
    receiver(recv_q=0, rcvbuf=6_291_456),
    expect=1e9,
    local=Host(
        sysctls={"net.ipv4.tcp_wmem": "4096 16384 8388608"},
        links=(Link("eth1", speed=1e9, mtu=1500),),
    ),
)
LADDER = (
    udp_phase(10e6, 10e6, 10e6),
    udp_phase(100e6, 100e6, 27e6, {"Udp.RcvbufErrors": (0, 63016)}),
)
FULL = replace(
    SMALL,
    phases=(*SMALL.phases, *LADDER),
    label="A to B",
    idle=Latency(200, 0, 0.0001, 0.0002, 0.001),
    loaded=Latency(200, 1, 0.003, 0.02, 0.04),
)


def test_the_text_says_limit_and_fix():
    text = report_text(diagnose(SMALL), verbose=True)
    assert (
        styled_report(text, ExitCode.BELOW, width=80, color=False)
        == """\
tcp         250 Mbit/s  FAIL
LIMIT       receive window too small: the receiver's window of 3.00 MiB allows
            252 Mbit/s at a round trip of 100 ms (D01, explains 80%)
            time limited by the receive window: 80%
            window that the receiver advertises: 3.00 MiB
            congestion window: 5.52 MiB
            in flight: 3.00 MiB
            round trip: 100 ms
FIX         on the receiver: sysctl -w net.ipv4.tcp_rmem="4096 131072 25165824";
            keep values that are already larger
VERDICT     below threshold, expected 1.00 Gbit/s: D01, receive window too small"""
    )
    assert max(map(len, text.splitlines())) > 80
    assert styled_report(text, ExitCode.BELOW, width=0, color=False) == text


def test_the_text_says_why_it_does_not_know():
    assert (
        report_text(diagnose(Evidence()))
        == "UNKNOWN     nothing was measured\nVERDICT     inconclusive"
    )


def test_json_has_the_verdict_the_findings_and_the_evidence():
    document = json.loads(report_json(SMALL, diagnose(SMALL)))
    assert (
        document["version"],
        document["verdict"],
        document["exit_code"],
        document["expect"],
    ) == (1, "below threshold", 4, 1e9)
    assert document["findings"][0]["id"] == "D01"
    assert document["phases"][0] == {
        "name": "tcp",
        "direction": "forward",
        "protocol": "tcp",
        "rate": 250e6,
        "loss": 0.0,
        "retransmits": None,
        "passed": False,
        "steady": 250e6,
    }
    assert evidence_of(json.dumps(document).encode()) == SMALL


def test_json_has_what_iperf_wrote_as_it_was():
    content = (DATA / "3.12-tcp.json").read_bytes()
    evidence = evidence_of(content)
    assert (
        json.loads(report_json(evidence, diagnose(evidence)))["evidence"]["phases"][0]["raw"]
        == content.decode()
    )


def metrics(evidence):
    return prometheus_text([(evidence, diagnose(evidence))])


KNOWN = replace(
    SMALL,
    address="172.16.0.2",
    taken="2026-11-22T20:00:00Z",
    local=replace(SMALL.local, path=("eth1", "eth0")),
)


def test_prometheus_has_a_help_a_type_and_a_line_for_what_is_known():
    lines = metrics(SMALL).split("\n")
    assert lines[:3] == [
        "# HELP neuca_selftest_verdict The exit code of the self-test: 0 is a pass.",
        "# TYPE neuca_selftest_verdict gauge",
        "neuca_selftest_verdict 4",
    ]
    assert (
        'neuca_selftest_rate_bits_per_second{phase="tcp",direction="forward",number="0"} 250000000'
        in lines
    )
    assert (
        'neuca_selftest_finding_share{id="D01",title="receive window too small",severity="limit",end="receiver"} 0.8'
        in lines
    )
    assert lines[-2:] == ["# EOF", ""]


def test_prometheus_names_peer_interface_and_direction():
    lines = metrics(KNOWN).split("\n")
    where = 'peer="172.16.0.2",interface="eth1"'
    assert f"neuca_selftest_verdict{{{where}}} 4" in lines
    assert f"neuca_selftest_timestamp_seconds{{{where}}} 1795377600" in lines
    labels = f'phase="tcp",direction="forward",number="0",{where}'
    assert f"neuca_selftest_rate_bits_per_second{{{labels}}} 250000000" in lines


def test_prometheus_has_no_line_for_what_is_not_known():
    assert metrics(Evidence()).count("\n") == 4


def test_labels_of_prometheus_are_escaped():
    evidence = replace(SMALL, phases=(replace(SMALL.phases[0], name='a"b\\c\nd'),))
    assert 'phase="a\\"b\\\\c\\nd"' in metrics(evidence)


EVIL_NAME = 'e\\t"h\n1\x1b'
OTHER = replace(KNOWN, address="172.16.0.3", local=Host(path=(EVIL_NAME,)))
REPORTED = {
    "one": [SMALL],
    "known": [KNOWN],
    "two peers": [KNOWN, OTHER],
    "a peer twice": [KNOWN, KNOWN],
    "nothing": [Evidence()],
    "a ladder": [FULL],
}


@pytest.mark.parametrize("name", REPORTED)
@pytest.mark.parametrize("form", [openmetrics, text_format], ids=["openmetrics", "text"])
def test_the_official_parsers_read_the_metrics(name, form):
    """No sample is repeated, which node_exporter rejects, and none has a time."""
    tests = [(evidence, diagnose(evidence)) for evidence in REPORTED[name]]
    families = list(form.text_string_to_metric_families(prometheus_text(tests)))
    samples = [sample for family in families for sample in family.samples]
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(set(series)) == len(series) > 0
    assert {sample.timestamp for sample in samples} == {None}
    assert {family.type for family in families} == {"gauge"}
    verdicts = [sample.labels for sample in samples if sample.name == "neuca_selftest_verdict"]
    peers = dict.fromkeys(evidence.address for evidence in REPORTED[name])
    assert [labels.get("peer") for labels in verdicts] == list(peers)


def test_the_metrics_of_every_condition_are_read():
    for evidence in CASES.values():
        list(openmetrics.text_string_to_metric_families(metrics(evidence)))


def test_the_line_for_nagios_has_state_words_and_performance_data():
    assert nagios_line(diagnose(SMALL)) == (
        "DATAPLANE CRITICAL - tcp 250 Mbit/s, D01 receive window too small | "
        "'0-tcp-forward'=250000000"
    )
    (phase,) = SMALL.phases
    odd = replace(SMALL, phases=(replace(phase, name="a='b|c"),))
    assert nagios_line(diagnose(odd)).endswith("| '0-a??b?c-forward'=250000000")
    both = (DATA / "3.12-bidir.json").read_bytes()
    assert re.match(
        r"DATAPLANE \w+ - (?:inconclusive, )?tcp-bidir [\d.]+ Gbit/s, tcp-bidir back [\d.]+ Gbit/s",
        nagios_line(diagnose(evidence_of(both))),
    )
    assert (
        nagios_line(diagnose(Evidence()))
        == "DATAPLANE UNKNOWN - inconclusive, nothing was measured"
    )


def test_every_exit_code_has_a_state_for_nagios():
    assert set(NAGIOS) == set(ExitCode)


# --- The page -------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Every start tag with its attributes; tags that are not closed in order are an error."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def titles(content: str) -> list[str]:
    """Of the figures, and of the panels of the timeline."""
    found = re.findall(r"<figcaption>(.*?)</figcaption>|class=\"title\"[^>]*>(.*?)<", content)
    return [one or other for one, other in found]


PANELS = [
    "Rate (bit/s)",
    "Round-trip time of the connections (s)",
    "Window (bytes)",
    "Retransmits (segments per second)",
    "Where the sender&#x27;s time went",
    "Use of the busiest CPU",
]


def test_the_page_has_every_chart_that_there_is_something_for():
    evidence = replace(FULL, phases=tuple(map(traced, FULL.phases, range(99))))
    content = report_page(evidence, diagnose(evidence))
    Page(content)
    assert titles(content) == ["Over time", *PANELS]


def test_a_closed_window_is_a_point_of_the_chart():
    """What is zero is not what is not known: the line goes down to it."""

    def points(window):
        windows = (window if place == 5 else 3000 for place in range(10))
        samples = (Sample(float(at), (Socket(snd_wnd=size),)) for at, size in enumerate(windows))
        evidence = replace(SMALL, phases=(replace(SMALL.phases[0], sender=tuple(samples)),))
        window = report_page(evidence, diagnose(evidence)).partition("Window (bytes)")[2]
        return window.partition('class="title"')[0].count(",")

    assert points(0) == points(2000) > points(None)


def test_the_page_has_the_steps_of_a_test_and_who_was_tested():
    steps = (
        Step("reach", "pass", "ping answered"),
        Step("udp", "skipped", NOT_ASKED),
        Step("connections", "fail", "<b>"),
    )
    hosts = {
        "local": Host("a", "6.1", agent="2.1"),
        "peer": Host("b", iperf3="3.12"),
        "address": "172.16.0.2",
    }
    evidence = replace(FULL, steps=steps, taken="now", **hosts)
    found = Page(report_page(evidence, diagnose(evidence)))
    assert "now; a, 6.1, neuca 2.1 → b, 172.16.0.2, iperf3 3.12" in found.words
    assert f"neuca-guest-tools {__version__}" in found.words
    cells = [word for word in found.words[found.words.index("Tests") + 1 :] if word.strip()]
    assert cells[:6] == ["reach", "pass", "ping answered", "connections", "fail", "<b>"]
    assert [
        attributes["class"]
        for tag, attributes in found.tags
        if tag == "td" and "class" in attributes
    ] == ["good", "bad"]


COLOURS = {0: "good", 4: "bad", 5: "bad", 6: "unknown", 8: "bad", 9: "unknown"}  # by exit code


def test_every_class_of_a_page_is_styled_and_the_verdict_has_its_colour():
    reports = [(one, diagnose(one)) for one in (FULL, large(), Evidence(), *CASES.values())]
    worse = diagnose(CASES["D18"])._replace(since=ExitCode.WORSE)
    assert 'class="verdict bad"' in report_page(CASES["D18"], worse)
    shown = set()
    for evidence, diagnosis in reports:
        tags = Page(report_page(evidence, diagnosis)).tags
        classes = [tuple(one["class"].split()) for _, one in tags if "class" in one]
        assert ("verdict", COLOURS[diagnosis.exit_code]) in classes
        shown.update(*classes)
    assert {name for name in shown if not re.search(rf"\.{name}\b", STYLE)} == {"info"}


def test_the_page_of_a_text_has_its_rate_and_window():
    evidence = evidence_of(PUBLISHED["vm-tuned-tcp"])
    assert titles(report_page(evidence, diagnose(evidence))) == [
        "Over time",
        "Rate (bit/s)",
        "Window (bytes)",
        "Retransmits (segments per second)",
    ]


def test_the_page_fetches_nothing_and_runs_nothing():
    found = Page(report_page(FULL, diagnose(FULL)))
    assert {tag for tag, _ in found.tags} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "base",
        "form",
    } == set()
    assert [
        name
        for _, attributes in found.tags
        for name in attributes
        if name in ("src", "href") or name.startswith("on")
    ] == []
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    assert [word for word in ("url(", "@import", "//", "expression") if word in STYLE] == []
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) in found.tags


def test_what_is_in_the_evidence_cannot_become_a_tag():
    bad = "<script>alert(1)</script>"
    evidence = replace(
        FULL,
        label=bad,
        taken=bad,
        phases=(replace(FULL.phases[0], name=bad), *FULL.phases[1:]),
        local=Host(log=(f"neighbour table overflow {bad}",), links=(Link(bad, "tun", mtu=1420),)),
    )
    found = Page(report_page(evidence, diagnose(evidence)))
    assert "script" not in {tag for tag, _ in found.tags}
    assert any(bad in words for words in found.words)


def test_a_page_of_nothing_is_a_page():
    assert titles(report_page(Evidence(), diagnose(Evidence()))) == []
    assert "nothing was measured" in report_page(Evidence(), diagnose(Evidence()))


@pytest.mark.parametrize(
    ("top", "found"),
    [
        (941e6, [0, 250e6, 500e6, 750e6, 1e9]),
        (1.0, [0, 0.25, 0.5, 0.75, 1.0]),
        (0, [0, 1]),
        (float("inf"), [0, 1]),
        (7, [0, 2, 4, 6, 8]),
    ],
)
def test_the_ticks_of_an_axis_are_round_numbers(top, found):
    assert round_ticks(top) == pytest.approx(found)


def test_the_ticks_of_a_size_are_round_multiples_of_its_unit():
    mib = 1024.0**2
    assert ticks_of(10 * mib, 3, binary=True) == [0, 5 * mib, 10 * mib]
    assert ticks_of(10, 3, binary=False) == ticks_of(10, 3, binary=True) == [0, 5, 10]


# --- The command ----------------------------------------------------------------------------------------------------


def run(*words) -> int:
    return main([str(word) for word in words], "neuca-selftest")


def test_explain_prints_the_report_and_exits_with_its_code(tmp_path, capsys):
    (tmp_path / "run.txt").write_bytes(PUBLISHED["vm-untuned-udp-100M"])
    assert run("explain", tmp_path / "run.txt") == 4
    out = capsys.readouterr().out
    lost = "26% of the datagrams to the peer were lost; D07, path or receiver overloaded"
    assert f"\nVERDICT     below threshold: {lost}\n" in out
    assert "LIMIT       path or receiver overloaded: 26% of the datagrams were lost" in out


@pytest.mark.parametrize("field", ["MTU9000.rx_errors", "TcpExt.TCPMTUPFail"])
def test_a_counter_is_no_mtu_whatever_its_name(field):
    assert fact_line(Fact(field, 2, 14)) == f"{field}: 2 → 14"


@pytest.mark.parametrize("name", CASES)
def test_every_figure_of_the_evidence_has_a_unit_or_a_name_of_the_kernel(name):
    """Counters, which have the kernel's names and a dot in them, are plain numbers."""
    counts = "retransmits|segments|datagrams|times|streams|intervals|second|hosts|answers|probes|EADDRNOTAVAIL|NUMA"
    for finding in diagnose(CASES[name]).findings:
        for one in finding.evidence:
            line = fact_line(one)
            is_counter = re.match(r"[\w.]+\.[\w.]+: ", line)
            bare = re.search(r": (?:[\d.]+ → )?[\d.]+$", line)
            assert is_counter or not bare or re.search(counts, line), line


def test_every_report_has_the_verdict_that_a_comparison_with_earlier_tests_changes():
    healthy = tcp(flow_of(900e6, snd_cwnd=900), expect=900e6)
    worse = diagnose(healthy)._replace(since=ExitCode.WORSE)
    assert diagnose(healthy).exit_code is ExitCode.PASS
    document = json.loads(report_json(healthy, worse))
    entry = entry_of(healthy, worse, "quick", 4.0, None)
    assert (document["verdict"], document["exit_code"]) == ("worse than before", 7)
    assert (entry["verdict"], entry["exit_code"]) == ("worse than before", 7)
    assert report_text(worse).endswith("\nVERDICT     worse than before, expected 900 Mbit/s")
    assert nagios_line(worse).startswith("DATAPLANE WARNING - worse than before, tcp 900 Mbit/s")
    assert "neuca_selftest_verdict 7\n" in prometheus_text([(healthy, worse)])
    assert "worse than before" in report_page(healthy, worse)


def test_the_largest_buffer_has_a_unit():
    fact = Fact("net.ipv4.tcp_wmem maximum", after=250_000)
    assert fact_line(fact) == "net.ipv4.tcp_wmem maximum: 244 KiB"


def test_the_first_screen_has_twelve_lines():
    """Of the worst published output too: subject, tests, LIMIT, FIX, verdict, guesses."""
    for name, content in PUBLISHED.items():
        diagnosis = diagnose(evidence_of(content))
        report = styled_report(report_text(diagnosis), diagnosis.exit_code, 80, False)
        assert report.count("\n") < 11, name
    many = replace(FULL, phases=FULL.phases * 3)
    assert report_text(diagnose(many)).count("  FAIL\n") == 3
    assert "more tests (--verbose)" in report_text(diagnose(many))
    assert report_text(diagnose(many)).count("\n") < 11
    assert report_text(diagnose(many), verbose=True).count("\n") > 11


def test_explain_writes_the_files_that_are_asked_for(tmp_path, capsys):
    content = DATA / "3.12-tcp.json"
    files = ("--html", tmp_path / "a.html", "--prometheus", tmp_path / "a.prom")
    assert run("explain", content, "--expect", "5G", "--nagios", *files) == 0
    assert re.fullmatch(
        r"DATAPLANE OK - tcp [\d.]+ Gbit/s \| '0-tcp-forward'=\d+\n", capsys.readouterr().out
    )
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "a.prom").read_text().startswith("# HELP neuca_selftest_verdict ")


def test_neuca_selftest_is_the_same_program(capsys):
    assert main(["selftest", "explain", str(DATA / "3.12-busy.json"), "--json"], "neuca") == 9
    assert json.loads(capsys.readouterr().out)["verdict"] == "peer busy"


def test_the_report_states_what_it_is_about(tmp_path, capsys):
    path = tmp_path / "run.txt"
    path.write_text(
        "$ iperf3 -c 10.20.0.9 -V -P2\niperf 3.14\nLinux box 6.1.0 x86_64\n"
        "Time: Mon, 02 Mar 2026 09:10:11 UTC\nConnecting to host 10.20.0.9, port 5201\n"
        "[  5]   0.00-1.00   sec  11.2 MBytes  94.1 Mbits/sec    0    210 KBytes\n"
    )
    assert run("explain", path) == 0
    assert capsys.readouterr().out.splitlines()[0] == (
        f"{path}: iperf3 3.14, Mon, 02 Mar 2026 09:10:11 UTC, peer 10.20.0.9, "
        "options -c 10.20.0.9 -V -P2"
    )
    assert run("explain", path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["subject"] == {
        "file": str(path),
        "tool": "iperf3 3.14",
        "date": "Mon, 02 Mar 2026 09:10:11 UTC",
        "peer": "10.20.0.9",
        "options": "-c 10.20.0.9 -V -P2",
        "system": "Linux box 6.1.0 x86_64",
    }


def test_what_cannot_be_read_is_an_error_with_a_reason(tmp_path, capsys):
    (tmp_path / "empty").write_text("")
    assert run("explain", tmp_path / "empty") == 1
    assert capsys.readouterr().err == (
        "neuca-selftest: read the output of iperf: this is neither iperf3's JSON, nor its text, "
        "nor iperf 2's text\n"
    )


def test_a_document_that_is_not_there_is_an_error(tmp_path, capsys):
    assert run("explain", tmp_path / "none") == 1
    assert (
        capsys.readouterr().err
        == f'neuca-selftest: read "{tmp_path}/none": No such file or directory\n'
    )


@pytest.mark.parametrize(
    "words",
    [
        ["explain"],
        ["explain", "x", "--expect", "fast"],
        ["explain", "x", "--expect", "100"],
        ["--rate", "10"],
        ["explain", "x", "--rtt", "0"],
        ["--plan", "huge"],
        ["--only", "sleep"],
        ["--time", "0"],
        ["--port", "80"],
        ["--parallel", "1,200"],
        ["--for", "1e9"],
        ["--address", "x"],
    ],
)
def test_a_wrong_word_is_a_wrong_usage(words):
    with pytest.raises(SystemExit) as raised:
        run(*words)
    assert raised.value.code == 2


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--nagios", "--plan", "x"],
        ["--nagios", "--plan", "x"],
        ["explain", "--json", "--nagios", "x"],
        ["mesh", "report", "--nagios"],
    ],
)
def test_a_wrong_usage_is_not_critical_for_nagios(words, capsys):
    with pytest.raises(SystemExit) as raised:
        run(*words)
    assert raised.value.code == 3
    assert "usage: " in capsys.readouterr().err


def test_a_numa_node_that_the_host_lacks_is_a_wrong_usage(tmp_path, capsys):
    (tmp_path / "config").write_text("[selftest]\npeers = 172.16.0.2\n")
    assert run("--config", tmp_path / "config", "--numa", "707") == 2
    assert capsys.readouterr().err.endswith("--numa 707: this host has no such NUMA node\n")


def test_without_iperf3_there_is_no_test_and_a_boot_is_not_the_worse_for_it(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    (tmp_path / "config").write_text("[selftest]\npeers = 172.16.0.2\n")
    assert run("--config", tmp_path / "config") == 1
    assert capsys.readouterr().err == (
        "neuca-selftest: run iperf3: it is not installed\n       install the package iperf3 here and on the peer\n"
    )
    assert run("--config", tmp_path / "config", "--at-boot") == 77
    assert capsys.readouterr().err == "neuca-selftest: iperf3 is not installed: no test\n"


def test_an_option_that_the_self_test_does_not_know_is_a_warning(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    (tmp_path / "config").write_text("[selftest]\npeers = 172.16.0.2\npeer = 172.16.0.3\n")
    assert run("--config", tmp_path / "config", "--at-boot") == 77
    assert capsys.readouterr().err.splitlines()[0] == (
        'neuca-selftest: warning: [selftest] "peer": unknown option, ignoring it'
    )


def test_without_a_peer_there_is_nothing_to_test(tmp_path, capsys):
    (tmp_path / "config").write_text("")
    assert run("--config", tmp_path / "config") == 77
    assert capsys.readouterr().err == (
        "neuca-selftest: no PEER, and no [selftest] peers in the configuration: nothing to test\n"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["explain", "--nagios", "/nowhere/a|b"],
            'DATAPLANE UNKNOWN - read "/nowhere/a/b": No such file or directory\n',
        ),
        (
            ["run", "--nagios", "--config", "/dev/null", "172.16.0.2", "--numa", "x"],
            'DATAPLANE UNKNOWN - --numa "x": it is neither a number nor auto\n',
        ),
        (
            ["mesh", "report", "--nagios", "/nowhere"],
            'MESH UNKNOWN - read "/nowhere": No such file or directory\n',
        ),
        # The message on standard error is for people.
        (["run", "--nagios", "--config", "/dev/null"], ""),
    ],
)
def test_what_is_no_result_is_unknown_for_nagios(capsys, words, line):
    assert (run(*words), capsys.readouterr().out) == (3, line)
