"""One normal form for what our side, cloud-init and netplan understand: links by their identity, with comparable fields.

The identity of a NIC is its MAC address or its name, that of a VLAN its ID and the link it is on, that of other links their kind
and name. Default routes and routes to the metadata service are not compared: they decide about management.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from ipaddress import ip_interface, ip_network
from typing import Optional

METADATA = ip_network("169.254.169.254/32")
ACCEPT_RA = "net/ipv6/conf/{interface}/accept_ra"
IPV6_MTU = "net/ipv6/conf/{interface}/mtu"


@dataclass
class Form:
    """One link. A route is (destination, gateway, metric or "", table or "")."""

    name: str = ""
    members: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    routes: set[tuple[str, str, str, str]] = field(default_factory=set)
    mtu: str = ""
    ipv6_mtu: str = ""
    mac: str = ""
    dhcp4: bool = False
    dhcp6: bool = False
    accept_ra: str = ""
    mode: str = ""
    miimon: str = ""
    stp: str = ""
    forward_delay: str = ""
    wake: str = ""
    primary: bool = False
    path_cost: str = ""
    port_priority: str = ""
    table: str = ""


FIELDS = tuple(asdict(Form()))


def route(to, via, metric="", table=""):
    """The route in normal form; None for one that is not compared."""
    network = ip_network(to, strict=False)
    # cloud-init makes ::/64 of the default route if it is written "::".
    is_default = network.network_address.is_unspecified
    if is_default or (network.version == 4 and METADATA.subnet_of(network)):
        return None
    return (
        str(network),
        str(via or ""),
        str(metric or ""),
        "" if str(table) in ("254", "main") else str(table or ""),
    )


def _given(name, is_vlan):
    """A name; empty for the one that a VLAN gets if the document has none."""
    return "" if is_vlan and "." in name else name


def _address(text):
    return str(ip_interface(text))


# --- Our side -------------------------------------------------------------------------------------------------------


def _our_identity(key, vlans):
    below, dot, number = key.rpartition(".")
    if key in vlans and dot:
        return f"vlan {number} on {_our_identity(below, {})}"
    if key.startswith(("name ", "bond ", "bridge ", "vxlan ", "vrf ")):
        return key
    return f"mac {key}"


def _our_vlans(platform):
    keys = {link["link"] for link in platform["links"]}
    parts = {key: key.rpartition(".") for key in keys}
    return {key for key, (below, _, number) in parts.items() if below in keys and number.isdigit()}


def management(document):
    """The management links by `neuca show document --json`, with the VLANs on them."""
    platform = document["platform"] or {"links": [], "management": {}}
    vlans, hinted = _our_vlans(platform), platform["management"]
    keys = {link["link"] for link in platform["links"]}
    return {
        _our_identity(key, vlans)
        for key in keys
        if key in hinted or (key in vlans and key.rpartition(".")[0] in hinted)
    }


def of_ours(document):
    """Of the output of `neuca show document --json`."""
    platform = document["platform"] or {"links": [], "routes": []}
    vlans = _our_vlans(platform)
    found = {}
    for link in platform["links"]:
        options, automatic = link["options"], link["automatic"] or {}
        device = link["device"]
        found[_our_identity(link["link"], vlans)] = Form(
            name=_given(link["name"] or "", link["link"] in vlans),
            members={_our_identity(one, vlans) for one in link["members"]},
            addresses={_address(one) for one in link["addresses"]},
            mtu=str(link["mtu"] or ""),
            ipv6_mtu=link["sysctl"].get(IPV6_MTU, ""),
            mac=options.get("mac") or device.get("mac", ""),
            dhcp4=bool(automatic.get("dhcp4")),
            dhcp6=bool(automatic.get("dhcp6")),
            # Without a request, no dataplane link accepts advertisements (neuca-user-data(5)).
            accept_ra=link["sysctl"].get(ACCEPT_RA, "").replace("0", ""),
            mode=options.get("mode", ""),
            miimon=options.get("miimon", ""),
            stp=options.get("stp", ""),
            forward_delay=options.get("forward-delay", ""),
            wake=device.get("wake-on-lan", ""),
            primary=device.get("bond-primary") == "yes",
            path_cost=device.get("path-cost", ""),
            port_priority=device.get("port-priority", ""),
            table=options.get("table", ""),
        )
    for one in platform["routes"]:
        entry = route(one["to"], one["via"], one.get("metric"), one.get("table"))
        if entry:
            found[_our_identity(one["link"], vlans)].routes.add(entry)
    return found


# --- netplan, through the files for networkd ------------------------------------------------------------------------


def _sections(text):
    """The sections of a file of networkd: (name, [(key, value)])."""
    found = []
    for line in text.splitlines():
        if line.startswith("["):
            found.append((line.strip("[]"), []))
        elif "=" in line and found:
            key, _, value = line.partition("=")
            found[-1][1].append((key, value))
    return found


def _first(sections, name, key, default=""):
    return next(
        (
            value
            for section, pairs in sections
            if section == name
            for one, value in pairs
            if one == key
        ),
        default,
    )


def _each(sections, name, key):
    return [
        value
        for section, pairs in sections
        if section == name
        for one, value in pairs
        if one == key
    ]


def _identities(files):
    """The identity of each link by the name of its file, which is that of the link in netplan."""
    devices = {
        _stem(name): _sections(text) for name, text in files.items() if name.endswith(".netdev")
    }
    networks = {
        _stem(name): _sections(text) for name, text in files.items() if name.endswith(".network")
    }
    found = {}
    for stem, sections in networks.items():
        if stem not in devices:
            # With set-name, only the file for udev has the name before.
            link = _sections(
                next(
                    (
                        text
                        for name, text in files.items()
                        if name.endswith(".link") and _stem(name) == stem
                    ),
                    "",
                )
            )
            mac = _first(sections, "Match", "PermanentMACAddress") or _first(
                sections, "Match", "MACAddress"
            )
            name = _first(link, "Match", "OriginalName") or _first(sections, "Match", "Name")
            found[stem] = f"mac {mac.lower()}" if mac else f"name {name}"
    kinds = {stem: _first(sections, "NetDev", "Kind") for stem, sections in devices.items()}
    found.update({stem: f"{kind} {stem}" for stem, kind in kinds.items() if kind != "vlan"})
    parents = {
        vlan: stem
        for stem, sections in networks.items()
        for vlan in _each(sections, "Network", "VLAN")
    }
    for stem in (stem for stem, kind in kinds.items() if kind == "vlan"):
        found[stem] = _vlan_identity(stem, devices, parents, found)
    return found


def _vlan_identity(stem, devices, parents, known):
    number = _first(devices[stem], "VLAN", "Id")
    parent = parents.get(stem, "nothing")
    if parent in known:
        return f"vlan {number} on {known[parent]}"
    if parent in devices:
        return f"vlan {number} on {_vlan_identity(parent, devices, parents, known)}"
    return f"vlan {number} on {parent}"


def _stem(name):
    return name.split("-", 2)[2].rpartition(".")[0]


def _seconds(text, unit):
    """A time span of networkd in this unit; "" for none."""
    if not text:
        return ""
    factor = {"ms": 1, "s": 1000}
    number = text.rstrip("ms")
    amount = int(number) * factor.get(text[len(number) :] or "s", 1000)
    return str(amount // factor[unit])


def of_netplan(files):
    """Of the files that netplan generates."""
    identity = _identities(files)
    found = {}
    for stem, key in identity.items():
        network, device, link = (
            _sections(
                next(
                    (
                        text
                        for name, text in files.items()
                        if name.endswith(end) and _stem(name) == stem
                    ),
                    "",
                )
            )
            for end in (".network", ".netdev", ".link")
        )
        dhcp = _first(network, "Network", "DHCP")
        yes = {"yes": "1", "true": "1", "no": "0", "false": "0", "": ""}
        stp = _first(device, "Bridge", "STP")
        found[key] = Form(
            name=_first(link, "Link", "Name")
            or _given(stem if key.startswith("vlan") else "", True),
            addresses={
                _address(one)
                for one in _each(network, "Network", "Address")
                + _each(network, "Address", "Address")
            },
            routes=_networkd_routes(network),
            mtu=_first(network, "Link", "MTUBytes")
            or _first(link, "Link", "MTUBytes")
            or _first(device, "NetDev", "MTUBytes"),
            ipv6_mtu=_first(network, "Network", "IPv6MTUBytes"),
            mac=(
                _first(device, "NetDev", "MACAddress") or _first(network, "Link", "MACAddress")
            ).lower(),
            dhcp4=dhcp in ("ipv4", "yes"),
            dhcp6=dhcp in ("ipv6", "yes"),
            accept_ra=yes[_first(network, "Network", "IPv6AcceptRA")].replace("0", ""),
            mode=_first(device, "Bond", "Mode")
            or ("balance-rr" if key.startswith("bond ") else ""),
            miimon=_seconds(_first(device, "Bond", "MIIMonitorSec"), "ms"),
            stp={"true": "yes", "false": "no", "yes": "yes", "no": "no"}.get(stp, ""),
            forward_delay=_seconds(_first(device, "Bridge", "ForwardDelaySec"), "s"),
            # Whatever else a file for udev is needed for, it has this too.
            wake=_first(link, "Link", "WakeOnLan").replace("off", ""),
            primary=_first(network, "Network", "PrimarySlave") == "true",
            path_cost=_first(network, "Bridge", "Cost"),
            port_priority=_first(network, "Bridge", "Priority"),
            table=_first(device, "VRF", "Table"),
        )
    for stem, key in identity.items():
        network = _sections(
            next(
                (
                    text
                    for name, text in files.items()
                    if name.endswith(".network") and _stem(name) == stem
                ),
                "",
            )
        )
        for kind in ("Bond", "Bridge", "VRF"):
            for master in _each(network, "Network", kind):
                found[identity.get(master, f"{kind.lower()} {master}")].members.add(key)
    return found


def _networkd_routes(network):
    entries = set()
    for section, pairs in network:
        if section == "Route":
            values = dict(pairs)
            entries.add(
                route(
                    values.get("Destination", "0.0.0.0/0"),
                    values.get("Gateway"),
                    values.get("Metric"),
                    values.get("Table"),
                )
            )
    return entries - {None}


# --- cloud-init -----------------------------------------------------------------------------------------------------


def of_cloud_init(state):
    """Of cloud-init's network state, and the routes that it gives to no link."""
    by_name = {one["name"]: one for one in state["interfaces"]}
    found = {}
    for one in by_name.values():
        if one["type"] == "loopback":
            continue
        form = Form(
            name=_own_name(one),
            members={_identity(member, by_name) for member in _members(one, by_name)},
            mtu=str(one.get("mtu") or ""),
            mac=_own_mac(one, by_name),
            accept_ra="1" if one.get("accept-ra") else "",
            mode=_mode(one),
            miimon=str(one.get("bond-miimon") or one.get("bond_miimon") or "")
            if _kind(one) == "bond"
            else "",
            stp={True: "yes", False: "no"}.get(one.get("bridge_stp"), ""),
            forward_delay=str(one.get("bridge_fd", "")),
            wake="magic" if one.get("wakeonlan") else "",
        )
        for subnet in one["subnets"]:
            _add_subnet(form, subnet)
        found[_identity(one["name"], by_name)] = form
    _add_places(found, by_name)
    loose = {
        route(f"{one['network']}/{one['prefix']}", one.get("gateway"), one.get("metric"))
        for one in state["routes"]
    }
    return found, loose - {None}


