"""Whole documents and all that they say: each `golden/NAME.ini` beside the `golden/NAME.json` that comes out of it.

Run as a program it writes the .json files anew; read the difference before you commit it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from neuca_tools.documents import find_document, parse

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.ini"))


def plain(value):
    """A Document as JSON can hold it; faults are their severity and text, empty fields are left out."""
    if hasattr(value, "severity"):
        return f"{value.severity}: {value.text}"
    if hasattr(value, "vlan_id"):
        return str(value)
    if is_dataclass(value):
        given = [
            field
            for field in fields(value)
            if not (is_dataclass(field.default) and getattr(value, field.name) == field.default)
        ]
        pairs = {field.name: plain(getattr(value, field.name)) for field in given}
        return {name: content for name, content in pairs.items() if content not in (None, "", [])}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


def found(name):
    return plain(parse(find_document((GOLDEN / f"{name}.ini").read_bytes())))


@pytest.mark.parametrize("name", NAMES)
def test_a_document_says_what_it_always_said(name):
    assert found(name) == json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_line_ends_and_a_byte_order_mark_make_no_difference(name):
    data = (GOLDEN / f"{name}.ini").read_bytes()
    assert find_document(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n")) == data.decode()


def test_there_are_golden_documents():
    assert {"exogeni", "dataplane", "scripts", "ipv6", "bad"} <= set(NAMES)


if __name__ == "__main__":
    for each in NAMES:
        text = json.dumps(found(each), indent=1, ensure_ascii=False)
        (GOLDEN / f"{each}.json").write_text(f"{text}\n")
