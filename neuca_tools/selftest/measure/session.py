"""A whole test of one peer: `PeerTest.run` returns the Evidence, and reports each step as it ends.

Nothing is sent before `permit` has confirmed that a test may use the route to the peer.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from neuca_tools.model import Device
from neuca_tools.model import Host as Address
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.reach import is_udp_blocked
from neuca_tools.selftest.evidence import Evidence, Host, Latency, PathMtu, Reach
from neuca_tools.selftest.measure.helper import peer
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.helper.handshake import BusyError, ImpostorError
from neuca_tools.selftest.measure.helper.peer import AbsentError
from neuca_tools.selftest.measure.host import facts, kernel
from neuca_tools.selftest.measure.host.planned import AgentPlan, PeerRoute, permitted_route
from neuca_tools.selftest.measure.iperf.phases import ReportStep, Result, ThroughputSteps
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.probes import path_mtu, reach, roundtrip, tracepath
from neuca_tools.selftest.report.text import route_words

LATENCY_SECONDS = 5.0  # for all round trips of the latency step
CONNECTION_TEST_SECONDS = 1.0  # of the connection-rate test
# Results of the connection attempt after which nothing else can be measured.
FATAL_REASONS = ("busy", "no-route", "unreachable")


class PeerTest(ThroughputSteps):
    """One test of one peer. `report_step` is called with each step when it has ended."""

    def __init__(
        self, address: Address, options: Options, plan: AgentPlan, report_step: ReportStep
    ) -> None:
        super().__init__(address, options, report_step)
        self._plan = plan
        self._node: Optional[int] = None

    def run(self) -> Evidence:
        """Run every step in order.

        Raises UsageError for a peer that must not be tested, OSError if the kernel cannot be
        queried.
        """
        messages, options = facts.Messages(), self._options
        try:
            route = permitted_route(self._address, self._plan, options.interface, options.source)
        except OSError as error:
            return self._without_a_route(error)
        try:
            self._measure(route)
        finally:
            if self._helper:
                self._evidence = replace(self._evidence, peer=self._helper.facts())
                self._helper.close()
        local = replace(self._describe_local(route), log=messages.end(), numa_node=self._node)
        return replace(self._evidence, local=local)

    def _describe_local(self, route: PeerRoute) -> Host:
        drift = self._plan.drift or ()
        return facts.describe_host(route.kernel_route, route.planned, self._plan.sysctls, drift)

    def _measure(self, route: PeerRoute) -> None:
        self._source = route.source
        self._run_step("as-planned", self._compare_with_plan)
        if not self._check_reach(route):
            return
        local = self._describe_local(route)
        self._node = facts.node_for(local, self._options.numa)
        numa = None if self._node is None else str(self._node)
        self._options = replace(self._options, numa=numa)
        self._evidence = replace(self._evidence, local=local)
        self._run_step("latency", self._measure_latency)
        # First, because a packet that is too large for the path tells the kernel its MTU, which is
        # what tracepath begins with then.
        self._run_step("path", lambda: self._trace_path(route.device))
        self._run_step("path-mtu", lambda: self._measure_path_mtu(route.device))
        self._run_throughput()
        self._run_step("connections", self._measure_connections)

    def _without_a_route(self, error: OSError) -> Evidence:
        self._done("reach", "fail", f"this host has no route to {self._address}: {error.strerror}")
        return replace(
            self._evidence,
            local=facts.describe_host(),
            reach=Reach(tcp=peer.REASON_BY_ERRNO.get(error.errno or 0, "unreachable")),
        )

    # --- Before anything is measured ------------------------------------------------------------

    def _compare_with_plan(self) -> Iterator[Result]:
        drift = self._plan.drift
        if drift is None:
            yield "skipped", "the agent has made no pass on this host: nothing is planned"
            return
        planned = self._plan.sysctls
        # A sysctl that does not exist here is not a difference.
        wrong_sysctls = [
            f"{name} is {value}"
            for name, value in facts.read_sysctls(planned).items()
            if value.split() != planned[name].split()
        ]
        texts = [*drift, *wrong_sysctls]
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        if texts:
            yield "fail", f"{texts[0]}{more}"
        else:
            yield "pass", "names, addresses, routes, marks, MTUs and tuning"

    def _check_reach(self, route: PeerRoute) -> bool:
        """Whether the peer can be measured at all."""
        reached = Reach(route=route.device.name)
        if not route.is_as_planned:
            self._evidence = replace(self._evidence, reach=reached)
            where = f"leaves through {route.device.name}, not through {route.planned}"
            self._done("reach", "fail", f"the route to {self._address} {where}")
            return False
        if "reach" in self._options.steps:
            reached = reach.check_reach(self._address, route.kernel_route, route.device)
        reached, note = self._connect(reached)
        reached = replace(reached, port=self._options.port)
        self._evidence = replace(self._evidence, reach=reached)
        reachable = is_reachable(reached)
        verdict = "pass" if reachable and len(reached.macs) < 2 else "fail"
        self._done("reach", verdict, ", ".join([*reach_words(reached), note]))
        return reachable

    def _connect(self, reached: Reach) -> tuple[Reach, str]:
        """Connect to the helper if one is expected: the result and a note.

        Raises ChannelError if a helper that ssh should start does not respond.
        """
        options = self._options
        if options.ssh:
            self._helper = peer.start_by_ssh(
                options.ssh, self._address, options.port, options.duration, self._source
            )
            return reached, f"helper by ssh on {options.ssh}"
        if options.secret is None:
            return reached, "no helper: evidence of one host only"
        try:
            self._helper = peer.connect_to_helper(
                self._address, options.port + 1, options.secret, self._source
            )
        except BusyError as error:
            return replace(reached, tcp="busy"), str(error)
        except ImpostorError as error:
            return replace(reached, wrong_peer=True), str(error)
        except AbsentError as error:
            tcp = None if error.reason == "refused" else error.reason
            return replace(reached, tcp=tcp), f"no helper ({error}): evidence of one host only"
        except ChannelError as error:
            return reached, f"no helper ({error}): evidence of one host only"
        self._evidence = replace(self._evidence, peer=self._helper.host)
        return replace(reached, tcp="connected"), "helper found"

    # --- The steps: each stores what it measured, yields its verdict, and may raise OSError ------

    def _measure_latency(self) -> Iterator[Result]:
        """Round trips of pings or, with a helper, over UDP and TCP."""
        count, port = self._options.round_trips, self._options.port + 2
        trips = roundtrip.RoundTrips(self._new_requests())
        idle, over_tcp = roundtrip.measure_latency(trips, count, LATENCY_SECONDS), Latency()
        if self._helper is not None:
            with suppress(OSError):
                over_tcp = roundtrip.over_tcp(
                    self._address, port, self._source, count, LATENCY_SECONDS
                )
        self._evidence = replace(self._evidence, idle=idle, idle_tcp=over_tcp)
        words = f"{'UDP' if self._helper else 'ping'} {latency_words(idle)}"
        if over_tcp.p50 is not None:
            words += f"; TCP {latency_words(over_tcp)}"
        verdict = "unknown" if idle.p50 is None else "pass"
        yield "fail" if is_udp_blocked(self._evidence) else verdict, words

    def _measure_path_mtu(self, device: Device) -> Iterator[Result]:
        """Compare the path MTU with what both ends' devices take."""
        mtu, rtt = self._common_mtu(device), self._evidence.idle.p50 or 0.0
        path = path_mtu.measure_path_mtu(self._new_requests(), mtu, rtt)
        self._evidence = replace(self._evidence, path_mtu=path)
        here = f" ({device.mtu} here)" if device.mtu != mtu else ""
        yield judge_path_mtu(path, mtu, here)

    def _common_mtu(self, device: Device) -> int:
        """The smaller MTU in bytes of this end's device and of the helper's, if that is known."""
        if self._helper is None:
            return device.mtu
        host = self._helper.host
        mtus = [link.mtu for link in host.links if link.mtu and link.name == host.planned]
        return min([device.mtu, *mtus])

    def _trace_path(self, device: Device) -> Iterator[Result]:
        # tracepath can be bound neither to a device nor to an address of this host.
        if kernel.route_to(self._address).device_index != device.index:
            yield "skipped", f"tracepath would not send through {device.name}"
            return
        try:
            route = tracepath.trace_route(self._address)
        except FileNotFoundError as error:
            yield "skipped", str(error.strerror)
            return
        self._evidence = replace(self._evidence, route=route)
        yield "pass" if route.reached else "unknown", route_words(route)

    def _measure_connections(self) -> Iterator[Result]:
        connections = reach.connection_rate(
            self._address, self._options.port + 2, self._source, CONNECTION_TEST_SECONDS
        )
        assert self._helper is not None
        self._helper.facts()
        if self._helper.failure:
            # It has ended, and nothing listens there.
            yield "unknown", self._helper.failure
            return
        self._evidence = replace(self._evidence, connections=connections)
        text = f"{connections.rate:.0f} connections/s, {connections.failed} failed"
        yield "fail" if connections.failed else "pass", text


