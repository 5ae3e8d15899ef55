"""The JSON output of iperf3, from 3.7: one object, the same object twice, or lines of events.

Differences between versions (seen with builds of 3.7, 3.9, 3.12, 3.16 and 3.21, and in the release
notes of esnet/iperf): 3.7 and 3.9 write the two directions of `--bidir` under the same keys; 3.7
begins an error with "error - "; 3.9 writes none; 3.12 exits 0 with one; 3.16 and 3.17 may print the
object twice; 3.17 has `--json-stream`.
"""

# SPDX-License-Identifier: MIT

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Connection, Direction, Flow, Interval, Run, Total
from neuca_tools.selftest.readers import gather
from neuca_tools.selftest.readers.iperf3_text import read as read_iperf3_text
from neuca_tools.selftest.readers.values import (
    known_mean,
    known_sum,
    mapping,
    mappings,
    parse_number,
    parse_whole,
    scaled,
    text,
)

MAX_EVENTS = MAX_INTERVALS = 200_000  # two days of events, one each second
MAX_DIGITS = 25  # of an integer (sys.set_int_max_str_digits)
MAX_RUNS = 100  # in one file
RESULT = ("start", "intervals", "end", "error")  # a result has some of these
REVERSE = "_bidir_reverse"  # how iperf3 3.11 and later mark the second direction
# What only the sender knows of an interval of TCP.
WINDOWS: tuple[str, ...] = ("retransmits", "cwnd", "snd_wnd", "rtt")
Json = Mapping[str, Any]


def read(document: str) -> list[Run]:
    """The runs of a document that may have other objects: of `-d`, or of another program.

    One with an `error` if there is no result. Never raises.
    """
    decoder = _json_decoder()
    runs: list[Run] = []
    position, seen, error = document.find("{"), None, "the JSON is not that of iperf3"
    while position >= 0 and len(runs) < MAX_RUNS:
        try:
            data, end = decoder.raw_decode(document, position)
        except json.JSONDecodeError as damage:
            error = _describe_damage(document, damage)
            break
        except RecursionError:
            error = "the JSON cannot be read: it is nested too deeply"
            break
        if "event" in data:
            return runs or [_read_result(_from_events(document[position:], decoder))]
        if (
            _is_result(data) and data != seen
        ):  # iperf3 3.16 and 3.17 may print the same object twice
            runs.append(_read_result(data))
            seen = data
        position = document.find("{", end)
    return runs or [Run("iperf3", error=error, unreadable=True)]


def _is_result(data: Json) -> bool:
    """Whether iperf3 printed it: an interval has a "start" and an "end" too, which are numbers."""
    return not data or any(not isinstance(data.get(key, 0), (int, float)) for key in RESULT)


def _json_decoder() -> json.JSONDecoder:
    """For JSON of any version; an integer of thousands of digits, which int() refuses, is None."""
    return json.JSONDecoder(
        object_pairs_hook=_merge_pairs,
        parse_int=lambda digits: int(digits) if len(digits) <= MAX_DIGITS else None,
    )


