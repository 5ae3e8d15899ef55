"""What can be read of iperf3's JSON that is cut off, at either end or within it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Optional

from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.iperf3_json import json_decoder, read_result

MOST_BROKEN = 10  # objects, each of which is read up to where it breaks
# How iperf3 begins "start", "end" and each interval.
_BEGIN = re.compile(r'\{\s*"(?:connected|streams)"\s*:')


def read_fragment(document: str, error: Optional[str]) -> Optional[Run]:
    """The intervals that are whole, with this error unless the end is; None if there are none."""
    parts: dict[str, Any] = {"intervals": []}
    decoder, broken = json_decoder(), 0
    for match in _BEGIN.finditer(document):
        try:
            part, _ = decoder.raw_decode(document, match.start())
        except (RecursionError, ValueError):
            broken += 1
            if broken > MOST_BROKEN:
                break
            continue
        if "connected" in part:
            parts["start"] = part
        elif "cpu_utilization_percent" in part:
            parts["end"] = part
        else:
            parts["intervals"].append(part)
    if not parts["intervals"] and "end" not in parts:
        return None
    run = read_result(parts)
    return run if "end" in parts else replace(run, error=error)
