"""A run has the same numbers in every form that iperf3, or whoever passes it on, gives it."""

from __future__ import annotations

import json
import random

import pytest

from neuca_tools.selftest.readers.documents import read_all

SECONDS = 4
UNITS = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 8 * 2**10, "M": 8 * 2**20, "G": 8 * 2**30}
NAMES = {"k": "Kbits/sec", "m": "Mbits/sec", "g": "Gbits/sec"}
NAMES |= {"K": "KBytes/sec", "M": "MBytes/sec", "G": "GBytes/sec"}


def digits(value: float) -> str:
    """As unit_snprintf of iperf3 prints a number: three digits, or more before the point."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def size(count: float) -> str:
    at = 0
    while count >= 1024 and at < 3:
        count, at = count / 1024, at + 1
    return f"{digits(count)} {'KMG'[at - 1] if at else ''}Bytes"


def speed(rate: float, unit: str) -> str:
    if unit:
        return f"{digits(rate / UNITS[unit])} {NAMES[unit]}"
    step = next(step for step in ("g", "m", "k") if rate >= UNITS[step] or step == "k")
    return f"{digits(rate / UNITS[step])} {NAMES[step]}"


def run(seed: int, streams: int) -> list[list[dict[str, float]]]:
    """What each stream sent in each second."""
    dice = random.Random(seed)
    usual = dice.choice((3e4, 6e5, 1.2e7, 1.1e8, 1.2e9))
    return [
        [
            {
                "bytes": round(usual * dice.uniform(0.5, 1.5)),
                "retransmits": dice.choice((0, 0, 7, 130)),
                "cwnd": dice.choice((1448, 85_000, 3_100_000)),
            }
            for _ in range(streams)
        ]
        for _ in range(SECONDS)
    ]


def row(name: str, start: float, end: float, count: float, rest: str, unit: str) -> str:
    rate = speed(count * 8 / (end - start), unit)
    return f"[{name:>3}] {start:6.2f}-{end:<6.2f} sec  {size(count)}  {rate}  {rest}"


def text(seconds: list[list[dict[str, float]]], unit: str = "", each: float = 1) -> str:
    """The client's output, of intervals of so many seconds."""
    lines = ["Connecting to host 203.0.113.20, port 5201"]
    ids = [str(5 + 2 * at) for at in range(len(seconds[0]))]
    for name in ids:
        local = f"local 198.51.100.7 port {41000 + int(name)}"
        lines.append(f"[{name:>3}] {local} connected to 203.0.113.20 port 5201")
    lines.append("[ ID] Interval           Transfer     Bitrate         Retr  Cwnd")
    for at, second in enumerate(seconds):
        for name, one in zip(ids, second):
            rest = f"{one['retransmits']:4}   {size(one['cwnd'])}       "
            lines.append(row(name, at * each, (at + 1) * each, one["bytes"], rest, unit))
        if len(ids) > 1:
            sums = {key: sum(one[key] for one in second) for key in ("bytes", "retransmits")}
            rest = f"{sums['retransmits']:4}             "
            whole = row("SUM", at * each, (at + 1) * each, sums["bytes"], rest, unit)
            lines += [whole, "- - - - - - - - - - -"]
    lines += ["- - - - - - - - - - -", "[ ID] Interval           Transfer     Bitrate         Retr"]
    totals = [
        (sum(second[at]["bytes"] for second in seconds), sum(s[at]["retransmits"] for s in seconds))
        for at in range(len(ids))
    ]
    if len(ids) > 1:
        ids, totals = [*ids, "SUM"], [*totals, tuple(map(sum, zip(*totals)))]
    for name, (count, again) in zip(ids, totals):
        lines.append(
            row(name, 0, len(seconds) * each, count, f"{again:4}             sender", unit)
        )
        lines.append(row(name, 0, len(seconds) * each, count, "                  receiver", unit))
    return "\n".join([*lines, "", "iperf Done.", ""])