def _add_places(found, by_name):
    """Add what bonds and bridges say of their members and ports."""
    fields = {"bridge_pathcost": "path_cost", "bridge_portprio": "port_priority"}
    for one in by_name.values():
        primary = one.get("bond-primary") or one.get("bond_primary")
        if _kind(one) == "bond" and primary in by_name:
            found[_identity(primary, by_name)].primary = True
        for key, field_name in fields.items():
            given = one.get(key) or []
            for text in [given] if isinstance(given, str) else given:
                name, _, value = text.partition(" ")
                setattr(found[_identity(name, by_name)], field_name, value)


def _add_subnet(form, subnet):
    kind = subnet["type"]
    form.dhcp4 = form.dhcp4 or kind in ("dhcp", "dhcp4")
    form.dhcp6 = form.dhcp6 or kind in ("dhcp6", "ipv6_dhcpv6-stateful")
    if kind in ("static", "static4", "static6"):
        form.addresses.add(_address(f"{subnet['address']}/{subnet['prefix']}"))
        if subnet.get("mtu") and ":" in subnet["address"]:
            form.ipv6_mtu = str(subnet["mtu"])
        elif subnet.get("mtu"):
            form.mtu = str(subnet["mtu"])
    for one in subnet.get("routes", ()):
        entry = route(
            f"{one['network']}/{one['prefix']}",
            one.get("gateway"),
            # What the renderer for netplan makes of it since cloud-init 25.2.
            one.get("metric", subnet.get("metric")),
            one.get("table"),
        )
        form.routes |= {entry} - {None}


