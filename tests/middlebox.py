"""A box between two links that delays, shapes, polices, drops or reorders what passes: for kernels without netem.

`middlebox.py A B SPECIFICATION` forwards frames between the devices A and B of its network namespace until its standard input is
closed, and says then what it did, as JSON with a `Tally` for each direction. The specification is JSON with a `Way` for each
direction: {"there": {…}, "back": {…}}, "there" being from A to B.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import dataclasses
import gc
import heapq
import json
import os
import random
import select
import socket
import sys
import time
from dataclasses import dataclass

# linux/if_packet.h.
SOL_PACKET, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33  # asm-generic/socket.h
EVERYTHING = 3  # ETH_P_ALL
HEADER = 10  # bytes: struct virtio_net_hdr, before each frame
LARGEST = 70_000  # bytes
BUFFER = 64 * 2**20  # bytes
BATCH = 64  # frames that are read before the clock is read again
LATE, LATE_SHARE = 0.002, 0.1  # seconds; of the delay


@dataclass(frozen=True)
class Way:
    """One direction. Rates in bit/s, times in seconds, sizes in bytes; 0 is no limit.

    `queue` is what waits for the `rate`, `jitter` is added or subtracted (and reorders), `largest` drops larger frames,
    `no_udp` those with UDP over IPv4. `only` is an IPv4 address: what is neither from nor to it passes at once.
    """

    rate: float = 0.0
    delay: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    police: float = 0.0
    burst: float = 30_000.0
    queue: float = 0.0
    largest: int = 0
    no_udp: bool = False
    only: str = ""


@dataclass
class Tally:
    """What happened in one direction: frames by their fate, times in seconds, rates in bit/s.

    `late` of them were sent so much later than due that the box delayed them itself (LATE), `overtook` are those that
    left before one that came earlier. `waited` is the longest time in the queue; `offered` and `passed` are the most that arrived
    and that was let through in a second.
    """

    frames: int = 0
    vanished: int = 0
    lost: int = 0
    policed: int = 0
    overflowed: int = 0
    late: int = 0
    overtook: int = 0
    waited: float = 0.0
    offered: float = 0.0
    passed: float = 0.0


class Second:
    """The most bits in one second."""

    def __init__(self) -> None:
        self._second, self._bits, self._most = 0, 0, 0

    def add(self, now: float, size: int) -> None:
        if int(now) != self._second:
            self._most, self._second, self._bits = self.most, int(now), 0
        self._bits += 8 * size

    @property
    def most(self) -> int:
        return max(self._most, self._bits)


class Bucket:
    """What one direction does to its frames. Pure, except for chance."""

    def __init__(self, way: Way, chance: random.Random) -> None:
        self.way, self._chance = way, chance
        self._tokens, self._filled, self._free, self._last = way.burst, 0.0, 0.0, 0.0
        self._offered, self._passed = Second(), Second()
        self._tally = Tally()

    @property
    def tally(self) -> Tally:
        rates = {"offered": self._offered.most, "passed": self._passed.most}
        return dataclasses.replace(self._tally, **rates)

    def due(self, now: float, size: int) -> float | None:
        """When a frame of `size` bytes that arrives now leaves; None if it is dropped."""
        self._tally.frames += 1
        self._offered.add(now, size)
        fate = self._fate(now, size)
        if fate:
            setattr(self._tally, fate, getattr(self._tally, fate) + 1)
            return None
        self._passed.add(now, size)
        return self._leaves(now, size)

    def _fate(self, now: float, size: int) -> str:
        """What becomes of a frame that is dropped, as the name of a field of Tally; empty if it is not."""
        way = self.way
        if way.largest and size > way.largest:
            return "vanished"
        if way.loss and self._chance.random() < way.loss:
            return "lost"
        if way.police and not self._conforms(now, size):
            return "policed"
        if way.rate and way.queue and self._waiting(now) * way.rate / 8 + size > way.queue:
            return "overflowed"
        return ""

    def _waiting(self, now: float) -> float:
        return max(0.0, self._free - now)

    def _leaves(self, now: float, size: int) -> float:
        way, tally, out = self.way, self._tally, now
        if way.rate:
            tally.waited = max(tally.waited, self._waiting(now))
            out = self._free = max(now, self._free) + size * 8 / way.rate
        shift = self._chance.uniform(-way.jitter, way.jitter) if way.jitter else 0.0
        leaves = max(now, out + way.delay + shift)
        tally.overtook += leaves < self._last
        self._last = max(self._last, leaves)
        return leaves

    def left(self, due: float, now: float) -> None:
        """A frame was sent now."""
        self._tally.late += now - due > max(LATE, LATE_SHARE * self.way.delay)

    def _conforms(self, now: float, size: int) -> bool:
        self._tokens = min(
            self.way.burst, self._tokens + (now - self._filled) * self.way.police / 8
        )
        self._filled = now
        if size > self._tokens:
            return False
        self._tokens -= size
        return True


def opened(device: str) -> socket.socket:
    """Frames with their checksums and segments as the kernel left them (packet(7))."""
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    link.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for option in (SO_SNDBUFFORCE, SO_RCVBUFFORCE):
        link.setsockopt(socket.SOL_SOCKET, option, BUFFER)
    link.bind((device, EVERYTHING))
    link.setblocking(False)
    return link


def is_udp(frame: bytes) -> bool:
    """By the Ethernet type and IPv4's protocol."""
    ethernet = frame[HEADER:]
    return ethernet[12:14] == b"\x08\x00" and ethernet[23:24] == b"\x11"


