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
from neuca_tools.model import Item, ManagementHint

GOLDEN = Path(__file__).parent / "golden"
AS_LISTS = (Item, ManagementHint)
NAMES = sorted(path.stem for path in GOLDEN.glob("*.ini"))


def plain(value):
    """A Document as JSON can hold it; faults are their severity and text, empty fields are left out."""
    if hasattr(value, "severity"):
        return f"{value.severity}: {value.text}"
    if hasattr(value, "vlan_id"):
        return str(value)
    if is_dataclass(value) or (hasattr(value, "_fields") and not isinstance(value, AS_LISTS)):
        default_by_name = _defaults(type(value))
        pairs = {
            name: plain(getattr(value, name))
            for name, default in default_by_name.items()
            if not (_is_record(default) and getattr(value, name) == default)
        }
        return {name: content for name, content in pairs.items() if content not in (None, "", [])}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, (str, int, bool, type(None))) else str(value)


def _defaults(kind):
    if is_dataclass(kind):
        return {field.name: field.default for field in fields(kind)}
    return {name: kind._field_defaults.get(name) for name in kind._fields}


def _is_record(value):
    return is_dataclass(value) or hasattr(value, "_fields")


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
