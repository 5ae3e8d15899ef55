"""Check a configuration file offline, with the line of each fault and probable spellings."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Iterator

from neuca_tools.config.load import parse_config
from neuca_tools.config.options import SECTIONS
from neuca_tools.documents.privacy import LINK_KINDS
from neuca_tools.documents.privacy import SECTIONS as DOCUMENT_SECTIONS
from neuca_tools.documents.spelling import Finding
from neuca_tools.model.rows import Severity

_HEADER = re.compile(rb"^\[([\w -]+)\]", re.MULTILINE)


def is_configuration(data: bytes) -> bool:
    """Whether most sections that only one of both can have are those of a configuration."""
    headers = {match.decode().split(None, 1)[0] for match in _HEADER.findall(data) if match.strip()}
    own = headers & {*SECTIONS}
    return bool(own) and len(own) > len(headers & ({*DOCUMENT_SECTIONS, "rule"} - {*LINK_KINDS}))


def check_file(data: bytes) -> Iterator[Finding]:
    """The faults of a file. Raises ConfigError if it cannot be read at all."""
    for fault in parse_config(data).faults:
        if fault.severity == "note":
            continue
        severity: Severity = "error" if fault.meant else fault.severity
        text = fault.text.partition(": ")[2]
        yield Finding(fault.line, severity, text, fault.meant)
