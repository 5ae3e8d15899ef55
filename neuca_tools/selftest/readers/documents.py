"""A document becomes Evidence: the output of iperf, or the report of a self-test."""

# SPDX-License-Identifier: MIT

import gzip
import io
import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.evidence.codec import decode
from neuca_tools.selftest.evidence.derive import is_server
from neuca_tools.selftest.evidence.run import Direction, Run
from neuca_tools.selftest.readers import MAX_DOCUMENT_BYTES, decode_bytes, read_all
from neuca_tools.selftest.readers.lines import TRADEOFF

OPPOSITE: Mapping[Direction, Direction] = {"forward": "reverse", "reverse": "forward"}
REPORT_KEY = "phases"  # a key of evidence that iperf3's JSON does not have
GZIP = b"\x1f\x8b"  # RFC 1952
# Bytes that a compressed document may expand to.
MAX_EXPANDED = 32 * 1024 * 1024


def evidence_of(
    content: bytes, expect: Optional[float] = None, rtt: Optional[float] = None
) -> Evidence:
    """Parse a document; `expect` (bit/s) and `rtt` (seconds) override what it says.

    The document may be compressed by gzip. Raises SelftestError if there is no result of iperf in
    it, and for a self-test's evidence that is damaged or of another version.
    """
    content = expand_gzip(content)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise SelftestError(
            f"read the output of iperf: it is larger than {MAX_DOCUMENT_BYTES >> 20} MiB"
        )
    evidence = _read_report(content)
    if evidence is None:
        evidence = _of_runs(read_all(content), decode_bytes(content))
    if expect is not None:
        evidence = replace(evidence, expect=expect)
    if rtt is not None:
        evidence = replace(evidence, rtt=rtt)
    return evidence


def _of_runs(runs: list[Run], raw: str) -> Evidence:
    """One phase for each direction of each run, the first with the document."""
    phases: list[Phase] = []
    for run in _orient_runs([run for run in runs if not run.unreadable]):
        directions: list[Direction] = [flow.direction for flow in run.flows] or ["forward"]
        phases += [Phase(_phase_name(run), run, direction) for direction in directions]
    if not phases:
        raise SelftestError(f"read the output of iperf: {runs[0].error}")
    return Evidence(phases=(replace(phases[0], raw=raw), *phases[1:]))


def _orient_runs(runs: list[Run]) -> list[Run]:
    """Reverse each run whose client is the server of the first run."""
    hosts = next(filter(None, map(_hosts_of, runs)), None)
    if hosts is None or hosts[0] == hosts[1]:
        return runs
    oriented = []
    for run in runs:
        if _hosts_of(run) == hosts[::-1]:
            flows = [replace(flow, direction=OPPOSITE[flow.direction]) for flow in run.flows]
            run = replace(run, flows=tuple(flows))
        oriented.append(run)
    return oriented


def _hosts_of(run: Run) -> Optional[tuple[str, str]]:
    """The hosts of the client and the server; None if not known."""
    if not run.connections:
        return None
    hosts = run.connections[0].local, run.connections[0].remote
    return hosts[::-1] if is_server(run) else hosts


def _phase_name(run: Run) -> str:
    if run.protocol not in (None, "tcp"):
        return str(run.protocol)
    if len(run.flows) > 1:
        return "tcp" if TRADEOFF.search(run.options or "") else "tcp-bidir"
    return "tcp-parallel" if (run.streams or 1) > 1 else "tcp"


def expand_gzip(content: bytes) -> bytes:
    """The content, decompressed if it is gzip. Raises SelftestError."""
    if not content.startswith(GZIP):
        return content
    try:
        document = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_EXPANDED + 1)
    except EOFError:
        raise SelftestError("read the gzip file: it is truncated") from None
    except (gzip.BadGzipFile, zlib.error):
        raise SelftestError("read the gzip file: it is damaged") from None
    if len(document) > MAX_EXPANDED:
        raise SelftestError(f"read the gzip file: it expands to more than {MAX_EXPANDED >> 20} MiB")
    return document


def _read_report(content: bytes) -> Optional[Evidence]:
    """The evidence of a self-test, alone or as a part of its report; None for anything else."""
    data = None
    with suppress(RecursionError, ValueError):
        data = json.loads(content)
    if not isinstance(data, dict):
        return None
    if isinstance(data.get("evidence"), dict):
        data = data["evidence"]
    elif REPORT_KEY not in data:
        return None
    try:
        return decode(Evidence, data)
    except RecursionError:
        raise SelftestError("read the evidence: it is nested too deeply") from None
