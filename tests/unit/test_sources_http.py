"""One request against servers that are slow, broken, hostile or absent."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import struct
import threading
import time
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources_server import Server, http

import neuca_tools
from neuca_tools.errors import SourceError, SourceTimeoutError
from neuca_tools.sources.base import BODY_LIMIT, Deadline, parse_url
from neuca_tools.sources.http import Connection

LONG = 300
"""Seconds that no test needs; a server that is waited for this long is a failure, not a slow test."""


@pytest.fixture
def serve():
    """Starts servers and ends them with the test."""
    servers = []

    def start(play, **options):
        servers.append(Server(play, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def request(method, url, path, headers, deadline):
    """One request over a connection of its own."""
    with closing(Connection(url)) as connection:
        return connection.request(method, path, headers, deadline)


def get(server, budget=LONG):
    return request("GET", parse_url(server.url), "/x", {}, Deadline.after(budget))


def reason(server, budget=LONG):
    """The error of a GET without the part that says what was asked."""
    with pytest.raises(SourceError) as caught:
        get(server, budget)
    asked, text = str(caught.value).split("/x: ", 1)
    assert asked == f"GET {server.url}"
    return text


def test_a_good_answer_is_its_bytes(serve):
    assert get(serve(lambda _: http(200, b"\x00\xff\r\n")))[:2] == (200, b"\x00\xff\r\n")


def test_an_empty_body_is_empty_bytes(serve):
    assert get(serve(lambda _: http(200)))[:2] == (200, b"")


def test_the_request_says_who_asks(serve):
    server = serve(lambda _: http(200))
    get(server)
    assert server.asked == ["GET /x"]
    assert server.requests[0].headers == {
        "Host": f"127.0.0.1:{server.port}",
        "User-Agent": f"neuca-guest-tools/{neuca_tools.__version__}",
        "Accept-Encoding": "identity",
    }


def test_a_put_says_that_it_has_no_body(serve):
    server = serve(lambda _: http(200))
    request("PUT", parse_url(server.url), "/x", {"Word": "value"}, Deadline.after(LONG))
    assert server.requests[0].headers["Content-Length"] == "0"
    assert server.requests[0].headers["Word"] == "value"


def test_a_path_in_the_url_goes_in_front(serve):
    server = serve(lambda _: http(200))
    request("GET", parse_url(server.url + "/pre/fix/"), "/x", {}, Deadline.after(LONG))
    assert server.asked == ["GET /pre/fix/x"]


def test_an_ipv6_literal_is_asked(serve):
    server = serve(lambda _: http(200, b"six"), host="::1")
    assert get(server)[:2] == (200, b"six")
    assert server.requests[0].headers["Host"] == f"[::1]:{server.port}"


def test_a_proxy_in_the_environment_is_ignored(serve, monkeypatch):
    proxy, server = serve(lambda _: http(200, b"proxy")), serve(lambda _: http(200, b"direct"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert get(server).body == b"direct"
    assert proxy.asked == []


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_the_body_of_an_error_is_not_waited_for(serve, status):
    server = serve(lambda _: [f"HTTP/1.1 {status} No\r\nContent-Length: 9\r\n\r\n".encode(), None])
    assert get(server)[:2] == (status, b"")


def test_a_redirect_is_not_followed(serve):
    other = serve(lambda _: http(200, b"other"))
    server = serve(lambda _: http(302, b"", f"Location: {other.url}/y"))
    assert reason(server) == f"HTTP 302 leads to '{other.url}/y', and redirects are not followed"
    assert other.asked == []


def test_a_redirect_to_nowhere_is_named_too(serve):
    assert (
        reason(serve(lambda _: http(304)))
        == "HTTP 304 leads to 'nowhere', and redirects are not followed"
    )


# --- Time -----------------------------------------------------------------------------------------------------------


def assert_given_up_in_time(server, budget=1.5):
    began = time.monotonic()
    with pytest.raises(SourceTimeoutError) as caught:
        get(server, budget)
    assert str(caught.value) == f"GET {server.url}/x: no complete response within {budget} s"
    assert budget * 0.9 <= time.monotonic() - began < LONG


def test_silence_ends_with_the_deadline(serve):
    assert_given_up_in_time(serve(lambda _: None))


def test_silence_in_the_middle_of_a_body_ends_with_the_deadline(serve):
    assert_given_up_in_time(serve(lambda _: [http(200, b"x" * 100)[:-50], None]))


def test_a_header_that_comes_byte_by_byte_ends_with_the_deadline(serve):
    server = serve(lambda _: server.slowly(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000))
    assert_given_up_in_time(server)


def test_a_body_that_comes_byte_by_byte_ends_with_the_deadline(serve):
    server = serve(lambda _: server.slowly(http(200, b"x" * 10_000)))
    assert_given_up_in_time(server)


def test_chunks_that_come_byte_by_byte_end_with_the_deadline(serve):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server = serve(lambda _: server.slowly(head + b"1\r\nx\r\n" * 2_000))
    assert_given_up_in_time(server)


def test_a_slow_answer_within_the_deadline_is_taken(serve):
    server = serve(lambda _: server.slowly(http(200, b"slow"), every=0.002))
    assert get(server).body == b"slow"


def test_a_server_that_does_not_accept_ends_with_the_deadline():
    """A full accept queue drops the SYN (listen(2)), as a firewall or an absent neighbour does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        with pytest.raises(SourceTimeoutError) as caught:
            request("GET", parse_url(f"http://127.0.0.1:{port}"), "/x", {}, Deadline.after(0.4))
        for filler in fillers:
            filler.close()
    assert str(caught.value) == f"GET http://127.0.0.1:{port}/x: no connection within 0.4 s"


