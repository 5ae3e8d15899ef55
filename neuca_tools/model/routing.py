"""Routes and routing rules: requested by a document, in the kernel, and as a plan compares them."""

# SPDX-License-Identifier: MIT

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Optional

from neuca_tools.model.addresses import Host, Network
from neuca_tools.model.links import LinkKey

# rtm_protocol of our routes and FRA_PROTOCOL of our rules; not taken in iproute2's rt_protos nor in
# linux/rtnetlink.h.
ROUTE_PROTOCOL = 110
MAIN_TABLE = 254  # RT_TABLE_MAIN
# RT_TABLE_UNSPEC, _DEFAULT, _MAIN and _LOCAL: tables that every host has.
KERNEL_TABLES = frozenset((0, 253, MAIN_TABLE, 255))
MAX_U32 = 2**32 - 1  # the highest number of a table, a metric, a priority or a mark
# The handle of operations on rules and on tables of our own, which every pass may carry out.
POLICY_ROUTING = "policy-routing"
# With a MAC or a prefix after it, the handle of operations on routes of the main table through this
# NIC or to this prefix.
ROUTES_OF = "routes of "
# Of the route to the network of an address; that of IPv6 is IP6_RT_PRIO_ADDRCONF (net/ip6_route.h).
CONNECTED_METRIC: Mapping[int, int] = {4: 0, 6: 256}
# RTPROT_REDIRECT, RTPROT_KERNEL and RTPROT_RA (linux/rtnetlink.h): of what the kernel sets itself.
OF_KERNEL = frozenset((1, 2, 9))

RouteState = Literal["present", "absent", "user"]
RouteKind = Literal[
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
]
# Those that a document can request.
KINDS: tuple[RouteKind, ...] = ("unicast", "blackhole", "unreachable", "prohibit")
Choice = Literal["auto", "yes", "no"]
CHOICES: tuple[Choice, ...] = ("auto", "yes", "no")


class Traits(NamedTuple):
    """What a route may have besides prefix, next hop and metric (ip-route(8)).

    `scope` is `global`, `link` or `host`, empty for the usual one: `link` without a next hop, else
    `global`. `onlink`: the next hop counts as reachable through the device. `mtu` and `advmss` are
    in bytes, 0 if not set. `source` is the preferred source address.
    """

    table: int = MAIN_TABLE
    kind: RouteKind = "unicast"
    scope: str = ""
    onlink: bool = False
    mtu: int = 0
    advmss: int = 0
    source: Optional[Host] = None
    tos: int = 0


PLAIN = Traits()
RouteIdentity = tuple[Network, int, int, int]
"""What the kernel tells routes apart by: NLM_F_REPLACE replaces the route with the same."""


class RouteRequest(NamedTuple):
    """A requested route; `via` is None without a next hop, or unless the state is `present`.

    `link` is None if the document does not name the link. `metric` is None if none is requested.
    `others` are further next hops.
    """

    to: Network
    state: RouteState
    via: Optional[Host] = None
    where: str = ""
    link: Optional[LinkKey] = None
    metric: Optional[int] = None
    traits: Traits = PLAIN
    others: tuple[Host, ...] = ()

    @property
    def is_direct(self) -> bool:
        """Whether it is a route through a link without a next hop."""
        is_unicast = self.state == "present" and self.traits.kind == "unicast"
        return is_unicast and self.via is None and self.link is not None


@dataclass(frozen=True)
class Route:
    """A route of the kernel; `index` is the output device, 0 for none; `protocol` is rtm_protocol.

    `expires`: it has a lifetime. `others` are the devices and addresses of further next hops.
    `message` is the body of the kernel's message, if another program has set the route.
    """

    to: Network
    index: int
    via: Optional[Host] = None
    metric: int = 0
    protocol: int = 0
    expires: bool = False
    traits: Traits = PLAIN
    others: tuple[tuple[int, Optional[Host]], ...] = ()
    message: bytes = field(default=b"", repr=False, compare=False)

    @property
    def identity(self) -> RouteIdentity:
        return self.to, self.traits.table, self.metric, self.traits.tos

    @property
    def is_default(self) -> bool:
        return self.to.prefixlen == 0

    @property
    def indexes(self) -> tuple[int, ...]:
        """The output devices of all next hops."""
        return (self.index, *(index for index, _ in self.others))

    @property
    def is_ours(self) -> bool:
        """Whether the agent has set it."""
        return self.protocol == ROUTE_PROTOCOL


