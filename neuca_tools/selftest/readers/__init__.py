"""Documents of others become a Run: iperf3's JSON, iperf3's text, iperf 2's text, told apart by what is in them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers.iperf2_text import read as read_iperf2_text
from neuca_tools.selftest.readers.iperf3_json import read as read_iperf3_json
from neuca_tools.selftest.readers.iperf3_text import read as read_iperf3_text

LARGEST = 64 * 1024 * 1024  # bytes; a day of 128 streams in JSON


def read(content: bytes) -> Run:
    """The run that a document tells of. Never raises: a document that cannot be read is a Run with an `error`."""
    if len(content) > LARGEST:
        return Run("iperf", error=f"the document has more than {LARGEST // 1024 // 1024} MiB")
    document = content.decode("utf-8", "replace").replace("\r\n", "\n").lstrip("\ufeff")
    if re.search(r"^\s*\{", document, re.MULTILINE):  # warnings may come before it
        return read_iperf3_json(document)
    if _is_iperf3(document):
        return read_iperf3_text(document)
    if (
        "iperf" in document
        or "Client connecting to" in document
        or "Server listening on" in document
        or "[ ID]" in document
    ):
        return read_iperf2_text(document)
    return Run("iperf", error="this is neither iperf3's JSON, nor its text, nor iperf 2's text")


def _is_iperf3(document: str) -> bool:
    words = (
        "iperf3",
        "Connecting to host",
        "Accepted connection from",
        "- - - - - -",
        " sender\n",
        "Retr  Cwnd",
        "Retr Cwnd",
    )
    return any(word in document for word in words)
