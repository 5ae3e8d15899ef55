"""The JSON output of iperf3, from 3.7: one object, the same object twice, or lines of events.

Differences between versions (seen with builds of 3.7, 3.9, 3.12, 3.16 and 3.21, and in the release
notes of esnet/iperf): 3.7 and 3.9 write the two directions of `--bidir` under the same keys; 3.7
begins an error with "error - "; 3.9 writes none; 3.12 exits 0 with one; 3.16 and 3.17 may print the
object twice; 3.17 has `--json-stream`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Connection, Flow, Interval, Run, Total
from neuca_tools.selftest.readers import values
from neuca_tools.selftest.readers.gather import received_total, usual_length, without_zeros
from neuca_tools.selftest.readers.iperf3_text import read as read_iperf3_text

MAX_EVENTS = 200_000  # two days of events, one each second
MAX_DIGITS = 25  # of an integer; int() refuses thousands of them
MAX_RUNS = 100  # in one file
NESTED = 5  # objects and lists, one in the other, before a result
# What a result has some of; intervals have a "start" and an "end" too, which are numbers.
RESULT = {"start": dict, "intervals": list, "end": dict, "error": str}
REVERSE = "_bidir_reverse"  # how iperf3 3.11 and later mark the second direction
_TRAILING_COMMA = re.compile(r",\s*([\]}])")  # left behind where intervals were cut out by hand


def read(document: str) -> Run:
    """Parse a run. Never raises: if the JSON cannot be read, the run has an `error`."""
    start = document.find("{")
    if start < 0:
        return Run("iperf3", error="not a JSON object", unreadable=True)
    decoder = json_decoder()
    try:
        data, _, document = _decode_object(decoder, document, start)
    except json.JSONDecodeError as error:
        return Run("iperf3", error=_describe_damage(document, error), unreadable=True)
    except RecursionError:
        reason = "the JSON cannot be read: it is nested too deeply"
        return Run("iperf3", error=reason, unreadable=True)
    if "event" in data and "data" in data:
        return read_result(_from_events(document[start:], decoder))
    return read_result(data)


def read_results(document: str) -> list[Run]:
    """Each result in a document that may have others: of `-d`, or of several runs.

    Empty if there is none, or only one that cannot be decoded or that consists of events.
    """
    decoder = json_decoder()
    results: list[Run] = []
    position, seen = document.find("{"), None
    while position >= 0 and len(results) < MAX_RUNS:
        try:
            data, end, document = _decode_object(decoder, document, position)
        except (RecursionError, json.JSONDecodeError):
            return results
        if "event" in data:
            return results
        # iperf3 3.16 and 3.17 may print the same object twice.
        if _is_result(data) and data != seen:
            results.append(read_result(data))
            seen = data
        elif not _is_result(data):
            results += map(read_result, _nested_results(data, NESTED))
        position = document.find("{", end)
    return results[:MAX_RUNS]


def _is_result(data: Json) -> bool:
    return any(isinstance(data.get(key), kind) for key, kind in RESULT.items())


def _nested_results(value: object, depth: int) -> Iterator[Json]:
    """The results in a document of another program."""
    if depth == 0 or not isinstance(value, (dict, list)):
        return
    if isinstance(value, dict) and {"start", "end"} <= value.keys() and _is_result(value):
        yield value
        return
    for part in value.values() if isinstance(value, dict) else value:
        yield from _nested_results(part, depth - 1)


def _decode_object(decoder: json.JSONDecoder, document: str, start: int) -> tuple[Any, int, str]:
    """The object at `start`, its end, and the document: repaired if that was necessary."""
    try:
        return *decoder.raw_decode(document, start), document
    except json.JSONDecodeError:
        # What comes before was read already, and positions in it must not change.
        repaired = document[:start] + _TRAILING_COMMA.sub(r"\1", document[start:])
        return *decoder.raw_decode(repaired, start), repaired


def json_decoder() -> json.JSONDecoder:
    """For JSON of any version."""
    return json.JSONDecoder(object_pairs_hook=_merge_pairs, parse_int=_parse_integer)


def _merge_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """In 3.7 and 3.9 both directions have one key, the sender's first (iperf_api.c, lower_mode)."""
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members and key.startswith("sum"):
            key += REVERSE
        members[key] = value
    return members


def _parse_integer(digits: str) -> Optional[int]:
    """int() raises ValueError for thousands of digits (sys.set_int_max_str_digits)."""
    return int(digits) if len(digits) <= MAX_DIGITS else None


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
            event = values.mapping(decoder.decode(line))
        except (RecursionError, json.JSONDecodeError):
            continue
        name = values.text(event.get("event"))
        if name == "interval":
            intervals.append(event.get("data"))
        elif name:
            parts[name] = event.get("data")
    return parts


