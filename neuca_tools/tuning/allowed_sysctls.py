"""Which sysctls a document may set: those of its interfaces, and some host-wide ones with bounds.

A host-wide setting affects the management NIC too: `ip_default_ttl = 1` or `tcp_rmem = 1 1 1` would
make the guest unreachable. A key that is not in the list is refused, unless the administrator's
configuration allows or sets it.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Mapping
from itertools import chain
from typing import NamedTuple, Optional, Union

from neuca_tools.model import ACCEPT_RA, OWN, LinkKey, LinkRequest
from neuca_tools.tuning.sysctl_values import number_of

PER_INTERFACE = r"net/(?:(?:ipv4|ipv6)/(?:conf|neigh)|mpls/conf)(?:/|\Z)"
HOST_WIDE = "it is a host-wide setting; a document may change it only if allow-sysctls lists it"
# The kernel adds what is advertised to the main table: default routes, and networks of any length.
ADVERTISEMENTS = (
    "any host on the link could take over the default route with a router advertisement; use"
    " accept-ra = yes"
)


class Numbers(NamedTuple):
    """The inclusive bounds of each number in a value, and the reason for them."""

    bounds: tuple[tuple[int, int], ...]
    why: str


class Words(NamedTuple):
    """The words that are valid as a value."""

    words: tuple[str, ...]


_INT = 2**31 - 1
_MIB = 1024 * 1024
# Congestion control algorithms of the kernel (net/ipv4/Kconfig).
_ALGORITHMS = tuple(
    "reno cubic bbr htcp bic cdg dctcp highspeed hybla illinois lp nv scalable vegas veno westwood"
    " yeah".split()
)
_SOCKET = "less than 64 KiB stalls every socket of the host"
_PAGE = "a socket needs a page (ip-sysctl.rst)"
_NEIGHBOURS = "less than the kernel's default leaves neighbors unreachable (arp(7))"
_BACKLOG = "less than the kernel's default drops packets of every NIC (admin-guide/sysctl/net.rst)"
_QUEUE = "a shorter queue refuses connections (listen(2))"
_TIME = "a lower value breaks connections in use"
_PACING = "less than 100 % throttles every connection"
_FRAGMENTS = "less than 256 KiB, the kernel's original default, drops fragments"
_POLL = "above 1 ms, each read keeps a processor busy (admin-guide/sysctl/net.rst)"
_VALUES = "the kernel accepts no other value (ip-sysctl.rst)"


def _one_number(low: int, high: int, why: str = _VALUES) -> Numbers:
    return Numbers(((low, high),), why)


# References: ip-sysctl.rst and admin-guide/sysctl/net.rst of the kernel, tcp(7), arp(7). The bounds
# include the shipped profiles and the advice of the ESnet host tuning guide (fasterdata.es.net).
ALLOWED: Mapping[str, Union[Numbers, Words]] = {
    # Buffers, in bytes: every socket of the host, and those of TCP and UDP.
    "net/core/rmem_max": _one_number(65536, _INT, _SOCKET),
    "net/core/wmem_max": _one_number(65536, _INT, _SOCKET),
    "net/core/rmem_default": _one_number(65536, 64 * _MIB, _SOCKET),
    "net/core/wmem_default": _one_number(65536, 64 * _MIB, _SOCKET),
    "net/core/optmem_max": _one_number(20480, 64 * _MIB, _SOCKET),
    "net/ipv4/tcp_rmem": Numbers(((4096, _MIB), (65536, 64 * _MIB), (65536, _INT)), _PAGE),
    "net/ipv4/tcp_wmem": Numbers(((4096, _MIB), (16384, 64 * _MIB), (65536, _INT)), _PAGE),
    "net/ipv4/udp_rmem_min": _one_number(4096, _MIB, _PAGE),
    "net/ipv4/udp_wmem_min": _one_number(4096, _MIB, _PAGE),
    "net/ipv4/tcp_notsent_lowat": _one_number(4096, 2**32 - 1, _PAGE),
    "net/ipv4/tcp_limit_output_bytes": _one_number(65536, _INT, _SOCKET),
    "net/ipv4/ipfrag_high_thresh": _one_number(262144, 1024 * _MIB, _FRAGMENTS),
    "net/ipv6/ip6frag_high_thresh": _one_number(262144, 1024 * _MIB, _FRAGMENTS),
    # Queues, and how the processor empties them.
    "net/core/netdev_max_backlog": _one_number(1000, 1000000, _BACKLOG),
    "net/core/netdev_budget": _one_number(300, 10000, _BACKLOG),
    "net/core/netdev_budget_usecs": _one_number(2000, 100000, _BACKLOG),
    "net/core/busy_read": _one_number(0, 1000, _POLL),
    "net/core/busy_poll": _one_number(0, 1000, _POLL),
    "net/core/rps_sock_flow_entries": _one_number(0, _MIB, "more only wastes memory"),
    "net/core/default_qdisc": Words(("fq", "fq_codel", "fq_pie", "pfifo_fast", "sfq", "cake")),
    # Connections.
    "net/core/somaxconn": _one_number(128, 65535, _QUEUE),
    "net/ipv4/tcp_max_syn_backlog": _one_number(128, _MIB, _QUEUE),
    "net/ipv4/tcp_keepalive_time": _one_number(60, 32767, _TIME),
    "net/ipv4/tcp_keepalive_intvl": _one_number(5, 32767, _TIME),
    "net/ipv4/tcp_keepalive_probes": _one_number(3, 127, _TIME),
    "net/ipv4/tcp_fin_timeout": _one_number(5, 120, _TIME),
    "net/ipv4/tcp_retries2": _one_number(
        8, 100, "at least 100 s, which are 8 retries (RFC 1122, 4.2.3.5)"
    ),
    "net/ipv4/ip_local_port_range": Numbers(
        ((1024, 40000), (50000, 65535)), "every connection of the host needs a port"
    ),
    "net/netfilter/nf_conntrack_max": _one_number(
        65536, 16 * _MIB, "a full table drops every packet"
    ),
    # TCP behaviour. None of these values keeps two hosts from communicating.
    "net/ipv4/tcp_congestion_control": Words(_ALGORITHMS),
    "net/ipv4/tcp_mtu_probing": _one_number(0, 2),
    "net/ipv4/tcp_no_metrics_save": _one_number(0, 1),
    "net/ipv4/tcp_moderate_rcvbuf": _one_number(0, 1),
    "net/ipv4/tcp_slow_start_after_idle": _one_number(0, 1),
    "net/ipv4/tcp_sack": _one_number(0, 1),
    "net/ipv4/tcp_dsack": _one_number(0, 1),
    "net/ipv4/tcp_timestamps": _one_number(0, 2),
    "net/ipv4/tcp_window_scaling": _one_number(0, 1),
    "net/ipv4/tcp_ecn": _one_number(0, 2),
    "net/ipv4/tcp_fastopen": _one_number(
        0, 3, "client and server are bits 1 and 2 (ip-sysctl.rst)"
    ),
    "net/ipv4/tcp_tw_reuse": _one_number(0, 2),
    "net/ipv4/tcp_syncookies": _one_number(1, 2, "without them, a SYN flood blocks every client"),
    "net/ipv4/tcp_pacing_ss_ratio": _one_number(100, 1000, _PACING),
    "net/ipv4/tcp_pacing_ca_ratio": _one_number(100, 1000, _PACING),
    # Tables of neighbours and routes, multicast, addresses, MPLS.
    "net/ipv4/neigh/default/gc_thresh1": _one_number(128, _MIB, _NEIGHBOURS),
    "net/ipv4/neigh/default/gc_thresh2": _one_number(512, _MIB, _NEIGHBOURS),
    "net/ipv4/neigh/default/gc_thresh3": _one_number(1024, _MIB, _NEIGHBOURS),
    "net/ipv6/neigh/default/gc_thresh1": _one_number(128, _MIB, _NEIGHBOURS),
    "net/ipv6/neigh/default/gc_thresh2": _one_number(512, _MIB, _NEIGHBOURS),
    "net/ipv6/neigh/default/gc_thresh3": _one_number(1024, _MIB, _NEIGHBOURS),
    "net/ipv6/route/max_size": _one_number(4096, _INT, "a full table takes no route of any NIC"),
    "net/ipv4/fib_multipath_hash_policy": _one_number(0, 3),
    "net/ipv6/fib_multipath_hash_policy": _one_number(0, 3),
    "net/ipv4/igmp_max_memberships": _one_number(20, 65535, "20 is the kernel's default"),
    "net/ipv4/ip_nonlocal_bind": _one_number(0, 1),
    "net/ipv6/ip_nonlocal_bind": _one_number(0, 1),
    "net/mpls/platform_labels": _one_number(0, 2**20 - 1, "a label has 20 bits (RFC 3032)"),
}


def key_reason(key: str) -> Optional[str]:
    """Why a request for one link may not contain this key; None if it may.

    `key` is a path below /proc/sys that may contain `{interface}`. `conf/all`, `conf/default` and
    `ip_forward` change every NIC, the management NIC included (ip-sysctl.rst).
    """
    parts = key.split("/")
    if re.match(PER_INTERFACE, key):
        return _interface_key_reason(parts)
    if key == "net/ipv4/ip_forward":
        return "it changes every interface; use router in [global]"
    if parts[-1] == "flush":
        return "it triggers an action and is not a setting"
    if OWN in key:
        return "{interface} does not belong in it"
    return None


def _interface_key_reason(parts: list[str]) -> Optional[str]:
    """`key_reason` for a key below one of PER_INTERFACE."""
    table = "".join(parts[3:4])
    if table == OWN and len(parts) > 4:
        return None
    if table == "default" and parts[2] == "neigh":
        # These are limits of the whole neighbour table, not settings of a NIC.
        return None
    return f'it would change "{table}", not this interface alone'


class Judge:
    """Decides which sysctls are refused; neither `configured` nor `permitted` keys have bounds."""

    def __init__(self, configured: Collection[LinkRequest], permitted: Collection[str]) -> None:
        self._configured = set(chain.from_iterable(request.sysctls for request in configured))
        self._permitted = permitted
        # The links on which the configuration has the kernel accept router advertisements.
        pairs = ((request.key, dict(request.sysctls)) for request in configured)
        self.advertised = {link for link, sysctls in pairs if sysctls.get(ACCEPT_RA, "0") != "0"}

    def reason(self, link: LinkKey, key: str, value: str) -> Optional[str]:
        """Why this setting is refused for the link; None if it is not."""
        wrong = key_reason(key)
        if wrong is None and key == ACCEPT_RA and value != "0" and link not in self.advertised:
            return ADVERTISEMENTS
        if wrong or OWN in key or key in self._permitted or (key, value) in self._configured:
            return wrong
        return value_reason(key, value)


def value_reason(key: str, value: str) -> Optional[str]:
    """Why a document may not set a host-wide sysctl to this value; None if it may."""
    rule = ALLOWED.get(key)
    if rule is None:
        return HOST_WIDE
    if isinstance(rule, Words):
        if value in rule.words:
            return None
        return f'"{value[:80]}" is not one of {", ".join(rule.words)}'
    words = value.split()
    if len(words) != len(rule.bounds):
        return f"numbers needed: {len(rule.bounds)}, found: {len(words)}"
    for word, (low, high) in zip(words, rule.bounds):
        number = number_of(word)
        if number is None or not low <= number <= high:
            return f'"{word[:80]}" is not a number from {low} to {high}: {rule.why}'
    return None
