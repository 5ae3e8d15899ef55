"""A model of the kernel for property tests: it carries operations out on a World, by the rules that were measured.

`Kernel` is a fake behind the product's own `Writer` protocol (operation.py); it takes the place of no module of ours. What it
obeys was measured on kernels 6.1 and 6.12: where it is stricter than a kernel, a plan that it
refuses is a plan that some kernel refuses. `delete_address` is the contract of the real writer, which deletes that one alone.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from dataclasses import replace
from ipaddress import ip_interface, ip_network

from neuca_tools.backends import kinds
from neuca_tools.documents.neuca.link_settings import SETTINGS, groups_through
from neuca_tools.errors import ApplyError, GuardError
from neuca_tools.model import Device, Route, World
from neuca_tools.model.device_settings import DeviceSettings, joined_settings
from neuca_tools.model.links import LINK_ALIAS
from neuca_tools.model.routing import MAIN_TABLE, ROUTE_PROTOCOL, SeenRule, Traits
from neuca_tools.model.topology import METADATA_HOSTS

KERNEL_PROTOCOL = 2  # RTPROT_KERNEL
MIN_IPV6_MTU = 1280
VLAN_QUEUE = 1000  # DEFAULT_TX_QUEUE_LEN
EMPTY = World()
# What each device has at first. This driver takes no coalescing when it is told to, though it shows some, and has no pause.
GEAR = {
    "qdisc": "default noqueue",
    "rings.rx": "256",
    "rings.tx": "256",
    "coalesce.rx-usecs": "3",
    "offloads.tso": "on",
    "wake-on-lan": "off",
}
ATTRIBUTES = tuple(groups_through("attribute", SETTINGS))
# IPoIB (drivers/infiniband/ulp/ipoib, Linux 5.10): the largest MTU in each mode, and that of the broadcast group.
IPOIB_MOST, GROUP_MTU = {"datagram": 4092, "connected": 65520}, 2044
NEW_PORT = {"path-cost": "100", "port-priority": "32"}
WITH_PRIMARY = ("active-backup", "balance-tlb", "balance-alb")
MAX_RINGS = {"rings.rx": "1024", "rings.tx": "512"}


def _is_main(route):
    return route.traits.table == MAIN_TABLE and route.traits.kind == "unicast"


def _identity(route):
    """What NLM_F_REPLACE goes by."""
    return route.to, route.metric, route.traits.table, route.traits.tos


def _plain(route):
    """All of a route that the kernel makes for an address, but for its device."""
    return route.to, route.via, route.metric, route.protocol, route.traits.table


def refuse(number, words):
    raise ApplyError(words, number)


class Kernel:
    """One network namespace. `allowed` None: every device may be written to, as an administrator may."""

    def __init__(self, world=EMPTY, allowed=None):
        self.devices = dict(world.devices)
        self.addresses = {index: list(addresses) for index, addresses in world.addresses.items()}
        self.routes = [*world.routes, *world.other_routes]
        self.rules = [seen.rule for seen in world.rules]
        self.boot_id, self.rename_while_up = world.boot_id or "boot-1", world.rename_while_up
        self.allowed, self.carriers = allowed, frozenset()
        self.sysctls, self.files = {}, {}
        self.unmanaged, self.told = [], []
        self.gear = {}
        self.bare = set()  # addresses whose network has no route (IFA_F_NOPREFIXROUTE)
        self.fixed_mtus = set()  # bridges whose MTU somebody has set (BROPT_MTU_SET_BY_USER)
        self.before_bond = {}  # what a member of a bond gets back: MTU, MAC and permanent MAC
        self.written = []
        self.group_mtu, self.modes = GROUP_MTU, tuple(IPOIB_MOST)

    def __repr__(self):
        links = ", ".join(
            f"{one.name}:{one.mtu}{'+' if one.up else '-'}{one.kind} {' '.join(map(str, self.addresses.get(index, ())))}"
            for index, one in self.devices.items()
        )
        routes = ", ".join(
            f"{one.to} via {one.via} on {one.index} metric {one.metric}"
            for one in self.routes
            if one.protocol != KERNEL_PROTOCOL
        )
        return f"<{links}; {routes}; live {self.rename_while_up}>"

    # --- looking ---

    def world(self):
        hosts = (self._out(host) for host in METADATA_HOSTS)
        metadata = next((index for index in hosts if index), 0)
        addresses = {index: tuple(found) for index, found in self.addresses.items() if found}
        missing = {"pause": "the driver has no pause"}
        seen = World(dict(self.devices))
        settings = {
            index: joined_settings(
                (
                    DeviceSettings(dict(self.gear.get(index, GEAR)), MAX_RINGS, missing),
                    kinds.read_groups(seen, index, ATTRIBUTES),
                )
            )
            for index in self.devices
        }
        return World(
            dict(self.devices),
            addresses,
            tuple(filter(_is_main, self.routes)),
            metadata,
            self.boot_id,
            self.rename_while_up,
            settings=settings,
            other_routes=tuple(route for route in self.routes if not _is_main(route)),
            rules=tuple(SeenRule(rule, ROUTE_PROTOCOL) for rule in self.rules),
            bare=frozenset(self.bare),
        )

    def _out(self, host):
        matches = [
            route
            for route in filter(_is_main, self.routes)
            if route.to.version == host.version and host in route.to
        ]
        best = min(matches, key=lambda route: (-route.to.prefixlen, route.metric), default=None)
        return best.index if best else 0

    def read_sysctl(self, path):
        """Every setting of a device that is there has a value, "0" until one is written; so has every one of the host."""
        parts = path.split("/")
        if len(parts) > 4 and parts[2] in ("conf", "neigh") and parts[3] not in ("all", "default"):
            device = self.named("/".join(parts[3:-1]))
            gone = device is None or (parts[1] == "ipv6" and device.mtu < MIN_IPV6_MTU)
            return None if gone else self.sysctls.get(path, "0")
        return self.sysctls.get(path, "0")

    def named(self, name):
        return next((device for device in self.devices.values() if device.name == name), None)

    def stacked(self, index):
        return [device for device in self.devices.values() if device.lower == index]

    def snapshot(self):
        """All that can be seen, in a form that compares."""
        addresses = {index: frozenset(found) for index, found in self.addresses.items() if found}
        gear = {index: self.gear.get(index, GEAR) for index in self.devices}
        return (
            dict(self.devices),
            addresses,
            frozenset(self.routes),
            dict(self.sysctls),
            gear,
            frozenset(self.rules),
        )

    # --- the Writer protocol ---

    @property
    def links(self):
        return self

    managers = links

    def index(self, target):
        found = self.named(target.name)
        return target.ifindex or (found.index if found else 0)

    def carrier(self, target):
        return self.index(target)

    def set_mtu(self, index, mtu):
        device = self._device(index)
        if device.max_mtu and mtu > device.max_mtu:
            refuse(errno.EINVAL, "mtu greater than device maximum")
        if mtu < device.min_mtu:
            refuse(errno.EINVAL, "mtu less than device minimum")
        if (
            device.lower
            and device.kind in ("vlan", "macvlan", "vxlan")
            and mtu > self._room(device)
        ):
            refuse(
                errno.ERANGE if device.kind == "vlan" else errno.EINVAL,
                "above the MTU of the device below",
            )
        if device.infiniband:
            mtu = self._ipoib_mtu(device, mtu)
        if device.kind == "bridge":
            self.fixed_mtus.add(index)
        self._mtu(index, mtu)

    def _ipoib_mtu(self, device, mtu):
        """ipoib_change_mtu: in datagram mode, no more than that of the broadcast group."""
        mode = device.mode
        if mtu > IPOIB_MOST[mode] or mtu < 72:
            refuse(errno.EINVAL, "Invalid argument")
        return min(mtu, self.group_mtu) if mode == "datagram" else mtu

    def _room(self, device):
        six = any(":" in value for name, value in device.options if name in ("local", "remote"))
        return self.devices[device.lower].mtu - (0 if device.kind != "vxlan" else 70 if six else 50)

    def _mtu(self, index, mtu):
        before = self.devices[index].mtu
        self.devices[index] = self.devices[index]._replace(mtu=mtu)
        for child in self.stacked(index):
            if child.mtu > mtu and child.kind not in (
                "vxlan",
                "ipoib",
            ):  # no such notifier in vxlan.c, measured on 6.18
                self._mtu(child.index, mtu)
        for member in self.members(index) if self.devices[index].kind == "bond" else ():
            self._mtu(member.index, mtu)
        self._adjust_bridge(self.devices[index].master)
        if mtu < MIN_IPV6_MTU <= before:
            self._drop_ipv6(index)
            self._forget_sysctls(f"net/ipv6/conf/{self.devices[index].name}/")
        elif before < MIN_IPV6_MTU <= mtu and self.devices[index].up:
            self._link_local(index)

    def set_attributes(self, index, values):
        setters = {"mtu": self.set_mtu, "txqueuelen": self.set_txqueuelen}
        for name, value in values.items():
            setters[name](index, value)

    def set_txqueuelen(self, index, packets):
        self.devices[index] = self._device(index)._replace(txqueuelen=packets)

    def device_values(self, index, group):
        return kinds.read_groups(World(dict(self.devices)), index, [group]).values

    def set_device(self, index, group, values):
        self._device(index)
        if group == "coalesce":
            refuse(errno.EOPNOTSUPP, "Operation not supported")
        if group in ATTRIBUTES:
            self._set_attribute(index, group, values[group])
            return
        found = self.gear.setdefault(index, dict(GEAR))
        found.update(values)
        if found["qdisc"] == "default":
            found["qdisc"] = GEAR["qdisc"]

    def _set_attribute(self, index, group, value):
        device = self.devices[index]
        master = self.devices.get(device.master)
        if group == "mac":
            self.devices[index] = device._replace(mac=value)
        elif group == "infiniband-mode":
            if value not in self.modes:  # IPOIB_CM_SUPPORTED
                refuse(errno.EINVAL, "Invalid argument")
            options = tuple({**dict(device.options), "mode": value}.items())
            self.devices[index] = device._replace(options=options)
            self._mtu(index, 65520 if value == "connected" else min(self.group_mtu, device.mtu))
        elif group == "bond-primary":
            if master is None or dict(master.options).get("mode") not in WITH_PRIMARY:
                refuse(errno.EACCES, "Permission denied")
            if (value == "yes") != (master.primary == index):
                self.devices[master.index] = master._replace(primary=index * (value == "yes"))
        elif device.port:
            self.devices[index] = device._replace(
                port=tuple({**dict(device.port), group: value}.items())
            )
        else:
            refuse(errno.EOPNOTSUPP, "Operation not supported")

    def set_up(self, index, up):
        device = self._device(index)
        if up and device.kind == "vlan" and not self.devices[device.lower].up:
            refuse(errno.ENETDOWN, "Network is down")
        if device.up != up:
            self._state(index, up)

    def _state(self, index, up):
        self.devices[index] = self.devices[index]._replace(up=up, carrier=up)
        if up:
            self._link_local(index)
            for address in self.addresses.get(index, []):
                self._connect(index, address)
        else:
            self.routes = [route for route in self.routes if route.index != index]
            self._drop_ipv6(index)
        for child in self.stacked(index):
            if child.kind in ("vlan", "ipoib") and child.up != up:
                self._state(child.index, up)

    def rename(self, index, name):
        device = self._device(index)
        taken = {
            name
            for one in self.devices.values()
            for name in (one.name, *one.altnames)
            if one.index != index
        }
        if name in taken:
            refuse(errno.EEXIST, "File exists")
        if device.up and not self.rename_while_up:
            refuse(errno.EBUSY, "Device or resource busy")
        self.devices[index] = device._replace(
            name=name, altnames=tuple(one for one in device.altnames if one != name)
        )
        self.sysctls = {
            path.replace(f"/{device.name}/", f"/{name}/"): value
            for path, value in self.sysctls.items()
        }

    def _create_vlan(self, _, name, parent, options, mtu):
        below, vlan_id = (
            self.devices[parent] if parent in self.carriers else self._device(parent),
            int(options["id"]),
        )
        if any(one.kind == "vlan" and one.vlan_id == vlan_id for one in self.stacked(parent)):
            refuse(errno.EEXIST, "8021q: VLAN device already exists")
        if any(name in (one.name, *one.altnames) for one in self.devices.values()):
            refuse(errno.EEXIST, "File exists")
        if mtu is not None and mtu > below.mtu:
            refuse(errno.EINVAL, "Invalid argument")
        index = max(self.devices) + 1
        self.devices[index] = Device(
            index,
            name,
            "vlan",
            options.get("mac", below.mac),
            lower=parent,
            vlan_id=vlan_id,
            mtu=mtu or below.mtu,
            max_mtu=65535,
            txqueuelen=VLAN_QUEUE,
        )
        if self.allowed is not None:
            self.allowed.add(index)

    def create_link(self, kind, name, parent, options, mtu):
        """As the agent creates it."""
        self.add_link(kind, name, parent, options, mtu)
        self.mark_link(max(self.devices))

    def add_link(self, kind, name, parent, options, mtu):
        """As any program creates it."""
        make = {"vlan": self._create_vlan, "ipoib": self._create_child}.get(kind, self._create_made)
        make(kind, name, parent, options, mtu)

    def mark_link(self, index):
        self.devices[index] = self.devices[index]._replace(alias=LINK_ALIAS)

    def _create_child(self, kind, name, parent, options, mtu):
        """ipoib_new_child_link; ipoib_ndo_init sets the MTU, whatever the request says."""
        port = self._device(parent)
        if not port.infiniband or port.kind:
            refuse(errno.ENODEV if not port.infiniband else errno.EINVAL, "Invalid argument")
        if any(name in (one.name, *one.altnames) for one in self.devices.values()):
            refuse(errno.EEXIST, "File exists")
        index = max(self.devices) + 1
        known = tuple(sorted({"mac": port.mac, **options}.items()))
        self.devices[index] = Device(
            index, name, kind, port.mac, lower=parent, infiniband=True, options=known
        )._replace(
            mtu=65520 if options["mode"] == "connected" else self.group_mtu,
            max_mtu=65520,
            txqueuelen=256,
        )
        assert mtu is None
        if self.allowed is not None:
            self.allowed.add(index)

    def _create_made(self, kind, name, parent, options, mtu):
        if any(name in (one.name, *one.altnames) for one in self.devices.values()):
            refuse(errno.EEXIST, "File exists")
        index = max(self.devices) + 1
        below = self._device(parent) if parent else None
        known = tuple(sorted({"mac": f"02:00:00:00:ff:{index:02x}", **options}.items()))
        device = Device(
            index,
            name,
            kind,
            dict(known)["mac"],
            lower=parent,
            max_mtu=65575 if kind == "vrf" else 65535,
            txqueuelen=VLAN_QUEUE,
            options=known,
        )
        if kind == "vrf":
            mtu = mtu or 65575
        room = 1500 if below is None else self._room(device._replace(lower=parent))
        if mtu is not None and below is not None and mtu > room:
            refuse(errno.EINVAL, "Invalid argument")
        self.devices[index] = device._replace(mtu=mtu or room)
        if self.allowed is not None:
            self.allowed.add(index)

    def members(self, index):
        return [device for device in self.devices.values() if index and device.master == index]

    def set_master(self, index, master):
        device = self._device(index)
        if device.master:
            self._release(index)
        if not master:
            return
        bond = self._device(master)
        if bond.kind == "bond":
            if self.devices[index].up:
                refuse(errno.EPERM, "Device can not be enslaved while up")
            self.before_bond[index] = (device.mtu, device.mac, device.permanent_mac)
            own = (
                device.permanent_mac or device.mac
            )  # IFLA_BOND_SLAVE_PERM_HWADDR, which the backend reads
            self.devices[index] = self.devices[index]._replace(
                master=master, slave=True, mac=bond.mac, permanent_mac=own
            )
            self._mtu(index, bond.mtu)
            self._state(index, True)
        elif bond.kind == "vrf":
            self.devices[index] = self.devices[index]._replace(master=master)
            self._cycle(index)
        else:
            if any(child.kind == "macvlan" for child in self.stacked(index)):
                refuse(errno.EBUSY, "Device or resource busy")
            self.devices[index] = self.devices[index]._replace(
                master=master,
                port=tuple((name, NEW_PORT[name]) for name in kinds.PORT),
            )
            self._adjust_bridge(master)

    def _cycle(self, index):
        """cycle_netdev of vrf.c: what the link loses by going down, it has in the other table if the kernel adds it."""
        if self.devices[index].up:
            self._state(index, False)
            self._state(index, True)

    def _release(self, index):
        device = self.devices[index]
        self.devices[index] = device._replace(master=0, slave=False, port=())
        bond = self.devices.get(device.master)
        if bond is not None and bond.primary == index:
            self.devices[bond.index] = replace(bond, primary=0)
        if bond is not None and bond.kind == "vrf":
            self._cycle(index)
            return
        if index in self.before_bond:
            mtu, mac, permanent_mac = self.before_bond.pop(index)
            self._state(index, False)
            self.devices[index] = self.devices[index]._replace(mac=mac, permanent_mac=permanent_mac)
            self._mtu(index, mtu)
        else:
            self._adjust_bridge(device.master)

    def _adjust_bridge(self, bridge):
        """br_mtu_auto_adjust: without ports ETH_DATA_LEN, and an MTU that somebody has set stays (Linux 4.17 and later)."""
        if (
            bridge in self.devices
            and self.devices[bridge].kind == "bridge"
            and bridge not in self.fixed_mtus
        ):
            self._mtu(bridge, min((port.mtu for port in self.members(bridge)), default=1500))

    def delete_link(self, index):
        self._remove(self._device(index))

    def _remove(self, device):
        """With all that is stacked on it, whoever made that."""
        for child in self.stacked(device.index):
            self._remove(child)
        for member in self.members(device.index):
            self._release(member.index)
        self.before_bond.pop(device.index, None)
        self.fixed_mtus.discard(device.index)
        del self.devices[device.index]
        self._adjust_bridge(device.master)
        self.addresses.pop(device.index, None)
        self.gear.pop(device.index, None)
        self.routes = [route for route in self.routes if route.index != device.index]
        self._forget_sysctls(f"/{device.name}/")

    def add_address(self, index, address, bare=False, *_):
        device = self._device(index)
        if bare and address not in self.addresses.get(index, ()):
            self.bare.add((index, address))
        if address.version == 6 and device.mtu < MIN_IPV6_MTU:
            refuse(errno.EINVAL, "Invalid argument")
        here = self.addresses.setdefault(index, [])
        if address in here or (address.version == 6 and any(one.ip == address.ip for one in here)):
            return  # an IPv6 address has one prefix length (ipv6_add_addr)
        here.append(address)
        if device.up:
            self._connect(index, address)

    def delete_address(self, index, address):
        self._device(index)
        if address not in self.addresses.get(index, []):
            return
        self.addresses[index].remove(address)
        self.bare.discard((index, address))
        if address.version == 4 and not any(one.version == 4 for one in self.addresses[index]):
            self.routes = [
                route for route in self.routes if route.index != index or route.to.version == 6
            ]  # fib_disable_ip
        if not any(one.network == address.network for one in self.addresses[index]):
            self.routes = [
                route
                for route in self.routes
                if (route.to, route.index, route.protocol)
                != (address.network, index, KERNEL_PROTOCOL)
            ]

    def replace_route(self, route):
        hops = [(route.index, route.via), *route.others] if route.traits.kind == "unicast" else []
        for index, via in hops:
            self._next_hop(index, via, route.traits.onlink)
        source = route.traits.source if hops or route.to.version == 6 else None
        if source and all(source != one.ip for own in self.addresses.values() for one in own):
            refuse(errno.EINVAL, "Invalid argument (Invalid prefsrc address)")
        same = [one for one in self.routes if _identity(one) == _identity(route)]
        if same:
            self.routes[self.routes.index(same[0])] = route
        else:
            self.routes.append(route)

    def _next_hop(self, index, via, onlink):
        if not self._device(index).up:
            refuse(errno.ENETDOWN, "Network is down (Nexthop device is not up)")
        own = [
            address
            for address in self.addresses.get(index, [])
            if via is not None and address.version == via.version
        ]
        near = onlink or any(via in address.network for address in own)
        if via is not None and not (near or self._routed(via, index)):
            refuse(errno.ENETUNREACH, "Network is unreachable (Nexthop has invalid gateway)")
        if any(via == address.ip for found in self.addresses.values() for address in found):
            refuse(errno.EINVAL, "Invalid argument (Nexthop has invalid gateway)")

    def _routed(self, via, index):
        return any(
            via.version == one.to.version and via in one.to and one.index == index and not one.via
            for one in self.routes
        )

    def delete_route(self, route):
        gone = [
            one
            for one in self.routes
            if replace(one, expires=False, protocol=route.protocol and one.protocol) == route
        ]
        if gone:
            self.routes.remove(gone[0])

    def add_rule(self, rule):
        if rule not in self.rules:
            self.rules.append(rule)

    def delete_rule(self, rule):
        if rule in self.rules:
            self.rules.remove(rule)

    def write_sysctl(self, path, value):
        if self.read_sysctl(path) is None:
            refuse(errno.ENOENT, "No such file or directory")
        name = path.removeprefix("net/ipv6/conf/").removesuffix("/mtu")
        if any(one.name == name and one.mtu < int(value) for one in self.devices.values()):
            refuse(errno.EINVAL, "Invalid argument")  # addrconf_sysctl_mtu
        self.sysctls[path] = value

    def write_files(self, files):
        self.files.update(files)

    def unmanage(self, manager, names):
        self.unmanaged += [(manager, name) for name in names]

    def reload(self, manager):
        self.told.append(manager)

    def activate(self, interface, profile):
        pass

    # --- its own doing ---

    def _device(self, index):
        """The device that is about to be written to; which ones were is remembered."""
        self.written.append(index)
        if self.allowed is not None and index not in self.allowed:
            raise GuardError(f"device {index} is not one that this pass may write to")
        if index not in self.devices:
            refuse(errno.ENODEV, "No such device")
        return self.devices[index]

    def _link_local(self, index):
        own = ip_interface(f"fe80::{index:x}/64")
        found = self.addresses.setdefault(index, [])
        if self.devices[index].mtu >= MIN_IPV6_MTU and own not in found:
            found.append(own)
            self._connect(index, own)

    def _connect(self, index, address):
        if (index, address) in self.bare:
            return
        metric = 256 if address.version == 6 else 0
        master = self.devices.get(self.devices[index].master)
        table = MAIN_TABLE
        if master is not None and master.kind == "vrf":
            table = int(dict(master.options)["table"])
        route = Route(
            address.network, index, None, metric, KERNEL_PROTOCOL, traits=Traits(table=table)
        )
        there = (_plain(one) for one in self.routes if one.index == index)
        if address.network.prefixlen < address.max_prefixlen and _plain(route) not in there:
            self.routes.append(route)

    def _drop_ipv6(self, index):
        self.addresses[index] = [
            address for address in self.addresses.get(index, []) if address.version == 4
        ]
        self.routes = [
            route for route in self.routes if not (route.index == index and route.to.version == 6)
        ]

    def _forget_sysctls(self, part):
        self.sysctls = {path: value for path, value in self.sysctls.items() if part not in path}


def default_route(kernel, index, via, version=4, metric=100):
    """A default route as DHCP would add it; its next hop need not be in a network of the device (onlink)."""
    to = ip_network("0.0.0.0/0" if version == 4 else "::/0")
    kernel.routes.append(Route(to, index, via, metric, 16))
