"""One session of the server, which answers requests and samples this end during a test."""

# SPDX-License-Identifier: MIT

import re
import socket
import time
from contextlib import suppress
from ipaddress import ip_address
from secrets import token_bytes
from typing import Optional

from neuca_tools.backends.peerfilter import PeerFilter
from neuca_tools.errors import SelftestError
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.measure.helper.channel import Channel, ChannelError, Message
from neuca_tools.selftest.measure.host import facts, kernel, tcp_info
from neuca_tools.selftest.measure.host.series import SampleSeries
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.probes.echo import TOKEN_BYTES, Echo
from neuca_tools.selftest.measure.program import Program, ProgramResult, confine_process
from neuca_tools.selftest.measure.wait import number_in, wait_readable

# Seconds that a client may be silent beyond the test it announced. The latency and path MTU steps
# send no requests.
IDLE_SECONDS = 60.0
LONGEST_TEST_SECONDS = 3600.0
REQUEST_BYTES = 64 * 2**10  # of the longest request
CLIENT_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
# Seconds within which a program has to listen, on a busy host too, and between two checks of it.
READY_SECONDS = 10.0
LISTEN_CHECK_SECONDS = 0.02
TERMINATION_SECONDS = 1.0  # that iperf3 gets to end after SIGTERM


class RefusedError(SelftestError):
    """The request cannot be granted."""