def read_result(document: Json) -> Run:
    start, end = values.mapping(document.get("start")), values.mapping(document.get("end"))
    requested = values.mapping(start.get("test_start"))
    cpu = values.mapping(end.get("cpu_utilization_percent"))
    streams = values.parse_whole(requested.get("num_streams"))
    return Run(
        tool="iperf3",
        version=values.text(start.get("version")).replace("iperf ", "") or None,
        protocol=values.text(requested.get("protocol")).lower() or None,
        flows=_read_flows(document, requested),
        connections=tuple(_read_connections(start)),
        streams=streams,
        duration=values.parse_number(requested.get("duration")),
        target=values.scaled(values.parse_number(requested.get("target_bitrate")), streams or 1),
        datagram=values.parse_whole(requested.get("blksize")),
        buffer=positive_number(start, "sock_bufsize"),
        sndbuf=positive_number(start, "sndbuf_actual"),
        rcvbuf=positive_number(start, "rcvbuf_actual"),
        mss=values.parse_whole(positive_number(start, "tcp_mss", "tcp_mss_default")),
        congestion=values.text(end.get("sender_tcp_congestion")) or None,
        cpu_local=values.parse_number(cpu.get("host_total")),
        cpu_remote=values.parse_number(cpu.get("remote_total")),
        peer=_find_peer(start) or None,
        taken=values.text(values.mapping(start.get("timestamp")).get("time")) or None,
        system=values.text(start.get("system_info")) or None,
        options=_describe_options(requested) or None,
        error=_find_error(document, end),
        notes=() if start else ('no "start": the document is incomplete',),
    )


def _find_peer(start: Json) -> str:
    ends = (values.mapping(start.get(key)) for key in ("connecting_to", "accepted_connection"))
    return next(filter(None, (values.text(end.get("host")) for end in ends)), "")


def _describe_options(requested: Json) -> str:
    """What the test was asked to do, as options of iperf3(1)."""
    named = (
        ("-P", "num_streams", 1),
        ("-t", "duration", 0),
        ("-l", "blksize", 0),
        ("-O", "omit", 0),
    )
    words = [
        f"{option} {value:.0f}"
        for option, key, usual in named
        if (value := values.parse_number(requested.get(key)) or 0) > usual
    ]
    flags = (("-R", "reverse"), ("--bidir", "bidir"))
    words += [option for option, key in flags if requested.get(key)]
    return " ".join(words)


def _read_flows(document: Json, requested: Json) -> tuple[Flow, ...]:
    intervals = values.mappings(document.get("intervals"))
    end = values.mapping(document.get("end"))
    if not intervals and not end:
        return ()
    keys = {key for part in (end, *intervals[:1]) for key in part}
    if requested.get("bidir") or any(key.endswith(REVERSE) for key in keys):
        return (
            read_flow(document, "forward", "", True),
            read_flow(document, "reverse", REVERSE, False),
        )
    if not requested.get("reverse"):
        return (_read_forward(document, values.text(requested.get("protocol")).lower()),)
    received, sent = read_flow(document, "reverse"), _flow_of_server(document, "reverse")
    return (with_counts(received, sent, WINDOWS) if sent else received,)


def _read_forward(document: Json, protocol: str) -> Flow:
    sent = read_flow(document, "forward")
    received = _flow_of_server(document, "forward") if protocol == "udp" else None
    return with_counts(sent, received, ["lost"]) if received else sent


def _flow_of_server(document: Json, direction: str) -> Optional[Flow]:
    """What the server reported (--get-server-output)."""
    as_json = document.get("server_output_json")
    if as_json:
        return read_flow(values.mapping(as_json), direction)
    flows = read_iperf3_text(values.text(document.get("server_output_text"))).flows
    return next(iter(flows), None)


def _read_connections(start: Json) -> list[Connection]:
    connections = []
    for socket in values.mappings(start.get("connected")):
        local, remote = (
            values.text(socket.get("local_host")),
            values.text(socket.get("remote_host")),
        )
        local_port, remote_port = (
            values.parse_whole(socket.get("local_port")),
            values.parse_whole(socket.get("remote_port")),
        )
        if local and remote and local_port is not None and remote_port is not None:
            connections.append(Connection(local, local_port, remote, remote_port))
    return connections


def _find_error(document: Json, end: Json) -> Optional[str]:
    reason = values.text(document.get("error"))
    if reason:
        return reason.removeprefix("error - ")
    if not end:
        return "iperf3 ended without a result or an error message"
    return None


# --- One direction: its intervals, and what each end counted --------------------------------------


Json = Mapping[str, Any]
MAX_INTERVALS = 200_000  # two days of intervals, one each second
# What only the sender knows of an interval of TCP.
WINDOWS = ("retransmits", "cwnd", "snd_wnd", "rtt", "pmtu")
# The receiver counts gaps between datagrams, and so misses those lost after the last one that it
# received. This share of them may still be in flight when the test ends.
MAX_IN_FLIGHT = 0.1


def read_flow(
    document: Json, direction: str, suffix: str = "", sender: Optional[bool] = None
) -> Flow:
    """One direction; `suffix` is that of its sums' keys.

    `sender` selects the streams whose own end sends (True) or receives (False); None selects all.
    """
    every = values.mappings(document.get("intervals"))[:MAX_INTERVALS]
    intervals = tuple(
        filter(None, (_read_interval(interval, suffix, sender) for interval in every))
    )
    totals = _read_totals(
        values.mapping(document.get("end")), suffix, sender, _is_of_server(document)
    )
    sent, received = (without_zeros(end_total, intervals) for end_total in totals)
    return Flow(direction, intervals, replace(sent, lost=None, jitter=None), received)


