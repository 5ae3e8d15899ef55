"""`neuca-selftest --serve` as a process that listens, and strangers who know no secret.

Whatever they send or hold open, who knows the secret is served, and the process stays small.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace

import pytest
from firstline import first_line
from hypothesis import example, given
from hypothesis import strategies as st
from test_fuzz import FUZZ

from neuca_tools.model import Device
from neuca_tools.selftest.evidence import Host
from neuca_tools.selftest.measure.helper import peer, serving
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.helper.handshake import (
    MAX_CONNECTIONS,
    MAX_PER_NETWORK,
    network_of,
)
from neuca_tools.selftest.measure.helper.serving import RefusedError, ServerSession
from neuca_tools.selftest.measure.host import facts, kernel, tcp_info
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.program import Program

ROOT = Path(__file__).parents[2]
SECRET = b"a secret that both sides share"
HOST = "127.0.0.1"
SURROGATE = b'{"nonce":"\\ud800","proof":"x"}\n'
LARGER = 4096  # kB that the process may grow by
SERVE = """import sys
from ipaddress import ip_address
from neuca_tools.selftest.measure.helper.serve import Server
server = Server([ip_address(sys.argv[1])], int(sys.argv[2]), sys.argv[3].encode(), print)
print("serving", flush=True)
server.run(300)
"""


class Served:
    """The process, and the port of its control connection."""

    def __init__(self, first=""):
        self.base = free_ports()
        self.process = subprocess.Popen(
            [sys.executable, "-uc", first + SERVE, HOST, str(self.base), SECRET.decode()],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert first_line(self.process.stdout) == "serving\n"

    def stranger(self, source=HOST):
        """A connection that has been greeted."""
        connection = socket.create_connection((HOST, self.base + 1), 10, (source, 0))
        assert connection.recv(4096).endswith(b"\n")
        return connection

    def good(self, source=HOST):
        """Whether a client with the secret is served."""
        helper = peer.connect_to_helper(ip_address(HOST), self.base + 1, SECRET, ip_address(source))
        helper.close()
        return len(helper.token) == 16

    def memory(self):
        """Resident, in kB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    def descriptors(self):
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


