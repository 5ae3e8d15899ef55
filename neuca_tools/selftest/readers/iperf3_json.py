"""iperf3's JSON, of 3.7 to the newest: one object, the same object twice, or lines of events.

What versions do (seen with builds of 3.7, 3.9, 3.12, 3.16 and 3.21, and in esnet/iperf's RELNOTES): 3.7 and 3.9 write the
two directions of `--bidir` under the same keys; 3.7 begins an error with "error - "; 3.9 writes none; 3.12 exits 0 with one;
3.16 and 3.17 may print the object twice; 3.17 has `--json-stream`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Connection, Flow, Run
from neuca_tools.selftest.readers.iperf3_flow import flow, with_windows
from neuca_tools.selftest.readers.iperf3_text import read as read_iperf3_text
from neuca_tools.selftest.readers.values import mapping, mappings, number, text, whole

MOST_EVENTS = 200_000  # two days of seconds
MOST_DIGITS = 25
REVERSE = "_bidir_reverse"  # how iperf3 3.11 and later mark the second direction


def read(document: str) -> Run:
    """The run that a document tells of. Never raises: what cannot be read is the run's `error`."""
    start = document.find("{")
    if start < 0:
        return Run("iperf3", error="this is no JSON object")
    try:
        first, end = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer).raw_decode(
            document, start
        )
        rest = document[end:].strip()
        if "event" in first and "data" in first:
            first = _from_events(document[start:])
            rest = ""
    except json.JSONDecodeError as error:
        return Run("iperf3", error=_broken(document, error))
    except RecursionError:
        return Run("iperf3", error="the JSON cannot be read: it is nested too deeply")
    notes = (f"{len(rest)} characters after the first JSON object, ignoring",) if rest else ()
    return _run(mapping(first), notes)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """3.7 and 3.9 give both directions one name: the sender's comes first (`lower_mode` in their iperf_api.c)."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[f"{key}{REVERSE}" if key in found and key.startswith("sum") else key] = value
    return found


def _integer(digits: str) -> Optional[int]:
    """Newer interpreters refuse thousands of digits with an exception of their own; nothing that is measured has so many."""
    return int(digits) if len(digits) <= MOST_DIGITS else None


def _broken(document: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(document.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"the JSON ends in the middle, at line {document.count(chr(10), 0, error.pos) + 1}: it was truncated"
    return f"the JSON is broken at line {error.lineno}, column {error.colno}: {error.msg}"


def _from_events(document: str) -> dict[str, Any]:
    """`--json-stream`: one event on each line; a last line that was cut off is passed over."""
    whole_document: dict[str, Any] = {"intervals": []}
    for line in document.split("\n")[:MOST_EVENTS]:
        try:
            event = mapping(json.loads(line, object_pairs_hook=_pairs, parse_int=_integer))
        except (RecursionError, json.JSONDecodeError):
            continue
        name = text(event.get("event"))
        if name == "interval":
            whole_document["intervals"].append(event.get("data"))
        elif name is not None:
            whole_document[name] = event.get("data")
    return whole_document


def _run(document: Mapping[str, Any], notes: tuple[str, ...]) -> Run:
    start, end = mapping(document.get("start")), mapping(document.get("end"))
    asked = mapping(start.get("test_start"))
    cpu = mapping(end.get("cpu_utilization_percent"))
    streams = whole(asked.get("num_streams"))
    target = number(asked.get("target_bitrate"))
    return Run(
        tool="iperf3",
        version=(text(start.get("version")) or "").replace("iperf ", "") or None,
        protocol=(text(asked.get("protocol")) or "").lower() or None,
        flows=_flows(
            document, bool(asked.get("reverse")), bool(asked.get("bidir")) or _has_both(document)
        ),
        connections=tuple(_connections(start)),
        streams=streams,
        duration=number(asked.get("duration")),
        target=None if target is None else target * (streams or 1),
        datagram=whole(asked.get("blksize")),
        buffer=number(start.get("sock_bufsize")) or None,
        sndbuf=number(start.get("sndbuf_actual")) or None,
        rcvbuf=number(start.get("rcvbuf_actual")) or None,
        mss=whole(start.get("tcp_mss")) or whole(start.get("tcp_mss_default")) or None,
        congestion=text(end.get("sender_tcp_congestion")),
        cpu_local=number(cpu.get("host_total")),
        cpu_remote=number(cpu.get("remote_total")),
        error=_error(document, end),
        notes=notes + _odd(document),
    )


def _has_both(document: Mapping[str, Any]) -> bool:
    return any(
        f"{key}{REVERSE}" in mapping(document.get("end"))
        for key in ("sum", "sum_sent", "sum_received")
    )


def _flows(document: Mapping[str, Any], reverse: bool, both: bool) -> tuple[Flow, ...]:
    if not document.get("intervals") and not document.get("end"):
        return ()
    if both:
        return (flow(document, "forward", "", True), flow(document, "reverse", REVERSE, False))
    if not reverse:
        return (flow(document, "forward"),)
    received, sent = flow(document, "reverse"), _flow_of_server(document)
    return (with_windows(received, sent) if sent else received,)


def _flow_of_server(document: Mapping[str, Any]) -> Optional[Flow]:
    """What the server of a reverse test reported (--get-server-output), if anything."""
    as_json = document.get("server_output_json")
    if as_json:
        return flow(mapping(as_json), "reverse")
    as_text = text(document.get("server_output_text"))
    return next(iter(read_iperf3_text(as_text).flows), None) if as_text else None


def _connections(start: Mapping[str, Any]) -> list[Connection]:
    found = []
    for one in mappings(start.get("connected")):
        local, remote = text(one.get("local_host")), text(one.get("remote_host"))
        local_port, remote_port = whole(one.get("local_port")), whole(one.get("remote_port"))
        if local is None or remote is None or local_port is None or remote_port is None:
            continue
        found.append(Connection(local, local_port, remote, remote_port))
    return found


def _error(document: Mapping[str, Any], end: Mapping[str, Any]) -> Optional[str]:
    said = text(document.get("error"))
    if said is not None:
        return said[len("error - ") :] if said.startswith("error - ") else said
    if not end:
        return "iperf3 ended without a result or an error message"
    return None


def _odd(document: Mapping[str, Any]) -> tuple[str, ...]:
    return () if "start" in document else ('no "start": whoever wrote this left a part out',)