def _kind(one):
    if one["type"] == "bond" and "bond-slaves" not in one:
        return "physical"  # a member that the document does not describe
    return one["type"] or "physical"


def _identity(name, by_name):
    one = by_name.get(name)
    if one is None:
        return f"name {name}"
    kind = _kind(one)
    if kind == "vlan":
        return f"vlan {one['vlan_id']} on {_identity(one['vlan-raw-device'], by_name)}"
    if kind in ("bond", "bridge"):
        return f"{kind} {name}"
    return f"mac {one['mac_address'].lower()}" if one.get("mac_address") else f"name {name}"


def _own_name(one):
    kind = _kind(one)
    if kind in ("bond", "bridge") or one["name"].startswith("nic "):
        return ""
    if kind == "vlan":
        return _given(one["name"], True)
    return one["name"] if one.get("mac_address") else ""


def _own_mac(one, by_name):
    """The MAC address of a virtual link; empty for a VLAN if it is that of its lower device.

    None for a NIC: of version 2, cloud-init takes none over.
    """
    mac: Optional[str] = (one.get("mac_address") or "").lower()
    if _kind(one) == "physical":
        return None
    below = by_name.get(one.get("vlan-raw-device"), {})
    return "" if mac == (below.get("mac_address") or "").lower() else mac


def _members(one, by_name):
    if _kind(one) == "bond":
        return [name for name, other in by_name.items() if other.get("bond-master") == one["name"]]
    return one.get("bridge_ports") or []


def _mode(one):
    modes = (
        "balance-rr",
        "active-backup",
        "balance-xor",
        "broadcast",
        "802.3ad",
        "balance-tlb",
        "balance-alb",
    )
    if _kind(one) != "bond":
        return ""
    mode = str(one.get("bond-mode") or one.get("bond_mode") or "balance-rr")
    return modes[int(mode)] if mode.isdigit() and int(mode) < len(modes) else mode
