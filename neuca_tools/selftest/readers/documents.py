"""A document becomes Evidence: the output of iperf, or the report of a self-test."""

# SPDX-License-Identifier: MIT

import codecs
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import filterfalse
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.evidence.codec import decode
from neuca_tools.selftest.evidence.derive import is_server
from neuca_tools.selftest.evidence.run import Direction, Run
from neuca_tools.selftest.readers.iperf2_text import read as read_iperf2_text
from neuca_tools.selftest.readers.iperf2_text import with_rows_of_csv
from neuca_tools.selftest.readers.iperf3_json import read as read_iperf3_json
from neuca_tools.selftest.readers.iperf3_text import ERROR
from neuca_tools.selftest.readers.iperf3_text import read as read_iperf3_text
from neuca_tools.selftest.readers.lines import LONGEST_LINE, parse_row
from neuca_tools.selftest.readers.split import join_ends, split_runs

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
        return "tcp-bidir"
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


# --- The output of iperf --------------------------------------------------------------------------


MAX_DOCUMENT_BYTES = 64 * 1024 * 1024  # a day of 128 streams in JSON
UNREADABLE = "this is neither iperf3's JSON, nor its text, nor iperf 2's text"
JSON = re.compile(r"^[ \t]*\{", re.MULTILINE)  # warnings may come before it
LAST_COMMA = re.compile(r",(?=\s*[\]}])")  # left behind where intervals were cut out by hand
IPERF3 = re.compile(
    "iperf3|Connecting to host|Accepted connection from|- - - - - -| sender\n|Retr  ?Cwnd"
)
IPERF2 = re.compile(
    r"iperf|(?:connect|write\d?|bind|read|recv)(?: failed: | to \S{1,80} port \d{1,5} failed)"
    r"|Client connecting to|Server listening on|\[ ID\]"
)
# iperf3 pads the end of an interval to six characters, iperf 2 writes one digit ("0.0- 1.0 sec").
ROW_OF_IPERF3 = re.compile(r"\]\s+\d+\.\d\d-\d+\.\d\d\s{2,3}sec")
# The last words of a row, which a mail program put on a line of their own.
WRAPPED_ROW = re.compile(r"\n[> ]{0,20}(sender|receiver|\d{1,12}/ {0,8}\d{1,12} \(\S{1,9}%\))")
# Results that are a string of another document, and rows of which a page lost the newlines.
ESCAPED_ROW = re.compile(r"sec\b[^\n]{0,200}\\n")
ROW_START = re.compile(
    r"(?<=[^\s-]) {0,20}(?=\[ {0,5}(?:\d{1,9}|SUM|ID)\]|- - - )|(?<=- -) {1,5}(?=\[)"
)
# A program, or a prompt.
WINDOWS = re.compile(r"\biperf[\w.-]{0,20}\.exe\b|^(?:PS )?[A-Z]:\\[^\n>]{0,80}>", re.MULTILINE)


def read_run(content: bytes) -> Run:
    """Parse a document of one run. Never raises: if it cannot be read, the run has an `error`."""
    return read_all(content)[0]


def read_all(content: bytes) -> list[Run]:
    """Parse a document with one or more runs; one with an `error` if it cannot be read."""
    document = decode_bytes(content)
    if JSON.search(document):
        runs = read_iperf3_json(document)
        if runs[0].unreadable:
            runs = read_iperf3_json(LAST_COMMA.sub("", document))
        # Unless it is a text in which iperf3 -d printed objects.
        if not runs[0].unreadable or not (_has_rows(document) or ERROR.search(document)):
            return runs
    if ESCAPED_ROW.search(document):
        document = document.replace("\\n", "\n")
    document = WRAPPED_ROW.sub(r" \1", ROW_START.sub("\n", with_rows_of_csv(document)))
    read = _reader_for(document)
    if read is None:
        return [Run("iperf", error=UNREADABLE, unreadable=True)]
    runs = join_ends(_with_system(read(part), part) for part in split_runs(document))
    return list(filterfalse(_is_of_idle_server, runs)) or runs


def _with_system(run: Run, document: str) -> Run:
    """With the system that the command shows, if it is not known."""
    return run if run.system or not WINDOWS.search(document) else replace(run, system="Windows")


def _is_of_idle_server(run: Run) -> bool:
    """Whether it is not a test: a server was stopped while it waited for the next one."""
    is_stopped = (run.error or "").startswith("interrupt - the server has terminated")
    return is_stopped and not run.flows and not run.peer


def decode_bytes(content: bytes) -> str:
    """UTF-8, or UTF-16 as PowerShell's redirection writes it, with the line ends of Linux."""
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_wide else "utf-8-sig", "replace").replace("\r\n", "\n")


def _reader_for(document: str) -> Optional[Callable[[str], Run]]:
    """The reader for this text; None if it is not the output of an iperf."""
    if any(form.search(document) for form in (IPERF3, ROW_OF_IPERF3, ERROR)):
        return read_iperf3_text
    if IPERF2.search(document) or _has_rows(document):
        return read_iperf2_text
    return None


def _has_rows(document: str) -> bool:
    return any(parse_row(line[:LONGEST_LINE]) for line in document.split("\n"))
