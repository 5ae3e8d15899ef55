"""The result of a throughput test of perfSONAR's pScheduler, whatever its tool.

github.com/perfsonar/pscheduler at 1e8b192. The result (pscheduler-test-throughput/throughput/
validate.py) has `succeeded`, `diags`, `intervals` and `summary`; the tool plug-ins rename iperf3's
keys (pscheduler-tool-iperf3/iperf3/iperf3_parser.py, rename_json), which is undone here, so that
one reader knows what they mean. `pscheduler result --format json` prints it alone, a run of the API
has it as `result-merged` (database/run.sql), an archiver gets it in `result` together with `test`
and `participants`, and in messages in another `result` (daemons/archiver.raw). The iperf3 plug-in
appends iperf3's own JSON to `diags` (iperf3/run, _make_result), which has more and is preferred.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.imported import Imported
from neuca_tools.selftest.readers.iperf3_flow import Json
from neuca_tools.selftest.readers.iperf3_json import objects
from neuca_tools.selftest.readers.iperf3_json import read as read_iperf3_json
from neuca_tools.selftest.readers.values import mapping, mappings, number, text

READING = "read perfSONAR's result"
LONGEST_REASON = 300  # characters
# The keys of a result, and what iperf3 calls them (rename_json).
KEYS = {
    "stream-id": "socket",
    "start": "start",
    "end": "end",
    "throughput-bytes": "bytes",
    "throughput-bits": "bits_per_second",
    "omitted": "omitted",
    "jitter": "jitter_ms",
    "sent": "packets",
    "lost": "lost_packets",
    "retransmits": "retransmits",
    "tcp-window-size": "snd_cwnd",
    "rtt": "rtt",
}


def read(data: object) -> Optional[Imported]:
    """None if this is something else. Raises SelftestError if it has no throughput."""
    found = _found(mapping(data))
    if found is None:
        return None
    result, around = found
    kind = text(mapping(around.get("test")).get("type")) or "throughput"
    if kind != "throughput":
        raise SelftestError(f"{READING}: it is of a {kind[:40]} test, not of throughput")
    if result.get("succeeded") is False:
        run = Run("pscheduler", error=_reason(result, around))
    else:
        run = _run(result, mapping(mapping(around.get("test")).get("spec")))
    taken = text(around.get("start-time")) or text(mapping(around.get("schedule")).get("start"))
    return Imported(
        [replace(run, peer=run.peer or _peer(around), taken=run.taken or taken or None)]
    )


def _found(data: Json) -> Optional[tuple[Json, Json]]:
    """The result, and the object around it; None if there is none."""
    if "succeeded" in data and ("diags" in data or "summary" in data or "error" in data):
        return data, {}
    for key in ("result-merged", "result"):
        inner = mapping(data.get(key))
        if "succeeded" in inner:
            return inner, data
    inner = mapping(data.get("result"))
    if "succeeded" in mapping(inner.get("result")):
        return mapping(inner["result"]), inner
    return None


def _reason(result: Json, around: Json) -> str:
    found = text(result.get("error")) or text(around.get("errors")) or "no reason is given"
    return f"the test failed: {' '.join(found.split())[:LONGEST_REASON]}"


def _peer(around: Json) -> Optional[str]:
    """The destination."""
    spec = mapping(mapping(around.get("test")).get("spec"))
    participants = around.get("participants")
    last = participants[-1] if isinstance(participants, list) and participants[1:] else None
    return text(spec.get("dest")) or text(last) or None


def _run(result: Json, spec: Json) -> Run:
    for document in objects(text(result.get("diags"))):
        run = read_iperf3_json(document)
        if run.flows and not run.error:
            return run
    if not mappings(result.get("intervals")) and not mapping(result.get("summary")):
        raise SelftestError(f"{READING}: it has neither intervals nor a summary")
    run = read_iperf3_json(json.dumps(_as_iperf3(result, spec)))
    if not any(flow.rate for flow in run.flows):
        raise SelftestError(f"{READING}: it has no rate")
    return replace(run, tool="pscheduler", notes=())


def _as_iperf3(result: Json, spec: Json) -> dict[str, object]:
    summary = mapping(result.get("summary"))
    streams = [_renamed(one) for one in mappings(summary.get("streams"))]
    total = _renamed(mapping(summary.get("summary")))
    udp = spec.get("udp") is True or "packets" in total
    sent, lost = number(total.get("packets")), number(total.get("lost_packets"))
    if sent and lost is not None:
        total["lost_percent"] = 100 * lost / sent
    start = {
        "protocol": "UDP" if udp else "TCP",
        "num_streams": max(1, len(streams)),
        "duration": number(total.get("end")),
        "reverse": int(spec.get("reverse") is True),
        "target_bitrate": number(spec.get("bandwidth")),
    }
    return {
        "start": {"test_start": start},
        "intervals": [_interval(one) for one in mappings(result.get("intervals"))],
        "end": {"sum": total} if udp else _tcp_end(mapping(summary.get("summary")), total, streams),
    }


def _interval(one: Json) -> dict[str, object]:
    streams = [_renamed(stream) for stream in mappings(one.get("streams"))]
    return {"streams": streams, "sum": _renamed(mapping(one.get("summary")))}


def _tcp_end(
    summary: Json, total: dict[str, Any], streams: list[dict[str, Any]]
) -> dict[str, object]:
    end: dict[str, object] = {"sum_sent": total, "streams": [{"sender": one} for one in streams]}
    received, seconds = (
        number(summary.get("receiver-throughput-bits")),
        number(total.get("seconds")),
    )
    if received is not None and seconds is not None:
        parts = {"bits_per_second": received, "bytes": received * seconds / 8, "seconds": seconds}
        end["sum_received"] = {**parts, "start": 0, "end": seconds}
    return end


def _renamed(one: Mapping[str, Any]) -> dict[str, Any]:
    """iperf3's keys, without null, and with the `seconds` that rename_json drops."""
    found = {KEYS[key]: value for key, value in one.items() if key in KEYS and value is not None}
    start, end = number(found.get("start")), number(found.get("end"))
    if start is not None and end is not None and end > start:
        found["seconds"] = end - start
    return found