def free_ports():
    """The first of three ports in a row that nobody uses."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            first = stack.enter_context(socket.create_server((HOST, 0))).getsockname()[1]
            for port in (first + 1, first + 2):
                stack.enter_context(socket.create_server((HOST, port)))
            return first


@pytest.fixture(scope="module")
def served():
    made = Served()
    yield made
    made.process.kill()
    made.process.wait()
    made.process.stdout.close()


def end_of(connection):
    """What the server still says before it closes."""
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(4096):
            said += piece
    return said


def test_a_line_that_is_no_text_ends_nothing(served):
    with served.stranger() as connection:
        connection.sendall(SURROGATE)
        assert end_of(connection) == b""
    assert served.process.poll() is None
    assert served.good()


@FUZZ
@given(pieces=st.lists(st.binary(max_size=400), max_size=3))
@example(pieces=[SURROGATE])
@example(pieces=[b"\n" * 400])
@example(pieces=[b"[" * 100_000])
@example(pieces=[b'{"nonce":"%s","proof":"%s"}\n' % (b"0" * 64, b"f" * 64)])
def test_no_bytes_of_a_stranger_end_it(served, pieces):
    with served.stranger() as connection:
        with contextlib.suppress(OSError):  # it has closed after the first of them
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
        assert end_of(connection) in (b"", b'{"error":"another secret"}\n')
    assert served.process.poll() is None


def test_after_all_of_that_it_serves_and_has_not_grown(served):
    assert served.good()
    before = served.memory()
    for _ in range(300):
        with served.stranger() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(b"{" * 100_000)
            end_of(connection)
    assert served.memory() < before + LARGER
    assert served.good()


@pytest.mark.parametrize("source", [HOST, "127.0.0.9"])
def test_idle_connections_lock_nobody_out(served, source):
    """Eight filled the table of protocol 1 for ten seconds; here there are more than it holds."""
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(served.stranger(source))
        began = time.monotonic()
        assert served.good()
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(served.stranger(source))
        assert served.good()
        assert time.monotonic() < began + peer.ANSWER_SECONDS
        assert served.descriptors() < 2 * MAX_CONNECTIONS


def test_one_network_never_displaces_anothers_connection(served):
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(served.stranger("127.0.0.2"))
        for _ in range(2 * MAX_CONNECTIONS):
            stack.enter_context(served.stranger("127.0.0.3"))
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


def test_of_one_address_the_oldest_goes_first(served):
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(served.stranger("127.0.0.4")) for _ in range(MAX_PER_NETWORK)]
        stack.enter_context(served.stranger("127.0.0.4"))
        assert idle[0].recv(1) == b""
        idle[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            idle[1].recv(1)


def test_whoever_is_idle_is_dropped_soon(served):
    with served.stranger() as connection:
        began = time.monotonic()
        assert connection.recv(1) == b""
        assert time.monotonic() < began + 8


def test_while_it_is_busy_only_who_knows_the_secret_hears_so(served):
    first = peer.connect_to_helper(ip_address(HOST), served.base + 1, SECRET, ip_address(HOST))
    try:
        with pytest.raises(ChannelError) as raised:
            peer.connect_to_helper(ip_address(HOST), served.base + 1, SECRET, ip_address(HOST))
        assert raised.value.text == "the peer: it is busy with another test"
        with served.stranger() as connection:
            connection.sendall(b'{"nonce":"%s","proof":"%s"}\n' % (b"0" * 64, b"0" * 64))
            assert end_of(connection) == b'{"error":"another secret"}\n'
    finally:
        first.close()


def test_the_hosts_of_an_ipv6_network_count_together():
    one, other = map(ip_address, ("fd00:16::1", "fd00:16::ffff:1"))
    assert network_of(one) == network_of(other) != network_of(ip_address("fd00:17::1"))
    assert network_of(ip_address("10.0.0.1")) != network_of(ip_address("10.0.0.2"))


def test_only_the_clients_that_are_named_are_accepted():
    """As in a slot of a mesh: another host that knows the secret is turned away."""
    script = SERVE.replace("print)", 'print, clients=frozenset({ip_address("127.0.0.7")}))')
    base = free_ports()
    process = subprocess.Popen(
        [sys.executable, "-uc", script, HOST, str(base), SECRET.decode()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert first_line(process.stdout) == "serving\n"
        with pytest.raises(ChannelError):
            peer.connect_to_helper(ip_address(HOST), base + 1, SECRET, ip_address(HOST))
        helper = peer.connect_to_helper(ip_address(HOST), base + 1, SECRET, ip_address("127.0.0.7"))
        helper.close()
        assert len(helper.token) == 16
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


WITHOUT_IPERF3 = """from neuca_tools.selftest.measure import program
program.PATH = "/nowhere"
"""


STDIO = """from ipaddress import ip_address
from neuca_tools.selftest.measure.helper.serve import serve_pipes
serve_pipes(ip_address("127.0.0.1"), 45678, 60, print)
"""


def test_a_client_by_ssh_has_to_name_its_address_first():
    """Any other request is refused, and the session goes on until the client ends it."""
    done = subprocess.run(
        [sys.executable, "-c", STDIO],
        input='{"ask":"host"}\n{"ask":"begin","seconds":1}\n{"ask":"bye"}\n',
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            '{"error":"host: the client has not named its address"}',
            '{"error":"begin: a test takes up to 3600 s, after hello"}',
        ],
    )


@pytest.mark.parametrize(
    ("having", "out", "planned"),
    [
        ((2, 3), 2, "eth1"),
        ((2, 3), 3, "vip0"),
        ((1, 2), 2, "eth1"),
        ((2, 3), 1, "eth1"),
        ((), 2, None),
    ],
)
def test_an_address_of_several_devices_is_planned_where_packets_leave(
    having, out, planned, monkeypatch
):
    """As of an anycast address, which the loopback or a virtual device has as well."""
    ours, theirs = ip_address("192.0.2.1"), ip_address("192.0.2.2")
    devices = {index: Device(index, name) for index, name in enumerate(["lo", "eth1", "vip0"], 1)}
    monkeypatch.setattr(kernel, "read_devices", lambda: devices)
    monkeypatch.setattr(kernel, "read_addresses", lambda: [(index, ours) for index in having])
    monkeypatch.setattr(
        kernel, "route_to", lambda _: kernel.KernelRoute(out, ours, None, None, False)
    )
    monkeypatch.setattr(facts, "describe_host", lambda _, name: Host(planned=name))
    session = ServerSession(SimpleNamespace(), ours, 45678, False, peer=theirs)
    try:
        assert session._describe_host({})["host"].get("planned") == planned
    finally:
        session.close()


@pytest.fixture
def session():
    made = ServerSession(SimpleNamespace(), ip_address(HOST), 45678, False, ip_address(HOST))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        (0, "a test takes up to 3600 s, after hello"),
        (3600, "the server is busy: another program listens on port 45678 there"),
        (3600.5, "a test takes up to 3600 s, after hello"),
    ],
)
def test_a_test_is_refused_for_its_length_or_for_another_program(
    seconds, reason, session, monkeypatch
):
    monkeypatch.setattr(tcp_info, "is_listening", lambda *_: True)
    with pytest.raises(RefusedError) as caught:
        session._begin_test({"seconds": seconds})
    assert str(caught.value) == reason


def test_a_test_begins_with_the_time_that_earlier_clients_require(session, monkeypatch):
    is_listening = iter([False, True])
    monkeypatch.setattr(tcp_info, "is_listening", lambda *_: next(is_listening))
    monkeypatch.setattr(serving, "confine_process", lambda _: None)
    monkeypatch.setattr(serving.command, "server_command", lambda *_: ["sleep", "60"])
    answer = session._begin_test({"seconds": 1.0})
    assert answer["ready"] == 45678
    assert 0 < answer["clock"] <= time.monotonic()


def test_iperf3_is_ended_with_sigterm_when_its_client_is_gone(session):
    session._program = program = Program(["sleep", "60"])
    session.close()
    assert program._process.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ECONNREFUSED, "refused"),
        (errno.EHOSTUNREACH, "no-route"),
        (errno.ENETUNREACH, "unreachable"),
        (errno.ETIMEDOUT, "timeout"),
        (None, "timeout"),
    ],
)
def test_a_connection_that_fails_has_a_reason(number, reason, monkeypatch):
    class Failing(socket.socket):
        def connect(self, _):
            raise OSError(number, os.strerror(number)) if number else TimeoutError

    monkeypatch.setattr(peer.socket, "socket", Failing)
    here = ip_address(HOST)
    with pytest.raises(peer.AbsentError) as caught:
        peer.connect_to_helper(here, 45678, SECRET, here)
    words = os.strerror(number) if number else "no response"
    assert (caught.value.reason, caught.value.text) == (
        reason,
        f"connect to port 45678 of {HOST}: {words}",
    )


def test_a_client_is_told_that_iperf3_is_missing_there():
    made = Served(WITHOUT_IPERF3)
    try:
        address = ip_address(HOST)
        helper = peer.connect_to_helper(address, made.base + 1, SECRET, address)
        assert helper.begin(command.Test(address, made.base, 1.0)) == (
            "the peer: begin: start iperf3 there: No such file or directory"
        )
        helper.close()
    finally:
        made.process.kill()
        made.process.wait()
        made.process.stdout.close()


MANY = """import resource, sys
from ipaddress import ip_address
from neuca_tools.selftest.measure.helper.serve import Server
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
addresses = [ip_address(f"127.0.1.{number}") for number in range(1, 101)]
Server(addresses, int(sys.argv[1]), b"a secret that both sides share", print).close()
print("listened")
"""


def test_a_host_may_have_more_addresses_than_a_process_may_open_files_at_first():
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(free_ports())],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("listened\n"), done