def concerns(frame: bytes, address: str) -> bool:
    """Whether a frame is from or to an IPv4 address, or no address is given."""
    ends = (frame[HEADER + 26 : HEADER + 30], frame[HEADER + 30 : HEADER + 34])
    return not address or socket.inet_aton(address) in ends


def forward(
    near: socket.socket, far: socket.socket, ways: dict[str, Way], seed: int
) -> dict[str, Tally]:
    """Until the standard input is closed. What happened in each direction."""
    chance = random.Random(seed)
    buckets = {name: Bucket(ways[name], chance) for name in ("there", "back")}
    other = {near: (far, buckets["there"]), far: (near, buckets["back"])}
    waiting: list[tuple[float, int, socket.socket, Bucket, bytes]] = []
    count = 0
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([*other, 0], [], [], wait)[0]:
            if source == 0:
                return {name: bucket.tally for name, bucket in buckets.items()}
            target, bucket = other[source]
            for _ in range(BATCH):
                try:
                    frame = source.recv(LARGEST)
                except BlockingIOError:
                    break
                if bucket.way.no_udp and is_udp(frame):
                    continue
                out: float | None = time.monotonic()
                if concerns(frame, bucket.way.only):
                    out = bucket.due(time.monotonic(), len(frame) - HEADER)
                if out is not None:
                    count += 1
                    heapq.heappush(waiting, (out, count, target, bucket, frame))
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            due, _, target, bucket, frame = heapq.heappop(waiting)
            bucket.left(due, now)
            # A link that is full or down drops, as it would between other boxes.
            with contextlib.suppress(OSError):
                target.send(frame)


def specification(there: Way, back: Way, seed: int = 1) -> str:
    return json.dumps(
        {"there": dataclasses.asdict(there), "back": dataclasses.asdict(back), "seed": seed}
    )


def main() -> None:
    near, far, text = sys.argv[1:]
    said = json.loads(text)
    ways = {name: Way(**said[name]) for name in ("there", "back")}
    # Ahead of every busy neighbour: a router does not share its processors with them.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    gc.disable()
    links = opened(near), opened(far)
    print("ready", flush=True)
    tallies = forward(*links, ways, said["seed"])
    print(json.dumps({name: dataclasses.asdict(one) for name, one in tallies.items()}), flush=True)


if __name__ == "__main__":
    main()
