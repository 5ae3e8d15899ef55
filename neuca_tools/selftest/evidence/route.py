"""The routers on the way to a peer, with the MTU up to each, and how that changes between tests."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from neuca_tools.selftest.evidence.run import Direction


@dataclass(frozen=True)
class Hop:
    """What responded to packets with this number as hop limit.

    There is no address if nothing did, and several if routers choose between paths. `rtt` is in
    seconds, `mtu` the size in bytes of the packets that got there.
    """

    number: int
    addresses: tuple[str, ...] = ()
    rtt: Optional[float] = None
    mtu: Optional[int] = None


@dataclass(frozen=True)
class Route:
    """The routers in order. `reached`: the peer itself responded."""

    hops: tuple[Hop, ...] = ()
    reached: Optional[bool] = None

    @property
    def mtu(self) -> Optional[int]:
        """The size in bytes of the packets that got to the last hop."""
        return self.hops[-1].mtu if self.hops else None


NO_ROUTE = Route()


@dataclass(frozen=True)
class OneWay:
    """Datagrams of one direction, by the sequence numbers of iperf3's sender and receiver.

    `sent` is the sender's count and `seen` the highest number that the receiver has seen; `lost`
    are the gaps among these, and `losses` those of each interval. `rate` is in bit/s.
    """

    direction: Direction = "forward"
    rate: Optional[float] = None
    sent: Optional[int] = None
    seen: Optional[int] = None
    lost: Optional[int] = None
    out_of_order: Optional[int] = None
    losses: tuple[int, ...] = ()

    @property
    def loss(self) -> Optional[float]:
        """The share that was lost; None if it is not known."""
        if self.lost is None or not self.seen:
            return None
        return min(1.0, max(0, self.lost) / self.seen)


def route_changes(before: Route, after: Route) -> Iterator[tuple[str, str, str]]:
    """Which hop has another router, and whether the number of hops or the MTU changed.

    A router is another one if both tests saw one at that distance, and none is the same: with
    several ways, a test may miss one of them.
    """
    known_by_number = {hop.number: hop.addresses for hop in before.hops}
    for hop in after.hops:
        known = known_by_number.get(hop.number, ())
        if known and hop.addresses and not set(known) & set(hop.addresses):
            yield f"hop {hop.number}", " ".join(known), " ".join(hop.addresses)
    if before.reached and after.reached:
        yield from _changes_of_whole(before, after)


def _changes_of_whole(before: Route, after: Route) -> Iterator[tuple[str, str, str]]:
    if len(before.hops) != len(after.hops):
        yield "number of hops", str(len(before.hops)), str(len(after.hops))
    if before.mtu and after.mtu and before.mtu != after.mtu:
        yield "MTU", str(before.mtu), str(after.mtu)
