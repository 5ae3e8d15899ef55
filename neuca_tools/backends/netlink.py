"""Changes links, addresses, routes and rules through pyroute2.

`kernel_state` and `routing` read them.

Supports pyroute2 0.7.2 to 0.9. Extended ACKs are on, so that errors include the kernel's message.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from ipaddress import ip_interface, ip_network
from itertools import chain
from typing import Any, Optional

from neuca_tools.backends import kernel_state, kinds, raw_requests, routing, sysctl
from neuca_tools.documents.neuca.link_settings import IPOIB_MODE, PRIMARY
from neuca_tools.errors import ApplyError
from neuca_tools.files import as_apply_error
from neuca_tools.model import ACCEPT_RA, OWN, Address, Host, Route, World
from neuca_tools.model.links import LINK_ALIAS
from neuca_tools.model.routing import CONNECTED_METRIC, Rule

LIVE_RENAME_SINCE = (6, 2)  # kernel commit bd039b5ea2a9
ZEROCONF = ip_network("169.254.0.0/16")


class Netlink(AbstractContextManager["Netlink"]):
    """Looks at the network and changes it, used as a context manager for one pass.

    pyroute2 makes every change, request by request, through one socket. A pass that changes nothing
    does not import it.
    """

    def __init__(self) -> None:
        self._library: Any = None
        self._netlink_error: type[Exception] = OSError

    def __exit__(self, *_: object) -> None:
        if self._library is not None:
            self._library.close()

    # --- reading ---

    def look(self, metadata_hosts: Iterable[Host]) -> World:
        """Observe the network namespace. Raises ObserveError."""
        world = kernel_state.read_world()
        accept_ra = sysctl.read_value(ACCEPT_RA.replace(OWN, "default"))
        return replace(
            world,
            bare=world.bare.union(_unrouted_addresses(world)),
            has_ipv6=accept_ra is not None,
            metadata_index=self._metadata_index(metadata_hosts, world.routes),
            rename_while_up=kernel_release() >= LIVE_RENAME_SINCE,
            accept_ra=accept_ra,
        )

    def _metadata_index(self, hosts: Iterable[Host], routes: Iterable[Route]) -> int:
        """The index of the device that leads to the first reachable metadata host, 0 for none."""
        for host in hosts:
            index = routing.output_device(host)
            if index and not _is_zeroconf_only(host, index, routes):
                return index
        return 0

    # --- writing ---

    def index_of(self, name: str) -> int:
        """The index of the device with this name, not counting alternative names; 0 for none."""
        with suppress(OSError):
            return socket.if_nametoindex(name)
        return 0

    def name_of(self, index: int) -> str:
        """The name of the device with this index, empty for none."""
        with suppress(OSError):
            return socket.if_indextoname(index)
        return ""

    def set_attributes(self, index: int, values: Mapping[str, int]) -> None:
        """Set the MTU (`mtu`) and queue length (`txqueuelen`) of a link, in one request."""
        self._set_link(index, mtu=values.get("mtu"), txqlen=values.get("txqueuelen"))

    def set_address_generation(self, index: int, mode: int) -> None:
        """Set addr_gen_mode (ip-sysctl.rst), whose sysctl is read-only in a sandbox."""
        ipv6 = {"attrs": [("IFLA_INET6_ADDR_GEN_MODE", mode)]}
        self._set_link(index, af_spec={"attrs": [("AF_INET6", ipv6)]})

    def set_attribute(self, index: int, group: str, value: str) -> None:
        """Set what `kinds.read_groups` reads: the MAC, or the place in a bridge or bond."""
        if group == PRIMARY:
            self._set_primary(index, value == "yes")
        elif group == IPOIB_MODE:
            arguments = kinds.creation_arguments("ipoib", {"mode": value})
            self._set_link(index, kind="ipoib", **arguments)
        elif group == "mac":
            self._set_mac(index, value)
        else:
            port: dict[str, Any] = {kinds.PORT[group].keyword: int(value)}
            self._request("brport", "set", index=index, **port)

    def _set_mac(self, index: int, mac: str) -> None:
        try:
            self._set_link(index, address=mac)
        except ApplyError as error:
            if error.errno != errno.EBUSY:
                raise
            reason = "its driver changes the MAC address only while the NIC is down"
            raise ApplyError(reason, errno.EOPNOTSUPP) from error

    def _set_primary(self, index: int, primary: bool) -> None:
        """Make a member the primary one of its bond. A bond has at most one."""
        master = self._link(index).get_attr("IFLA_MASTER")
        info = self._link(master).get_attr("IFLA_LINKINFO") if master else None
        if info is None or info.get_attr("IFLA_INFO_KIND") != "bond":
            raise ApplyError(kinds.NO_MEMBER, errno.EOPNOTSUPP)
        present = info.get_attr("IFLA_INFO_DATA").get_attr("IFLA_BOND_PRIMARY")
        if primary != (present == index):
            self._set_link(master, kind="bond", bond_primary=index if primary else 0)

    def _link(self, index: int) -> Any:
        return self._request("link", "get", index=index)[0]

    def has_carrier(self, index: int) -> bool:
        return bool(self._link(index)["flags"] & kernel_state.IFF_LOWER_UP)

    def set_up(self, index: int, up: bool) -> None:
        self._set_link(index, state="up" if up else "down")

    def rename(self, index: int, name: str) -> None:
        """Rename a device, after dropping its own alternative name of that name."""
        # Most devices have no such alternative name.
        with suppress(ApplyError):
            self.drop_altname(index, name)
        self._set_link(index, ifname=name)

    def drop_altname(self, index: int, name: str) -> None:
        self._request("link", "property_del", index=index, altname=name)

    def create_link(
        self, kind: str, name: str, parent: int, options: Mapping[str, str], mtu: Optional[int]
    ) -> None:
        """Create a link of one of the kinds of `kinds`. `parent` is an index, or 0 for none.

        The caller marks it: the kernel ignores an alias at creation (rtnl_create_link).
        """
        # The parent of a VXLAN is one of its own attributes.
        word = "vxlan_link" if kind == "vxlan" else "link"
        arguments = {word: parent or None, **kinds.creation_arguments(kind, options)}
        self._request("link", "add", ifname=name, kind=kind, mtu=mtu, **arguments)

    def mark_link(self, index: int) -> None:
        """Mark it as created by neucad."""
        self._set_link(index, ifalias=LINK_ALIAS)

    def set_master(self, index: int, master: int) -> None:
        """Make it a port of a bridge, or a member of a bond or VRF; `master` 0 removes it."""
        self._set_link(index, master=master)

    def delete_link(self, index: int) -> None:
        self._request("link", "del", (errno.ENODEV,), index=index)

    def _set_link(self, index: int, **settings: Any) -> None:
        self._request("link", "set", index=index, **settings)

    def add_address(
        self, index: int, address: Address, bare: bool = False, checked: bool = True
    ) -> None:
        """Add an address permanently; one that is there loses its lifetime.

        `bare`: its network gets no route. `checked`: the kernel makes sure that no other host on
        the link has an IPv6 address (RFC 4862, 5.4), which is tentative until then.
        """
        flags = kernel_state.IFA_F_NOPREFIXROUTE if bare else 0
        if address.version == 6 and not checked:
            flags |= raw_requests.IFA_F_NODAD
        raw_requests.add_address(index, address, flags)

    def lease_address(self, index: int, address: Address, valid: int, preferred: int) -> None:
        """Add or prolong an address for these seconds, without a route to its network."""
        seconds = {"preferred": preferred, "valid": valid}
        # pyroute2 0.7.2 to 0.8.1 take lifetimes from `cacheinfo`, 0.9 from the other arguments.
        flags = kernel_state.IFA_F_NOPREFIXROUTE
        arguments = {**_address_arguments(index, address), **seconds, "cacheinfo": seconds}
        # IPv6 makes sure that no one else has the address (RFC 4862, 5.4).
        self._request("addr", "replace", (errno.EEXIST,), flags=flags, **arguments)

    def delete_address(self, index: int, address: Address) -> None:
        """Delete this address only; one that is absent is not an error."""
        # Without promote_secondaries the kernel deletes secondary addresses with the primary.
        path = f"net/ipv4/conf/{self.name_of(index)}/promote_secondaries"
        if address.version == 6 or sysctl.read_value(path) != "0":
            self._delete_address(index, address)
        elif sysctl.is_read_only():
            self._delete_primary(index, address)
        else:
            sysctl.write_value(path, "1")
            try:
                self._delete_address(index, address)
            finally:
                sysctl.write_value(path, "0")

    def _delete_primary(self, index: int, address: Address) -> None:
        """Delete an address, and add again those that the kernel deletes with it."""
        world = self.look(())
        present = world.addresses.get(index, ())
        lost = [other for other in present if other != address and other.network == address.network]
        spare = {ip_interface(other.ip) for other in lost} - {*present}
        # Meanwhile the link has them with the full prefix length, so that it keeps its routes.
        for other in spare:
            self.add_address(index, other)
        try:
            self._delete_address(index, address)
        finally:
            for other in lost:
                raw_requests.restore_address(index, world.address_messages[index, other], 0.0)
            for other in spare:
                self._delete_address(index, other)

    def _delete_address(self, index: int, address: Address) -> None:
        # ENXIO: the device has no IPv6, as below an MTU of 1280.
        done = (errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO)
        self._request("addr", "del", done, **_address_arguments(index, address))

    def replace_route(self, route: Route) -> None:
        """Set a route, replacing one with the same prefix, table, TOS and metric."""
        self._request("route", "replace", **routing.route_arguments(route))

    def delete_route(self, route: Route) -> None:
        """Delete one of our routes, unless it is gone."""
        done = (errno.ESRCH, errno.ENODEV)
        self._request("route", "del", done, **routing.route_arguments(route))

    def add_rule(self, rule: Rule) -> None:
        """Add a rule, unless it exists."""
        arguments = routing.rule_arguments(rule)
        try:
            self._request("rule", "add", **arguments)
        except ApplyError as error:
            # The kernel says that it exists, too, if there is one with further selectors.
            if error.errno != errno.EEXIST:
                raise
            with as_apply_error():
                exists = routing.has_rule(rule)
            if not exists:
                # Only for a change, as in `_opened`.
                from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST
                from pyroute2.netlink.rtnl import RTM_NEWRULE

                # "add" without NLM_F_EXCL, for which pyroute2 has no word.
                command = (RTM_NEWRULE, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE)
                self._request("rule", command, **arguments)

    def delete_rule(self, rule: Rule) -> None:
        """Delete one of our rules, unless it is gone."""
        self._request("rule", "del", (errno.ENOENT,), **routing.rule_arguments(rule))

    # --- requests ---

    def _request(self, what: str, command: Any, done: tuple[int, ...] = (), **options: Any) -> Any:
        """Make one request, without the arguments that are None. Raises ApplyError."""
        # The errors in `done` mean that there is nothing left to do; verification checks that
        # anyway.
        library = self._open_library()
        arguments = {name: value for name, value in options.items() if value is not None}
        try:
            return getattr(library, what)(command, **arguments)
        except (self._netlink_error, OSError) as error:
            code, text = _error_text(error)
            if code not in done:
                raise ApplyError(text, code) from error
        return ()

    def _open_library(self) -> Any:
        """The socket of pyroute2. Raises ApplyError."""
        if self._library is None:
            # Imported here: that saves a pass that changes nothing 80 ms and 20 MiB.
            try:
                from pyroute2 import IPRoute
                from pyroute2.netlink.exceptions import NetlinkError
            except ImportError as error:
                what = "the Python module pyroute2 (package python3-pyroute2) cannot be imported"
                raise ApplyError(f"{what}: {error}") from error
            with as_apply_error():
                self._library = IPRoute(ext_ack=True, strict_check=True)
            self._netlink_error = NetlinkError
            self._library.get = _without_retries(self._library.get, NetlinkError)
        return self._library


def _address_arguments(index: int, address: Address) -> dict[str, Any]:
    return {"index": index, "address": str(address.ip), "prefixlen": address.network.prefixlen}


def _without_retries(get: Callable[..., Any], netlink_error: type[Exception]) -> Callable[..., Any]:
    """`get`, with an OSError for EBUSY: pyroute2 before 0.9 repeats a NetlinkError for 9 s."""

    def get_once(*arguments: Any, **options: Any) -> Any:
        try:
            return tuple(get(*arguments, **options))
        except netlink_error as error:
            if _error_text(error)[0] == errno.EBUSY:
                raise OSError(*error.args) from error
            raise

    return get_once


def _unrouted_addresses(world: World) -> Iterator[tuple[int, Address]]:
    """Index and address where somebody has deleted the kernel's route to the network."""
    routes = chain(world.routes, world.other_routes)
    # A route of ours with the kernel's metric has replaced the kernel's.
    direct = {(route.index, route.to) for route in routes if _is_connecting(route)}
    up = (index for index, device in world.devices.items() if device.up)
    for index in world.addresses.keys() & up:
        for address in filter(_has_network, world.addresses[index]):
            if (index, address.network) not in direct:
                yield index, address


