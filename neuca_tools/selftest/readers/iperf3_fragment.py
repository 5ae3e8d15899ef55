"""What can be read of iperf3's JSON that is cut off, at either end or within it."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.iperf3_json import json_decoder, read_result

CPU = "cpu_utilization_percent"  # of "end"
MAX_BROKEN = 10  # objects, each of which is read up to where it breaks
# How iperf3 begins "start", "end" and each interval; and the sum of an interval that is not whole.
_BEGIN = re.compile(r'(?=\{\s*"(?:connected|streams)"\s*:)')
_END_SUMS = ("sum_sent", "sum_received")
INCOMPLETE = "the JSON is incomplete: it has neither its beginning nor its end"


def read_fragment(document: str, error: Optional[str]) -> Optional[Run]:
    """The intervals that are whole, with this error unless the end is; None if there are none."""
    document = document.partition('"server_output_json"')[0]
    objects = _whole_objects(_BEGIN, document)
    start, end = _part_with("connected", objects), _part_with(CPU, objects)
    end = end or _sums_of_end(document)
    intervals = [part for part in objects if part not in (start, end)]
    if not intervals:
        intervals = [{"sum": part} for part in _whole_objects(_member("sum"), document)]
    if not (intervals or end):
        return None
    run = read_result({"start": start, "intervals": intervals, "end": end})
    return run if end else replace(run, error=error or INCOMPLETE)


def _sums_of_end(document: str) -> dict[str, Any]:
    """The members of "end" that are whole, where its beginning is missing."""
    members = {key: _whole_objects(_member(key), document) for key in (*_END_SUMS, CPU)}
    if not any(map(members.get, _END_SUMS)):
        return {}
    return {key: parts[-1] for key, parts in members.items() if parts}


def _member(key: str) -> re.Pattern[str]:
    """Where the object begins that is the value of this key."""
    return re.compile(rf'"{key}"\s*:\s*(?=\{{)')


def _part_with(key: str, objects: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return next((part for part in objects if key in part), {})


def _whole_objects(begin: re.Pattern[str], document: str) -> list[dict[str, Any]]:
    """The objects that begin at the end of these matches, without those within them."""
    decoder, objects, end, broken = json_decoder(), [], 0, 0
    for match in begin.finditer(document):
        if match.end() < end:
            continue
        try:
            part, end = decoder.raw_decode(document, match.end())
            objects.append(part)
        except (RecursionError, ValueError):
            broken += 1
            if broken > MAX_BROKEN:
                break
    return objects
