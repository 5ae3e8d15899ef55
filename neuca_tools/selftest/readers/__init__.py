"""Readers turn the output of iperf3 (JSON or text) and iperf 2 (text) into a Run."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.iperf2_text import read as read_iperf2_text
from neuca_tools.selftest.readers.iperf3_json import read as read_iperf3_json
from neuca_tools.selftest.readers.iperf3_text import read as read_iperf3_text

LARGEST = 64 * 1024 * 1024  # bytes: a day of 128 streams in JSON
IPERF3 = re.compile(
    "iperf3|Connecting to host|Accepted connection from|- - - - - -| sender\n|Retr  ?Cwnd"
)
IPERF2 = re.compile(r"iperf|Client connecting to|Server listening on|\[ ID\]")


def read(content: bytes) -> Run:
    """Parse a document. Never raises: if it cannot be read, the run has an `error`."""
    if len(content) > LARGEST:
        return Run("iperf", error=f"the document has more than {LARGEST // 1024 // 1024} MiB")
    document = content.decode("utf-8", "replace").replace("\r\n", "\n").lstrip("\ufeff")
    if re.search(r"^\s*\{", document, re.MULTILINE):  # warnings may come before it
        return read_iperf3_json(document)
    if IPERF3.search(document):
        return read_iperf3_text(document)
    if IPERF2.search(document):
        return read_iperf2_text(document)
    return Run("iperf", error="this is neither iperf3's JSON, nor its text, nor iperf 2's text")
