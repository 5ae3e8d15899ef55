"""Smaller holes: what a document can cost in time, print on a terminal, or say to other programs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import re
import resource
import sys
import time
from pathlib import Path

import pytest
from lab import GATEWAY, mac

from neuca_tools.documents import find_document, parse, redact_text
from neuca_tools.documents.platform import combined
from neuca_tools.documents.platform.clouds import GCE
from neuca_tools.errors import DocumentError

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
ESCAPE = "\x1b]0;evil\x07\x1b[2J"
SIZE = 200_000  # bytes
COSTLY = {
    "routes": "[routes]\n" + "".join(f"10.{n >> 8}.{n & 255}.0/24 = 172.16.0.254\n" for n in range(7500)),
    "repeated keys": "[global]\n" + "host_name = x\n" * (SIZE // 14),
    "repeated sections": f"[interface {mac(1)}]\nmtu = 1500\n" * (SIZE // 45),
    "headers": "[a]\n" * (SIZE // 4),
    "open brackets": "[" * SIZE,
    "lines of brackets": "[[[[[[[[[[[[[[\n" * (SIZE // 15),
    "spaces": "[global]\nhost_name = x" + " " * 60_000 + ";\n" + (" " * 60_000 + "\n") * 2,
    "semicolons": "[global]\nhost_name =" + " ;" * (SIZE // 2),
    "continuation": "[scripts]\na =\n" + "  x\n" * (SIZE // 4),
    "deep indentation": "[scripts]\na =\n" + "".join(" " * n + "x\n" for n in range(1, 630)),
    "addresses": f"[interface {mac(1)}]\naddresses = " + ", ".join(
        f"10.{n >> 8}.{n & 255}.1/24" for n in range(14000)),
    "vlans": "".join(f"[vlan {mac(1)}.{n}]\naddresses = 10.0.0.1/24\n" for n in range(1, 4095)),
    "members": f"[bridge br7]\nmembers = {', '.join([mac(1)] * 10000)}\n",
    "users": "[users]\n" + "".join(f"user{n} = no:ssh-rsa AAAA\n" for n in range(7000)),
    "yaml aliases": "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(12)),
    "cloud-config": "#cloud-config\n" + "- x\n" * (SIZE // 4),
    "deep yaml": "#cloud-config\n" + "[" * SIZE,
    "json": '{"a":' * (SIZE // 5),
    "mime": "Content-Type: multipart/mixed; boundary=x\n\n" + "--x\n\n" * (SIZE // 5),
}  # fmt: skip


PLATFORM = ("network_data.json", "meta_data.json", "network-config", "meta-data", "EC2 network")


def read_neuca(data):
    text = find_document(data)
    if text is not None:
        redact_text(text)
        parse(text)


def read_platform(kind):
    def read(data):
        if text := combined.reduce_documents({kind: data}):
            combined.parse(text)
            combined.redacted_text(text)

    return read


READERS = {"neuca": read_neuca, **{kind: read_platform(kind) for kind in PLATFORM}}


def yardstick():
    """Processor seconds for a million short strings, now, on this machine: 0.04 to 0.25 s on those that it ran on."""
    began = time.process_time()
    for number in range(1_000_000):
        len(str(number))
    return time.process_time() - began


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("text", COSTLY.values(), ids=COSTLY)
def test_no_document_is_costly_to_read(text, reader):
    """The dearest takes seven yardsticks; one whose cost grows with the square of its size takes hundreds."""
    unit = yardstick()
    began = time.process_time()
    with contextlib.suppress(DocumentError):
        reader(text.encode())
    # A neighbour on the same core can make processor time several times as long.
    assert time.process_time() - began < 50 * max(unit, yardstick())


LONG_NUMBER = "9" * 5000  # Python raises ValueError for one with more than 4300 digits
CORPUS = Path(__file__).parents[1] / "unit/corpus"
VLAN_NICS = {
    "networkInterfaces": [{"mac": mac(1)}],
    "vlanNetworkInterfaces": {LONG_NUMBER: {"5": {}}},
}


@pytest.mark.parametrize("kind", [*READERS, "mode of a bond", GCE])
def test_no_long_number_in_any_place_ends_a_reader(kind):
    """In place of each word of each seed of the fuzz targets, and where a number stands for a word."""
    texts = [path.read_text("utf-8", "replace") for path in sorted((CORPUS / kind).glob("*"))]
    hostile = [
        text[: word.start()] + LONG_NUMBER + text[word.end() :]
        for text in texts
        for word in re.finditer(r"[\w.:/-]+", text)
    ]
    hostile += {
        "mode of a bond": [f"[bond b0]\nmode = {LONG_NUMBER}\n"],
        GCE: [json.dumps(VLAN_NICS)],
    }.get(kind, [])
    assert hostile
    for text in hostile:
        with contextlib.suppress(DocumentError):
            READERS.get(kind, read_platform(kind) if kind == GCE else read_neuca)(text.encode())


@pytest.mark.parametrize("text", COSTLY.values(), ids=COSTLY)
def test_redacting_what_was_redacted_changes_nothing(text):
    once = redact_text(text)
    assert redact_text(once) == once


def test_a_pass_over_many_routes_and_addresses_is_not_costly(guest):
    guest.veth("dp1", 1)
    guest.document(NIC)
    for name in ("routes", "addresses", "members"):
        guest.document(NIC + COSTLY[name])
        began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = guest.command("neuca", "plan", "--config", guest.config_file, prefix=("env",))
        spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
        assert "Traceback" not in done.err
        assert spent < 30 * yardstick(), (name, spent)
    guest.document(NIC)


@pytest.mark.parametrize("words", [("explain", ESCAPE), ("explain", "--", ESCAPE), ("user-data",),
                                   ("status",), ("plan",), ("explain", "dp1")], ids=lambda one: one[0])  # fmt: skip
def test_nothing_that_is_shown_has_an_escape(guest, words):
    guest.veth("dp1", 1)
    hostile = f"[interface {mac(1)}]\nmtu = {ESCAPE}\nname = {ESCAPE}\n{ESCAPE} = {ESCAPE}\n"
    guest.once(f"{hostile}[{ESCAPE}]\nx = {ESCAPE}\n[routes]\n{ESCAPE} = {ESCAPE}\n")
    if words != ("user-data",):  # the document as it is
        done = guest.neuca(*words)
        assert "\x1b" not in done.out + done.err
    guest.once(NIC)


TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@pytest.mark.parametrize("words", [("user-data",), ("routes",), ("get", "host_name"), ("all-user-scripts",)],
                         ids=lambda one: one[0])  # fmt: skip
def test_a_terminal_gets_no_escape_with_what_the_document_has(guest, words):
    """A program that reads the output gets it as it is."""
    guest.document(
        f"{NIC}[global]\nhost_name = {ESCAPE}\n[routes]\nx = {ESCAPE}\n[scripts]\na = #!{ESCAPE}\n"
    )
    guest.once()
    shown = guest.neuca(*words, prefix=(sys.executable, "-c", TERMINAL))
    assert "\x1b" not in shown.out + shown.err
    assert "\\x1b[2J" in shown.out
    assert "\x1b[2J" in guest.neuca(*words).out
    guest.once(NIC)


SEEDS = {
    "place": 'seedfrom: "\\e]0;evil\\a\\nneuca: all is well"\n',
    "URL": 'seedfrom: "http://\\e[2J/"\n',
    "id": 'instance-id: "\\e[2J"\nseedfrom: http://192.0.2.77/\n',
    "YAML": "!<\x85\u202e> x\n",
    "tag": "{a: !<tag:\\e[2J> x, seedfrom: b}\n",
}


@pytest.mark.parametrize("about", SEEDS.values(), ids=SEEDS)
def test_nothing_that_a_source_says_reaches_the_terminal_or_the_log_unescaped(
    guest, tmp_path, about
):
    """An error message quotes it, and is one line."""
    for name, text in (("user-data", NIC), ("meta-data", about)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    guest.configure(sources=f"nocloud={tmp_path}", timeout=1)
    said = [guest.once(), *(guest.neuca(word) for word in ("plan", "apply", "status"))]
    for done in said:
        text = done.out + done.err
        assert [one for one in text if not one.isprintable() and one != "\n"] == [], text
        assert "\nneuca: all is well" not in text


def test_no_route_takes_over_the_management_gateway_for_what_it_routes(guest):
    """A route of the management network's, through its gateway, has the same prefix at a lower metric."""
    guest.management()
    guest.veth("dp1", 1)
    guest.ip(f"route add 198.18.0.0/15 via {GATEWAY} dev mgmt0 metric 100")
    done = guest.once(
        f"{NIC}[routes]\n198.18.0.0/15 = 172.16.0.254\n198.18.1.0/24 = 172.16.0.254\n"
    )
    assert done.code in (1, 4)
    assert guest.look("route get 198.18.9.9")[0]["dev"] == "mgmt0"
    guest.once(NIC)
