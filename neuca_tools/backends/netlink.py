"""The kernel's links, addresses and routes, read and written through rtnetlink: the only module that imports pyroute2.

It runs with pyroute2 0.7.2 to 0.9: IPRoute alone, requests one by one, extended ACK on so that an error has the kernel's words.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional

from neuca_tools.backends import kinds, sysctl
from neuca_tools.backends.hostid import boot_id
from neuca_tools.desired.routes import ROUTE_PROTOCOL
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.model import ACCEPT_RA, OWN, Address, Device, Host, Network, Route, World
from neuca_tools.model.links import KINDS

MAIN_TABLE = 254  # RT_TABLE_MAIN
UNICAST, RTPROT_RA = 1, 9  # RTN_UNICAST; linux/rtnetlink.h
DUMP_TRIES = (
    5  # a dump that was interrupted by a change is asked for again (appliers: NLM_F_DUMP_INTR)
)
DUMP_INTERRUPTED = 0x10  # NLM_F_DUMP_INTR
IFF_UP, IFF_SLAVE = 0x1, 0x800
IFF_LOWER_UP = 0x10000
IFA_F_NODAD, IFA_F_PERMANENT = 0x02, 0x80
# What addrconf.c gives to addresses that it makes of a router advertisement.
IFA_F_TEMPORARY, IFA_F_MANAGETEMPADDR = 0x01, 0x100
LIVE_RENAME_SINCE = (6, 2)  # kernel commit bd039b5ea2a9
ZEROCONF = ip_network("169.254.0.0/16")
FAMILIES = {socket.AF_INET: 4, socket.AF_INET6: 6}
# What the kernel answers where a host cannot be reached: no route or a route `throw`, routes `unreachable`, `prohibit` and
# `blackhole` (fib_props of net/ipv4/fib_semantics.c, ip6_route_info_create_nh), and a kernel without IPv6. All else is an error.
NO_ROUTE = (
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
    errno.EACCES,
    errno.EINVAL,
    errno.EOPNOTSUPP,
    errno.EAFNOSUPPORT,
)


class Netlink:
    """One rtnetlink socket, opened for one pass and closed after it."""

    def __init__(self) -> None:
        try:
            from pyroute2 import IPRoute  # 80 ms and 20 MiB that most commands do without
            from pyroute2.netlink.exceptions import NetlinkError
        except ImportError as error:
            raise ObserveError(
                f"look at the network: the Python module pyroute2 cannot be imported: {error}",
                hint="install the package python3-pyroute2",
            ) from error
        self._error: type[Exception] = NetlinkError
        self._ip: Any = IPRoute(ext_ack=True, strict_check=True)

    def __enter__(self) -> Netlink:  # noqa: PYI034 - typing.Self is newer than Python 3.9
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._ip.close()

    # --- reading ---

    def look(self, metadata_hosts: Iterable[Host]) -> World:
        """One whole look. Raises ObserveError where the kernel does not answer."""
        devices = {device.index: device for device in map(_device, self._dump(self._ip.get_links))}
        routes = tuple(
            route
            for message in self._dump(lambda: self._ip.get_routes(table=MAIN_TABLE))
            for route in _routes(message)
        )
        found = ((host, self._route_to(host)) for host in metadata_hosts)
        indexes = (index for host, index in found if _is_meant(host, index, routes))
        return World(
            devices,
            routes=routes,
            metadata_index=next((index for index in indexes if index), 0),
            boot_id=boot_id(),
            rename_while_up=kernel_release() >= LIVE_RENAME_SINCE,
            accept_ra=sysctl.read(ACCEPT_RA.replace(OWN, "default")),
            **self._addresses(),
        )

    def _addresses(self) -> dict[str, Any]:
        """All of them; those with a lifetime, from DHCP or a router, hardly ever from a hand; and those of `World` beside."""
        found: dict[int, list[Address]] = {}
        leased, autoconf, peers = set(), set(), set()
        for message in self._dump(self._ip.get_addr):
            index, length = message["index"], message["prefixlen"]
            other = message.get_attr("IFA_ADDRESS")
            text = message.get_attr("IFA_LOCAL") or other
            if not text:
                continue
            address = ip_interface(f"{text}/{length}")
            found.setdefault(index, []).append(address)
            flags = message.get_attr("IFA_FLAGS") or message["flags"]
            if not flags & IFA_F_PERMANENT:
                leased.add((index, address))
            if address.version == 6 and flags & (IFA_F_TEMPORARY | IFA_F_MANAGETEMPADDR):
                autoconf.add((index, address))
            if other and other != text:
                peers.add((index, ip_interface(f"{other}/{length}").network))
        return {
            "addresses": {index: tuple(addresses) for index, addresses in found.items()},
            "leased": frozenset(leased),
            "autoconf": frozenset(autoconf),
            "peers": frozenset(peers),
        }

    def _dump(self, ask: Callable[[], Iterable[Any]]) -> list[Any]:
        """A dump that no change interrupted; pyroute2 0.6.6 to 0.8 raise, 0.9 does not look. Raises ObserveError."""
        for _ in range(DUMP_TRIES):
            try:
                messages = list(ask())
            except self._error as error:
                if type(error).__name__ != "NetlinkDumpInterrupted":
                    raise ObserveError(
                        f"ask the kernel for its links, addresses and routes: {_words(error)[1]}"
                    ) from error
                continue
            except OSError as error:
                raise ObserveError(
                    f"ask the kernel for its links, addresses and routes: {error.strerror}"
                ) from error
            if not any(message["header"]["flags"] & DUMP_INTERRUPTED for message in messages):
                return messages
        raise ObserveError(
            f"ask the kernel for its links, addresses and routes: they changed {DUMP_TRIES} times meanwhile"
        )

    def _route_to(self, host: Host) -> int:
        """The index of the device that packets to this host leave through now. Raises ObserveError.

        0 where there is no route, or one that a router advertisement alone has made: any host on
        the link can send one, so it does not show which NIC is for management.
        """
        try:
            answers = self._ip.route("get", dst=str(host))
        except (self._error, OSError) as error:
            code, text = _words(error)
            if code in NO_ROUTE:
                return 0
            raise ObserveError(f"ask the kernel for its route to {host}: {text}") from error
        meant = (answer for answer in answers if answer["proto"] != RTPROT_RA)
        index = next((answer.get_attr("RTA_OIF") for answer in meant), None)
        return int(index or 0)

    # --- writing ---

    def index_of(self, name: str) -> int:
        """The index of the device with exactly this name, 0 for none (an alternative name does not count)."""
        with suppress(OSError):
            return socket.if_nametoindex(name)
        return 0

    def name_of(self, index: int) -> str:
        """The name of the device with this index, empty for none."""
        with suppress(OSError):
            return socket.if_indextoname(index)
        return ""

    def set_mtu(self, index: int, mtu: int) -> None:
        self._run("link", "set", index=index, mtu=mtu)

    def set_txqueuelen(self, index: int, packets: int) -> None:
        self._run("link", "set", index=index, txqlen=packets)

    def set_up(self, index: int, up: bool) -> None:
        self._run("link", "set", index=index, state="up" if up else "down")

    def rename(self, index: int, name: str) -> None:
        """Rename, after dropping an alternative name of the same device that is in the way: both share one space."""
        with suppress(ApplyError):  # most devices have no such name
            self.drop_altname(index, name)
        self._run("link", "set", index=index, ifname=name)

    def drop_altname(self, index: int, name: str) -> None:
        self._run("link", "property_del", index=index, altname=name)

    def create_link(
        self, kind: str, name: str, parent: int, options: Mapping[str, str], mtu: Optional[int]
    ) -> None:
        """A VLAN, bond, bridge, VXLAN or macvlan. A VXLAN has its parent among its own settings."""
        more: dict[str, Any] = {} if mtu is None else {"mtu": mtu}
        if parent:
            more["vxlan_link" if kind == "vxlan" else "link"] = parent
        self._run("link", "add", ifname=name, kind=kind, **kinds.words(kind, options), **more)

    def set_master(self, index: int, master: int) -> None:
        """Put it into a bond or a bridge; 0: out of the one it is in."""
        self._run("link", "set", index=index, master=master)

    def delete_link(self, index: int) -> None:
        self._run("link", "del", index=index, gone=(errno.ENODEV,))

    def add_address(self, index: int, address: Address) -> None:
        """Add it without duplicate address detection, so that it can be used at once (IPv6: RFC 4862 would take 1 to 2 s).

        `replace`: one that is there already, with a lifetime, is there for good from now on.
        """
        more: dict[str, Any] = {"flags": IFA_F_NODAD} if address.version == 6 else {}
        if address.version == 4 and address.network.prefixlen < 31:
            more["broadcast"] = str(address.network.broadcast_address)
        self._run(
            "addr",
            "replace",
            index=index,
            address=str(address.ip),
            prefixlen=address.network.prefixlen,
            family=_family(address),
            gone=(errno.EEXIST,),
            **more,
        )

    def delete_address(self, index: int, address: Address) -> None:
        self._run(
            "addr",
            "del",
            index=index,
            address=str(address.ip),
            prefixlen=address.network.prefixlen,
            family=_family(address),
            gone=(errno.EADDRNOTAVAIL, errno.ENODEV),
        )

    def replace_route(self, index: int, to: Network, via: Optional[Host], metric: int) -> None:
        self._run("route", "replace", **_route_words(index, to, via, metric), proto=ROUTE_PROTOCOL)

    def delete_route(self, index: int, to: Network, via: Optional[Host], metric: int) -> None:
        self._run(
            "route", "del", **_route_words(index, to, via, metric), gone=(errno.ESRCH, errno.ENODEV)
        )

    def _run(self, what: str, command: str, gone: tuple[int, ...] = (), **words: Any) -> None:
        """One request. `gone` are the errors that mean: it is so already. Verification has the last word in any case."""
        try:
            getattr(self._ip, what)(command, **words)
        except self._error as error:
            code, text = _words(error)
            if code not in gone:
                raise ApplyError(text, code) from error
        except OSError as error:
            raise ApplyError(error.strerror or str(error), error.errno or 0) from error


def _is_meant(host: Host, index: int, routes: Iterable[Route]) -> bool:
    """Whether the route was made for this host: 169.254.0.0/16 is put on any NIC (RFC 3927, section 2.6.2)."""
    leading = [route for route in routes if route.index == index and _covers(route.to, host)]
    best = max(leading, key=lambda route: route.to.prefixlen, default=None)
    return best is None or best.via is not None or best.to != ZEROCONF


def _covers(to: Network, host: Host) -> bool:
    return to.version == host.version and host in to


def _words(error: Exception) -> tuple[int, str]:
    """The errno of a NetlinkError and the kernel's own words, or strerror's."""
    code = int(getattr(error, "code", 0) or getattr(error, "errno", 0) or 0)
    said = next((str(part) for part in error.args[1:] if part), "")
    name = os.strerror(code) if code else str(error)
    return code, f"{name} ({said})" if said and said != name else name


def _family(address: Any) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def _route_words(index: int, to: Network, via: Optional[Host], metric: int) -> dict[str, Any]:
    words: dict[str, Any] = {
        "dst": str(to),
        "oif": index,
        "priority": metric,
        "table": MAIN_TABLE,
        "family": _family(to),
    }
    return words if via is None else {**words, "gateway": str(via)}


def _device(message: Any) -> Device:
    info = message.get_attr("IFLA_LINKINFO")
    kind = (info.get_attr("IFLA_INFO_KIND") if info else None) or ""
    data = info.get_attr("IFLA_INFO_DATA") if info and kind in ("vlan", *KINDS) else None
    own_mac = message.get_attr("IFLA_ADDRESS") or ""
    elsewhere = kind == "veth" or message.get_attr("IFLA_LINK_NETNSID") is not None
    flags = message["flags"]
    return Device(
        index=message["index"],
        name=os.fsdecode(message.get_attr("IFLA_IFNAME") or ""),
        kind=kind,
        mac=own_mac,
        permanent_mac=message.get_attr("IFLA_PERM_ADDRESS") or _mac_of_member(info),
        lower=0 if elsewhere else message.get_attr("IFLA_LINK") or _underlay(kind, data),
        master=message.get_attr("IFLA_MASTER") or 0,
        slave=bool(flags & IFF_SLAVE),
        hardware=not kind and _has_parent_device(message),
        vlan_id=data.get_attr("IFLA_VLAN_ID") if data and kind == "vlan" else None,
        up=bool(flags & IFF_UP),
        carrier=bool(flags & IFF_LOWER_UP),
        mtu=message.get_attr("IFLA_MTU") or 0,
        min_mtu=message.get_attr("IFLA_MIN_MTU") or 0,
        max_mtu=message.get_attr("IFLA_MAX_MTU") or 0,
        txqueuelen=message.get_attr("IFLA_TXQLEN") or 0,
        qdisc=message.get_attr("IFLA_QDISC") or "",
        altnames=tuple(_altnames(message)),
        options=kinds.options(kind, own_mac, data.get_attr) if data else (),
    )


def _mac_of_member(info: Any) -> str:
    """What a member of a bond had for a MAC before; a virtual NIC has no permanent one."""
    data = (
        info.get_attr("IFLA_INFO_SLAVE_DATA")
        if info and info.get_attr("IFLA_INFO_SLAVE_KIND") == "bond"
        else None
    )
    return (data.get_attr("IFLA_BOND_SLAVE_PERM_HWADDR") if data else None) or ""


def _underlay(kind: str, data: Any) -> int:
    """A VXLAN says what it is on among its own settings alone (vxlan_fill_info)."""
    return (data.get_attr("IFLA_VXLAN_LINK") if kind == "vxlan" and data else None) or 0


def _altnames(message: Any) -> Iterator[str]:
    names = message.get_attr("IFLA_PROP_LIST")
    if names:
        yield from (
            os.fsdecode(value) for name, value in names["attrs"] if name == "IFLA_ALT_IFNAME"
        )


def _has_parent_device(message: Any) -> bool:
    """Whether the device sits on a bus: the kernel says so since 5.14, sysfs before (if it shows this namespace)."""
    if message.get_attr("IFLA_PARENT_DEV_NAME"):
        return True
    node = Path("/sys/class/net") / os.fsdecode(message.get_attr("IFLA_IFNAME") or "")
    with suppress(OSError, ValueError):
        here = int((node / "ifindex").read_text(encoding="ascii")) == message["index"]
        return here and (node / "device").exists()
    return False


def _routes(message: Any) -> Iterator[Route]:
    """A unicast route, or one for each of its next hops."""
    if message["type"] != UNICAST or message["family"] not in FAMILIES:
        return
    anywhere = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    to = ip_network(f"{message.get_attr('RTA_DST') or anywhere}/{message['dst_len']}")
    metric, protocol = message.get_attr("RTA_PRIORITY") or 0, message["proto"]
    expires = bool((message.get_attr("RTA_CACHEINFO") or {}).get("rta_expires"))
    for hop in message.get_attr("RTA_MULTIPATH") or [message]:
        index = hop.get("oif") if hop is not message else message.get_attr("RTA_OIF")
        via = hop.get_attr("RTA_GATEWAY")
        yield Route(to, index or 0, ip_address(via) if via else None, metric, protocol, expires)


def kernel_release() -> tuple[int, int]:
    """Major and minor version of the running kernel; (0, 0) where its release is in no known form."""
    numbers = os.uname().release.split(".")
    with suppress(ValueError, IndexError):
        return int(numbers[0]), int(numbers[1].split("-")[0])
    return 0, 0
