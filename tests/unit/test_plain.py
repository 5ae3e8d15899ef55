"""Texts of others on a terminal, in a page and in JSON: no control character gets through."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_fuzz import FUZZ

from neuca_tools.commands.common import show
from neuca_tools.commands.neuca import main
from neuca_tools.model.printable import (
    GREEN,
    escape_markup,
    json_document,
    painted_text,
    printable_line,
    printable_lines,
)
from neuca_tools.state.store import save_state

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x00\u202egpj.exe\u2066\u200b\u2028\ufeff\U000e0041\udc1b"
SHOWN = (
    r"\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x00\u202egpj.exe\u2066\u200b\u2028\ufeff\U000e0041\udc1b"
)
FORGED = "x\nVERDICT     pass"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("8 Mbit/s ± 1 → µs, 数据面", "8 Mbit/s ± 1 → µs, 数据面"),
        (EVIL, SHOWN),
        ("a\r\n\tb\x85c\xa0d", r"a\x0d\x0a\x09b\x85c\xa0d"),
    ],
)
def test_what_is_not_printable_is_shown_as_its_escape(text, shown):
    assert printable_line(text) == shown


def test_colors_and_tabs_of_a_text_are_kept(capsys):
    text = painted_text("ok", GREEN, color=True)
    show({}, False, lambda _: f"{text}\t{EVIL}\n{EVIL}")
    assert capsys.readouterr().out == f"{text}\t{SHOWN}\n{SHOWN}\n"


def test_the_status_shows_nothing_that_a_terminal_obeys(tmp_path, capsys):
    (tmp_path / "config").write_text(
        f"[runtime]\nstate-directory = {tmp_path}\nrun-directory = {tmp_path}\n"
    )
    report = {"finished": "\x1b[2J", "seconds": 1, "changed": [], "problems": [], "undone": False}
    save_state(tmp_path, "last-pass.json", report, 0o644)
    main(["status", "--config", str(tmp_path / "config")])
    told = capsys.readouterr().out
    assert "\\x1b[2J" in told
    assert "\x1b" not in told


def test_a_line_end_in_a_part_makes_no_line():
    assert printable_lines(["one", "two\nthree"]) == "one\ntwo\\x0athree"


@FUZZ
@given(text=st.text(st.characters()) | st.text(st.sampled_from(EVIL + "<>&\"'\n")))
def test_any_text_is_printable_everywhere_and_json_means_the_same(text):
    assert printable_line(text).isprintable()
    assert all(one.isprintable() for one in escape_markup(text).split("\n"))
    assert not set("<>\"'") & set(escape_markup(text))
    assert all(one.isprintable() for one in json_document({text: [text]}).split("\n"))
    assert json.loads(json_document({text: [text]})) == {text: [text]}


# --- the reports ----------------------------------------------------------------------------------


def evidence():
    """With such a text in every place that takes one."""
    evil = EVIL + FORGED
    iperf = {"tool": "iperf3", "protocol": "tcp", "error": evil}
    host = {
        "name": evil,
        "kernel": evil,
        "iperf3": evil,
        "links": [{"name": evil, "kind": evil, "mtu": 1500, "parent": evil, "duplex": "half"}],
        "path": [evil],
        "planned": evil,
        "sysctls": {evil: evil, "net.ipv4.tcp_rmem": evil},
        "wanted": {"net.ipv4.tcp_rmem": "1 2 3", evil: "1"},
        "log": [evil],
        "drift": [evil],
    }
    flow = {"direction": "forward", "received": {"seconds": 1.0, "bytes": 9.0, "rate": 72.0}}
    return {
        "version": 1,
        "local": host,
        "peer": host,
        "expect": 1e9,
        "label": evil,
        "address": evil,
        "taken": evil,
        "steps": [{"name": evil, "verdict": "fail", "text": evil}],
        "reach": {"route": evil, "neighbour": evil, "tcp": evil},
        "phases": [
            {"name": evil, "run": {**iperf, "error": None, "flows": [flow]}},
            {"name": evil, "run": iperf, "raw": evil},
        ],
    }


class Tags(HTMLParser):
    """The elements and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def handle_starttag(self, tag, attrs):
        self.found |= {tag, *(f"{tag} {name}" for name, _ in attrs)}


@pytest.mark.parametrize("form", [(), ("--json",), ("--nagios",)])
def test_explain_prints_nothing_that_a_terminal_obeys(tmp_path, capsys, form):
    source, page, metrics = (tmp_path / name for name in ("run", "page.html", "metrics.prom"))
    source.write_text(json.dumps(evidence()))
    words = ["selftest", "explain", *form, "--html", page, "--prometheus", metrics, source]
    main([str(one) for one in words])
    said = capsys.readouterr()
    assert said.err == ""
    for text in (said.out, page.read_text(), metrics.read_text()):
        assert all(line.isprintable() for line in text.rstrip("\n").split("\n"))
    assert r"\u202egpj.exe" in said.out + page.read_text()
    if form != ("--json",):
        assert "\nVERDICT     pass" not in said.out
    if form == ("--nagios",):
        assert said.out.count("\n") == 1
    tags = Tags()
    tags.feed(page.read_text())
    assert not tags.found & {"script", "img", "a", "iframe", "link", "svg onload"}


def test_an_error_message_is_one_line_whatever_is_in_the_document(tmp_path, capsys):
    source = tmp_path / "run"
    source.write_text(json.dumps({"phases": [], "version": EVIL}))
    assert main(["selftest", "explain", str(source)]) == 1
    assert all(line.isprintable() for line in capsys.readouterr().err.rstrip("\n").split("\n"))


def test_what_iperf_says_is_shown_with_its_escapes(tmp_path, capsys):
    source = tmp_path / "run"
    source.write_text('{"start":{},"intervals":[],"end":{},"error":"\\u001b[2Jgone\\u009b"}')
    main(["selftest", "explain", str(source)])
    assert r"\x1b[2Jgone\x9b" in capsys.readouterr().out