def with_counts(flow: Flow, server: Flow, names: Sequence[str]) -> Flow:
    """Take these fields of each interval from the server, because only it knows them."""
    unit = usual_length(server.intervals)
    by_start = {round(interval.start / unit): interval for interval in server.intervals}
    merged = []
    for interval in flow.intervals:
        other = by_start.get(round(interval.start / unit), interval)
        merged.append(replace(interval, **{name: getattr(other, name) for name in names}))
    return replace(flow, intervals=tuple(merged))


def _read_interval(document: Json, suffix: str, sender: Optional[bool]) -> Optional[Interval]:
    streams = _select_streams(values.mappings(document.get("streams")), sender)
    summed = values.mapping(document.get(f"sum{suffix}"))
    if not summed and len(streams) == 1:
        summed = streams[0]
    start, end = values.parse_number(summed.get("start")), values.parse_number(summed.get("end"))
    if start is None or end is None:
        return None
    amounts = _read_total(summed)
    pmtu = min(
        (value for stream in streams if (value := positive_number(stream, "pmtu"))), default=None
    )
    return Interval(
        start,
        end,
        bytes=amounts.bytes,
        rate=amounts.rate,
        retransmits=amounts.retransmits,
        cwnd=values.known_sum(positive_number(stream, "snd_cwnd") for stream in streams),
        snd_wnd=values.known_sum(positive_number(stream, "snd_wnd") for stream in streams),
        rtt=values.scaled(
            values.known_mean(positive_number(stream, "rtt") for stream in streams), 1e-6
        ),
        pmtu=values.parse_whole(pmtu),
        datagrams=amounts.datagrams,
        lost=amounts.lost,
        jitter=amounts.jitter,
        omitted=summed.get("omitted") is True,
    )


def _select_streams(streams: list[Json], sender: Optional[bool]) -> list[Json]:
    """The streams whose end is `sender`; one that does not say so belongs to either."""
    return [
        stream for stream in streams if sender is None or stream.get("sender", sender) is sender
    ]


def positive_number(document: Json, *keys: str) -> Optional[float]:
    """The first that is not zero, which iperf3 writes where the kernel or it has no value."""
    return next(filter(None, map(values.parse_number, map(document.get, keys))), None)


def _is_of_server(document: Json) -> bool:
    """Whether a server wrote this, which does not know what its client received."""
    return bool(values.mapping(values.mapping(document.get("start")).get("accepted_connection")))


def _read_totals(
    end: Json, suffix: str, sender: Optional[bool], is_of_server: bool
) -> tuple[Total, Total]:
    """What was sent, and what was received.

    For UDP, 3.7 and 3.9 write only `sum`: what was sent, with the receiver's count of losses.
    """
    both = values.mapping(end.get(f"sum{suffix}"))
    sent = _read_total(values.mapping(end.get(f"sum_sent{suffix}")) or both)
    summed = values.mapping(end.get(f"sum_received{suffix}"))
    if is_of_server and summed and not values.parse_number(summed.get("bytes")):
        return sent, Total()
    if not summed and values.parse_number(both.get("lost_percent")) is not None:
        received = received_total(
            sent, values.parse_whole(both.get("lost_packets")), sent.datagrams
        )
    else:
        # Where the receiver's sum lacks a number, `sum` may have it.
        received = _with_missing_tail(_read_total({**both, **summed}), sent.datagrams)
    return sent, replace(received, out_of_order=_out_of_order(end, sender))


def _with_missing_tail(received: Total, sent: Optional[int]) -> Total:
    """Count the datagrams that were lost after the last one that was received."""
    if not sent or received.datagrams is None or received.lost is None:
        return received
    missing = sent - received.datagrams
    if missing <= MAX_IN_FLIGHT * sent:
        return received
    return replace(received, datagrams=sent, lost=received.lost + missing)


def _out_of_order(end: Json, sender: Optional[bool]) -> Optional[int]:
    streams = [values.mapping(stream.get("udp")) for stream in values.mappings(end.get("streams"))]
    return values.parse_whole(
        values.known_sum(
            values.parse_number(stream.get("out_of_order"))
            for stream in _select_streams(streams, sender)
        )
    )


def _read_total(summed: Json) -> Total:
    return Total(
        seconds=values.parse_number(summed.get("seconds")),
        bytes=values.parse_number(summed.get("bytes")),
        rate=values.parse_number(summed.get("bits_per_second")),
        retransmits=values.parse_whole(summed.get("retransmits")),
        datagrams=values.parse_whole(summed.get("packets")),
        lost=values.parse_whole(summed.get("lost_packets")),
        jitter=values.scaled(values.parse_number(summed.get("jitter_ms")), 1e-3),
    )
