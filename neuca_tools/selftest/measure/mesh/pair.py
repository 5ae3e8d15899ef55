"""One test of a mesh as a Row: connection, identity, path MTU, TCP both ways; or a diagnosis."""

# SPDX-License-Identifier: MIT

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from statistics import mean
from typing import Any, Optional

from neuca_tools.errors import NeucaError, UsageError
from neuca_tools.model import Host as Address
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, diagnose
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.evidence.derive import look_at_phase
from neuca_tools.selftest.evidence.load import busiest_load
from neuca_tools.selftest.measure.helper.handshake import ImpostorError
from neuca_tools.selftest.measure.helper.peer import (
    REASON_BY_ERRNO,
    AbsentError,
    Helper,
    connect_to_helper,
)
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.planned import AgentPlan, PeerRoute, permitted_route
from neuca_tools.selftest.measure.iperf.command import Test
from neuca_tools.selftest.measure.iperf.conduct import run_test
from neuca_tools.selftest.measure.iperf.plans import PLANS
from neuca_tools.selftest.measure.probes import path_mtu, reach, roundtrip
from neuca_tools.selftest.measure.probes.echo import echo_requests
from neuca_tools.selftest.measure.session import PeerTest
from neuca_tools.selftest.measure.wait import wait_readable
from neuca_tools.selftest.mesh.model import MAC, MAX_DIAGNOSIS, MAX_MACS, MAX_TEXT, MeshPlan, Row

# Seconds in addition to the guard interval within which the server has to listen, and between two
# attempts: its clock may be behind, and its host busy.
LISTEN_SECONDS, RETRY_SECONDS = 5.0, 0.2
# Of FLOWS. At 20% random loss in each direction, so many lose all three SYNs in 4% of the
# tests; where half of the paths are lost, fewer do in 0.2%.
MIN_LOST_FLOWS = 3
# Of the routing table: no route, or one of type unreachable, prohibit or blackhole; 0 is that of
# `permitted_route` itself.
NO_ROUTE_ERRORS = (0, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL)
# Round trips that are measured, and the seconds for them.
ROUND_TRIPS, ROUND_TRIP_SECONDS = 20 + roundtrip.UNCOUNTED, 2.0
# A full diagnosis: the latency, the path MTU and TCP from the sender of the finding, of which both
# ends are sampled.
QUICK = replace(PLANS["quick"], steps=PLANS["quick"].steps - {"tcp-reverse"})


def measure_pair(plan: MeshPlan, row: Row, agent: AgentPlan, secret: bytes) -> Row:
    """The row with what was measured, or with the reason why it was not."""
    own, peer = _addresses_of(plan, row)
    try:
        route = permitted_route(peer, agent, source=own)
    except UsageError as error:
        is_own = peer in kernel.devices_by_address()
        return _with_error(row, "own-address" if is_own else "reserved", error)
    except OSError as error:
        word = "no-network" if error.errno in NO_ROUTE_ERRORS else "local"
        return _with_error(row, word, error)
    if not route.is_as_planned:
        text = f"the route leaves through {route.device.name}, not through {route.planned}"
        return replace(row, error="wrong-interface", text=text)
    name, mtu = route.device.name, route.device.mtu
    before = _carrier_changes(name)
    macs = reach.answering_macs(peer, route.kernel_route, route.device)[:MAX_MACS]
    own_mac = route.device.mac if MAC.fullmatch(route.device.mac) else None
    row = replace(row, macs=macs, nic_mtu=mtu, own_mac=own_mac)
    return replace(_row_of_test(row, plan, route, secret), flaps=_carrier_changes(name) - before)


def _addresses_of(plan: MeshPlan, row: Row) -> tuple[Address, Address]:
    """Those of the client, the only one that the server accepts, and of the server."""
    addresses = {host.name: host.address for host in plan.hosts}
    return ip_address(addresses[row.client]), ip_address(addresses[row.server])


def _carrier_changes(name: str) -> int:
    """How often the link of a device went down or up; 0 if that is not counted."""
    try:
        return kernel.read_link_counters().get(name, {}).get("carrier_changes", 0)
    except OSError:
        return 0


def _row_of_test(row: Row, plan: MeshPlan, route: PeerRoute, secret: bytes) -> Row:
    try:
        lost = reach.unanswered_flows(route.peer, plan.port + 1, route.source)
        if MIN_LOST_FLOWS <= lost < reach.FLOWS:
            count = f"{lost} of {reach.FLOWS} connections got no response"
            text = f"{count}: one of several paths (ECMP, bond) is lost, or a firewall limits them"
            return replace(row, error="some-lost", text=text)
        with closing(_connect_to_server(route, plan, secret)) as helper:
            return _with_measurements(row, plan, route, helper)
    except AbsentError as error:
        return _with_error(row, error.reason, error)
    except ImpostorError as error:
        return _with_error(row, "wrong-peer", error)
    except (NeucaError, OSError) as error:
        return _with_error(row, "failed", error)


