"""The reading rules of a NEuca document: what is a key, a comment, a value, and what is a fault."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.documents import find_value, parse
from neuca_tools.documents.neuca import ini_document
from neuca_tools.documents.neuca.ini import MAX_LINE, MAX_LINES


def value(text, key="a", section="global"):
    return find_value(parse(text), section, key)


def script(body):
    (found,) = parse(f"[scripts]\n{body}").scripts
    return found.body


def faults(text):
    return [f"{fault.severity}: {fault.text}" for fault in parse(text).faults]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a = 1", "1"),
        ("A=1", "1"),
        ("  a  =  1  ", "1"),
        ("a = b = c", "b = c"),
        ("a = b:c", "b:c"),
        ("a = b ; comment", "b"),
        ("a = b\t; comment", "b"),
        ("a = b;c", "b;c"),
        ("a = b;c ; d ; e", "b;c"),
        ("a = b # c", "b # c"),
        ("a = ;", None),
        ("a =", None),
        ("a = Not Specified", None),
        ("a = NOT  specified ; x", None),
        ("a = Not Specified yet", "Not Specified yet"),
        ("a = 1\na = 2", "2"),
        ("a = 1\nA = 2", "2"),
        ("a = 1\na = Not Specified", None),
        ("a = 1\n  2\n\t3", "1\n2\n3"),
        ("a = 1\n  # not a value\n\n  2 ; kept", "1\n2 ; kept"),
        ("a =\n  1", "1"),
        ("  a = 1\n  b = 2\n  [global]\n  c = 3", "1"),
        ("; a = 1\n# a = 2", None),
        ("a = 1\n[users]\n[global]\nb = 2", "1"),
        ("a = 1\r\n  2\r\n", "1\n2"),
    ],
)
def test_the_value_of_a_key(line, expected):
    assert value(f"[global]\n{line}\n") == expected


@pytest.mark.parametrize(
    "header", ["[global]", "[ global ]", "[global] ; comment", "[global]  # comment", "  [global]"]
)
def test_a_header(header):
    assert value(f"{header}\na = 1") == "1"
    assert parse(f"{header}\na = 1").is_complete


def test_section_names_are_case_sensitive_and_keys_are_not():
    document = parse("[Global]\nHost_Name = x\n[global]\nHost_Name = y")
    assert find_value(document, "global", "HOST_NAME") == "y"
    assert find_value(document, "Global", "host_name") == "x"
    assert find_value(document, "GLOBAL", "host_name") is None
    assert document.hostname == "y"


@pytest.mark.parametrize(
    ("written", "body"),
    [
        ("s = echo ; x", "echo ; x"),
        ("s=#!/bin/sh\n\techo", "#!/bin/sh\necho"),
        ("s =\n  #!/bin/sh\n  echo", "#!/bin/sh\necho"),
        ("s =\n\n  #!/bin/sh", "#!/bin/sh"),
        ("s = a\n    b\n      c\n    d", "a\nb\n  c\nd"),
        ("s = a\n      b\n    c", "a\n  b\nc"),
        ("s = a\n  # b\n\n  ; c", "a\n# b\n\n; c"),
        ("s = a\n  b\n# comment\n  c", "a\nb\nc"),
        ("s = a\n    b\n        \n    c", "a\nb\n    \nc"),
        ("s = a\n    b\n  \n    c", "a\nb\n\nc"),
        ("s = a\n  [b]\n  c = d", "a\n[b]\nc = d"),
        ("s = a  \n  b  \n  c  ", "a  \nb  \nc"),
        ("s = a\n  b\n\n\n", "a\nb"),
        ("  s = a\n    b", "a\nb"),
        ("s = a\n\tb\n    c", "a\n\tb\n    c"),
    ],
)
def test_a_script_arrives_as_it_was_written(written, body):
    assert script(written) == body


def test_an_indented_key_of_the_network_is_a_key_whatever_stands_above_it():
    document = parse(
        "[interfaces]\nfe163e006daf = up\n  fe163e006db0 = down\n[interface fe163e006daf]\nmtu=1500\n  name=x"
    )
    assert [(link.state, link.mtu, link.name) for link in document.links] == [
        ("up", 1500, "x"),
        ("down", None, None),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\n[global]", "error: line 1: it precedes the first section"),
        (
            "[global]\nword",
            'error: line 2: [global]: it is neither a section, a comment nor "key = value"',
        ),
        (
            "[routes]\nword",
            'error: line 2: [routes] "word": it is neither a section, a comment nor "key = value"',
        ),
        (
            "[routes]\npassword x",
            'error: line 2: [routes]: it is neither a section, a comment nor "key = value"',
        ),
        (
            "[global]\n= 1",
            'error: line 2: [global]: it is neither a section, a comment nor "key = value"',
        ),
        ("[routes] x", 'error: line 1: [routes] "x": text after a section header, ignoring it'),
        (
            "[global]\n[users\na = 1",
            "error: line 2: it is not a section header, ignoring all lines up to the next one",
        ),
        (
            '[global]\n["a"]\na = 1',
            "error: line 2: it is not a section header, ignoring all lines up to the next one",
        ),
        (
            "[global]\na = 1\nA = 2",
            'warning: line 3: [global] "a": specified before on line 2, ignoring line 2',
        ),
        (
            "[global]\na = 1\n[global]\na = 2",
            'warning: line 4: [global] "a": specified before on line 2, ignoring line 2',
        ),
        ("[x]\n[x]\na = 1", "warning: line 1: [x]: unknown section, ignoring it"),
        (
            "[Routes]",
            "error: line 1: [Routes]: unknown section, ignoring it (names of sections are in lower case)",
        ),
        (
            f"[global]\na = {'x' * MAX_LINE}",
            f"error: line 2: [global]: the line is longer than {MAX_LINE} characters",
        ),
        (
            f"[global]\na=1\n {'x' * MAX_LINE}",
            f"error: line 3: [global]: the line is longer than {MAX_LINE} characters",
        ),
    ],
    ids=lambda text: text[:40],
)
def test_what_cannot_be_understood_is_one_fault(text, expected):
    assert faults(text) == [expected]


def test_keys_below_a_broken_header_belong_to_no_section():
    document = parse("[global]\na = 1\n[glo\na = 2\n  b = 3\nc = 4\n[global]\nd = 5")
    assert [(item.key, item.value) for item in document.items] == [("a", "1"), ("d", "5")]


def test_keys_of_unknown_sections_are_kept():
    assert value("[mine]\na = 1", section="mine") == "1"


def test_scripts_may_have_long_lines():
    assert len(script(f"s = {'x' * MAX_LINE}\n  {'y' * MAX_LINE}")) == 2 * MAX_LINE + 1


def test_too_many_lines_are_one_fault():
    assert faults("[global]" + "\n" * MAX_LINES + "a = 1") == [
        f"error: line {MAX_LINES + 1}: more than {MAX_LINES} lines, ignoring the rest"
    ]


def test_faults_are_bounded_and_in_order():
    found = parse("[global]\n" + "word\n" * 1500).faults
    assert len(found) == ini_document.MAX_FAULTS + 1
    assert [fault.line for fault in found] == sorted(fault.line for fault in found)
    assert found[-1].text == "line 1002: 500 more faults from here on"


def test_too_many_links_and_routes_are_one_fault_each(monkeypatch):
    monkeypatch.setattr(ini_document, "MAX_LINKS", 2)
    monkeypatch.setattr(ini_document, "MAX_ROUTES", 2)
    macs = "".join(f"fe163e00000{number} = up\n" for number in range(4))
    document = parse(
        f"[interfaces]\n{macs}[routes]\n10.1.0.0/16=down\n10.2.0.0/16=down\n10.3.0.0/16=down\n10.4.0.0/16=down"
    )
    assert len(document.links) == len(document.routes) == 2
    assert [fault.text for fault in document.faults] == [
        "line 4: more than 2 links, ignoring the rest",
        "line 9: [routes]: more than 2 lines, ignoring the rest",
    ]


def test_as_many_links_as_vlan_ids_are_read():
    lines = "".join(
        f"fe163e{number:06x} = up:ipv4:10.{number >> 8}.{number & 255}.1/24\n"
        for number in range(4096)
    )
    assert len(parse(f"[interfaces]\n{lines}").links) == 4096


AS_IN_1_7 = """\
[global]
rem host_name: other
Rem
host_name: node0
router:true
a:b = c
[interfaces]
fe163e006da1: up:ipv4:172.16.0.1/24
fe163e006da2:up:inet:172.16.1.1/255.255.255.0
fe:16:3e:00:6d:a3: up:inet6:fd00::1/64
fe163e006da4 :down
[routes]
10.20.0.0/16: 172.16.0.254
10/8:172.16.1.254
10.21.0.0/255.255.0.0 : 172.16.0.254
fd00:1:: = fd00::2
fd01::/64: fd00::2
[users]
ann: yes:ssh-rsa AAAA==
bob:no:ssh-rsa AAAA==
[scripts]
first: #!/bin/sh
    echo a=b: c