class Hop(NamedTuple):
    """A route through a link, or through none (NOWHERE). `others` are further next hops.

    `left_over`: added by a network manager that has to release the NIC. `shadow`: the kernel's own,
    to a network of the management NIC.
    """

    to: Network
    link: LinkKey
    via: Optional[Host] = None
    metric: int = 0
    ours: bool = True
    left_over: bool = False
    shadow: bool = False
    traits: Traits = PLAIN
    others: tuple[tuple[LinkKey, Optional[Host]], ...] = ()

    @property
    def identity(self) -> RouteIdentity:
        return self.to, self.traits.table, self.metric, self.traits.tos

    @property
    def is_stale(self) -> bool:
        """Whether it has to be deleted, whatever is requested."""
        return self.left_over or self.shadow

    @property
    def links(self) -> tuple[LinkKey, ...]:
        """The link of each next hop, in their order."""
        links = (self.link, *(link for link, _ in self.others))
        return tuple(link for link in links if link != NOWHERE)

    @property
    def body(self) -> tuple[object, ...]:
        """Everything else that makes two routes differ."""
        return self.link, self.via, self.traits, self.others


# The link of a route without a device, such as a blackhole.
NOWHERE = LinkKey("")


class Rule(NamedTuple):
    """One routing rule with the action `lookup` (ip-rule(8)).

    `family` is 4 or 6. `source` and `to` are networks as text, empty for all. `mark` and `mask` are
    0 if packets are not selected by a mark. `suppress` is a prefix length: routes with one that is
    not longer are ignored; -1 for none.
    """

    family: int
    priority: int
    table: int
    source: str = ""
    to: str = ""
    mark: int = 0
    mask: int = 0
    tos: int = 0
    suppress: int = -1

    @property
    def text(self) -> str:
        """The rule as ip-rule(8) writes it."""
        words = [f"{self.priority}: from {self.source or 'all'}"]
        if self.to:
            words.append(f"to {self.to}")
        if self.mask:
            words.append(f"fwmark {self.mark:#x}/{self.mask:#x}")
        if self.tos:
            words.append(f"tos {self.tos:#x}")
        words.append("lookup main" if self.table == MAIN_TABLE else f"lookup {self.table}")
        if self.suppress >= 0:
            words.append(f"suppress_prefixlength {self.suppress}")
        return " ".join(words)


class SeenRule(NamedTuple):
    """A rule of the kernel with its FRA_PROTOCOL.

    `plain`: it has no selector or action that Rule lacks. `inverted`: it has none either, but it
    selects the packets that the selectors do not match (`not` in ip-rule(8)).
    """

    rule: Rule
    protocol: int
    plain: bool = True
    inverted: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether the agent has set it."""
        return self.protocol == ROUTE_PROTOCOL

    @property
    def is_partial(self) -> bool:
        """Whether it selects only some of the packets from its source."""
        return not self.plain or bool(self.rule.to or self.rule.mark or self.rule.tos)


class RuleRequest(NamedTuple):
    """A rule that a document requests. `link` is None if the document does not name the link."""

    rule: Rule
    where: str = ""
    link: Optional[LinkKey] = None


class NicRouting(NamedTuple):
    """What a text says of the policy routing of one link; everything is empty if it says nothing.

    `gateways` has at most one address of each family. `implied`: the text is a platform's, or the
    gateway is only there for policy routing, so that `auto` stands for `yes`. `table` is 0 for one
    of ours. `subnets` are networks behind the gateway that the link is in, with single addresses.
    """

    choice: Optional[Choice] = None
    gateways: tuple[Host, ...] = ()
    table: int = 0
    implied: bool = False
    subnets: tuple[Network, ...] = ()

    def over(self, below: Optional["NicRouting"]) -> "NicRouting":
        """Merge both, setting by setting; this one wins."""
        if below is None:
            return self
        own = {gateway.version for gateway in self.gateways}
        kept = (gateway for gateway in below.gateways if gateway.version not in own)
        return NicRouting(
            self.choice or below.choice,
            (*self.gateways, *kept),
            self.table or below.table,
            self.implied or below.implied,
            self.subnets or below.subnets,
        )


UNROUTED = NicRouting()


def is_link_scoped(host: Optional[Host]) -> bool:
    """Whether a gateway needs no route, being on every link: a link-local address of IPv6 only."""
    return host is not None and host.version == 6 and host.is_link_local


def usual_scope(version: int, kind: str, via: Optional[Host]) -> str:
    """The scope that ip-route(8) gives a route."""
    return "link" if version == 4 and kind == "unicast" and via is None else "global"