def as_json(seconds: list[list[dict[str, float]]]) -> str:
    intervals, names = [], range(len(seconds[0]))
    for at, second in enumerate(seconds):
        span = {"start": at, "end": at + 1, "seconds": 1}
        counts = [{**span, "bytes": one["bytes"], **bits(one["bytes"], 1)} for one in second]
        streams = [
            {**count, "retransmits": one["retransmits"], "snd_cwnd": one["cwnd"], "sender": True}
            for count, one in zip(counts, second)
        ]
        sums = {key: sum(one[key] for one in second) for key in ("bytes", "retransmits")}
        intervals.append({"streams": streams, "sum": {**span, **sums, **bits(sums["bytes"], 1)}})
    total = sum(one["bytes"] for second in seconds for one in second)
    again = sum(one["retransmits"] for second in seconds for one in second)
    length = len(seconds)
    whole = {"start": 0, "end": length, "seconds": length, "bytes": total, **bits(total, length)}
    end = {"sum_sent": {**whole, "retransmits": again}, "sum_received": whole}
    start = {"test_start": {"protocol": "TCP", "num_streams": len(names)}}
    return json.dumps({"start": start, "intervals": intervals, "end": end})


def bits(count: float, seconds: float) -> dict[str, float]:
    return {"bits_per_second": count * 8 / seconds}


def assert_alike(content: bytes, wanted: bytes) -> None:
    (found,), (known,) = read_all(content), read_all(wanted)
    assert (found.error, found.streams, len(found.flows)) == (None, known.streams, 1)
    (flow,), (other) = found.flows, known.flows[0]
    assert len(flow.intervals) == len(other.intervals)
    for one, two in zip(flow.intervals, other.intervals):
        # Three digits, of each of up to four streams.
        assert one.bytes == pytest.approx(two.bytes, rel=0.006)
        assert one.rate == pytest.approx(two.rate, rel=0.006)
        assert one.cwnd == pytest.approx(two.cwnd, rel=0.006)
        assert one.retransmits == two.retransmits
    for one, two in ((flow.sent, other.sent), (flow.received, other.received)):
        assert one.rate == pytest.approx(two.rate, rel=0.006)
        assert one.bytes == pytest.approx(two.bytes, rel=0.006)
    assert flow.sent.retransmits == other.sent.retransmits


@pytest.mark.parametrize("unit", ["", "k", "m", "g", "K", "M", "G"])
@pytest.mark.parametrize("seed", range(6))
def test_text_and_json_of_a_run_have_the_same_numbers(seed, unit):
    seconds = run(seed, streams=1 + seed % 4)
    assert_alike(text(seconds, unit).encode(), as_json(seconds).encode())


def every_line(form: str):
    return lambda content: "\n".join(form.format(line) for line in content.split("\n"))


PASSED_ON = {
    "mail": every_line("> {}"),
    "a reply to a mail": every_line("> > {}"),
    "a patch's notes": every_line("    {}"),
    "ts(1)": every_line("Nov 24 06:10:29 {}"),
    "--timestamps": every_line("Tue Nov 24 06:10:29 2026 {}"),
    "a timestamp in brackets": every_line("[2026-11-24T06:10:29.123Z] {}"),
    "kubectl": every_line("iperf3-client-757995fccd-ftv6s {}"),
    "docker compose": every_line("client_1  | {}"),
    "journalctl": every_line("Nov 24 06:10:29 host iperf3[1234]: {}"),
    "a title (-T)": every_line("run 3:  {}"),
    "a serial console": lambda content: content.replace("\n", "\r\n"),
    "two carriage returns": lambda content: content.replace("\n", "\r\r\n"),
    "a byte order mark": lambda content: "\ufeff" + content,
    "colours": every_line("\x1b[32m{}\x1b[0m"),
    "tabs": lambda content: content.replace("  ", "\t"),
    "Markdown": lambda content: f"Results:\n\n```console\n{content}```\n",
    "a list in Markdown": every_line("   * {}"),
    "lines with breaks": every_line("{}<br/>"),
    "HTML": lambda content: "<pre>" + content.replace("\n", "<br>\n") + "</pre>",
    "HTML in one line": lambda content: content.replace("\n", "<br />"),
    "an escaped string": json.dumps,
}


@pytest.mark.parametrize("form", PASSED_ON)
@pytest.mark.parametrize("streams", [1, 3])
def test_a_run_has_the_same_numbers_however_it_is_passed_on(form, streams):
    seconds = run(streams, streams)
    assert_alike(PASSED_ON[form](text(seconds)).encode(), as_json(seconds).encode())
