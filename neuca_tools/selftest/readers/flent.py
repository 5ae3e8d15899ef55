"""The data files of flent, versions 1 to 4: its TCP series as a run, its pings as latency.

github.com/tohojo/flent at 688fc67, doc/data-format.rst and flent/resultset.py: `x_values` are
seconds, `results` one list of the same length for each series, with null where there is no value,
and `metadata`. Series are named by flent/tests: "TCP upload", "TCP upload BE2" and "TCP upload::3"
are streams in Mbit/s, "TCP upload avg" and "sum" are computed from them, "TCP upload::tcp_rtt" (ms)
and "::tcp_cwnd" (segments) come from ss. Of a series, `SERIES_META` has netperf's summary.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence.run import Flow, Interval, Run, Total
from neuca_tools.selftest.readers.imported import Imported, latency
from neuca_tools.selftest.readers.iperf3_flow import Json
from neuca_tools.selftest.readers.values import (
    known,
    mapping,
    mean,
    number,
    scaled,
    text,
    total,
    whole,
)

READING = "read flent's data"
VERSIONS = range(1, 5)
STREAM = re.compile(r"TCP (upload|download)( (?!avg$|sum$)[^:]{1,40})?(::\d{1,4})?")
PING = re.compile(r"Ping \(ms\)(?! avg$).{0,60}")
DIRECTIONS = {"forward": "upload", "reverse": "download"}
MOST_SECONDS = 86400
# Seconds between two points (STEP_SIZE), and that a last interval has to have.
STEP, SHORTEST = 0.2, 0.5
# A point of a series: seconds and value.
Point = tuple[float, float]


def read(data: object) -> Optional[Imported]:
    """None if this is something else. Raises SelftestError if it has no TCP throughput."""
    document = mapping(data)
    if not {"x_values", "results", "metadata"} <= document.keys():
        return None
    version = document.get("version", 1)
    if version not in VERSIONS:
        raise SelftestError(f"{READING}: its version is {str(version)[:20]}, not one of 1 to 4")
    series = _Series(document)
    flows = [flow for flow in map(series.flow, DIRECTIONS) if flow is not None]
    if not flows:
        raise SelftestError(f"{READING}: it has no TCP upload or download")
    began = min(series.began(flow.direction) for flow in flows)
    pings = series.pings()
    idle = latency([value for at, value in pings if at < began])
    loaded = latency([value for at, value in pings if at >= began])
    return Imported([series.run(flows)], idle.p50, idle, loaded)


class _Series:
    """The series of one file."""

    def __init__(self, document: Json) -> None:
        times = document.get("x_values")
        self._times = [number(one) for one in times] if isinstance(times, list) else []
        self._results = mapping(document.get("results"))
        self._metadata = mapping(document.get("metadata"))
        self._about = mapping(self._metadata.get("SERIES_META"))
        self._known: dict[str, list[Point]] = {}
        self._streams = {direction: self._of(direction) for direction in DIRECTIONS}

    def run(self, flows: Sequence[Flow]) -> Run:
        first = self._meta(self._streams[flows[0].direction][0])
        system = f"{text(self._metadata.get('KERNEL_NAME'))} {self._release()}".strip()
        return Run(
            "flent",
            text(self._metadata.get("FLENT_VERSION")) or None,
            "tcp",
            flows=tuple(flows),
            streams=max(len(self._streams[flow.direction]) for flow in flows),
            duration=number(self._metadata.get("LENGTH")),
            mss=whole(number(first.get("TCP_MSS"))) or None,
            congestion=text(first.get("CONG_CONTROL")) or None,
            peer=text(self._metadata.get("HOST")) or None,
            taken=text(self._metadata.get("TIME")) or None,
            system=system or None,
            options=text(self._metadata.get("NAME")) or None,
        )

    def _release(self) -> str:
        return text(self._metadata.get("KERNEL_RELEASE"))

    def flow(self, direction: str) -> Optional[Flow]:
        """One interval for each second since the first value; None if there is no such series."""
        names = self._streams[direction]
        if not names:
            return None
        began = self.began(direction)
        intervals = self._intervals(names, began)
        means = [number(self._meta(name).get("MEAN_VALUE")) for name in names]
        rate = mean(one.rate for one in intervals)
        if len(known(means)) == len(names):
            rate = scaled(total(means), 1e6)
        sums = Total(
            seconds=intervals[-1].end,
            bytes=total(one.bytes for one in intervals),
            rate=rate,
            retransmits=self._retransmits(names),
        )
        # Each end counts for itself: flent runs on the sender of an upload.
        if direction == "forward":
            return Flow(direction, intervals, sent=sums)
        return Flow(direction, intervals, received=sums)

    def began(self, direction: str) -> float:
        """The time of the first value, in seconds."""
        return min(at for name in self._streams[direction] for at, _ in self._points(name))

    def pings(self) -> list[Point]:
        """The times and round trips, both in seconds, of ICMP if there are such."""
        names = [name for name in self._results if PING.fullmatch(name)]
        chosen = next((name for name in names if name.endswith(" ICMP")), "".join(names[:1]))
        return [(at, value / 1e3) for at, value in self._points(chosen)]

    def _of(self, direction: str) -> list[str]:
        """The streams of a direction that have a value."""
        found = []
        for name in self._results:
            match = STREAM.fullmatch(name)
            if match and match[1] == DIRECTIONS[direction] and self._points(name):
                found.append(name)
        return found

    def _points(self, name: str) -> list[Point]:
        """The values of a series that are known."""
        if name not in self._known:
            values = self._results.get(name)
            both = zip(self._times, values if isinstance(values, list) else [])
            points = ((at, number(value)) for at, value in both)
            self._known[name] = [
                (at, value) for at, value in points if at is not None and value is not None
            ]
        return self._known[name]

    def _meta(self, name: str) -> Json:
        return mapping(self._about.get(name))

    def _retransmits(self, names: Sequence[str]) -> Optional[int]:
        """netperf's counts, which flent keeps as texts; None unless each stream has one."""
        words = [str(self._meta(name).get("TCP_RETRANSMIT")) for name in names]
        if not all(word.isdecimal() and len(word) < 12 for word in words):
            return None
        return sum(map(int, words))

    def _intervals(self, names: Sequence[str], began: float) -> tuple[Interval, ...]:
        rates = self._by_second(names, "", began)
        times = self._by_second(names, "::tcp_rtt", began)
        windows = self._by_second(names, "::tcp_cwnd", began)
        mss = whole(number(self._meta(names[0]).get("TCP_MSS")))
        ended = max(at for name in names for at, _ in self._points(name)) - began
        step = number(self._metadata.get("STEP_SIZE")) or STEP
        found: list[Interval] = []
        for second in sorted(rates):
            end = min(second + 1.0, ended + step)
            if found and end - second < SHORTEST:
                break
            rate = sum(rates[second]) * 1e6
            cwnd = None
            if mss and len(windows.get(second, ())) == len(names):
                cwnd = sum(windows[second]) * mss
            rtt = scaled(mean(times.get(second, ())), 1e-3)
            amount = rate / 8 * (end - second)
            found.append(Interval(second, end, bytes=amount, rate=rate, rtt=rtt, cwnd=cwnd))
        return tuple(found)

    def _by_second(self, names: Sequence[str], suffix: str, began: float) -> dict[int, list[float]]:
        """For each second the mean of each stream that has a value then."""
        found: dict[int, list[float]] = {}
        for name in names:
            for second, values in _seconds(self._points(f"{name}{suffix}"), began).items():
                found.setdefault(second, []).append(sum(values) / len(values))
        return found


def _seconds(points: Iterable[Point], began: float) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for at, value in points:
        if 0 <= at - began < MOST_SECONDS:
            found.setdefault(int(at - began), []).append(value)
    return found
