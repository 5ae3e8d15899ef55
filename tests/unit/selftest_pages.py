"""A large report for the tests of the page: a standard plan with samples of both hosts, its steps, and findings."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

from selftest_runs import flow_of, receiver, udp_phase

from neuca_tools.selftest.evidence import Evidence, Host, Latency, Link, Phase, Step
from neuca_tools.selftest.evidence.route import Hop, OneWay, Route

# The local host's clock when the first test began, and seconds of each test with its pause.
BEGAN, EACH = 5000.0, 12.0


def traced(phase: Phase, number: int) -> Phase:
    """At the place of this test on the local host's clock; the sender sends three segments again each second."""
    began = BEGAN + EACH * number
    sender = (
        replace(
            sample,
            time=sample.time + began,
            sockets=tuple(
                replace(socket, total_retrans=3 * int(sample.time)) for socket in sample.sockets
            ),
        )
        for sample in phase.sender
    )
    receiver = (replace(sample, time=sample.time + began) for sample in phase.receiver)
    return replace(phase, sender=tuple(sender), receiver=tuple(receiver))


def tcp_phase(name: str, direction: str = "forward", **facts: float) -> Phase:
    held = {"snd_wnd": 3_144_960, "snd_cwnd": 4000, "unacked": 2172, "rtt": 20_000, **facts}
    flow = flow_of(250e6, **held)
    return Phase(name, direction=direction, sender=flow, receiver=receiver(recv_q=0))


def large() -> Evidence:
    """What a standard test of a path with several faults leaves behind."""
    phases = [
        tcp_phase("tcp", min_rtt=1000),
        tcp_phase("tcp", "reverse", rwnd=0.9),
        tcp_phase("tcp-parallel", retrans=0.02),
        tcp_phase("tcp-bidir", idle=0.5),
        *(udp_phase(rate, rate, rate * 0.9, {"Udp.RcvbufErrors": (0, 900)}) for rate in LADDER),
    ]
    names = (
        "as-planned reach latency path-mtu tcp loaded tcp-reverse tcp-parallel tcp-bidir".split()
    )
    steps = [Step(name, "pass", "p50 311 µs, p99 26.6 ms, max 26.6 ms") for name in names]
    steps += [Step("udp", "search", "38.2 Mbit/s, 9% lost of 38.3 Mbit/s") for _ in LADDER]
    steps += [Step("connections", "pass", "4000 a second")]
    links = (Link("eth1", "physical", mtu=1400, speed=1e9, max_speed=1e10),)
    return Evidence(
        local=Host("left", "6.1.0", "3.12", agent="2.0.0", links=links, path=("eth1",)),
        peer=Host("right", "6.1.0", "3.12", agent="2.0.0", log=("neighbour table overflow",)),
        phases=tuple(traced(one, number) for number, one in enumerate(phases)),
        expect=1e9,
        idle=Latency(200, 0, 0.0003, 0.0266, 0.0266),
        loaded=Latency(200, 1, 0.011, 0.04, 0.04),
        steps=tuple(steps),
        address="172.16.0.2",
        label="left to right",
        taken="2026-11-22T20:41:42Z",
        route=Route(HOPS, reached=True),
        one_way=tuple(OneWay(way, 5e6, 2200, 2198, 3, 0) for way in WAYS),
    )


WAYS = ("forward", "reverse")
HOPS = tuple(
    Hop(number, (f"10.{number}.0.1", f"10.{number}.0.2"), 1e-3, 1500) for number in range(1, 11)
)
LADDER = (1e6, 1e7, 5e7, 1e8, 7e7, 6e7, 5.5e7, 5.2e7)