second:X=1
third = y: 1
"""


def test_both_delimiters_and_the_values_of_version_1_7_are_read():
    document = parse(AS_IN_1_7)
    assert (document.hostname, document.router, document.faults) == ("node0", "true", ())
    assert value(AS_IN_1_7) == "b = c"
    links = {str(link.key)[-2:]: [*map(str, link.addresses)] for link in document.links}
    assert links == {
        "a1": ["172.16.0.1/24"],
        "a2": ["172.16.1.1/24"],
        "a3": ["fd00::1/64"],
        "a4": [],
    }
    assert [(str(route.to), str(route.via)) for route in document.routes] == [
        ("10.20.0.0/16", "172.16.0.254"),
        ("10.0.0.0/8", "172.16.1.254"),
        ("10.21.0.0/16", "172.16.0.254"),
        ("fd00:1::/128", "fd00::2"),
        ("fd01::/64", "fd00::2"),
    ]
    assert [(user.login, user.sudo, user.keys) for user in document.users] == [
        ("ann", True, ("ssh-rsa AAAA==",)),
        ("bob", False, ("ssh-rsa AAAA==",)),
    ]
    assert {script.name: script.body for script in document.scripts} == {
        "first": "#!/bin/sh\necho a=b: c",
        "second": "X=1",
        "third": "y: 1",
    }


def test_a_remark_has_no_delimiter_and_is_not_indented():
    assert parse("[users]\nrem = yes\n").users[0].login == "rem"
    assert script("a = b\n  rem c") == "b\nrem c"