class ServerSession:
    """Call `turn` whenever a descriptor in `waiting` is ready, or the time `due` has come.

    `address` and `port` are those that iperf3 listens on. `can_filter`: the kernel can restrict
    iperf3 to the peer. `peer` is None until a client that came by ssh has named its address. The
    session owns `connection`. After it has ended, `end_reason` says why.
    """

    def __init__(
        self,
        channel: Channel,
        address: Address,
        port: int,
        can_filter: bool,
        peer: Optional[Address] = None,
        connection: Optional[socket.socket] = None,
    ) -> None:
        channel.max_bytes = REQUEST_BYTES
        self._channel, self._connection = channel, connection
        self._address, self._port = address, port
        self.peer, self.end_reason = peer, ""
        self._expiry = time.monotonic() + IDLE_SECONDS
        self._echo: Optional[Echo] = None
        self._program: Optional[Program] = None
        self._can_filter = can_filter
        self._filter: Optional[PeerFilter] = None
        self._series: Optional[SampleSeries] = None

    @property
    def waiting(self) -> tuple[int, ...]:
        return (self._channel.fileno(), *(self._echo.waiting if self._echo else ()))

    def due(self) -> float:
        """When the next `turn` is needed in any case, by the monotonic clock in seconds."""
        if self._series is None:
            return self._expiry
        return min(self._expiry, self._series.due())

    def turn(self, ready: set[int]) -> bool:
        """Handle what has arrived at these descriptors; False once the session is over."""
        try:
            if self._channel.fileno() in ready:
                self._channel.read_available()
            while not self.end_reason and (message := self._channel.next_message()) is not None:
                self._handle_request(message)
        except ChannelError as error:
            self.end_reason = str(error)
        if self.end_reason:
            return False
        if self._echo:
            self._echo.turn(ready)
        if self._series:
            self._series.turn()
        if time.monotonic() >= self._expiry:
            self.end_reason = "silent for too long"
        return not self.end_reason

    def close(self) -> None:
        self._stop_test()
        if self._echo:
            self._echo.close()
        if self._connection:
            self._connection.close()

    def _handle_request(self, message: Message) -> None:
        """Answer one request, or end the session if it asks for that. Raises ChannelError."""
        self._expiry = time.monotonic() + IDLE_SECONDS
        request = str(message.get("ask"))
        if request == "bye":
            self.end_reason = "done"
            return
        handlers = {
            "hello": self._answer_hello,
            "begin": self._begin_test,
            "finish": self._finish_test,
            "host": self._describe_host,
        }
        handle = handlers.get(request)
        if handle is None:
            answer = {"error": f"this neuca-selftest does not support {request[:40]!r}"}
        else:
            try:
                answer = handle(message)
            except OSError as error:
                answer = {"error": f"{request}: {error.strerror or error}"}
            except RefusedError as error:
                answer = {"error": f"{request}: {error}"}
        self._channel.send(answer)

    def _answer_hello(self, message: Message) -> Message:
        """This host and a token. The echo answers the client from now on."""
        if self.peer is None:
            self.peer = _parse_address(str(message.get("client")))
        token = token_bytes(TOKEN_BYTES)
        if self._echo:
            self._echo.close()
            self._echo = None
        self._echo = Echo(self._address, self.peer, self._port + 1, token)
        return {"token": token.hex(), **self._describe_host(message)}

    def _describe_host(self, _: Message) -> Message:
        """This host; packets to the peer should leave through a device with our address."""
        if self.peer is None:
            raise RefusedError("the client has not named its address")
        devices, route = kernel.read_devices(), kernel.route_to(self.peer)
        pairs = kernel.read_addresses()
        ours = [index for index, address in pairs if address == self._address and index in devices]
        # A virtual device may have it as well.
        planned = route.device_index if route.device_index in ours else next(iter(ours), 0)
        name = devices[planned].name if planned else None
        return {"host": encode(facts.describe_host(route, name))}

    def _begin_test(self, message: Message) -> Message:
        """Start an iperf3 server for one test, and sample this end meanwhile."""
        self._stop_test()
        seconds = number_in(message, "seconds")
        if not 0 < seconds <= LONGEST_TEST_SECONDS or self.peer is None:
            raise RefusedError(f"a test takes up to {LONGEST_TEST_SECONDS:g} s, after hello")
        if tcp_info.is_listening(self._address.version, self._port):
            reason = f"another program listens on port {self._port} there"
            raise RefusedError(f"the server is busy: {reason}")
        if self._can_filter:
            self._filter = PeerFilter(self.peer)
        confine = confine_process(self._filter.joining if self._filter else -1)
        try:
            self._program = Program(
                command.server_command(self._address, self._port, seconds), confine
            )
        except OSError as error:
            raise RefusedError(f"start iperf3 there: {error.strerror}") from error
        if not self._is_listening(self._program):
            result, self._program = self._program.end(), None
            self._stop_test()
            raise RefusedError(f"iperf3 does not listen there: {_last_line(result)}")
        port = 0 if message.get("udp") else self._port
        self._series = SampleSeries(self._address.version, seconds, port)
        self._expiry = time.monotonic() + seconds + IDLE_SECONDS
        # Clients of protocol 2 before the release of 2.0.0 require the time.
        return {"ready": self._port, "clock": time.monotonic()}

    def _is_listening(self, program: Program) -> bool:
        """Wait until the program listens; False if it ended, or does not in time."""
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            if tcp_info.is_listening(self._address.version, self._port):
                return True
            if wait_readable([program], time.monotonic() + LISTEN_CHECK_SECONDS):
                break
        return False

    def _finish_test(self, _: Message) -> Message:
        samples = self._series.end() if self._series else ()
        self._stop_test()
        return {"samples": encode(samples)}

    def _stop_test(self) -> None:
        """End what is left of a test: with SIGTERM, then with SIGKILL."""
        program, self._program, self._series = self._program, None, None
        if program is not None:
            program.terminate()
            program.end(TERMINATION_SECONDS)
        if self._filter is not None:
            self._filter.close()
            self._filter = None


def _last_line(result: ProgramResult) -> str:
    """What a program that ended says about it; iperf3 adds that it is exiting."""
    text = (result.error or result.out).decode("utf-8", "replace").strip()
    text = text.removesuffix("iperf3: exiting").rstrip()
    return text.rpartition("\n")[2] or "it printed nothing"


def _parse_address(text: str) -> Address:
    """The client's address, as it wrote it. Raises RefusedError."""
    with suppress(ValueError):
        if CLIENT_ADDRESS.fullmatch(text):
            return ip_address(text)
    raise RefusedError("the client's address cannot be read")
