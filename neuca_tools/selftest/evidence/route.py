"""The routers on the way to a peer, with the MTU up to each, and how that changes between tests."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from neuca_tools.selftest.evidence.run import Direction


@dataclass(frozen=True)
class Hop:
    """What responded to packets with this number as hop limit.

    `addresses` are those of all flows; several mean that packets take different ways by their
    ports (ECMP). `rtt` is the shortest in seconds. `mtu` is the size in bytes of the largest
    packet that was seen to get there; None if it did not respond to any.
    """

    number: int
    addresses: tuple[str, ...] = ()
    rtt: Optional[float] = None
    mtu: Optional[int] = None


@dataclass(frozen=True)
class Narrowing:
    """Where larger packets than `mtu` bytes end: before hop `number`.

    `reporter` is the router that said so by ICMP; None if they are lost without a message.
    """

    number: int
    mtu: int
    reporter: Optional[str] = None


@dataclass(frozen=True)
class Route:
    """`flows` differ in their source ports. `reached`: the peer itself responded.

    `refused` is the address that rejected the packets, if it is not the peer's. All packets left
    through `device`.
    """

    device: Optional[str] = None
    hops: tuple[Hop, ...] = ()
    narrowings: tuple[Narrowing, ...] = ()
    flows: int = 0
    reached: Optional[bool] = None
    refused: Optional[str] = None

    @property
    def ways(self) -> int:
        """How many ways packets take at least: the most routers at one distance."""
        return max((len(hop.addresses) for hop in self.hops), default=0)


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
    """Which hop has another router, and where the MTU or the number of hops changed.

    A router is another one if both tests saw one at that distance, and none is the same: with
    several ways, a test may miss one of them.
    """
    old = {hop.number: hop for hop in before.hops}
    for hop in after.hops:
        if hop.number in old:
            yield from _changes_of(old[hop.number], hop)
    if before.reached and after.reached and len(before.hops) != len(after.hops):
        yield "number of hops", str(len(before.hops)), str(len(after.hops))


def _changes_of(known: Hop, hop: Hop) -> Iterator[tuple[str, str, str]]:
    both = known.addresses and hop.addresses
    if both and not set(known.addresses) & set(hop.addresses):
        yield f"hop {hop.number}", " ".join(known.addresses), " ".join(hop.addresses)
    if known.mtu and hop.mtu and known.mtu != hop.mtu:
        yield f"MTU up to hop {hop.number}", str(known.mtu), str(hop.mtu)