def test_without_any_time_nothing_is_asked(serve):
    server = serve(lambda _: http(200))
    assert reason(server, budget=0) == "no connection within 0 s"
    assert server.asked == []


# --- Size and shape -------------------------------------------------------------------------------------------------


def chunked(*pieces):
    yield b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield from pieces


def test_chunks_are_put_together(serve):
    assert (
        get(serve(lambda _: chunked(b"3\r\nabc\r\n", b"2;x=y\r\nde\r\n", b"0\r\n\r\n"))).body
        == b"abcde"
    )


def test_a_body_without_a_length_ends_with_the_connection(serve):
    assert get(serve(lambda _: b"HTTP/1.0 200 OK\r\n\r\nabc")).body == b"abc"


def test_a_body_of_the_limit_is_taken(serve):
    assert len(get(serve(lambda _: http(200, b"x" * BODY_LIMIT))).body) == BODY_LIMIT


OVERSIZED = {
    "with its length": lambda _: http(200, b"x" * (BODY_LIMIT + 1)),
    "without end": lambda _: itertools.chain(
        [b"HTTP/1.0 200 OK\r\n\r\n"], itertools.repeat(b"x" * 4096)
    ),
    "chunks without end": lambda _: chunked(
        *itertools.repeat(b"1000\r\n" + b"x" * 4096 + b"\r\n", 600)
    ),
    "one endless chunk": lambda _: chunked(b"7fffffff\r\n", *itertools.repeat(b"x" * 4096, 600)),
}


@pytest.mark.parametrize("how", OVERSIZED)
def test_a_body_over_the_limit_is_refused(serve, how):
    assert reason(serve(OVERSIZED[how])) == "the body is larger than 1048576 bytes"


