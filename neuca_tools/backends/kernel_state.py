"""Reads links, addresses and routes of this network namespace without pyroute2.

The import of pyroute2 alone takes 15 times as long as `python3 -c pass` (`time python3 -c "import
pyroute2"`; Debian 12), which passes without a change and `neuca status` save. Its readers take 18
times as long as these for 1,000 taps with 2,000 addresses and routes, in processor time: `time
python3 -c "from pyroute2 import IPRoute; ip = IPRoute(); [*ip.get_links()]; [*ip.get_addr()];
[*ip.get_routes(table=254)]"`. Formats: rtnetlink(7), include/uapi/linux/rtnetlink.h, if_link.h,
if_addr.h.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address, ip_network
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Any, Union

from neuca_tools.backends import kinds, routing, wire
from neuca_tools.backends.hostid import boot_id
from neuca_tools.errors import ObserveError
from neuca_tools.files import readable_paths, text_of
from neuca_tools.model import Address, Device, Host, Network, World
from neuca_tools.model.addresses import address_of
from neuca_tools.model.links import KINDS
from neuca_tools.model.ports import INFINIBAND, guid
from neuca_tools.model.routing import ROUTE_PROTOCOL
from neuca_tools.model.topology import MAC_LENGTH

GET_LINK, GET_ADDRESS = 18, 22  # RTM_GET*
LINK, ADDRESS = struct.Struct("=BxHiII"), struct.Struct("=BBBBI")  # struct ifinfomsg, ifaddrmsg
IFF_UP, IFF_SLAVE, IFF_LOWER_UP = 0x1, 0x800, 0x10000
IFA_F_PERMANENT = 0x80
# Flags of addresses that the kernel makes from a router advertisement (net/ipv6/addrconf.c).
IFA_F_TEMPORARY, IFA_F_MANAGETEMPADDR = 0x01, 0x100
IFA_F_NOPREFIXROUTE = 0x200
IFA_F_DADFAILED, IFA_F_DEPRECATED = 0x08, 0x20
FAMILIES = (socket.AF_INET, socket.AF_INET6)
EXT_MASK, SKIP_STATISTICS = 29, 0x8  # IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS
# IFLA_*
MAC, NAME, MTU, LOWER, QDISC, MASTER, TXQLEN, INFO, ALIAS = 1, 3, 4, 5, 6, 10, 13, 18, 20
NETNSID, MIN_MTU, MAX_MTU, PROPERTIES, ALTNAME, PERMANENT_MAC, PARENT = 37, 50, 51, 52, 53, 54, 56
KIND, DATA, MEMBER_KIND, MEMBER_DATA = 1, 2, 4, 5  # IFLA_INFO_*
VLAN_ID, VXLAN_LINK, BOND_MEMBER_MAC = 1, 3, 4  # IFLA_VLAN_ID, …, IFLA_BOND_SLAVE_PERM_HWADDR
BOND_PRIMARY = 11  # IFLA_BOND_PRIMARY
PEER, LOCAL, BROADCAST, FLAGS, PROTOCOL = 1, 2, 4, 8, 11  # IFA_*
SYSFS = "/sys/class/net"
_VMWARE_LABEL = "Ethernet([0-9]{1,3})"
# Only the first network namespace has it (net_core_table of net/core/sysctl_net_core.c).
FIRST_ONLY_SYSCTL = "/proc/sys/net/core/netdev_max_backlog"
_LOOPBACK_MAC = "00:00:00:00:00:00"
# Debian and Ubuntu; Red Hat and SUSE; initramfs; NetworkManager's own dhclient.
_LEASE_FILES = (
    (Path("/var/lib/dhcp"), "*.lease*"),
    (Path("/var/lib/dhclient"), "*.lease*"),
    (Path("/run"), "*dhclient*.lease*"),
    (Path("/var/lib/NetworkManager"), "dhclient*.lease"),
)
_MAX_LEASE_FILES, _MAX_LEASE_BYTES = 256, 1 << 20
# At the beginning of a line: the text of an option, which the server chooses, is never there.
_LEASE_STATEMENT = r'(?m)^\s*(interface|fixed-address)\s+"?([^";\s]+)"?;'


def read_world() -> World:
    """The devices, addresses, routes and rules, and the boot ID. Raises ObserveError."""
    try:
        with wire.Socket(socket.NETLINK_ROUTE, strict=True) as kernel:
            devices = {link.index: link for link in _read_devices(kernel)}
            messages, seen = kernel.dump(GET_ADDRESS, ADDRESS.pack(0, 0, 0, 0, 0)), time.monotonic()
            addresses, routes = _address_fields(messages), routing.read_routing(kernel)
    except (OSError, ValueError, struct.error) as error:
        cause = getattr(error, "strerror", "") or error
        what = "ask the kernel for its links, addresses and routes"
        raise ObserveError(f"{what}: {cause}") from error
    world = World(devices, read_at=seen, boot_id=boot_id(), **addresses, **routes)
    is_container = not Path(FIRST_ONLY_SYSCTL).exists()
    return replace(world, endless_leases=leased_without_end(world), is_container=is_container)


def _read_devices(kernel: wire.Socket) -> Iterator[Device]:
    mask = wire.encode_number(EXT_MASK, SKIP_STATISTICS)
    return map(parse_device, kernel.dump(GET_LINK, LINK.pack(0, 0, 0, 0, 0) + mask))


def present_macs() -> frozenset[str]:
    """The MACs of all Ethernet interfaces, also virtual, and GUIDs of ports. Raises OSError."""
    with wire.Socket(socket.NETLINK_ROUTE, strict=True) as kernel:
        devices = list(_read_devices(kernel))
    macs = {each.mac for each in devices if each.infiniband or len(each.mac) == MAC_LENGTH}
    return frozenset(macs - {"", _LOOPBACK_MAC})


def leased_without_end(world: World) -> frozenset[tuple[int, Address]]:
    """The IPv4 addresses of dhclient and udhcpc, and link-local ones, by the indexes of devices."""
    leases = {*_client_leases(world)}
    pairs = {(index, address) for index, own in world.addresses.items() for address in own}
    pairs -= world.marked_addresses | world.leased_addresses | leases
    ipv4 = {pair for pair in pairs if pair[1].version == 4}
    # A client gives itself a link-local one, and with dhcpcd a default route, if no server responds
    # (RFC 3927): a host on the link only has to be silent. Beside an address that was set by hand,
    # it is not counted.
    link_local = {pair for pair in ipv4 if pair[1].is_link_local}
    by_hand = {index for index, _ in ipv4 - link_local}
    return frozenset(leases | {pair for pair in link_local if pair[0] not in by_hand})


def _client_leases(world: World) -> Iterator[tuple[int, Address]]:
    recorded, names = _dhclient_leases(), _udhcpc_interfaces()
    clients = names | {name for name, _ in recorded}
    for device in (device for device in world.devices.values() if device.name in clients):
        for address in world.addresses.get(device.index, ()):
            pair = (device.index, address)
            is_foreign_ipv4 = address.version == 4 and pair not in world.marked_addresses
            is_of_udhcpc = device.name in names and is_foreign_ipv4
            if is_of_udhcpc or (device.name, str(address.ip)) in recorded:
                yield pair


def _udhcpc_interfaces() -> frozenset[str]:
    """The names of the interfaces on which udhcpc has been started; it records no leases."""
    # Its addresses and routes look like those of an administrator, as those of dhclient do. The
    # names of the pid files are those of BusyBox and ifupdown, and of OpenRC.
    files = readable_paths(Path("/run"), "udhcpc[.-]*.pid")
    return frozenset(path.stem[len("udhcpc.") :] for path in files)


def _dhclient_leases() -> frozenset[tuple[str, str]]:
    """Interface name and IPv4 address of each lease of dhclient (dhclient.leases(5))."""
    # The address of an infinite lease looks like one that an administrator has set: its lifetime in
    # the kernel is infinite too, and the script of dhclient adds its routes without a protocol of
    # their own. The end of the lease in the file is no help: for an infinite lease it is a date
    # about 136 years ahead. A file that cannot be read counts as one without leases.
    paths = chain.from_iterable(starmap(readable_paths, _LEASE_FILES))
    texts = (text_of(path, _MAX_LEASE_BYTES) for path in islice(paths, _MAX_LEASE_FILES))
    return frozenset(chain.from_iterable(map(_leases_in, texts)))


def _leases_in(text: str) -> Iterator[tuple[str, str]]:
    """The interface and the address of each lease, which names its interface first."""
    interface = ""
    for keyword, value in re.findall(_LEASE_STATEMENT, text):
        if keyword == "interface":
            interface = value
        elif interface:
            yield interface, value


def parse_device(message: bytes) -> Device:
    """The device that the body of an RTM_NEWLINK message describes."""
    _, arp_type, index, flags, _ = LINK.unpack_from(message)
    link = wire.Attributes(message[LINK.size :])
    info = link.nest(INFO)
    kind = info.text(KIND)
    # What other kinds have there need not consist of attributes.
    data = info.nest(DATA) if kind in ("vlan", *KINDS) else wire.NO_ATTRIBUTES
    name, mac = link.text(NAME), _address_text(arp_type, link.bytes(MAC))
    options = kinds.link_options(kind, mac, data) if data else ()
    if kind == "ipoib" and LOWER not in link:
        # The interface of a port: older kernels send no kind for it.
        kind = ""
    is_hardware = not kind and _is_attached(link, arp_type, name, index)
    return Device(
        index=index,
        name=name,
        kind=kind,
        mac=mac,
        permanent_mac=_address_text(arp_type, link.bytes(PERMANENT_MAC) or _slave_mac(info)),
        lower=_lower_index(link, kind, data),
        master=link.number(MASTER),
        slave=bool(flags & IFF_SLAVE),
        hardware=is_hardware,
        vlan_id=data.number(VLAN_ID) if kind == "vlan" else None,
        up=bool(flags & IFF_UP),
        carrier=bool(flags & IFF_LOWER_UP),
        mtu=link.number(MTU),
        min_mtu=link.number(MIN_MTU),
        max_mtu=link.number(MAX_MTU),
        txqueuelen=link.number(TXQLEN),
        qdisc=link.text(QDISC),
        altnames=tuple(_alternative_names(link)),
        options=options,
        port=tuple(_port_settings(info)),
        primary=data.number(BOND_PRIMARY) if kind == "bond" else 0,
        infiniband=arp_type == INFINIBAND,
        slot=_pci_slot(name) if is_hardware else (),
        alias=link.text(ALIAS),
    )


def _pci_slot(name: str) -> tuple[int, ...]:
    """The PCI addresses on the path of a NIC in sysfs, as numbers; empty if it has none."""
    # VMware numbers a guest's NICs by their labels, which come first: the address of the fourth NIC
    # is before those of the others. USB comes after every PCI domain: a NIC there may lead to the
    # server's management controller.
    with suppress(OSError):
        path = (Path(SYSFS) / name).readlink()
        numbers = tuple(
            int(number, 16)
            for part in path.parts
            if part.count(":") == 2 and part[-2:-1] == "."
            for number in part.replace(".", ":").split(":")
        )
        if any(part.startswith("usb") for part in path.parent.parts):
            return (2**32, *numbers)
        text = text_of(Path(SYSFS) / name / "device" / "label")
        label = re.fullmatch(_VMWARE_LABEL, text) if text else None
        return (-1, int(label[1]), *numbers) if label else numbers
    return ()


def _address_text(arp_type: int, address: bytes) -> str:
    """An address as text; of an InfiniBand address only the GUID, empty if it is malformed."""
    if arp_type == INFINIBAND:
        return guid(address)
    return address.hex(":")


def _is_attached(link: wire.Attributes, arp_type: int, name: str, index: int) -> bool:
    """Whether the link is hardware: it has a parent device, and is no IPoIB child."""
    if arp_type == INFINIBAND and LOWER in link:
        return False
    if PARENT in link:  # since Linux 5.14; sysfs shows it with any
        return True
    node = Path(SYSFS) / name
    # Sysfs may show another network namespace.
    return text_of(node / "ifindex") == str(index) and (node / "device").exists()


def _slave_mac(info: wire.Attributes) -> bytes:
    """The MAC that a member of a bond had before; virtual NICs report no permanent MAC."""
    if info.text(MEMBER_KIND) != "bond":
        return b""
    return info.nest(MEMBER_DATA).bytes(BOND_MEMBER_MAC)


def _port_settings(info: wire.Attributes) -> Iterator[tuple[str, str]]:
    """The settings of a port, as far as they can be requested; none if it is in no bridge."""
    if info.text(MEMBER_KIND) == "bridge":
        data = info.nest(MEMBER_DATA)
        for name, attribute in kinds.PORT.items():
            if attribute.number in data:
                yield name, str(data.number(attribute.number))


def _lower_index(link: wire.Attributes, kind: str, data: wire.Attributes) -> int:
    """The index of the lower device, 0 for none and for one in another network namespace."""
    if kind == "veth" or NETNSID in link:
        return 0
    lower = link.number(LOWER)
    if not lower and kind == "vxlan":
        # vxlan_fill_info() reports it as an attribute of its own.
        return data.number(VXLAN_LINK)
    return lower


def _alternative_names(link: wire.Attributes) -> Iterator[str]:
    for kind, value in wire.parse_attributes(link.bytes(PROPERTIES)):
        if kind == ALTNAME:
            yield os.fsdecode(value.rstrip(b"\0"))


def _address_fields(messages: Iterable[bytes]) -> dict[str, Any]:
    """The fields of `World` that concern addresses."""
    addresses_by_index = defaultdict[int, list[Address]](list)
    bodies: dict[tuple[int, Address], bytes] = {}
    pairs_by_field = defaultdict[str, set[tuple[int, Any]]](set)
    for message in messages:
        family, length, flags, _, index = ADDRESS.unpack_from(message)
        parts = wire.Attributes(message[ADDRESS.size :])
        local = parts.bytes(LOCAL) or parts.bytes(PEER)
        if family not in FAMILIES or not local:
            continue
        address = address_of(local, length)
        addresses_by_index[index].append(address)
        bodies[index, address] = message
        for name, trait in _address_traits(address, parts, parts.number(FLAGS) or flags):
            pairs_by_field[name].add((index, trait))
    return {
        "addresses": {index: tuple(addresses) for index, addresses in addresses_by_index.items()},
        "address_messages": bodies,
        **{name: frozenset(pairs) for name, pairs in pairs_by_field.items()},
    }


def _address_traits(
    address: Address, parts: wire.Attributes, flags: int
) -> Iterator[tuple[str, Union[Address, Network, Host]]]:
    """The fields of `World` that an address belongs to, and what of it."""
    if not flags & IFA_F_PERMANENT:
        # DHCP and router advertisements set a lifetime, administrators hardly ever do.
        yield "leased_addresses", address
    elif parts.number(PROTOCOL) == ROUTE_PROTOCOL:
        yield "marked_addresses", address
    if address.version == 6 and flags & (IFA_F_TEMPORARY | IFA_F_MANAGETEMPADDR):
        yield "autoconfigured", address
    if flags & IFA_F_NOPREFIXROUTE:
        yield "bare", address
    if flags & IFA_F_DEPRECATED:
        yield "deprecated", address
    if flags & IFA_F_DADFAILED:
        yield "duplicate_addresses", address
    peer = parts.bytes(PEER)
    if peer not in (b"", address.ip.packed):
        yield "peer_networks", ip_network((peer, address.network.prefixlen), strict=False)
    if BROADCAST in parts:
        yield "broadcasts", ip_address(parts.bytes(BROADCAST))
