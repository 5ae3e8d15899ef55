"""The files on disk: udev rules, drop-ins for the network managers, and sysctls for new links.

Every NIC has a udev rule. A dataplane NIC keeps its files until a complete document no
longer lists it; its name stays pinned after that.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.desired import dhcp_files, dhcp_profiles, marks
from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import (
    ACCEPT_RA,
    OWN,
    UNCHANGED,
    UNRECORDED,
    Link,
    LinkKey,
    LinkRequest,
    Record,
)
from neuca_tools.model.ports import is_guid
from neuca_tools.model.topology import VIRTUAL_NICS


class Places(NamedTuple):
    """Where the files go, and what the rule files are called."""

    udev: Path
    networkmanager: Path
    networkd: Path
    sysctl: Path
    substring: str
    data_priority: int
    mgmt_priority: int
    profiles: Path = Path("/etc/NetworkManager/system-connections")


class Marks(NamedTuple):
    """Every file of ours with its content, None if it must not exist.

    `tell` maps the path of a file to the network manager that has to read it again; `profiles`
    a NIC to the UUID of the NetworkManager profile that it has to use.
    """

    files: Mapping[str, Optional[bytes]]
    tell: Mapping[str, str]
    profiles: Mapping[LinkKey, str] = {}


def wanted(
    resolution: Resolution,
    record: Record,
    places: Places,
    present: Iterable[str],
    sysctls_now: bytes = b"",
) -> Marks:
    """All files with their content. `present` are the file names in the udev rules directory.

    `sysctls_now` is the content of our file in sysctl.d. Without a complete document, a file is
    removed only if its NIC is ignored or released, or if another file of ours replaces it.
    """
    dataplane = marked(resolution, record) | resolution.roles.ahead
    known = _rule_macs(present, places)
    spared: set[str] = set()
    if not resolution.complete:
        spared = set(known.values()) - dataplane - set(record.nics)
    rules = _rules(resolution, record, places, dataplane, spared)
    stale = _stale_rules(resolution, record, places, known, rules)
    lists = _lists(resolution, record, places, dataplane, sysctls_now)
    held = bool(resolution.roles.held)
    files: dict[str, Optional[bytes]] = {}
    told: dict[str, str] = {}
    for path, (manager, content) in lists.items():
        if content or resolution.complete or held:
            files[path] = content or None
        if manager and (held or _is_news(record, dataplane)):
            told[path] = manager
    return Marks({**rules, **dict.fromkeys(stale), **files}, told)


def _rule_macs(names: Iterable[str], places: Places) -> dict[str, str]:
    """The MAC of each of these files that is a rule of ours."""
    macs = {name: marks.rule_mac(name, places.substring) for name in names}
    return {name: mac for name, mac in macs.items() if mac}


def _stale_rules(
    resolution: Resolution,
    record: Record,
    places: Places,
    known: Mapping[str, str],
    rules: Mapping[str, Optional[bytes]],
) -> set[str]:
    """The paths of the rules to remove, out of those that are `known` by name and MAC."""
    others = {name: mac for name, mac in known.items() if f"{places.udev}/{name}" not in rules}
    if not others:
        return set()
    replaced = set(_rule_macs((path.rpartition("/")[2] for path in rules), places).values())
    return {
        f"{places.udev}/{name}"
        for name, mac in others.items()
        if resolution.complete or mac in replaced or _is_disowned(mac, resolution, record)
    }


def _is_disowned(mac: str, resolution: Resolution, record: Record) -> bool:
    released = record.nics.get(mac, UNRECORDED).released
    return released or resolution.roles.role(mac) == "ignored"


def _is_news(record: Record, dataplane: frozenset[str]) -> bool:
    """Whether a dataplane NIC is one that the network managers have not been told about."""
    told = {mac for mac, nic in record.nics.items() if nic.role == "dataplane" and not nic.unheard}
    return bool(dataplane - told)


def marked(resolution: Resolution, record: Record) -> frozenset[str]:
    """The MACs of the NICs that managers must leave alone, except for the client of one with DHCP.

    Dataplane NICs; without a complete document also those that were dataplane NICs before.
    """
    roles = resolution.roles
    named = {mac for mac, role in roles.by_mac.items() if role == "dataplane"} - roles.left
    before = {
        mac
        for mac, nic in record.nics.items()
        if nic.role == "dataplane"
        and not resolution.complete
        and resolution.roles.role(mac) == "unlisted"
        and not nic.released
    }
    return frozenset(named | before)


def pinned_name(mac: str, resolution: Resolution, record: Record) -> str:
    """The name that the NIC should have at the next boot; empty if it is not known yet."""
    key = LinkKey(mac)
    request, granted = resolution.requests.get(key), resolution.names.get(key)
    if request and request.name and granted in (request.name, None):
        return request.name
    return _recorded_name(mac, record) or granted or ""


def has_rule(mac: str, resolution: Resolution, record: Record, dataplane: frozenset[str]) -> bool:
    """Whether the NIC gets a udev rule: hardware, and a NIC that is recorded or has a role.

    The veth of a container gets none.
    """
    role = resolution.roles.role(mac)
    if role == "ignored":
        return False
    if role in ("management", "dataplane") or mac in dataplane or mac in record.nics:
        return True
    device = resolution.roles.nics.get(mac)
    return device is not None and device.kind not in VIRTUAL_NICS


def _rules(
    resolution: Resolution,
    record: Record,
    places: Places,
    dataplane: frozenset[str],
    spared: Collection[str],
) -> dict[str, Optional[bytes]]:
    """A rule for each NIC.

    A name goes into one rule only, that of a NIC that is present if there is one.
    """
    rules: dict[str, Optional[bytes]] = {}
    used: set[str] = set()
    nics = {*resolution.roles.by_mac, *(mac for mac in record.nics if not LinkKey(mac).made)}
    for mac in sorted(nics, key=lambda mac: (mac not in resolution.roles.nics, mac)):
        name = pinned_name(mac, resolution, record)
        if name in used:
            name = ""
        if mac in spared or not has_rule(mac, resolution, record, dataplane):
            continue
        if not name and mac not in dataplane:
            continue
        used.add(name)
        file = marks.udev_rule_name(
            mac, mac in dataplane, places.substring, places.data_priority, places.mgmt_priority
        )
        client = resolution.roles.clients.get(LinkKey(mac), "")
        rules[f"{places.udev}/{file}"] = marks.udev_rule(mac, name, mac in dataplane, client)
    return rules


def _lists(
    resolution: Resolution,
    record: Record,
    places: Places,
    dataplane: frozenset[str],
    sysctls_now: bytes,
) -> dict[str, tuple[str, bytes]]:
    patterns = sorted(_patterns(resolution, record, dataplane))
    networkd = marks.networkd_files(
        dataplane - _clients(resolution, "networkd"),
        patterns,
        {key.kind for key in resolution.names if key.made} | _port_kinds(dataplane),
    )
    files = {
        str(places.networkd / name): ("networkd", networkd.get(name, b""))
        for name in (marks.NETWORKD_NICS_FILE, marks.NETWORKD_VLANS_FILE)
    }
    files[str(places.networkmanager / marks.NETWORKMANAGER_FILE)] = (
        "networkmanager",
        marks.networkmanager_conf(dataplane - _clients(resolution, "networkmanager"), patterns),
    )
    files[str(places.sysctl / marks.SYSCTL_FILE)] = ("", _sysctls(resolution, record, sysctls_now))
    return files


def _clients(resolution: Resolution, manager: str) -> frozenset[str]:
    """The NICs on which this manager does DHCP."""
    return frozenset(key.mac for key in resolution.roles.handed([manager]) if not key.rank)


def dhcp_client(
    resolution: Resolution, record: Record, places: Places, files: Mapping[str, Optional[bytes]]
) -> Marks:
    """The files that make a manager the DHCP client of NICs; `files` are those that are there.

    A file is removed once the document no longer requests it, or its NIC is ignored.
    """
    roles = resolution.roles
    found: dict[str, Optional[bytes]] = {}
    there = dhcp_files.known(files)
    for path, (_, key) in there.items():
        is_known = key in resolution.requests or roles.role(key.mac) == "ignored"
        if (resolution.complete or is_known) and key.mac not in roles.held:
            found[path] = None
    told = {path: manager for path, (manager, _) in there.items() if path in found}
    profiles: dict[LinkKey, str] = {}
    for key in sorted(roles.handed(dhcp_files.MANAGERS)):
        path, content = _client_file(key, resolution, record, places)
        found.pop(path, None)
        if content:
            found[path], told[path] = content, roles.clients[key]
            profiles[key] = dhcp_profiles.uuid_of(content)
    return Marks(found, {path: told[path] for path in found}, profiles)


def _client_file(
    key: LinkKey, resolution: Resolution, record: Record, places: Places
) -> tuple[str, bytes]:
    """The path of the file for the client of a link, and its content, empty if it is to stay."""
    request = resolution.requests.get(key)
    asked = request.automatic if request is not None else None
    mtu = asked_mtu(key, resolution, record)
    if resolution.roles.clients[key] == "networkmanager":
        path = str(places.profiles / dhcp_files.profile_name(key))
        return path, dhcp_profiles.profile(key, asked, mtu) if asked else b""
    path = str(places.networkd / dhcp_files.networkd_name(key))
    name = resolution.names.get(key, "")
    if asked is None or (key.rank and not marks.is_plain(name)):
        return path, b""
    return path, dhcp_files.networkd(key, name, asked, mtu is not None)


def asked_mtu(key: LinkKey, resolution: Resolution, record: Record) -> Optional[int]:
    """The MTU that the agent keeps on a NIC, in bytes; None if that of a lease is used.

    An original value is restored once only, and then the MTU is left to the client.
    """
    request, link = resolution.requests.get(key), resolution.want.links.get(key)
    if link is None:
        return None
    original = record.originals.get(key, UNCHANGED).mtu
    if (request is None or request.mtu is None) and link.mtu == original:
        return None
    return link.mtu


def _patterns(resolution: Resolution, record: Record, dataplane: frozenset[str]) -> set[str]:
    """The names of virtual links and of InfiniBand ports, and a pattern for VLANs on each dataplane
    NIC and virtual link.

    A name that is requested and not granted is left out: the interface that has it now belongs to
    another manager.
    """
    roles, names = resolution.roles, resolution.names
    others = {device.name for mac, device in roles.nics.items() if mac not in dataplane}
    bases = {names.get(LinkKey(mac)) or _recorded_name(mac, record) for mac in dataplane}
    bases |= {key.given_name for key in names if key.made}
    made = {pinned_name(mac, resolution, record) for mac in dataplane if is_guid(mac)}
    made |= _virtual_names(resolution)
    return {f"{name}.*" for name in bases - others - {""}} | (made - others - {""})


def _virtual_names(resolution: Resolution) -> set[str]:
    left = resolution.roles.left
    return {name for key, name in resolution.names.items() if key.rank and key.mac not in left}


def _port_kinds(dataplane: Iterable[str]) -> set[str]:
    """The kind of the InfiniBand ports among these NICs: the kernel has the same for children."""
    return {"ipoib" for mac in dataplane if is_guid(mac)}


def _recorded_name(mac: str, record: Record) -> str:
    return record.nics.get(mac, UNRECORDED).name


def _sysctls(resolution: Resolution, record: Record, now: bytes) -> bytes:
    """The requested and accepted sysctls of interfaces. Restored original values need no file.

    Router advertisements are off on a dataplane NIC from boot on, whether it is present now or not.
    """
    keys: dict[str, str] = {}
    if not resolution.complete:
        keys = marks.sysctls_of(now)
    for key in resolution.quiet:
        name = resolution.names.get(key)
        if not name and not key.rank:
            name = pinned_name(key.mac, resolution, record)
        if name:
            keys[ACCEPT_RA.replace(OWN, name)] = "0"
    for key, link in resolution.want.links.items():
        keys.update(_granted_sysctls(link, resolution.requests.get(key)))
    return marks.sysctl_conf(keys)


def _granted_sysctls(link: Link, request: Optional[LinkRequest]) -> dict[str, str]:
    """The sysctls of one link that are requested and not refused."""
    if request is None or not link.name:
        return {}
    return {
        template.replace(OWN, link.name): value
        for template, value in request.sysctls
        if link.sysctls.get(template) == value
    }