ENDLESS = {
    "trailers": lambda _: itertools.chain(chunked(b"0\r\n"), itertools.repeat(b"X: y\r\n" * 1000)),
    "continues": lambda _: itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "crumbs": lambda _: itertools.chain(chunked(), itertools.repeat(b"1\r\nx\r\n" * 1000)),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_what_is_endless_round_the_body_is_refused(serve, what):
    assert (
        reason(serve(ENDLESS[what]))
        in {
            "the response is larger than 2097152 bytes",
            "the response is incomplete or malformed HTTP",  # later versions of http.client count some of these themselves
        }
    )


def test_headers_are_found_whatever_their_case_and_shape(serve):
    """Continued as in RFC 7230, repeated."""
    server = serve(lambda _: b"HTTP/1.1 200 OK\r\nX-ONE:  1 \r\n\ttwo\r\nx-two:a\nX-Two: b\r\n\r\n")
    assert get(server).headers == {"x-one": "1 two", "x-two": "a, b"}


def test_interim_answers_are_passed_over(serve):
    early = b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n"
    assert get(serve(lambda _: early + early + http(200, b"x")))[:2] == (200, b"x")


def test_another_transfer_coding_is_refused(serve):
    server = serve(
        lambda _: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"
    )
    assert reason(server) == "Transfer-Encoding is 'gzip, chunked'"


def test_chunks_take_precedence_over_a_length(serve):
    server = serve(
        lambda _: (
            b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: Chunked\r\n\r\n"
            b"3\r\nabc\r\n0\r\nX: y\r\n\r\n"
        )
    )
    assert get(server).body == b"abc"


def test_a_body_that_ends_early_is_refused(serve):
    server = serve(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    assert reason(server) == "the body ends after 3 of 10 bytes"


def test_chunks_that_end_early_are_refused(serve):
    assert (
        reason(serve(lambda _: chunked(b"5\r\nabc")))
        == "the response is incomplete or malformed HTTP"
    )
    assert (
        reason(serve(lambda _: chunked(b"3\r\nabc\r\n")))
        == "the response is incomplete or malformed HTTP"
    )


@pytest.mark.parametrize("size", [b"-1", b"-5", b"+5", b"0x5", b"5_0", b"zz", b""])
def test_a_chunk_of_no_size_is_refused(serve, size):
    server = serve(lambda _: chunked(size + b"\r\n", b"x" * 100))
    assert reason(server) == "the response is incomplete or malformed HTTP"


@pytest.mark.parametrize("length", ["many", "-3", "+3", "1_0", "", "3, 3"])
def test_a_length_that_is_no_number_is_refused(serve, length):
    server = serve(lambda _: f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nabc".encode())
    assert reason(server) == f"Content-Length is '{length}'"


@pytest.mark.parametrize(
    "rubbish",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00\x01\x02",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 +20 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
)
def test_what_is_not_http_is_refused(serve, rubbish):
    assert reason(serve(lambda _: rubbish)) == "the response is incomplete or malformed HTTP"


def test_a_connection_that_is_closed_without_an_answer(serve):
    assert reason(serve(lambda _: b"")) == "the connection was closed without a response"


def test_a_connection_that_is_reset():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        resetting = threading.Thread(target=reset_one, args=(listener,))
        resetting.start()
        with pytest.raises(SourceError) as caught:
            request("GET", parse_url(url), "/x", {}, Deadline.after(LONG))
        resetting.join()
    assert str(caught.value) == f"GET {url}/x: Connection reset by peer"


def reset_one(listener):
    """Closing with a linger time of 0 sends RST (socket(7))."""
    connection, _ = listener.accept()
    connection.recv(4096)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(SourceError) as caught:
        request("GET", parse_url(url), "/x", {}, Deadline.after(LONG))
    assert str(caught.value) == f"GET {url}/x: Connection refused"


# --- Several requests on one connection -----------------------------------------------------------------------------

ANSWERS = {
    "with a length": (lambda: http(200, b"text"), 200, True),
    "in chunks": (lambda: b"".join(chunked(b"4\r\ntext\r\n0\r\n\r\n")), 200, True),
    "empty": (lambda: http(200), 200, True),
    "404 with a body": (lambda: http(404, b"<html>" * 50), 404, True),
    "204": (lambda: b"HTTP/1.1 204 None\r\n\r\n", 204, True),
    "404 in chunks": (lambda: b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 404, False),
    "404 without its length": (lambda: b"HTTP/1.1 404 No\r\n\r\nx", 404, False),
    "404 with a large body": (lambda: http(404, b"x" * 100_000), 404, False),
    "404 whose body is on its way": (lambda: http(404, b"text")[:-1], 404, False),
    "the last one": (lambda: http(200, b"text", "Connection: close"), 200, False),
    "more than it should be": (lambda: http(200, b"text") + http(200, b"a lie"), 200, False),
}  # fmt: skip


@pytest.mark.parametrize("how", ANSWERS)
def test_a_connection_is_used_again_only_after_an_answer_whose_end_is_certain(serve, how):
    make, status, is_kept = ANSWERS[how]
    server = serve(lambda request: make() if request.path == "/1" else http(200, b"2"), most=9)
    with closing(Connection(parse_url(server.url))) as connection:
        first = connection.request("GET", "/1", {}, Deadline.after(LONG))
        second = connection.request("GET", "/2", {}, Deadline.after(LONG))
    assert (first.status, second[:2]) == (status, (200, b"2"))
    assert (server.asked, server.connections) == (["GET /1", "GET /2"], [2] if is_kept else [1, 1])


def test_a_service_that_closes_after_each_answer_is_asked_on_new_connections(serve):
    server = serve(lambda request: http(200, request.path.encode()))
    with closing(Connection(parse_url(server.url))) as connection:
        for path in ("/1", "/2", "/3"):
            assert connection.request("PUT", path, {}, Deadline.after(LONG)).body == path.encode()
    assert (server.asked, server.connections) == (["PUT /1", "PUT /2", "PUT /3"], [1, 1, 1])


def test_an_answer_that_came_too_late_is_not_that_of_the_next_request(serve):
    hold = threading.Event()

    def play(request):
        if request.path == "/1":
            hold.wait()
        return http(200, request.path.encode())

    server = serve(play, most=9)
    with closing(Connection(parse_url(server.url))) as connection:
        with pytest.raises(SourceTimeoutError):
            connection.request("GET", "/1", {}, Deadline.after(0.3))
        hold.set()
        assert connection.request("GET", "/2", {}, Deadline.after(LONG)).body == b"/2"


def test_a_kept_connection_has_the_limits_and_the_deadline_of_each_request(serve):
    bodies = {"/big": http(200, b"x" * BODY_LIMIT), "/never": None}
    server = serve(lambda request: bodies[request.path], most=9)
    with closing(Connection(parse_url(server.url))) as connection:
        for _ in range(3):  # more than the limit of one response
            assert len(connection.request("GET", "/big", {}, Deadline.after(LONG)).body) > 0
        began = time.monotonic()
        with pytest.raises(SourceTimeoutError):
            connection.request("GET", "/never", {}, Deadline.after(0.5))
        assert time.monotonic() - began < LONG / 10
    assert server.connections == [4]


# --- Content-Encoding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "GZIP"])
def test_a_gzip_encoding_is_undone(serve, name):
    server = serve(lambda _: http(200, gzip.compress(b"text"), f"Content-Encoding: {name}"))
    assert get(server).body == b"text"


def test_gzip_that_is_the_content_itself_is_left_alone(serve):
    packed = gzip.compress(b"text")
    assert get(serve(lambda _: http(200, packed))).body == packed


GZIP_FAULTS = {
    "bomb": (
        gzip.compress(b"\0" * (4 << 20) + b"\0"),
        "the body is larger than 4194304 bytes after gzip",
    ),
    "cut": (gzip.compress(b"text" * 100)[:-4], "its gzip data is damaged: it ends too early"),
    "none": (
        b"plain text",
        "its gzip data is damaged: Error -3 while decompressing data: incorrect header check",
    ),
}


@pytest.mark.parametrize("fault", GZIP_FAULTS)
def test_a_gzip_encoding_that_is_damaged_or_a_bomb_is_refused(serve, fault):
    body, text = GZIP_FAULTS[fault]
    assert reason(serve(lambda _: http(200, body, "Content-Encoding: gzip"))) == text


def test_another_encoding_is_refused(serve):
    assert (
        reason(serve(lambda _: http(200, b"x", "Content-Encoding: br")))
        == "Content-Encoding is 'br'"
    )


# --- Anything -------------------------------------------------------------------------------------------------------

HEADS = (
    b"",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: ",
)


@settings(max_examples=150, deadline=None)
@given(head=st.sampled_from(HEADS), rest=st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_source_error(head, rest):
    with Server(lambda _: head + rest) as server, contextlib.suppress(SourceError):
        assert get(server).status in range(100, 1000)
