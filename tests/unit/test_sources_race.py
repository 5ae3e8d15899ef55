"""Several sources, and several addresses of one: who is asked when, whose word counts, what is left behind."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest
from sources_server import Server, http

from neuca_tools.errors import SourceError
from neuca_tools.sources import Session, Surroundings, race
from neuca_tools.sources.base import parse_url
from neuca_tools.sources.ec2 import Ec2
from neuca_tools.sources.files import File, NoSource

LONG = 300
"""Seconds that no test needs."""


class Several(Ec2):
    """An EC2 service at addresses of these tests, in place of its own."""

    def __init__(self, *servers):
        super().__init__(servers[0].url, Surroundings())
        self.named, self.name = False, "ec2"
        self.other_urls = tuple(parse_url(server.url) for server in servers[1:])


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:
        yield lambda play, **options: stack.enter_context(Server(play, **options))


@pytest.fixture
def patient(monkeypatch):
    """Who has begun is alone until it has failed, however busy this machine is."""
    monkeypatch.setattr(race, "SECONDS_BETWEEN_ATTEMPTS", LONG)


def having(body):
    return lambda request: http(200, body) if request.path == "/latest/user-data" else http(404)


def nothing(_):
    return http(404)


def silent(_):
    return None


def failing(_):
    return http(500)


def ask(*sources, budget=LONG):
    return race.first_answer(
        sources, "user-data", budget, Session(), lambda source, *rest: source.documents(*rest)
    )


def reason(*sources, budget=LONG):
    with pytest.raises(SourceError) as caught:
        ask(*sources, budget=budget)
    return str(caught.value)


def soon(began):
    """Long before the budget: nobody has waited for who says nothing."""
    return time.monotonic() - began < LONG / 2


# --- several addresses ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_where_all_is_well_only_the_first_address_is_asked(serve):
    first, second = serve(having(b"one")), serve(having(b"two"))
    assert ask(Several(first, second)).data == b"one"
    assert second.asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_while_the_first_address_is_silent_the_next_is_asked(serve, host):
    began = time.monotonic()
    first, second = serve(silent), serve(having(b"two"), host=host)
    answer = ask(Several(first, second))
    assert (answer.source, answer.data) == ("ec2", b"two")
    assert first.asked
    assert soon(began)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "play",
    [failing, lambda _: b"", lambda _: b"rubbish\r\n\r\n", lambda _: http(200, b"x" * 9)[:-1]],
)
def test_where_an_address_fails_the_next_is_asked_at_once(serve, play):
    began = time.monotonic()
    assert ask(Several(serve(play), serve(having(b"two")))).data == b"two"
    assert soon(began)


@pytest.mark.usefixtures("patient")
def test_an_address_that_says_that_there_is_none_speaks_for_its_source(serve):
    second = serve(having(b"two"))
    assert ask(Several(serve(nothing), second)).is_empty
    assert second.asked == []


def test_a_slow_first_address_that_answers_first_after_all_wins(serve):
    gone_on = threading.Event()

    def second(_):
        gone_on.set()

    def first(request):
        assert gone_on.wait(LONG)
        return having(b"one")(request)

    began = time.monotonic()
    assert ask(Several(serve(first), serve(second))).data == b"one"
    assert soon(began)


def test_the_errors_of_all_addresses_are_named_in_their_order(serve):
    servers = [serve(silent), serve(failing), serve(silent)]
    urls = [server.url for server in servers]
    assert reason(Several(*servers), budget=4) == (
        f"no user-data from any source: ec2: GET {urls[0]}/latest/user-data: no complete response within 4 s;"
        f" ec2: PUT {urls[1]}/latest/api/token: HTTP 500;"
        f" ec2: GET {urls[2]}/latest/user-data: no complete response within 4 s"
    )


# --- several sources ------------------------------------------------------------------------------------------------


def test_the_order_decides_and_not_the_speed(serve):
    answered = threading.Event()

    def slow(request):
        assert answered.wait(LONG)
        return having(b"first")(request)

    def fast(request):
        answered.set()
        return having(b"second")(request)

    began = time.monotonic()
    assert ask(Several(serve(slow)), Several(serve(fast))).data == b"first"
    assert soon(began)


def test_a_source_further_down_counts_when_the_budget_of_a_silent_one_ends(serve):
    began = time.monotonic()
    assert (
        ask(Several(serve(silent)), Several(serve(having(b"second"))), budget=4).data == b"second"
    )
    assert 3.6 <= time.monotonic() - began < LONG / 2


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("play", [nothing, failing])
def test_a_source_further_down_counts_at_once_when_the_one_above_has_spoken(serve, play):
    began = time.monotonic()
    assert ask(Several(serve(play)), Several(serve(having(b"second")))).data == b"second"
    assert soon(began)


def test_nobody_is_asked_behind_a_source_that_has_something(serve):
    third = serve(having(b"third"))
    assert (
        ask(
            Several(serve(silent)), Several(serve(having(b"second"))), Several(third), budget=4
        ).data
        == b"second"
    )
    assert third.asked == []


def test_local_sources_are_asked_before_anybody_else(serve, tmp_path):
    (tmp_path / "document").write_bytes(b"local")
    server = serve(having(b"remote"))
    local = File(str(tmp_path / "document"), Surroundings())
    assert ask(NoSource("", Surroundings()), local, Several(server)).data == b"local"
    assert server.asked == []


@pytest.mark.usefixtures("patient")
def test_the_session_is_that_of_all(serve):
    def tokens(request):
        return http(200, b"secret") if request.method == "PUT" else http(404)

    first, second = serve(tokens), serve(having(b"second"))
    answer = ask(Several(first), Several(second))
    assert answer.session.token(first.url).value == "secret"
    assert answer.session.token(second.url).value == ""


# --- what is left behind --------------------------------------------------------------------------------------------


def resources():
    """The threads of pools, and pipes that are open: those of earlier tests may go at any moment."""
    threads = {
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("ThreadPoolExecutor")
    }
    names = {path.resolve().name for path in Path("/proc/self/fd").iterdir()}
    return threads | {name for name in names if "pipe:" in name}


def test_who_is_still_asked_when_the_answer_has_come_is_left_at_once(serve):
    before = resources()
    began = time.monotonic()
    assert ask(Several(serve(silent), serve(having(b"two")))).data == b"two"
    assert soon(began)
    assert resources() <= before


class Defective(Ec2):
    """A reader with a defect."""

    def documents(self, *_):
        return 1 // 0


def test_a_defect_of_a_reader_is_no_answer_and_no_silence(serve):
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        ask(Several(serve(silent)), Defective("http://127.0.0.1:1", Surroundings()))
    assert soon(began)
