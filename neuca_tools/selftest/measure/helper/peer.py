"""The client of a helper at the peer: `connect` to its port, or start it `start_by_ssh`."""

# SPDX-License-Identifier: MIT

import errno
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Optional

from neuca_tools.backends.routing import FAMILIES
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence import Host, Sample
from neuca_tools.selftest.measure.helper import answers
from neuca_tools.selftest.measure.helper.channel import (
    CLIENT,
    LONGEST_MESSAGE,
    Channel,
    ChannelError,
    Message,
    small_segments,
)
from neuca_tools.selftest.measure.helper.handshake import client_handshake
from neuca_tools.selftest.measure.iperf.command import Test

ANSWER_SECONDS, CONNECT_SECONDS = 20.0, 3.0  # to wait for an answer, and for a connection
# Bytes of an answer, enough for 4096 links with their offloads, and of its two samples of a second,
# enough for the sockets of 128 streams and the counters.
ANSWER_BYTES, SAMPLE_BYTES = 4 * 2**20, 256 * 2**10
SSH_SECONDS = 60.0  # for ssh to log in and for Python to start there
SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
# The reasons for a failed connection, in the words of `Reach.tcp`; "timeout" for any other.
REASON_BY_ERRNO = {
    errno.ECONNREFUSED: "refused",
    errno.EHOSTUNREACH: "no-route",
    errno.ENETUNREACH: "unreachable",
}
NOT_FOUND = 127  # the exit code of a shell that does not find the program
SSH_END_SECONDS = 3.0  # that ssh gets to end


class AbsentError(ChannelError):
    """No connection: `reason` is refused, timeout, no-route or unreachable."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class Helper:
    """A session with the helper at the peer.

    `client` is the address of this end. Once the session fails, `failure` says why, and every
    request fails with that.
    """

    def __init__(self, channel: Channel, client: Address, disconnect: Callable[[], None]) -> None:
        self._channel, self._client, self._disconnect = channel, client, disconnect
        self.host, self.token, self.failure = Host(), b"", ""
        self._seconds = 0.0  # of the current test

    def say_hello(self, seconds: float = ANSWER_SECONDS) -> None:
        """Exchange addresses and get the token. Raises ChannelError."""
        answer = self._ask({"ask": "hello", "client": str(self._client)}, seconds)
        self.token, self.host = answers.token_of(answer), answers.host_of(answer, "hello")

    def begin(self, test: Test) -> Optional[str]:
        """Start a server and sampling for one run. Returns the reason if that failed."""
        self._seconds = test.seconds
        message = {"ask": "begin", "seconds": test.seconds, "udp": test.udp}
        try:
            self._ask(message, ANSWER_SECONDS)
        except ChannelError as error:
            return str(error)
        return None

    def finish(self) -> tuple[Sample, ...]:
        """End the server and return the peer's samples; none if it does not respond."""
        try:
            max_bytes = ANSWER_BYTES + int(self._seconds * SAMPLE_BYTES)
            answer = self._ask({"ask": "finish"}, ANSWER_SECONDS, min(max_bytes, LONGEST_MESSAGE))
            return answers.observations_of(answer)
        except ChannelError:
            return ()

    def facts(self) -> Host:
        """The peer as it is, or last was if it does not respond."""
        with suppress(ChannelError):
            self.host = answers.host_of(self._ask({"ask": "host"}, ANSWER_SECONDS), "host")
        return self.host

    def close(self) -> None:
        with suppress(ChannelError):
            if not self.failure:
                self._channel.send({"ask": "bye"}, 1.0)
        self._disconnect()

    def _ask(self, message: Message, seconds: float, max_bytes: int = ANSWER_BYTES) -> Message:
        if self.failure:
            raise ChannelError(self.failure)
        self._channel.max_bytes = max_bytes
        try:
            self._channel.send(message, seconds)
            answer = self._channel.receive(seconds)
        except ChannelError as error:
            self.failure = str(error)
            raise
        if "error" in answer:
            raise ChannelError(f"the peer: {str(answer['error'])[:500]}")
        return answer


def connect_to_helper(peer: Address, port: int, secret: bytes, source: Address) -> Helper:
    """A session with the helper at `port`.

    Raises ChannelError, and of its subclasses AbsentError, ImpostorError and BusyError.
    """
    connection = socket.socket(FAMILIES[peer.version], socket.SOCK_STREAM)
    try:
        small_segments(connection)
        connection.settimeout(CONNECT_SECONDS)
        connection.bind((str(source), 0))
        connection.connect((str(peer), port))
        helper = Helper(
            client_handshake(connection, secret, ANSWER_SECONDS), source, connection.close
        )
        helper.say_hello()
    except OSError as error:
        connection.close()
        reason = error.strerror or "no response"
        raise AbsentError(
            f"connect to port {port} of {peer}: {reason}",
            REASON_BY_ERRNO.get(error.errno or 0, "timeout"),
        ) from error
    except ChannelError:
        connection.close()
        raise
    return helper


def start_by_ssh(name: str, peer: Address, port: int, seconds: float, source: Address) -> Helper:
    """A session with a helper that ssh starts on the host `name`, for up to `seconds`.

    Raises ChannelError.
    """
    remote = f"neuca-selftest --serve --stdio --address {peer} --port {port} --for {seconds:.0f}"
    try:
        command, pipe = [*SSH, "--", name, *remote.split()], subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd="/")
    except OSError as error:
        raise ChannelError(f"start ssh: {error.strerror}") from error
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        channel = Channel(process.stdout.fileno(), process.stdin.fileno(), CLIENT)
        helper = Helper(channel, source, partial(_end_process, process))
        helper.say_hello(SSH_SECONDS)
    except ChannelError as error:
        _end_process(process)
        code = process.returncode
        if not code:
            raise
        hint = "install neuca-guest-tools there" if code == NOT_FOUND else ""
        raise ChannelError(
            f'start neuca-selftest on "{name}" by ssh: it exited with {code}', hint=hint
        ) from error
    return helper


def _end_process(process: subprocess.Popen[bytes]) -> None:
    for stream in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):
            stream.close()
    try:
        process.wait(SSH_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