def _merge_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """In 3.7 and 3.9 both directions have one key, the sender's first (iperf_api.c, lower_mode)."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members and key.startswith("sum"):
            key += REVERSE
        members[key] = value
    return members


def _describe_damage(document: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(document.rstrip()) or error.msg.startswith("Unterminated string"):
        line = document.count("\n", 0, error.pos) + 1
        return f"the JSON ends at line {line}: it was truncated"
    return f"the JSON is broken at line {error.lineno}, column {error.colno}: {error.msg}"


def _from_events(document: str, decoder: json.JSONDecoder) -> Json:
    """The output of `--json-stream`: one event on each line; a broken line is skipped."""
    intervals: list[Any] = []
    parts: dict[str, Any] = {"intervals": intervals}
    for line in document.split("\n")[:MAX_EVENTS]:
        try:
            event = mapping(decoder.decode(line))
        except (RecursionError, json.JSONDecodeError):
            continue
        name = text(event.get("event"))
        if name == "interval":
            intervals.append(event.get("data"))
        elif name:
            parts[name] = event.get("data")
    return parts


def _read_result(document: Json) -> Run:
    start, end = mapping(document.get("start")), mapping(document.get("end"))
    requested = mapping(start.get("test_start"))
    cpu = mapping(end.get("cpu_utilization_percent"))
    streams = parse_whole(requested.get("num_streams"))
    return Run(
        tool="iperf3",
        version=text(start.get("version")).replace("iperf ", "") or None,
        protocol=text(requested.get("protocol")).lower() or None,
        flows=_read_flows(document, requested),
        connections=tuple(_read_connections(start)),
        streams=streams,
        duration=parse_number(requested.get("duration")),
        target=scaled(parse_number(requested.get("target_bitrate")), streams or 1),
        datagram=parse_whole(requested.get("blksize")),
        buffer=_positive_number(start, "sock_bufsize"),
        mss=parse_whole(_positive_number(start, "tcp_mss", "tcp_mss_default")),
        congestion=text(end.get("sender_tcp_congestion")) or None,
        cpu_local=parse_number(cpu.get("host_total")),
        cpu_remote=parse_number(cpu.get("remote_total")),
        peer=_find_peer(start) or None,
        taken=text(mapping(start.get("timestamp")).get("time")) or None,
        system=text(start.get("system_info")) or None,
        options=_describe_options(requested) or None,
        error=_find_error(document, end),
    )


def _find_peer(start: Json) -> str:
    ends = (mapping(start.get(key)) for key in ("connecting_to", "accepted_connection"))
    return next(filter(None, (text(end.get("host")) for end in ends)), "")


def _describe_options(requested: Json) -> str:
    """What the test was asked to do, as options of iperf3(1)."""
    words = []
    numbers = {"-P": "num_streams", "-t": "duration", "-l": "blksize", "-O": "omit"}
    for option, key in numbers.items():
        value = parse_number(requested.get(key)) or 0
        if value > (1 if option == "-P" else 0):
            words.append(f"{option} {value:.0f}")
    flags = (("-R", "reverse"), ("--bidir", "bidir"))
    words += [option for option, key in flags if requested.get(key)]
    return " ".join(words)


def _read_flows(document: Json, requested: Json) -> tuple[Flow, ...]:
    intervals = mappings(document.get("intervals"))
    end = mapping(document.get("end"))
    if not intervals and not end:
        return ()
    keys = {key for part in (end, *intervals[:1]) for key in part}
    if requested.get("bidir") or any(key.endswith(REVERSE) for key in keys):
        return (
            _read_flow(document, "forward", "", True),
            _read_flow(document, "reverse", REVERSE, False),
        )
    return (_read_single_flow(document, requested),)


def _read_single_flow(document: Json, requested: Json) -> Flow:
    """With what only the server counted of each interval, if it reported (--get-server-output)."""
    direction: Direction = "reverse" if requested.get("reverse") else "forward"
    server_counts = WINDOWS
    if direction == "forward":
        is_udp = text(requested.get("protocol")).lower() == "udp"
        server_counts = ("lost",) if is_udp else ()
    flow = _read_flow(document, direction)
    if document.get("server_output_json"):
        server = _read_flow(mapping(document["server_output_json"]), direction)
    else:
        flows = read_iperf3_text(text(document.get("server_output_text"))).flows
        if not flows:
            return flow
        server = flows[0]
    unit = gather.usual_length(server.intervals)
    by_start = {round(interval.start / unit): interval for interval in server.intervals}
    merged = []
    for interval in flow.intervals:
        other = by_start.get(round(interval.start / unit), interval)
        merged.append(replace(interval, **{name: getattr(other, name) for name in server_counts}))
    return replace(flow, intervals=tuple(merged))


def _read_connections(start: Json) -> list[Connection]:
    connections = []
    for socket in mappings(start.get("connected")):
        local, remote = text(socket.get("local_host")), text(socket.get("remote_host"))
        local_port = parse_whole(socket.get("local_port"))
        remote_port = parse_whole(socket.get("remote_port"))
        if local and remote and local_port is not None and remote_port is not None:
            connections.append(Connection(local, local_port, remote, remote_port))
    return connections


def _find_error(document: Json, end: Json) -> Optional[str]:
    reason = text(document.get("error")).removeprefix("error - ")
    return reason or (None if end else "iperf3 ended without a result or an error message")


def _read_flow(
    document: Json, direction: Direction, suffix: str = "", sender: Optional[bool] = None
) -> Flow:
    """One direction; `suffix` is that of its sums' keys.

    `sender` selects the streams whose own end sends (True) or receives (False); None selects all.
    """
    parts = mappings(document.get("intervals"))[:MAX_INTERVALS]
    known = (_read_interval(part, suffix, sender) for part in parts)
    # With an error, iperf3 may print the last one twice.
    intervals = tuple(dict.fromkeys(filter(None, known)))
    totals = _read_totals(document, suffix, sender)
    sent, received = (gather.without_zeros(total, intervals) for total in totals)
    return Flow(direction, intervals, replace(sent, lost=None), received)


def _read_interval(document: Json, suffix: str, sender: Optional[bool]) -> Optional[Interval]:
    streams = _select_streams(mappings(document.get("streams")), sender)
    summed = mapping(document.get(f"sum{suffix}"))
    if not summed and len(streams) == 1:
        summed = streams[0]
    start, end = parse_number(summed.get("start")), parse_number(summed.get("end"))
    if start is None or end is None:
        return None
    amounts = _read_total(summed)
    cwnds, windows, rtts = (
        [_positive_number(stream, key) for stream in streams]
        for key in ("snd_cwnd", "snd_wnd", "rtt")
    )
    return Interval(
        start,
        end,
        bytes=amounts.bytes,
        rate=amounts.rate,
        retransmits=amounts.retransmits,
        cwnd=known_sum(cwnds),
        snd_wnd=known_sum(windows),
        rtt=scaled(known_mean(rtts), 1e-6),
        datagrams=amounts.datagrams,
        lost=amounts.lost,
        omitted=summed.get("omitted") is True,
    )


def _select_streams(streams: list[Json], sender: Optional[bool]) -> list[Json]:
    """The streams whose own end sends, if `sender`; one that does not say so belongs to either."""
    if sender is None:
        return streams
    return [stream for stream in streams if stream.get("sender", sender) is sender]


def _positive_number(document: Json, *keys: str) -> Optional[float]:
    """The first that is not zero, which iperf3 writes where the kernel or it has no value."""
    return next(filter(None, map(parse_number, map(document.get, keys))), None)


def _read_totals(document: Json, suffix: str, sender: Optional[bool]) -> tuple[Total, Total]:
    """What was sent, and what was received.

    For UDP, 3.7 and 3.9 write only `sum`: what was sent, with the receiver's count of losses.
    """
    end = mapping(document.get("end"))
    # A server does not know what its client received.
    is_of_server = mapping(document.get("start")).get("accepted_connection")
    both = mapping(end.get(f"sum{suffix}"))
    sent = _read_total(mapping(end.get(f"sum_sent{suffix}")) or both)
    summed = mapping(end.get(f"sum_received{suffix}"))
    if is_of_server and summed and not parse_number(summed.get("bytes")):
        return sent, Total()
    if not summed and parse_number(both.get("lost_percent")) is not None:
        lost = parse_whole(both.get("lost_packets"))
        received = gather.received_total(sent, lost, sent.datagrams)
    else:
        # Where the receiver's sum lacks a number, `sum` may have it.
        received = gather.with_missing_tail(_read_total({**both, **summed}), sent.datagrams)
    streams = [mapping(stream.get("udp")) for stream in mappings(end.get("streams"))]
    counts = [stream.get("out_of_order") for stream in _select_streams(streams, sender)]
    out_of_order = parse_whole(known_sum(map(parse_number, counts)))
    return sent, replace(received, out_of_order=out_of_order)


def _read_total(summed: Json) -> Total:
    return Total(
        seconds=parse_number(summed.get("seconds")),
        bytes=parse_number(summed.get("bytes")),
        rate=parse_number(summed.get("bits_per_second")),
        retransmits=parse_whole(summed.get("retransmits")),
        datagrams=parse_whole(summed.get("packets")),
        lost=parse_whole(summed.get("lost_packets")),
    )
