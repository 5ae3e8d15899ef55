"""Laws that hold for every document, good or bad: nothing raises but DocumentError, and no secret gets out."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neuca_tools.documents import find_document, find_value, parse, redact_text
from neuca_tools.errors import DocumentError

SAMPLES = [path.read_text() for path in sorted((Path(__file__).parent / "golden").glob("*.ini"))]
CANARY = "XcanaryX"
PIECES = [
    *(
        "[interfaces]",
        "[interface fe163e006daf]",
        "[vlan fe163e006daf.7]",
        "[routes]",
        "[global]",
        "[scripts]",
        "[users]",
    ),
    *(
        "[storage]",
        "[",
        "]",
        "[]",
        "=",
        ":",
        "/",
        ";",
        " ;",
        "#",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "  ",
        "\0",
        "\ufeff",
        "\u2028",
    ),
    *(
        "\x1c",
        "\x85",
        "fe163e006daf",
        "up",
        "user",
        "ipv6",
        "fd00::1/64",
        "10.0.0.1/24",
        "name",
        "mtu = 9000",
        "sysctl.",
    ),
    *(
        "{interface}",
        "..",
        "Not Specified",
        "9" * 5000,
        "ü",
        "\ud800",
        "{",
        "%s",
        "{0}",
        "(redacted)",
    ),
]

texts = st.one_of(
    st.text(),
    st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=5)), max_size=60).map("".join),
    st.lists(
        st.sampled_from([line for sample in SAMPLES for line in sample.split("\n")]), max_size=60
    ).map("\n".join),
)


@st.composite
def mutated(draw):
    """A good document with some pieces cut out and some put in."""
    text = draw(st.sampled_from(SAMPLES))
    for _ in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + draw(st.one_of(st.sampled_from(PIECES), st.just(""))) + text[end:]
    return text


def refused_or(function, argument):
    try:
        return function(argument)
    except DocumentError as error:
        text = error.text
    assert text.startswith("cannot read the document: ")
    return None


def parsed(text):
    """The document, or None where it is refused."""
    return refused_or(parse, text)


@settings(max_examples=300, deadline=None)
@given(st.one_of(texts, mutated()))
def test_parse_raises_nothing_but_document_error(text):
    document = parsed(text)
    for fault in document.faults if document else ():
        assert fault.text.isprintable()
        assert 0 < fault.line <= text.count("\n") + 1


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(),
        texts.map(lambda text: text.encode("utf-8", "replace")),
        st.binary().map(gzip.compress),
    )
)
@example(b"\x1f\x8b")
@example(b"\x1c")  # white space of texts, but not of bytes
@example(b"Content-Type: multipart/mixed\n\n")
@example(b"Content-Type: multipart/mixed; boundary\n\n--\n")
@example(b"MIME-Version: 1.0\nContent-Type: text/x-neuca-userdata; charset=\0\n\n[global]\n\xff")
@example(
    b"MIME-Version: 1.0\nContent-Type: text/x-neuca-userdata\nContent-Transfer-Encoding: \xff\n\n[global]"
)
@example(b"MIME-Version: 1.0\nContent-Type: \xff\n\n[global]")
@example(b"Content-Type: message/rfc822\n" * 60)
@example(b"Content-Type: message/rfc822\n\n" * 60)
def test_find_document_raises_nothing_but_document_error(data):
    text = refused_or(find_document, data)
    assert text is None or text.strip()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 400), st.binary(max_size=6)),
        min_size=1,
        max_size=6,
    )
)
def test_find_document_survives_damaged_mime(cuts):
    head = b'Content-Type: multipart/mixed; boundary="XX"\nMIME-Version: 1.0\n\n--XX\n'
    inner = b'Content-Type: text/x-neuca-userdata; charset="utf-8"\nContent-Transfer-Encoding: base64\n\nW2dsb2JhbF0K\n'
    data = head + inner + b"--XX\nContent-Type: message/rfc822\n\n" + head + b"--XX--\n"
    for start, end, new in cuts:
        data = (
            data[:start] + new + data[max(start, end) :]
            if end - start < 30
            else data[:start] + new + data[start:]
        )
    refused_or(find_document, data)


def test_parts_may_be_nested_as_deeply_as_the_limit_allows():
    data = b"MIME-Version: 1.0\n"
    for level in range(32):
        data += f'Content-Type: multipart/mixed; boundary="X{level}X"\n\n--X{level}X\n'.encode()
    assert find_document(data + b"Content-Type: text/x-neuca-userdata\n\n[global]\n") == "[global]"


@settings(max_examples=300, deadline=None)
@given(st.one_of(texts, mutated()))
def test_a_redacted_copy_has_the_same_lines_and_says_the_same_about_the_network(text):
    copy = redact_text(text)
    assert copy.count("\n") == text.count("\n")
    document = parsed(text)
    if document:
        again = parse(copy)
        assert (again.hostname, again.router) == (document.hostname, document.router)
        assert (again.links, again.routes) == (document.links, document.routes)
        assert (again.users, again.scripts, again.storage) == ((), (), ())
        assert redact_text(copy) == copy


SECRETS = f"""
[global]
cometreadtoken = {CANARY}
slice_id = {CANARY}
[users]
joe = yes:ssh-rsa {CANARY}:{CANARY}
[scripts]
bootscript = #!/bin/sh {CANARY}
    echo {CANARY}

    {CANARY}={CANARY}
[storage]
dev1 = iscsi:10.0.0.1:3260:1:joe:{CANARY}:yes
[mine]
x = {CANARY}
    {CANARY}
"""


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(SAMPLES))
def test_no_secret_gets_into_a_copy_or_a_fault_however_its_lines_are_indented(source, sample):
    lines = [_shaken(line, source) for line in (sample + SECRETS).split("\n")]
    text = "\n".join(lines)
    assert CANARY not in redact_text(text)
    document = parsed(text)
    assert document
    assert [fault.text for fault in document.faults if CANARY in fault.text] == []
    assert CANARY not in repr(document.storage + document.items + document.scripts)


def _shaken(line: str, source: random.Random) -> str:
    # A header stays where it is: what follows a header that was lost does belong to the section above.
    if line.lstrip().startswith("["):
        return line
    return source.choice(
        [
            line,
            line,
            line.strip(),
            f"  {line}",
            line if line[:1].isspace() else f"{line} ; {CANARY}",
        ]
    )


@pytest.mark.parametrize("sample", SAMPLES)
def test_get_finds_every_item_by_its_key_in_any_case(sample):
    document = parse(sample)
    for item in document.items:
        assert find_value(document, item.section, item.key.upper()) == item.value