def _with_error(row: Row, error: str, reason: Exception) -> Row:
    return replace(row, error=error, text=str(reason)[:MAX_TEXT])


def _connect_to_server(route: PeerRoute, plan: MeshPlan, secret: bytes) -> Helper:
    """A session with the server, which may begin a little later. Raises ChannelError."""
    deadline = time.monotonic() + plan.guard + LISTEN_SECONDS
    while True:
        try:
            return connect_to_helper(route.peer, plan.port + 1, secret, route.source)
        except AbsentError as error:
            if error.reason != "refused" or time.monotonic() >= deadline:
                raise
        wait_readable([], time.monotonic() + RETRY_SECONDS)


def _with_measurements(row: Row, plan: MeshPlan, route: PeerRoute, helper: Helper) -> Row:
    peer, source = route.peer, route.source
    requests = partial(echo_requests, peer, plan.port + 1, helper.token, source)
    trips = roundtrip.RoundTrips(requests())
    latency = roundtrip.measure_latency(trips, ROUND_TRIPS, ROUND_TRIP_SECONDS)
    rtt = latency.p50 or 0.0
    mtu = path_mtu.measure_path_mtu(requests(), route.device.mtu, rtt)
    row = replace(row, rtt=latency.p50, mtu_out=mtu.forward, mtu_back=mtu.backward)
    if latency.p99 is not None:
        row = replace(row, jitter=latency.p99 - rtt)
    test = Test(peer, plan.port, plan.seconds, source=source, rate=plan.rate)
    for way, direction in (("out", "forward"), ("back", "reverse")):
        (phase,) = run_test("tcp", test._replace(direction=direction), helper)
        row = _with_transfer(row, way, phase)
        if phase.run is not None and phase.run.error is not None:
            text = phase.run.error
            return replace(row, error=_error_of_iperf(text), text=text[:MAX_TEXT])
    return row


def _error_of_iperf(text: str) -> str:
    """As for the helper if iperf could not connect: its port alone may be filtered."""
    if "unable to connect" not in text:
        return "failed"
    reasons = (reason for number, reason in REASON_BY_ERRNO.items() if os.strerror(number) in text)
    return next(reasons, "timeout")


def _with_transfer(row: Row, way: str, phase: Phase) -> Row:
    """With the rate at which data arrived, in bit/s, and what else a transfer shows."""
    look = look_at_phase(Evidence(phases=(phase,)), phase)
    sender, receiver = ("client", "server") if way == "out" else ("server", "client")
    values: dict[str, Any] = {
        # What the sender's TCP was told of: iperf3's intervals of a client are what it has sent.
        f"rate_{way}": mean(look.acked) if look.acked else look.rate,
        f"loss_{way}": look.loss,
        f"busy_{sender}": busiest_load(phase.sender).full,
        f"busy_{receiver}": busiest_load(phase.receiver).full,
    }
    # Busy hosts sometimes respond late: the shortest time counts.
    rtts = [rtt for rtt in (row.rtt, look.shortest_rtt) if rtt is not None]
    is_disturbed = bool(row.disturbed) or look.is_disturbed
    return replace(row, **values, rtt=min(rtts, default=None), disturbed=is_disturbed)


def names_of_pair(
    plan: MeshPlan, pairs: Sequence[Sequence[int]], name: str
) -> Optional[tuple[str, str]]:
    """The pair of this host in a slot, as (client, server); None if it has none."""
    for client, server in pairs:
        names = (plan.hosts[client].name, plan.hosts[server].name)
        if name in names:
            return names
    return None


def diagnose_pair(plan: MeshPlan, row: Row, agent: AgentPlan, secret: bytes) -> Row:
    """The row with the texts of the diagnosis, or with the reason why there is none."""
    own, peer = _addresses_of(plan, row)
    options = replace(
        QUICK, port=plan.port, rate=plan.rate, expect=plan.expect, secret=secret, source=own
    )
    try:
        route = permitted_route(peer, agent, source=own)
        if route.is_as_planned:
            # Until the server of this slot listens, or can be expected to.
            with suppress(AbsentError):
                _connect_to_server(route, plan, secret).close()
        diagnosis = diagnose(PeerTest(peer, options, agent, lambda _: None).run())
    except (NeucaError, OSError) as error:
        return _with_error(row, "failed", error)
    rate = next((phase.steady or phase.rate for phase in diagnosis.phases), None)
    return replace(row, rate_out=rate, diagnosis=tuple(_diagnosis_texts(diagnosis))[:MAX_DIAGNOSIS])


def _diagnosis_texts(diagnosis: Diagnosis) -> Iterator[str]:
    """The findings, the most important first; why there is no explanation, if there is none."""
    for finding in diagnosis.findings:
        if finding.severity != "info":
            yield f"{finding.title}: {finding.text}"[:MAX_TEXT]
    if diagnosis.unknown:
        yield diagnosis.unknown[:MAX_TEXT]
