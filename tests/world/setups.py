"""Set-ups of the world tier, drawn by seed: what is between two hosts, what is wrong, and what the self-test has to name. Pure.

Of every twenty, ten have busy neighbours, five have two faults at once, and two have none; four are faster than the box between two
namespaces, and played in a guest. No rule of the self-test may be derived from a seed that it is then scored with.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from middlebox import Way

SLOWEST, FASTEST = 1e6, 10e9  # bit/s
NEAREST, FARTHEST = 0.0001, 0.3  # seconds of a round trip
STREAMS = (1, 1, 2, 4, 8, 16, 32, 64, 128)
# bit/s: what tests/middlebox.py passes on without being the bottleneck, on a machine that others use.
BOXED = 150e6
IN_BOX, IN_GUEST = (SLOWEST, BOXED), (BOXED, FASTEST)
ON_THE_WAY = 32e6  # bytes: more is too much for the memory of a guest
RMEM, WMEM = 6291456, 4194304  # bytes: the kernel's own largest buffers
PACKET = 1514  # bytes
Span = tuple[float, float]  # of rates
FORWARD, REVERSE = "forward", "reverse"
# Of each twenty set-ups, in this order before they are shuffled.
FAULTS, PAIRS, HEALTHY, BUSY = 13, 5, 2, 10
BLOCK = FAULTS + PAIRS + HEALTHY
FAST = 4  # are for a guest


@dataclass(frozen=True)
class Setup:
    """One set-up. `wanted` has a set of conditions for each fault: any one of them names it.

    `sysctls` are those of the near and the far host. `own` is a tbf on the near host's own NIC, `words` are those of the test.
    """

    seed: int
    number: int
    name: str
    there: Way
    back: Way
    wanted: tuple[tuple[str, ...], ...] = ()
    expect: float = 0.0
    congestion: str = "bbr"
    near: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    own: str = ""
    steps: tuple[str, ...] = ("latency", "path-mtu", "tcp", "tcp-reverse", "loaded")
    streams: int = 1
    busy: bool = False
    listens: bool = True

    @property
    def rtt(self) -> float:
        return self.there.delay + self.back.delay

    @property
    def rate(self) -> float:
        return max(self.there.rate, self.back.rate)

    @property
    def buffers(self) -> dict[str, tuple[str, int]]:
        """The buffers which are faults, by direction: "rmem" or "wmem", and bytes."""
        ends = {FORWARD: (self.near, self.far), REVERSE: (self.far, self.near)}
        found = {}
        for direction, (sender, receiver) in ends.items():
            for host, kind in ((sender, "wmem"), (receiver, "rmem")):
                for text in host:
                    if kind in text:
                        found[direction] = kind, int(text.split()[-1])
        return found

    @property
    def allowed(self) -> dict[str, float]:
        """bit/s that these allow a flow, by direction. The kernel's own overhead takes half of a buffer."""
        return {one: size / 2 * 8 / self.rtt for one, (_, size) in self.buffers.items()}

    @property
    def is_for_namespaces(self) -> bool:
        """Whether a box in user space carries it; guests with netem have to, otherwise."""
        return self.rate <= BOXED

    @property
    def sysctls(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Of the near and the far host: tuned for the path, except where that is the fault."""
        queue = max(self.there.queue, self.back.queue)
        need = round(4 * (self.rate * self.rtt / 8 + queue))
        common = (
            f"net.ipv4.tcp_congestion_control={self.congestion}",
            f"net.ipv4.tcp_rmem=4096 131072 {max(RMEM, need)}",
            f"net.ipv4.tcp_wmem=4096 16384 {max(WMEM, need)}",
        )
        return (*common, *self.near), (*common, *self.far)

    @property
    def words(self) -> tuple[str, ...]:
        """Of the command line; long enough for twenty round trips of slow start and some seconds."""
        steps = [*self.steps, *(["tcp-parallel"] if self.streams > 1 else [])]
        seconds = math.ceil(5 + 20 * self.rtt)
        words = ["--only", ",".join(steps), "--time", str(seconds), "--parallel", f"{self.streams}"]
        if self.expect:
            words += ["--expect", f"{self.expect / 1e6:.4g}M"]
        return tuple(words)

    @property
    def what(self) -> str:
        return (
            f"{self.rate / 1e6:.3g} Mbit/s, {self.rtt * 1e3:.3g} ms, {self.congestion}, "
            f"{self.streams} streams{', busy' if self.busy else ''}"
        )


def _log_uniform(chance: random.Random, low: float, high: float) -> float:
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def _queue(rate: float, rtt: float, chance: random.Random) -> float:
    """Bytes: half a bandwidth-delay product to two, 2 ms and ten packets at least, 60 ms at most."""
    size = chance.uniform(0.5, 2) * rate * rtt / 8
    return max(10 * PACKET, rate * 0.002 / 8, min(size, rate * 0.06 / 8))


def _path(chance: random.Random, span: Span, nearest: float = NEAREST) -> Setup:
    rate, rtt = _log_uniform(chance, *span), _log_uniform(chance, nearest, FARTHEST)
    rtt = max(nearest, min(rtt, ON_THE_WAY * 8 / rate))
    way = Way(rate=rate, delay=rtt / 2, queue=_queue(rate, rtt, chance))
    return Setup(0, 0, "", way, way, expect=0.85 * rate, congestion=chance.choice(("bbr", "reno")))


# --- Faults: each takes a set-up and the direction that it is in ---------------------------------------------------------

Fault = Callable[[Setup, random.Random, str], Setup]


def _with_way(one: Setup, direction: str, **changes: float) -> Setup:
    if direction == FORWARD:
        return replace(one, there=replace(one.there, **changes))
    return replace(one, back=replace(one.back, **changes))


def _found(one: Setup, name: str, *conditions: str) -> Setup:
    return replace(one, name=f"{one.name}+{name}".lstrip("+"), wanted=(*one.wanted, conditions))


def shaper(one: Setup, chance: random.Random, direction: str) -> Setup:
    """Slower than it was ordered to be; in one direction alone, both are compared as well."""
    rate = one.rate * chance.uniform(0.2, 0.6)
    changes = {"rate": rate, "queue": _queue(rate, one.rtt, chance)}
    return _found(_with_way(one, direction, **changes), "shaper", "D18", "D27")


def shaper_both(one: Setup, chance: random.Random, _: str) -> Setup:
    rate = one.rate * chance.uniform(0.2, 0.6)
    way = replace(one.there, rate=rate, queue=_queue(rate, one.rtt, chance))
    return _found(replace(one, there=way, back=way), "shaper-both", "D18")


def policer(one: Setup, chance: random.Random, direction: str) -> Setup:
    police = one.rate * chance.uniform(0.2, 0.5)
    burst = max(20 * PACKET, police * chance.uniform(0.005, 0.05) / 8)
    found = _with_way(one, direction, police=police, burst=burst)
    return _found(_with_datagrams(found, direction), "policer", "D17", *_alone(direction))


def loss(one: Setup, chance: random.Random, direction: str) -> Setup:
    found = _with_way(one, direction, loss=_log_uniform(chance, 0.005, 0.04))
    return _found(_with_datagrams(found, direction), "loss", "D19", *_alone(direction))


def _alone(direction: str) -> tuple[str, ...]:
    """What else names a loss where few datagrams are sent, and TCP alone cannot tell."""
    return () if direction == FORWARD else ("D05", "D17", "D19")


def _with_datagrams(one: Setup, direction: str) -> Setup:
    """As the standard plan sends them: at several rates forward, and at a low one in both directions."""
    more = ("udp", "one-way") if direction == FORWARD else ("one-way",)
    return replace(one, steps=tuple(dict.fromkeys((*one.steps, *more))))


def receive_window(one: Setup, chance: random.Random, direction: str) -> Setup:
    """A receiver that allows a tenth to four tenths of what the path carries."""
    window = one.rate * one.rtt / 8 * chance.uniform(0.1, 0.4)
    size = max(8192, round(2 * window))
    # A connection that begins with so little as 8 KiB stays there, whatever it is allowed.
    text = f"net.ipv4.tcp_rmem=4096 {min(131072, size)} {size}"
    host = "far" if direction == FORWARD else "near"
    return _found(replace(one, **{host: (*getattr(one, host), text)}), "receive-window", "D01")


def send_buffer(one: Setup, chance: random.Random, direction: str) -> Setup:
    size = max(16384, round(one.rate * one.rtt / 8 * chance.uniform(0.1, 0.4)))
    text = f"net.ipv4.tcp_wmem=4096 8192 {size}"
    host = "near" if direction == FORWARD else "far"
    return _found(replace(one, **{host: (*getattr(one, host), text)}), "send-buffer", "D03")


def deep_queue(one: Setup, chance: random.Random, _: str) -> Setup:
    """Reno, which fills what there is."""
    way = replace(one.there, queue=one.rate * chance.uniform(0.2, 0.8) / 8)
    return _found(replace(one, there=way, back=way, congestion="reno"), "deep-queue", "D14")


def black_hole(one: Setup, chance: random.Random, _: str) -> Setup:
    largest = chance.randrange(600, 1450)
    ways = (replace(way, largest=largest) for way in (one.there, one.back))
    return _found(replace(one, **dict(zip(("there", "back"), ways))), "black-hole", "D21")


def reordering(one: Setup, chance: random.Random, _: str) -> Setup:
    jitter = one.rtt / 2 * chance.uniform(0.3, 0.6)
    way = replace(one.there, jitter=jitter)
    return _found(replace(one, there=way, congestion="reno"), "reordering", "D39")


def own_queue(one: Setup, chance: random.Random, _: str) -> Setup:
    """The sender's own queue is too short for its bursts."""
    packets, rate = chance.randrange(3, 7), one.rate * 0.95
    own = f"rate {rate:.0f}bit burst {2 * PACKET} limit {packets * PACKET}"
    return _found(replace(one, own=own, congestion="reno"), "own-queue", "D14")


def closed_port(one: Setup, chance: random.Random, _: str) -> Setup:
    del chance
    return _found(replace(one, listens=False, steps=("reach", "tcp")), "closed-port", "D33")


SINGLE: tuple[Fault, ...] = (
    shaper_both,
    shaper,
    policer,
    loss,
    receive_window,
    send_buffer,
    deep_queue,
    black_hole,
    reordering,
    own_queue,
    closed_port,
)
# Faults of one direction, of which two are combined.
COMBINED: tuple[Fault, ...] = (shaper, policer, loss, receive_window, send_buffer)
# Windows and reordering need a round trip; a queue of its own shows where the path is fast enough to send bursts.
DISTANT = {receive_window: 0.02, send_buffer: 0.02, reordering: 0.01, own_queue: 0.005}


def _single(chance: random.Random, fault: Fault, span: Span) -> Setup:
    way = chance.choice((FORWARD, REVERSE)) if fault in COMBINED else FORWARD
    return fault(_path_for(chance, span, fault), chance, way)


def _path_for(chance: random.Random, span: Span, *faults: Fault) -> Setup:
    nearest = max(DISTANT.get(fault, NEAREST) for fault in faults)
    path = _path(chance, span, nearest)
    if nearest > NEAREST and path.rate < 5e6:
        # A window of a few packets is no window.
        path = replace(path, there=replace(path.there, rate=5e6), back=replace(path.back, rate=5e6))
        path = replace(path, expect=0.85 * 5e6)
    return path


def _pair(chance: random.Random, span: Span) -> Setup:
    there, back = chance.sample(COMBINED, 2)
    both = there(_path_for(chance, span, there, back), chance, FORWARD)
    return back(both, chance, REVERSE)


def _healthy(chance: random.Random, span: Span) -> Setup:
    one = _path(chance, span)
    return replace(one, name="healthy", expect=0.8 * one.rate)


def _made(chance: random.Random, block: int, at: int, span: Span) -> Setup:
    """The set-up `at` of a block, before they are shuffled."""
    if at < FAULTS:
        return _single(chance, SINGLE[(block * FAULTS + at) % len(SINGLE)], span)
    return _pair(chance, span) if at < FAULTS + PAIRS else _healthy(chance, span)


def draw(seed: int, count: int) -> list[Setup]:
    """`count` set-ups, the same ones for the same seed, whatever the count is."""
    found: list[Setup] = []
    for block in range(math.ceil(count / BLOCK)):
        chance = random.Random(f"world {seed} {block}")
        fast = chance.sample(range(BLOCK), FAST)
        made = [_made(chance, block, at, IN_GUEST if at in fast else IN_BOX) for at in range(BLOCK)]
        busy = [at < BUSY for at in range(BLOCK)]
        chance.shuffle(made)
        chance.shuffle(busy)
        for one, beside in zip(made, busy):
            streams = chance.choice(STREAMS)
            numbers = {"seed": seed, "number": len(found), "streams": streams}
            found.append(replace(one, **numbers, busy=beside))
    return found[:count]
