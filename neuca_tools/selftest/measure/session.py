"""A whole test of one peer: `PeerTest.run` gives the Evidence, and tells of each step as it ends.

Nothing is sent before `permit` has said that the way to the peer is one that a test may use (point 9 of the issue).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.model import Host as Address
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.reach import broadcast_lost
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Latency, Rdma, Reach, Step
from neuca_tools.selftest.measure.helper import peer
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.helper.greeting import BusyError, ImpostorError
from neuca_tools.selftest.measure.helper.peer import AbsentError, Helper
from neuca_tools.selftest.measure.host import facts, kernel
from neuca_tools.selftest.measure.host.facts import Messages
from neuca_tools.selftest.measure.host.fixes import Fix
from neuca_tools.selftest.measure.host.kernel import NetDevice, Way
from neuca_tools.selftest.measure.host.planned import AgentPlan, permit
from neuca_tools.selftest.measure.iperf.phases import ThroughputSteps
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.probes import broadcast, path_mtu, rdma, reach, roundtrip
from neuca_tools.selftest.measure.probes.broadcast import LocalAddress

ROUND_TRIPS_WITHIN = 5.0  # seconds
CONNECTING = 1.0  # seconds of the connection-rate test
SLOW_PING = 0.05  # seconds between pings: many hosts answer only so many a second
Tell = Callable[[Step], None]


class PeerTest:
    """One test. `tell` gets each step when it is over. Raises UsageError for a peer that must not be tested."""

    def __init__(
        self,
        address: Address,
        options: Options,
        plan: AgentPlan,
        tell: Tell,
        fix: Optional[Fix] = None,
    ) -> None:
        self._address, self._options, self._plan, self._tell = address, options, plan, tell
        self._evidence = Evidence(address=str(address), expect=options.expect, label=options.label)
        self._helper: Optional[Helper] = None
        self._node: Optional[int] = None
        self._fix = fix

    def run(self) -> Evidence:
        """Everything, in order. Raises UsageError, SelftestError; OSError where the kernel cannot be asked."""
        messages = Messages()
        try:
            way = kernel.way_to(self._address)
        except OSError as error:
            return self._without_a_route(error)
        device = kernel.devices().get(way.index)
        if device is None or way.source is None:
            raise SelftestError(f"test {self._address}: its route leads nowhere")
        planned = permit(self._address, way, device, self._plan, self._options.interface)
        try:
            self._measure(way, device, planned)
        finally:
            if self._fix:
                self._fix.abandon()
            if self._helper:
                self._evidence = replace(self._evidence, peer=self._helper.facts())
                self._helper.close()
        local = replace(
            facts.host(way, planned, self._plan.sysctls, self._plan.drift or ()),
            log=messages.end(),
        )
        return replace(self._evidence, local=replace(local, numa_node=self._node))

    def _measure(self, way: Way, device: NetDevice, planned: str) -> None:
        self._as_planned()
        if not self._reach(way, device, planned):
            return
        source = way.source
        assert source is not None
        devices = [one.name for one in facts.path(kernel.devices(), way.index)]
        local = facts.host(way, planned, self._plan.sysctls, self._plan.drift or ())
        self._node = facts.node_for(local, self._options.numa)
        self._options = replace(self._options, numa=None if self._node is None else str(self._node))
        self._evidence = replace(self._evidence, local=local)
        self._if("latency", lambda: self._latency(source))
        self._if("path-mtu", lambda: self._path_mtu(source, device))
        if self._fix:
            self._fix.begin(self._helper)
        throughput = ThroughputSteps(
            self._options, self._address, source, devices, self._helper, self._tell
        )
        self._evidence = throughput.run(self._evidence)
        if self._fix:
            self._done(self._fix.end(self._evidence, self._helper))
        self._if("connections", lambda: self._connections(source))
        self._if("rdma", lambda: self._rdma(source, devices))
        self._if(
            "broadcast", lambda: self._broadcast(LocalAddress(source, device.name, device.index))
        )

    def _if(self, name: str, step: Callable[[], None]) -> None:
        if name in self._options.steps:
            step()
        else:
            self._done(Step(name, "skipped", NOT_ASKED))

    def _done(self, step: Step) -> None:
        self._evidence = replace(self._evidence, steps=(*self._evidence.steps, step))
        self._tell(step)

    def _without_a_route(self, error: OSError) -> Evidence:
        known = {errno.ENETUNREACH: "unreachable", errno.EHOSTUNREACH: "no-route"}
        self._done(
            Step("reach", "fail", f"this host has no route to {self._address}: {error.strerror}")
        )
        return replace(
            self._evidence,
            local=facts.host(),
            reach=Reach(tcp=known.get(error.errno or 0, "unreachable")),
        )

    def _as_planned(self) -> None:
        if "as-planned" not in self._options.steps:
            return self._done(Step("as-planned", "skipped", NOT_ASKED))
        drift = self._plan.drift
        if drift is None:
            return self._done(
                Step(
                    "as-planned",
                    "skipped",
                    "the agent has made no pass on this host: nothing is planned",
                )
            )
        found = dict(self._wrong_settings())
        texts = [*drift, *(f"{name} is {value}" for name, value in found.items())]
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        return self._done(
            Step("as-planned", "fail", f"{texts[0]}{more}")
            if texts
            else Step("as-planned", "pass", "names, addresses, routes, marks, MTUs and tuning")
        )

    def _wrong_settings(self) -> list[tuple[str, str]]:
        sysctls = facts.settings(self._plan.sysctls)
        return [
            (name, value)
            for name, value in sysctls.items()
            if value.split() != self._plan.sysctls[name].split()
        ]

    def _reach(self, way: Way, device: NetDevice, planned: str) -> bool:
        """Whether there is any sense in going on."""
        if device.name != planned:
            self._evidence = replace(self._evidence, reach=Reach(route=device.name))
            self._done(
                Step(
                    "reach",
                    "fail",
                    f"the route to {self._address} leaves through {device.name}, not through {planned}",
                )
            )
            return False
        found = (
            reach.reach(self._address, way, device)
            if "reach" in self._options.steps
            else Reach(route=device.name)
        )
        found, note = self._meet(way, found)
        self._evidence = replace(self._evidence, reach=found)
        words = [f"neighbour {found.neighbour}"] if found.neighbour else []
        words += (
            [f"ping {'answered' if found.ping else 'not answered'}"]
            if found.ping is not None
            else []
        )
        dead = found.neighbour in ("failed", "incomplete") and not found.ping
        good = (
            not dead
            and found.tcp not in ("busy", "no-route", "unreachable")
            and not found.wrong_peer
        )
        good = good and len(set(found.macs)) < 2
        self._done(Step("reach", "pass" if good else "fail", ", ".join([*words, note])))
        return (
            not dead
            and found.tcp not in ("busy", "no-route", "unreachable")
            and not found.wrong_peer
        )

    def _meet(self, way: Way, found: Reach) -> tuple[Reach, str]:
        """The helper at the other end, if one is to be expected, and what came of that."""
        options, source = self._options, way.source
        assert source is not None
        if options.ssh:
            self._helper = peer.by_ssh(
                options.ssh, self._address, options.port, options.duration, source
            )
            return found, f"helper by ssh on {options.ssh}"
        if options.secret is None:
            return found, "no helper: one end's evidence"
        try:
            self._helper = peer.connect(self._address, options.port + 1, options.secret, source)
        except BusyError as error:
            return replace(found, tcp="busy"), str(error)
        except ImpostorError as error:
            return replace(found, wrong_peer=True), str(error)
        except AbsentError as error:
            word = error.word if error.word in ("no-route", "unreachable") else None
            return replace(found, tcp=word), f"no helper ({error}): one end's evidence"
        except ChannelError as error:
            return found, f"no helper ({error}): one end's evidence"
        self._evidence = replace(self._evidence, peer=self._helper.host)
        return replace(found, tcp="connected"), "helper found"

    def _latency(self, source: Address) -> None:
        count, port = self._options.round_trips, self._options.port
        over_tcp = Latency()
        try:
            if self._helper:
                probe: roundtrip.RoundTrips = roundtrip.Datagrams(
                    self._address, port + 1, self._helper.token, source
                )
                idle = roundtrip.measure(probe, count, ROUND_TRIPS_WITHIN)
                with suppress(OSError):
                    over_tcp = roundtrip.over_tcp(
                        self._address, port + 2, source, count, ROUND_TRIPS_WITHIN
                    )
            else:
                idle = roundtrip.measure(
                    roundtrip.Pings(self._address, source), count, ROUND_TRIPS_WITHIN
                )
        except OSError as error:
            return self._done(Step("latency", "unknown", f"cannot be measured: {error.strerror}"))
        self._evidence = replace(self._evidence, idle=idle, idle_tcp=over_tcp)
        how = "UDP" if self._helper else "ping"
        words = [
            f"{how} {words_of(idle)}",
            *([f"TCP {words_of(over_tcp)}"] if over_tcp.p50 is not None else []),
        ]
        return self._done(
            Step("latency", "pass" if idle.p50 is not None else "unknown", "; ".join(words))
        )

    def _path_mtu(self, source: Address, device: NetDevice) -> None:
        rtt, port = self._evidence.idle.p50 or 0.0, self._options.port
        try:
            if self._helper:
                mtu = min(
                    [
                        device.mtu,
                        *(
                            link.mtu
                            for link in self._helper.host.links
                            if link.mtu and link.name == self._helper.host.planned
                        ),
                    ]
                )
                found = path_mtu.with_helper(
                    self._address, port + 1, self._helper.token, source, mtu, rtt
                )
            else:
                mtu = device.mtu
                found = path_mtu.alone(self._address, source, mtu, rtt)
        except OSError as error:
            return self._done(Step("path-mtu", "unknown", f"cannot be probed: {error.strerror}"))
        self._evidence = replace(self._evidence, path_mtu=found)
        known = [value for value in (found.forward, found.backward) if value]
        text = f"{found.forward or 'no answer'} out, {found.backward or 'not known'} back, of {mtu} bytes"
        text += f" ({device.mtu} here)" if device.mtu != mtu else ""
        verdict = "unknown" if not known else "fail" if min(known) < mtu else "pass"
        return self._done(Step("path-mtu", verdict, text))

    def _connections(self, source: Address) -> None:
        if not self._helper or self._helper.why:
            return self._done(
                Step("connections", "skipped", "this needs a helper at the other end")
            )
        found = reach.connections(self._address, self._options.port + 2, source, CONNECTING)
        self._evidence = replace(self._evidence, connections=found)
        text = f"{found.rate:.0f} connections/s, {found.failed} failed"
        return self._done(Step("connections", "fail" if found.failed else "pass", text))

    def _rdma(self, source: Address, devices: Sequence[str]) -> None:
        chosen = rdma.choose(rdma.ports(), devices, source)
        if isinstance(chosen, str):
            return self._done(Step("rdma", "skipped", f"not applicable here: {chosen}"))
        helper = self._helper
        reasons = ["this needs a helper at the other end"] if helper is None or helper.why else []
        reasons += filter(None, [rdma.hindrance(self._address)])
        reasons += ["RDMA cannot be held to a rate (--rate)"] if self._options.rate else []
        found = Rdma(chosen.device, chosen.state, chosen.gid)
        if helper is not None and not reasons and chosen.gid and chosen.state == "ACTIVE":
            measured = rdma.measure(
                chosen, self._options.port, self._address, helper.rdma, helper.finish
            )
            found, reasons = (
                (found, [f"the other end: {measured}"])
                if isinstance(measured, str)
                else (measured, [])
            )
        self._evidence = replace(self._evidence, rdma=found)
        where = f"{chosen.device} port {chosen.port}, {chosen.state}, GID {chosen.gid or 'none for this network'}"
        if found.rate is not None:
            where = f"{amounts.rate(found.rate)}, round trip {amounts.time(found.round_trip or 0)}: {where}"
        broken = found.error or chosen.state != "ACTIVE" or not chosen.gid
        return self._done(
            Step(
                "rdma",
                "fail" if broken else "skipped" if reasons else "pass",
                "; ".join([*filter(None, [found.error]), *reasons, where]),
            )
        )

    def _broadcast(self, place: LocalAddress) -> None:
        if self._options.secret is None:
            return self._done(
                Step(
                    "broadcast",
                    "skipped",
                    "this needs the secret that all who answer share (--secret-file)",
                )
            )
        try:
            found = broadcast.ask(
                place, self._options.port + 2, self._options.secret, self._options.broadcast
            )
        except OSError as error:
            return self._done(Step("broadcast", "unknown", f"cannot be measured: {error.strerror}"))
        self._evidence = replace(self._evidence, broadcast=found)
        of = f" of {found.expected}" if found.expected else ""
        text = f"{found.answered}{of} answered: {words_of(found.times)}"
        return self._done(
            Step(
                "broadcast",
                "fail" if broadcast_lost(found) else "pass" if found.answered else "unknown",
                text,
            )
        )


def words_of(found: Latency) -> str:
    """A latency for people."""
    if found.p50 is None or found.p99 is None or found.maximum is None:
        return f"no answer to {found.count} requests" if found.count else "not measured"
    lost = f", {found.lost} of {found.count} lost" if found.lost else ""
    return f"p50 {amounts.time(found.p50)}, p99 {amounts.time(found.p99)}, max {amounts.time(found.maximum)}{lost}"
