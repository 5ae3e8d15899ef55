"""What a stranger can leave on a NIC: router advertisements, and leases as a client of the image sets them.

A row of a table is one sign: a name, and what makes it. `make` puts it on the NIC of the attacker.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import frames

NIC = "eth7"
ROUTER = "10.66.0.1"
NETWORKS = ("10.66.0.0/24", "2001:db8:66::/64")  # the attacker's own
ON_LINK, AUTONOMOUS = 0x80, 0x40
FLAGS = {"L": ON_LINK, "A": AUTONOMOUS, "LA": ON_LINK | AUTONOMOUS, "none": 0}
LIFETIMES = {"forever": frames.FOREVER, "an hour": 3600, "zero": 0}
PREFIXES = {
    "everything": "::/0",
    "everything as a /64": "::/64",
    "half": "::/1",
    "the other half": "8000::/1",
    "the service": "fd00:ec2::254/128",
    "the network of the service": "fd00:ec2::/64",
    "link-local": "fe80::/10",
    "the management network": "2001:db8:ffff::/64",
    "its own": NETWORKS[1],
}
ROUTES = {  # route information (RFC 4191)
    "everything": "::/0",
    "half": "::/1",
    "the service": "fd00:ec2::254/128",
    "the network of the service": "fd00:ec2::/64",
    "the gateway": "2001:db8:ffff::1/128",
}


class Advertised(NamedTuple):
    """`lifetime` is that of the router, which is no default router with 0."""

    options: tuple[bytes, ...]
    lifetime: int = 0
    preference: str = "medium"

    def make(self, guest, evil):
        guest.sysctl(f"net/ipv6/conf/{NIC}/accept_ra_rt_info_max_plen", 128)
        evil.advertise(*self.options, lifetime=self.lifetime, preference=self.preference)
        evil.delivered()


class Left(NamedTuple):
    """`ip` commands with the effect of a client."""

    words: tuple[str, ...]

    def make(self, guest, evil):  # noqa: ARG002 - as that of an advertisement
        for words in self.words:
            guest.ip(words)


def prefix(name, flags="LA", valid="forever", lifetime=0):
    option = frames.prefix_information(PREFIXES[name], FLAGS[flags], LIFETIMES[valid])
    return Advertised((option,), lifetime)


def route(name, preference="high", valid="forever"):
    option = frames.route_information(ROUTES[name], preference, LIFETIMES[valid])
    return Advertised((option,))


ADVERTISEMENTS = {
    **{
        f"router of {preference} preference, {seconds} s": Advertised((), seconds, preference)
        for preference, seconds in product(frames.PREFERENCE, (30, 1800, 9000))
    },
    **{
        f"prefix {name}, flags {flags}, valid {valid}, router {lifetime} s": prefix(
            name, flags, valid, lifetime
        )
        for name, flags, valid, lifetime in product(PREFIXES, FLAGS, LIFETIMES, (0, 1800))
    },
    **{
        f"route {name} of {preference} preference, valid {valid}": route(name, preference, valid)
        for name, preference, valid in product(ROUTES, frames.PREFERENCE, LIFETIMES)
    },
}


# --- leases -------------------------------------------------------------------------------------

# Which client leaves what: dhcpcd, systemd-networkd and NetworkManager set the protocol; the scripts of dhclient and
# udhcpc do not (RTPROT_BOOT). udhcpc sets no lifetime, and an infinite lease has none.
PROTOCOLS = {
    "a client that marks its routes": "proto dhcp",
    "a client that does not": "",
    "one that says static": "proto static",
    "one that says kernel": "proto kernel",
}
ENDS = {"finite": " valid_lft 600 preferred_lft 600", "infinite": ""}
METRICS = {"no metric": 0, "a better metric": 50, "a worse metric": 900}
LEASED = {  # the address, and the routes
    "default route": ("10.66.0.2/24", (f"default via {ROUTER}",)),
    "default route on the link": ("10.66.0.2/24", ("default",)),
    "option 121 to the service": ("10.66.0.2/24", (f"169.254.169.254 via {ROUTER}",)),
    "two halves": ("10.66.0.2/24", (f"0.0.0.0/1 via {ROUTER}", f"128.0.0.0/1 via {ROUTER}")),
    "in the network of the service": ("169.254.66.2/16", ()),
    "in the management network": ("192.0.2.66/24", ("default via 192.0.2.1",)),
    "an address alone": ("10.66.0.2/24", ()),
    "everything on the link": ("10.66.0.2/0", ()),
}


def lease(name, protocol, end, metric):
    address, routes = LEASED[name]
    words = [f"address add {address} dev {NIC}{ENDS[end]}"]
    more = f"dev {NIC} {PROTOCOLS[protocol]} metric {METRICS[metric]}"
    words += [f"route add {to} {more}" for to in routes]
    return Left(tuple(words))


def looks_set_by_hand(end, protocol):
    """Nothing tells such a lease from an administrator's settings, which SECURITY.md says (dhclient records its own)."""
    return end == "infinite" and protocol != "a client that marks its routes"


LEASES = {
    f"{name}, {end}, of {protocol}, {metric}": lease(name, protocol, end, metric)
    for name, end, protocol, metric in product(LEASED, ENDS, PROTOCOLS, METRICS)
    if not looks_set_by_hand(end, protocol)
    if LEASED[name][1] or metric == "no metric"
}
# What a client that handles router advertisements itself leaves (systemd-networkd, NetworkManager, dhcpcd).
HANDLED = {
    f"{to} handled by a client as proto {protocol}": Left(
        (
            f"-6 address add 2001:db8:66::2/64 dev {NIC} valid_lft 600 preferred_lft 600",
            f"-6 route add {to} dev {NIC} proto {protocol} metric {metric}",
        )
    )
    for to, (protocol, metric) in product(
        ("default via fe80::66:66", "default", "::/1", "fd00:ec2::254 via fe80::66:66"),
        # Not 100, which is the metric of the management NIC's own default route.
        (("ra", 50), ("kernel", 101), ("dhcp", 1024)),
    )
}
# dhcpcd does without a server (RFC 3927), and gives its routes no protocol of their own.
UNANSWERED = {
    f"a link-local address and {to} of a client without an answer, metric {metric}": Left(
        (
            f"address add 169.254.66.2/16 dev {NIC}",
            f"route add {to} dev {NIC} src 169.254.66.2 metric {metric}",
        )
    )
    for to, metric in (("default", 50), ("default", 1001002), ("169.254.0.0/16", 50))
}
SIGNS = {**ADVERTISEMENTS, **LEASES, **HANDLED, **UNANSWERED}
