"""The EC2-style service in all its versions: with tokens, without, and in between."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import time

import pytest
from sources_server import Server, http

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.sources import Session, Token, ask_sources, fetch_path, parse_source

LONG = 300
PUT = "PUT /latest/api/token"
GET = "GET /latest/user-data"
TREE = "GET /latest/meta-data/network/interfaces/macs/"
KEYS = "GET /latest/meta-data/public-keys/"
IP = "/latest/meta-data/public-ipv4"
ID = "GET /latest/meta-data/instance-id"


class Imds:
    """A metadata service: what it answers to PUT, which token it wants (None: any or none), what it has."""

    def __init__(self, put, wants=None, status=200, body=b"document"):
        self.put, self.wants, self.status, self.body = put, wants, status, body

    def __call__(self, request):
        if request.method == "PUT":
            return self.put
        if self.wants is not None and request.headers.get("X-aws-ec2-metadata-token") != self.wants:
            return http(401)
        return http(self.status, self.body)


@pytest.fixture
def serve():
    servers = []

    def start(play):
        servers.append(Server(play))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def asked(server):
    """The requests, but for those for NICs and keys, which these services do not have, and for the id of the instance."""
    return [request for request in server.asked if request not in (TREE, KEYS, ID)]


def spec(server):
    return parse_source(f"ec2={server.url}")


def ask(server, session=None, budget=LONG):
    return ask_sources([spec(server)], budget, session or Session())


def reason(server, session=None, budget=LONG):
    """The error of a look without the part that says where."""
    with pytest.raises(SourceError) as caught:
        ask(server, session, budget)
    begin = f"no user-data from any source: ec2={server.url}: "
    assert str(caught.value).startswith(begin)
    return str(caught.value)[len(begin) :].replace(server.url, "")


def test_version_2_gets_a_token_first_and_sends_it(serve):
    server = serve(Imds(http(200, b"secret"), wants="secret"))
    answer = ask(server)
    assert (answer.source, answer.data) == (f"ec2={server.url}", b"document")
    assert asked(server) == [PUT, GET]
    assert server.requests[0].headers["X-aws-ec2-metadata-token-ttl-seconds"] == "21600"
    assert answer.session.token(server.url).value == "secret"


@pytest.mark.parametrize("put", [http(200, b"secret"), http(404)], ids=["version 2", "version 1"])
def test_an_unchanged_poll_costs_one_request(serve, put):
    server = serve(Imds(put))
    session = ask(server).session
    server.requests.clear()
    for _ in range(3):
        session = Session.from_json(json.loads(json.dumps(session.tokens)))
        session = ask(server, session).session
    assert asked(server) == [GET] * 3


@pytest.mark.parametrize("status", [400, 404, 405, 501])
def test_a_service_without_tokens_is_asked_without(serve, status):
    server = serve(Imds(http(status)))
    assert ask(server).data == b"document"
    assert asked(server) == [PUT, GET]
    assert "X-aws-ec2-metadata-token" not in server.requests[1].headers


@pytest.mark.parametrize("body", [b"", b"<html>\r\nwelcome", b"x" * 5000, b"caf\xc3\xa9"])
def test_a_service_that_answers_put_with_no_token_has_none(serve, body):
    server = serve(Imds(http(200, body)))
    assert ask(server).data == b"document"
    assert "X-aws-ec2-metadata-token" not in server.requests[1].headers


def test_a_token_that_was_revoked_is_renewed_once(serve):
    server = serve(Imds(http(200, b"new"), wants="new"))
    old = Session({server.url: Token("old", time.monotonic() + 1000)})
    answer = ask(server, old)
    assert answer.data == b"document"
    assert asked(server) == [GET, PUT, GET]
    assert answer.session.token(server.url).value == "new"


def test_a_token_past_its_time_is_not_sent(serve):
    server = serve(Imds(http(200, b"new"), wants="new"))
    assert ask(server, Session({server.url: Token("old", time.monotonic())})).data == b"document"
    assert asked(server) == [PUT, GET]


def test_a_service_that_begins_to_want_tokens_gets_one(serve):
    server = serve(Imds(http(200, b"new"), wants="new"))
    assert (
        ask(server, Session({server.url: Token("", time.monotonic() + 1000)})).data == b"document"
    )
    assert asked(server) == [GET, PUT, GET]


def test_a_token_goes_to_no_other_service(serve):
    first, second = serve(Imds(http(200, b"secret"))), serve(Imds(http(404)))
    ask(second, ask(first).session)
    assert all("X-aws-ec2-metadata-token" not in request.headers for request in second.requests)


def test_a_new_token_that_is_refused_is_an_error(serve):
    server = serve(Imds(http(200, b"secret"), wants="another"))
    assert reason(server) == "GET /latest/user-data: HTTP 401 with a new token"
    assert asked(server) == [PUT, GET, PUT, GET]


def test_a_service_that_wants_a_token_and_gives_none_is_an_error(serve):
    server = serve(Imds(http(404), wants="secret"))
    assert (
        reason(server)
        == "GET /latest/user-data: HTTP 401 without a token, and the service gave none"
    )


def test_a_put_that_is_never_answered_leaves_time_for_version_1(serve):
    """As behind a forwarder, where the answer to PUT dies after one hop."""
    server = serve(Imds(None))
    began = time.monotonic()
    answer = ask(server, budget=6)
    assert answer.data == b"document"
    assert time.monotonic() - began >= 1.8
    server.requests.clear()
    ask(server, answer.session)
    assert asked(server) == [GET]


def test_a_service_that_is_switched_off_is_an_error(serve):
    server = serve(Imds(http(403)))
    assert (
        reason(server)
        == "PUT /latest/api/token: HTTP 403: the metadata service is disabled for this guest"
    )
    assert asked(server) == [PUT]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failing_token_is_an_error_and_not_version_1(serve, status):
    server = serve(Imds(http(status)))
    assert reason(server) == f"PUT /latest/api/token: HTTP {status}"
    assert asked(server) == [PUT]


@pytest.mark.parametrize("status", [204, 400, 403, 429, 500, 503])
def test_a_failing_service_is_an_error_and_not_none(serve, status):
    assert reason(serve(Imds(http(404), status=status))) == f"GET /latest/user-data: HTTP {status}"


def test_a_guest_without_user_data_has_none(serve):
    server = serve(Imds(http(200, b"secret"), status=404))
    answer = ask(server)
    assert answer.data is None
    assert answer.session.token(server.url).value == "secret"


def test_empty_user_data_is_not_none(serve):
    assert ask(serve(Imds(http(404), body=b""))).data == b""


def test_a_broken_answer_is_an_error(serve):
    server = serve(
        lambda request: http(404) if request.method == "PUT" else http(200, b"x" * 10)[:-3]
    )
    assert reason(server) == "GET /latest/user-data: the body ends after 7 of 10 bytes"


def test_a_silent_service_ends_with_the_budget(serve):
    began = time.monotonic()
    assert (
        reason(serve(lambda _: None), budget=2)
        == "GET /latest/user-data: no complete response within 2 s"
    )
    assert 1.8 <= time.monotonic() - began < LONG


def test_no_token_is_ever_shown(serve):
    server = serve(Imds(http(200, b"secret"), body=b"password"))
    answer = ask(server)
    assert "secret" not in f"{answer!r} {answer.session!r} {answer.session}"
    assert "password" not in repr(answer)
    refusing = serve(Imds(http(200, b"secret"), wants="another"))
    with pytest.raises(SourceError) as caught:
        ask(refusing)
    assert "secret" not in f"{caught.value!r}"


# --- Single items ---------------------------------------------------------------------------------------------------


def test_one_item_is_text_without_its_line_end(serve):
    server = serve(Imds(http(200, b"secret"), wants="secret", body=b"192.0.2.7\n"))
    assert fetch_path(spec(server), IP, LONG, Session()) == "192.0.2.7"
    assert asked(server) == [PUT, f"GET {IP}"]


def test_an_item_that_is_not_there_is_none(serve):
    assert fetch_path(spec(serve(Imds(http(404), status=404))), IP, LONG, Session()) is None


def test_an_item_that_cannot_be_had_is_an_error(serve):
    server = serve(Imds(http(404), status=500))
    with pytest.raises(SourceError) as caught:
        fetch_path(spec(server), IP, LONG, Session())
    assert (
        str(caught.value)
        == f"no {IP} from any source: ec2={server.url}: GET {server.url}{IP}: HTTP 500"
    )


def test_an_item_that_is_not_text_is_an_error(serve):
    server = serve(Imds(http(404), body=b"\xff"))
    with pytest.raises(SourceError) as caught:
        fetch_path(spec(server), IP, LONG, Session())
    assert str(caught.value) == f"ec2={server.url}: {IP} is not UTF-8 text"


@pytest.mark.parametrize("path", ["", "latest", "/a b", "/a\r\nX: y", "/é"])
def test_a_path_that_would_break_the_request_is_refused(path):
    with pytest.raises(UsageError) as caught:
        fetch_path(parse_source("ec2=http://127.0.0.1:1"), path, LONG, Session())
    shown = path.replace("\r\n", r"\r\n")
    assert (
        str(caught.value)
        == f'bad metadata path "{shown}": it must be printable ASCII and begin with "/"'
    )


# --- which instance this is -----------------------------------------------------------------------------------------


def with_id(answer):
    """A service of version 1 with a document, no tree, and this answer to the question for the id."""
    paths = {"/latest/user-data": http(200, b"document"), "/latest/meta-data/instance-id": answer}
    return lambda request: paths.get(request.path, http(404))


def test_the_instance_id_comes_with_the_document_and_is_requested_occasionally(serve):
    server = serve(with_id(http(200, b"i-0abc\n")))
    first = ask(server)
    again = ask(server, Session.from_json(json.loads(json.dumps(first.session.tokens))))
    assert (first.instance, again.instance, server.asked.count(ID)) == (
        "ec2:i-0abc",
        "ec2:i-0abc",
        1,
    )
    assert ask(server, again.session.without_trees()).instance == "ec2:i-0abc"
    assert server.asked.count(ID) == 2


@pytest.mark.parametrize("answer", [http(404), http(500), http(200, b""), http(200, b"<html>\nno"), http(200, b"\xff" * 9),
                                    http(200, b"x" * 200), b"rubbish"])  # fmt: skip
def test_a_service_without_an_instance_id_is_not_asked_for_it_each_time(serve, answer):
    server = serve(with_id(answer))
    first = ask(server)
    again = ask(server, first.session)
    assert (first.data, first.instance, again.instance, server.asked.count(ID)) == (
        b"document",
        "",
        "",
        1,
    )