# --- Texts and judgements -------------------------------------------------------------------------


def is_reachable(reached: Reach) -> bool:
    """Whether anything but the reach step is worth trying: pings may be filtered."""
    silent = reached.neighbour in ("failed", "incomplete") and not reached.ping
    return not silent and reached.tcp not in FATAL_REASONS and not reached.wrong_peer


def judge_path_mtu(path: PathMtu, mtu: int, here: str) -> Result:
    """The verdict and the text of the step, for a path that should carry `mtu` bytes."""
    forward, backward = path.forward or "no response", path.backward or "not known"
    text = f"{forward} out, {backward} back, of {mtu} bytes{here}"
    if path.smallest is None:
        return "unknown", text
    if path.smallest >= mtu:
        return "pass", text
    return ("pass", f"{text}: ICMP reports it") if path.told else ("fail", text)


def reach_words(reach: Reach) -> list[str]:
    """What is known of the neighbour and of pings."""
    words = [f"neighbour {reach.neighbour}"] if reach.neighbour else []
    if reach.ping is not None:
        words.append("ping answered" if reach.ping else "no response to ping")
    return words


def latency_words(latency: Latency) -> str:
    """A latency for people, in the units of `amounts.time`."""
    if latency.p50 is None or latency.p99 is None or latency.maximum is None:
        return f"no response to {latency.count} requests" if latency.count else "not measured"
    lost = f", {latency.lost} of {latency.count} lost" if latency.lost else ""
    p50, p99, most = map(amounts.time, (latency.p50, latency.p99, latency.maximum))
    return f"p50 {p50}, p99 {p99}, max {most}{lost}"
