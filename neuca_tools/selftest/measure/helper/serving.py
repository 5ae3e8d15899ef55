"""One session of the far end: what the client asks for, and what goes on meanwhile."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import select
import signal
import socket
import time
from contextlib import suppress
from ipaddress import ip_address
from secrets import token_bytes
from typing import Optional

from neuca_tools.backends.peerfilter import PeerFilter
from neuca_tools.errors import ApplyError
from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.measure.confine import confined, entering
from neuca_tools.selftest.measure.helper.channel import Channel, ChannelError, Message
from neuca_tools.selftest.measure.host import facts, kernel, tcp_info
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.iperf.conduct import SampleSeries
from neuca_tools.selftest.measure.iperf.trial import Trial
from neuca_tools.selftest.measure.probes import rdma
from neuca_tools.selftest.measure.probes.echo import TOKEN, Echo
from neuca_tools.selftest.measure.program import Program

IDLE = 60.0  # seconds that a client may be silent, beyond what it has announced; round trips and path MTU ask it nothing
LONGEST = 3600.0  # seconds of one test
REQUEST = 64 * 2**10  # bytes of what a client asks
CLIENT_ADDRESS = re.compile(r"[0-9A-Fa-f.:]{2,45}")
READY = 10.0  # seconds that a program gets to listen, on a busy host too
LOOK = 0.02  # seconds between two looks at whether it does
LAST_WORDS = 1.0  # seconds that an iperf3 gets to end by itself when the client has finished


class ServerSession:
    """Give it a `turn` whenever one of `waiting` is ready, or `due` has come; False: it is over, for the reason `why`."""

    def __init__(
        self,
        channel: Channel,
        address: Address,
        port: int,
        filtered: bool,
        peer: Optional[Address] = None,
        connection: Optional[socket.socket] = None,
    ) -> None:
        channel.longest = REQUEST
        self._channel, self._address, self._port, self._connection = (
            channel,
            address,
            port,
            connection,
        )
        self.peer, self.why = peer, ""
        self._expiry = time.monotonic() + IDLE
        self._echo: Optional[Echo] = None
        self._program: Optional[Program] = None
        self._filtered = filtered  # what is started may talk to the peer alone
        self._filter: Optional[PeerFilter] = None
        self._series: Optional[SampleSeries] = None
        self._messages = facts.Messages()
        self._tried = Trial()

    @property
    def waiting(self) -> tuple[int, ...]:
        parts = (
            self._echo.waiting if self._echo else (),
            self._program.waiting if self._program else (),
        )
        return (self._channel.fileno(), *parts[0], *parts[1])

    def due(self) -> float:
        return min(self._expiry, self._series.due()) if self._series else self._expiry

    def turn(self, ready: set[int]) -> bool:
        try:
            if self._channel.fileno() in ready:
                self._channel.take()
            while (message := self._channel.next()) is not None:
                if not self._obey(message):
                    self.why = "done"
                    return False
        except ChannelError as error:
            self.why = str(error)
            return False
        for descriptor in ready.intersection(self._program.waiting if self._program else ()):
            if self._program:
                self._program.take(descriptor)
        if self._echo:
            self._echo.turn(ready)
        if self._series:
            self._series.turn()
        self.why = "" if time.monotonic() < self._expiry else "silent for too long"
        return not self.why

    def close(self) -> None:
        self._stop()
        self._tried.back()
        if self._echo:
            self._echo.close()
        if self._connection:
            self._connection.close()
        self._messages.end()

    def _obey(self, message: Message) -> bool:
        """One request. False: the last one. Raises ChannelError."""
        self._expiry = time.monotonic() + IDLE
        asked = message.get("ask")
        if asked == "bye":
            return False
        answers = {
            "hello": self._hello,
            "begin": self._begin,
            "finish": self._finish,
            "host": self._host,
            "set": self._set,
            "keep": self._keep,
            "rdma": self._rdma,
        }
        if not isinstance(asked, str) or asked not in answers:
            self._channel.send(
                {"error": f"this neuca-selftest does not know how to {str(asked)[:40]!r}"}
            )
            return True
        try:
            self._channel.send(answers[asked](message))
        except OSError as error:
            self._channel.send({"error": f"{asked}: {error.strerror or error}"})
        except ApplyError as error:
            self._channel.send({"error": f"{asked}: {error}"})
        return True

    def _hello(self, message: Message) -> Message:
        """Who is here. Datagrams and connections of the client come back from now on."""
        client = str(message.get("client"))
        try:
            peer = self.peer or ip_address(client if CLIENT_ADDRESS.fullmatch(client) else "")
        except ValueError:
            return {"error": "hello: the client's address cannot be read"}
        self.peer = peer
        token = token_bytes(TOKEN)
        if self._echo:
            self._echo.close()
            self._echo = None
        self._echo = Echo(self._address, peer, self._port + 1, token)
        return {"token": token.hex(), **self._host(message)}

    def _host(self, _: Message) -> Message:
        assert self.peer is not None
        way = kernel.way_to(self.peer)
        devices = kernel.devices()
        held = next((index for index, address in kernel.addresses() if address == self._address), 0)
        host = facts.host(way, devices[held].name if held in devices else None)
        return {"host": encode(host)}

    def _begin(self, message: Message) -> Message:
        """An iperf3 server for one test, and a look at this end every second."""
        self._stop()
        seconds = _number(message.get("seconds"))
        if not 0 < seconds <= LONGEST or self.peer is None:
            return {"error": f"begin: a test takes up to {LONGEST:g} s, and comes after hello"}
        if tcp_info.listening(self._address.version, self._port):
            return {
                "error": f"begin: the server is busy: somebody else listens on port {self._port} there"
            }
        self._program = Program(
            command.server(self._address, self._port), confined(self._joining(self.peer))
        )
        if not self._listens(self._program):
            ended, self._program = self._program.end(), None
            self._stop()
            said = (ended.error or ended.out).decode("utf-8", "replace").strip().splitlines()
            return {
                "error": f"begin: iperf3 does not listen there: {said[-1] if said else 'it says nothing'}"
            }
        devices = [
            device.name for device in facts.path(kernel.devices(), kernel.way_to(self.peer).index)
        ]
        self._series = SampleSeries(
            self._address.version, 0 if message.get("udp") else self._port, devices=devices
        )
        self._expiry = time.monotonic() + seconds + IDLE
        return {"ready": self._port}

    def _rdma(self, message: Message) -> Message:
        """A server of one of the two programs, for one test. They cannot be told an address: they listen at each."""
        self._stop()
        if self.peer is None:
            return {"error": "rdma: it comes after hello"}
        name, devices = message.get("program"), kernel.devices()
        held = next((index for index, address in kernel.addresses() if address == self._address), 0)
        chosen = rdma.choose(
            rdma.ports(),
            [device.name for device in facts.path(devices, held)] or ["nothing"],
            self._address,
        )
        lacking = chosen if isinstance(chosen, str) else rdma.missing()
        if isinstance(chosen, str) or lacking:
            return {"lacking": lacking}
        if name not in rdma.PROGRAMS or not chosen.gid:
            return {"error": "rdma: no such program, or no GID for this network"}
        self._program = Program(
            rdma.command(name, chosen, self._port), entering(self._joining(self.peer))
        )
        self._expiry = time.monotonic() + rdma.SECONDS + rdma.GRACE + IDLE
        return (
            {"ready": self._port}
            if self._listens(self._program)
            else {"error": f"rdma: {name} does not listen there"}
        )

    def _joining(self, peer: Optional[Address]) -> int:
        """A new control group for the packets of the peer; -1 where this kernel has none."""
        if not self._filtered or peer is None:
            return -1
        self._filter = PeerFilter(peer)
        return self._filter.joining

    def _listens(self, program: Program) -> bool:
        deadline = time.monotonic() + READY
        while program.waiting and time.monotonic() < deadline:
            if tcp_info.listening(self._address.version, self._port):
                return True
            for descriptor in select.select(program.waiting, [], [], LOOK)[0]:
                program.take(descriptor)
        return False

    def _set(self, message: Message) -> Message:
        """Sysctls for this session. Raises ApplyError."""
        asked = message.get("sysctls")
        if not isinstance(asked, dict) or not all(isinstance(one, str) for one in asked.values()):
            return {"error": "set: the settings are not texts"}
        self._tried.set(asked)
        return {"set": True}

    def _keep(self, _: Message) -> Message:
        self._tried.keep()
        return {"kept": True}

    def _finish(self, _: Message) -> Message:
        samples = self._series.end() if self._series else ()
        self._stop()
        log, self._messages = self._messages.end(), facts.Messages()
        return {"samples": encode(samples), "log": list(log)}

    def _stop(self) -> None:
        """End what is left of a test: politely, then by force."""
        program, self._program, self._series = self._program, None, None
        if program is not None:
            with suppress(ProcessLookupError):
                program.signal(signal.SIGTERM)
            program.finish(LAST_WORDS)
        if self._filter is not None:
            self._filter.close()
            self._filter = None


def _number(value: object) -> float:
    """In seconds; 0 for what is no number, or too large for one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0.0
    return float(value) if -LONGEST <= value <= LONGEST else 0.0
