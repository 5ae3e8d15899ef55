"""Answers that are cut off, ambiguous or endless, as one request reads them: an error is never another answer."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import os
import socket
import threading
from contextlib import closing, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuca_tools.errors import SourceError
from neuca_tools.sources.base import BODY_LIMIT, Deadline
from neuca_tools.sources.http import Connection, _decode_body

EXAMPLES = int(os.environ.get("NEUCA_EXAMPLES", "200"))
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service at the path of a UNIX socket that answers each request with its `data`, and closes."""
    with Service(tmp_path_factory.mktemp("service") / "socket") as found:
        yield found


class Service:
    def __init__(self, path):
        self.path, self.data, self.rest, self.sent = path, b"", b"", 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()

    def _serve(self):
        with suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                with connection, suppress(OSError):
                    connection.recv(4096)
                    self._send(connection, self.data)
                    while self.rest:
                        self._send(connection, self.rest)

    def _send(self, connection, data):
        connection.sendall(data)
        self.sent += len(data)

    def read(self, data, rest=b""):
        """The status, headers and body of an answer; None if it is refused."""
        self.data, self.rest, self.sent = data, rest, 0
        with closing(Connection(self.path)) as connection, suppress(SourceError):
            answer = connection.request("GET", "/x", {}, Deadline.after(60))
            return answer.status, answer.headers, answer.body
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


@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(data=answers())
def test_an_answer_that_is_cut_off_is_never_another_answer(service, data):
    """Only its end tells how long a body without a length is."""
    whole = service.read(data)
    if whole is None or not {"content-length", "transfer-encoding"} & whole[1].keys():
        return
    for length in range(len(data)):
        seen = service.read(data[:length])
        assert seen is None or seen[::2] == whole[::2]


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    head=st.sampled_from([b"", OK, OK + b"Transfer-Encoding: chunked\r\n\r\n"]),
    rest=st.binary(max_size=200),
)
def test_no_bytes_raise_anything_else(service, head, rest):
    answer = service.read(head + rest)
    assert answer is None or answer[0] in range(100, 1000)


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
def test_a_head_or_a_size_that_is_cut_off_is_no_empty_document(service, data):
    """A service that dies after "0" of "0a", or within its headers, has not said that there is nothing."""
    assert service.read(data) is None


def test_a_body_in_chunks_is_complete_without_trailers(service):
    assert service.read(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n")[2] == b"abc"


AMBIGUOUS = [
    b"rubbish\r\nContent-Length: 1\r\n",
    b"Content-Length : 1\r\n",
    b" Content-Length: 1\r\n",
    b"X: y\rContent-Length: 1\r\n",
    b"Transfer-Encoding:\r\nContent-Length: 3\r\n",
    b"Content-Length: 3\r\nContent-Length: 1\r\n",
    b"Content-Length: " + b"0" * 40 + b"3\r\n",
    b"Content-Length: " + b"9" * 5000 + b"\r\n",
]


@pytest.mark.parametrize("fields", AMBIGUOUS)
def test_a_head_that_readers_understand_differently_is_refused(service, fields):
    assert service.read(OK + fields + b"\r\nabc") is None


def test_two_members_of_gzip_are_not_taken_for_the_first_one():
    with pytest.raises(
        SourceError, match=r"^its gzip data is damaged: it is followed by other data$"
    ):
        _decode_body(gzip.compress(b"a") + gzip.compress(b"b"), "gzip")


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
def test_what_is_endless_is_refused_after_a_limited_number_of_bytes(service, what):
    assert service.read(*ENDLESS[what]) is None
    assert service.sent <= 3 * BODY_LIMIT  # the limit of one answer, and what the socket holds