def _is_connecting(route: Route) -> bool:
    if route.traits.kind != "unicast":
        return False
    return route.metric == CONNECTED_METRIC[route.to.version] if route.is_ours else not route.via


def _has_network(address: Address) -> bool:
    """Whether the kernel adds a route to its network; to one that begins at 0.0.0.0 it does not."""
    network = address.network
    # fib_add_ifaddr (net/ipv4/fib_frontend.c).
    is_special = address.is_link_local or network.network_address.is_unspecified
    return network.prefixlen < address.max_prefixlen and not is_special


def _is_zeroconf_only(host: Host, index: int, routes: Iterable[Route]) -> bool:
    """Whether the best route through this device is 169.254.0.0/16 without a gateway."""
    others = (route for route in routes if route.index == index)
    leading = [route for route in others if host in route.to]
    best = max(leading, key=lambda route: route.to.prefixlen, default=None)
    # Any NIC may have that one (RFC 3927, section 2.6.2), so it was not made for this host.
    return best is not None and best.via is None and best.to == ZEROCONF


def _error_text(error: Exception) -> tuple[int, str]:
    """The errno of a NetlinkError or OSError, and its text with the kernel's message if any."""
    code = int(getattr(error, "code", 0) or getattr(error, "errno", 0) or 0)
    text = os.strerror(code) if code else str(error)
    messages = [str(part) for part in error.args[1:] if part]
    if messages and messages[0] != text:
        text = f"{text} ({messages[0]})"
    return code, text


def kernel_release() -> tuple[int, int]:
    """Major and minor version of the running kernel; (0, 0) if its release has an unknown form."""
    numbers = os.uname().release.split(".")
    with suppress(ValueError, IndexError):
        return int(numbers[0]), int(numbers[1].split("-")[0])
    return 0, 0
