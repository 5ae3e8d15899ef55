"""The JSON of librespeed-cli: `--json`, or the last line of `--json-stream`.

github.com/librespeed/speedtest-cli at 72c2c59, report/json.go: a list of JSONReport, one for each
server, in older versions one object. `ping` and `jitter` are in ms, `upload` and `download` in
Mbit/s and 0 if that test was left out (speedtest/helper.go); `bytes_sent` and `bytes_received`
count the payload. output/stream.go: the event "result" has the same list as `reports`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence.run import Flow, Run, Total
from neuca_tools.selftest.readers.imported import Imported
from neuca_tools.selftest.readers.iperf3_flow import Json
from neuca_tools.selftest.readers.values import known, mapping, mappings, number, scaled, text

MOST_REPORTS = 100
# The host of a URL, with or without its scheme.
HOST = re.compile(r"(?:https?:)?//([^/?#@:\[\]]{1,253})")
KEYS = {"bytes_sent", "bytes_received", "ping", "jitter", "upload", "download"}


def read(data: object) -> Optional[Imported]:
    """None if this is something else. Raises SelftestError if nothing was measured."""
    reports = _reports(data)
    if not reports:
        return None
    runs = [run for report in reports for run in _runs(report)]
    if not runs:
        raise SelftestError("read librespeed's report: it has neither an upload nor a download")
    pings = [scaled(number(report.get("ping")), 1e-3) for report in reports]
    return Imported(runs, rtt=min((one for one in known(pings) if one), default=None))


def _reports(data: object) -> list[Json]:
    """Every report of a document in which all are such; empty otherwise."""
    if isinstance(data, dict):
        data = data["reports"] if data.get("event") == "result" and "reports" in data else [data]
    found = mappings(data)[:MOST_REPORTS]
    return found if all(report.keys() >= KEYS for report in found) else []


def _runs(report: Json) -> list[Run]:
    """A run for each direction, because librespeed tests one after the other."""
    directions = (
        ("forward", "upload", "bytes_sent"),
        ("reverse", "download", "bytes_received"),
    )
    server = mapping(report.get("server"))
    host = HOST.match(text(server.get("url")))
    peer = host[1] if host else text(server.get("name"))
    runs = []
    for direction, rate, count in directions:
        bits = scaled(number(report.get(rate)), 1e6)
        if bits:
            total = Total(rate=bits, bytes=number(report.get(count)))
            run = Run(
                "librespeed-cli",
                protocol="tcp",
                flows=(_flow(direction, total),),
                peer=peer or None,
                taken=text(report.get("timestamp")) or None,
            )
            runs.append(run)
    return runs


def _flow(direction: str, total: Total) -> Flow:
    """This host is the client: it counts what it sent, or what it received."""
    if direction == "forward":
        return Flow(direction, sent=total)
    return Flow(direction, received=total)
