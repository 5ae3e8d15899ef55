"""The reader of HTTP answers against http.client: what both accept is the same, and what is incomplete is refused."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import http.client
import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuca_tools.sources.base import BODY_LIMIT
from neuca_tools.sources.http import _decoded
from neuca_tools.sources.http_answer import MalformedError, UnusableError, read_body, read_head

EXAMPLES = int(os.environ.get("NEUCA_EXAMPLES", "200"))
REFUSED = (MalformedError, UnusableError)
OK = b"HTTP/1.1 200 OK\r\n"


def ours(data):
    """Status, headers and body of an answer as we read it; None if we refuse it."""
    stream = io.BufferedReader(io.BytesIO(data))
    try:
        head = read_head(stream)
        body = read_body(stream, head.headers) if head.status == 200 else b""
    except REFUSED:
        return None
    return head.status, dict(head.headers), body


class Wire:
    """What http.client takes for a socket."""

    def __init__(self, data):
        self.data = data

    def makefile(self, *_, **__):
        return io.BufferedReader(io.BytesIO(self.data))


def theirs(data):
    """Status and body as http.client reads them; None if it refuses."""
    answer = http.client.HTTPResponse(Wire(data), method="GET")
    try:
        answer.begin()
        return answer.status, answer.read() if answer.status == 200 else b""
    except (http.client.HTTPException, ValueError, OverflowError, MemoryError):
        return None


# --- Drawn answers --------------------------------------------------------------------------------

STATUS = [b"HTTP/1.1 200 OK"] * 6 + [
    b"HTTP/1.0 200 OK", b"HTTP/1.1 200", b"HTTP/1.1  200  OK", b"HTTP/0.9 200", b"HTTP/1.x 200 OK",
    b"HTTP/1.1 404 X", b"HTTP/1.1 204 X", b"HTTP/1.1 101 X", b"HTTP/1.1 2000 OK", b"HTTP/1.1 \xb2\xb2\xb2 OK",
    b"HTTP/1.1 -20 OK", b"HTTP/2 200", b"PRI * HTTP/2.0", b"ICY 200 OK", b"HTTP/1.1 200 \xff\0",
]  # fmt: skip
FIELDS = [b"X: y", b"X:", b"X: \xff\0", b" folded", b"Content-Encoding: identity", b"Trailer: X", b"Connection: close",
    b"Content-Type: multipart/mixed; boundary=x", b"Content-Type: message/rfc822", b"Transfer_Encoding: chunked"]  # fmt: skip
LENGTHS = [b"%d"] * 3 + [
    b"00%d", b"-%d", b"+%d", b"%d, %d", b"0x%d", b"%d_0", b"%d9", b"%d\0", b"%d.0", b"\xb2%d", b"%d" + b"0" * 40,
]  # fmt: skip
CODINGS = [b"chunked"] * 3 + [
    b"Chunked", b"gzip, chunked", b"chunked, chunked", b"identity", b"", b"chunked;q=1", b"\0",
]  # fmt: skip
SIZES = [b"%x"] * 12 + [
    b"%X", b"00%x", b"%x;a=b", b'%x ;a="b"', b" %x ", b"-%x", b"+%x", b"0x%x", b"%xg", b"f%x", b"%x_0", b"",
    b"ffffffffffffffff%x",
]  # fmt: skip
LAST = [b"0", b"0", b"000", b"0;x"]
ENDS = [b"\r\n"] * 12 + [b"\n", b"", b"\r"]


def filled(form, number):
    for place in (b"%d", b"%x", b"%X"):
        form = form.replace(place, place % number)
    return form


@st.composite
def answers(draw):
    def one(choices):
        return draw(st.sampled_from(choices))

    pieces = draw(st.lists(st.binary(min_size=1, max_size=20), max_size=3))
    if draw(st.booleans()):
        coding = b"Transfer-Encoding: " + one(CODINGS)
        body = b"".join(
            filled(one(SIZES), len(piece)) + one(ENDS) + piece + one(ENDS) for piece in pieces
        )
        body += one(LAST) + one(ENDS) + one([b"", b"X: y\r\n"]) + one(ENDS)
    else:
        body = b"".join(pieces)
        coding = b"Content-Length: " + filled(one(LENGTHS), len(body))
    fields = draw(st.permutations([coding, *draw(st.lists(st.sampled_from(FIELDS), max_size=3))]))
    if fields[0].startswith(b" "):
        fields.append(fields.pop(0))
    interim = one([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
    head = interim + one(STATUS) + one(ENDS) + b"".join(field + one(ENDS) for field in fields)
    return head + one(ENDS) + body


@settings(max_examples=EXAMPLES, deadline=None)
@given(data=answers())
def test_what_is_accepted_is_what_http_client_reads(data):
    """We refuse more: bare carriage returns, other codings, lengths that are no numbers, and cut lines."""
    seen = ours(data)
    if seen is not None:
        assert (seen[0], seen[2]) == theirs(data)


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(data=answers())
def test_an_answer_that_is_cut_off_is_never_another_answer(data):
    """Only its end tells how long a body without a length is."""
    whole = ours(data)
    if whole is None or not {"content-length", "transfer-encoding"} & whole[1].keys():
        return
    for length in range(len(data)):
        seen = ours(data[:length])
        assert seen is None or seen[::2] == whole[::2]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    head=st.sampled_from([b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"]),
    rest=st.binary(max_size=200),
)
def test_no_bytes_raise_anything_else(head, rest):
    ours(head + rest)


# --- What it found --------------------------------------------------------------------------------

CUT = [
    b"HTTP/1.1 404",
    b"HTTP/1.1 404 Not Found\r\n",
    b"HTTP/1.1 200 OK",
    OK,
    OK + b"Content-Len",
    OK + b"Content-Length: 0\r\n",
    OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0",
    b"HTTP/1.1 100 Continue\r\n",
]


@pytest.mark.parametrize("data", CUT)
def test_a_head_or_a_size_that_is_cut_off_is_no_empty_document(data):
    """A service that dies after "0" of "0a", or within its headers, has not said that there is nothing."""
    assert ours(data) is None


def test_a_body_in_chunks_is_complete_without_trailers():
    assert ours(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")[2] == b"abc"


AMBIGUOUS = [
    b"X: y\rContent-Length: 1\r\n",
    b"Transfer-Encoding:\r\nContent-Length: 3\r\n",
    b"Content-Length: 3\r\nContent-Length: 1\r\n",
    b"Content-Length: " + b"0" * 40 + b"3\r\n",
    b"Content-Length: " + b"9" * 5000 + b"\r\n",
]


@pytest.mark.parametrize("fields", AMBIGUOUS)
def test_a_head_that_readers_understand_differently_is_refused(fields):
    assert ours(OK + fields + b"\r\nabc") is None


def test_two_members_of_gzip_are_not_taken_for_the_first_one():
    with pytest.raises(
        UnusableError, match=r"^its gzip is damaged \(it is followed by other data\)$"
    ):
        _decoded(gzip.compress(b"a") + gzip.compress(b"b"), "gzip")


class Endless(io.RawIOBase):
    """A server that sends the same bytes again and again, and counts them."""

    def __init__(self, head, rest):
        self.rest, self.next, self.sent = rest, head, 0

    def readable(self):
        return True

    def readinto(self, buffer):
        while len(self.next) < len(buffer):
            self.next += self.rest
        buffer[:], self.next = self.next[: len(buffer)], self.next[len(buffer) :]
        self.sent += len(buffer)
        return len(buffer)


ENDLESS = {
    "a status line": (b"HTTP/1.1 200 ", b"x" * 4096),
    "a header": (OK + b"X: ", b"x" * 4096),
    "headers": (OK, b"X: y\r\n"),
    "a folded header": (OK + b"X: y\r\n", b" y\r\n"),
    "a body": (OK + b"\r\n", b"x" * 4096),
    "a chunk size": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 4096),
    "a chunk extension": (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x" * 4096),
    "trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_is_endless_is_refused_after_a_limited_number_of_bytes(what):
    server = Endless(*ENDLESS[what])
    stream = io.BufferedReader(server)
    with pytest.raises(REFUSED):
        read_body(stream, read_head(stream).headers)
    assert server.sent <= BODY_LIMIT + 2 * 65536
