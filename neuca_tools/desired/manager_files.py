"""Which files there should be: a rule for each NIC, the lists that keep other managers off, and the sysctls for new links.

A dataplane NIC keeps its marks until a complete document no longer has it; its name stays pinned after that.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from neuca_tools.desired import marks
from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import ACCEPT_RA, OWN, LinkKey, NicRecord, Record
from neuca_tools.model.topology import VIRTUAL_NICS
from neuca_tools.tuning.layer import PROFILE


@dataclass(frozen=True)
class Places:
    """Where the files go, and what the rule files are called."""

    udev: Path
    networkmanager: Path
    networkd: Path
    sysctl: Path
    substring: str
    data_priority: int
    mgmt_priority: int


@dataclass(frozen=True)
class Marks:
    """Every file of ours with its content, None: it should not be there; and which manager has to hear of which."""

    files: Mapping[str, Optional[bytes]]
    tell: Mapping[str, str]


def wanted(
    resolution: Resolution,
    record: Record,
    places: Places,
    present: Iterable[str],
    sysctls_now: bytes = b"",
) -> Marks:
    """All files. `present` are the names in the directory of udev rules, `sysctls_now` is the file of sysctls as it is.

    A complete document alone takes marks away; else only what is ignored goes, and what another file of ours takes the place of.
    """
    dataplane = marked(resolution, record) | resolution.roles.ahead
    known = {
        name: mac for name in present for mac in [marks.rule_mac(name, places.substring)] if mac
    }
    spared = set() if resolution.complete else set(known.values()) - dataplane - set(record.nics)
    rules = _rules(resolution, record, places, dataplane, spared)
    ruled = {marks.rule_mac(Path(path).name, places.substring) for path in rules}
    gone = {
        mac
        for mac in known.values()
        if resolution.complete
        or mac in ruled
        or resolution.roles.role(mac) == "ignored"
        or record.nics.get(mac, NicRecord()).released
    }
    stale = {str(places.udev / name) for name, mac in known.items() if mac in gone} - set(rules)
    lists = _lists(resolution, record, places, dataplane, sysctls_now)
    newly = dataplane - {
        mac for mac, nic in record.nics.items() if nic.role == "dataplane" and not nic.unheard
    }
    told = {
        path: manager
        for path, (manager, _) in lists.items()
        if manager and (newly or resolution.roles.held)
    }
    sure = resolution.complete or resolution.roles.held
    files = {path: content or None for path, (_, content) in lists.items() if content or sure}
    return Marks({**rules, **dict.fromkeys(stale), **files}, told)


def marked(resolution: Resolution, record: Record) -> frozenset[str]:
    """The MACs that other managers are kept off."""
    named = {mac for mac, role in resolution.roles.by_mac.items() if role == "dataplane"}
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
    nic, request = record.nics.get(mac), resolution.requests.get(LinkKey(mac))
    asked, granted = request.name if request else None, resolution.names.get(LinkKey(mac))
    if asked and granted in (asked, None):
        return asked
    return (nic.name if nic else "") or granted or ""


def has_rule(mac: str, resolution: Resolution, record: Record, dataplane: frozenset[str]) -> bool:
    """Hardware, and whatever was named or is management; a veth of somebody's container is none of ours."""
    if resolution.roles.role(mac) == "ignored":
        return False
    device = resolution.roles.nics.get(mac)
    known = mac in dataplane or mac in record.nics or resolution.roles.role(mac) == "management"
    return known or (device is not None and device.kind not in VIRTUAL_NICS)


def _rules(
    resolution: Resolution,
    record: Record,
    places: Places,
    dataplane: frozenset[str],
    spared: Collection[str],
) -> dict[str, Optional[bytes]]:
    """A rule for each NIC; no two give the same name, since either NIC could then get it: one that is present goes first."""
    rules: dict[str, Optional[bytes]] = {}
    used: set[str] = set()
    nics = {*resolution.roles.by_mac, *(mac for mac in record.nics if not LinkKey(mac).made)}
    for mac in sorted(nics, key=lambda mac: (mac not in resolution.roles.nics, mac)):
        pinned = pinned_name(mac, resolution, record)
        name = "" if pinned in used else pinned
        if (
            (name or mac in dataplane)
            and mac not in spared
            and has_rule(mac, resolution, record, dataplane)
        ):
            used.add(name)
            file = marks.udev_rule_name(
                mac, mac in dataplane, places.substring, places.data_priority, places.mgmt_priority
            )
            rules[str(places.udev / file)] = marks.udev_rule(
                mac, name, mac in dataplane, _asked(mac, resolution)
            )
    return rules


def _asked(mac: str, resolution: Resolution) -> str:
    request = resolution.requests.get(LinkKey(mac))
    if request is None or resolution.roles.role(mac) != "dataplane":
        return resolution.roles.role(mac)
    named = (origin for origin in request.origins if not origin.where.startswith(PROFILE))
    return (
        ", ".join(f"{origin.setting} = {origin.value}" for origin in named) or "the NIC of a VLAN"
    )


def _lists(
    resolution: Resolution,
    record: Record,
    places: Places,
    dataplane: frozenset[str],
    sysctls_now: bytes,
) -> dict[str, tuple[str, bytes]]:
    patterns = sorted(_patterns(resolution, record, dataplane))
    networkd = marks.networkd_files(
        dataplane, patterns, {key.kind for key in resolution.names if key.made}
    )
    files = {
        str(places.networkd / name): ("networkd", networkd.get(name, b""))
        for name in (marks.NETWORKD_NICS_FILE, marks.NETWORKD_VLANS_FILE)
    }
    files[str(places.networkmanager / marks.NETWORKMANAGER_FILE)] = (
        "networkmanager",
        marks.networkmanager_conf(dataplane, patterns),
    )
    files[str(places.sysctl / marks.SYSCTL_FILE)] = ("", _sysctls(resolution, record, sysctls_now))
    return files


def _patterns(resolution: Resolution, record: Record, dataplane: frozenset[str]) -> set[str]:
    """Names of what is made of dataplane NICs: those that were granted, and whatever is on one by the name that is its own.

    A name that is only asked for may be somebody else's: a pattern for it would take that interface from its manager.
    """
    others = {device.name for mac, device in resolution.roles.nics.items() if mac not in dataplane}
    known = (
        resolution.names.get(LinkKey(mac)) or record.nics.get(mac, NicRecord()).name
        for mac in dataplane
    )
    made = {name for key, name in resolution.names.items() if key.rank}
    bases = {*known, *(key.given_name for key in resolution.names if key.made)}
    return {f"{name}.*" for name in bases if name and name not in others} | (made - others)


def _sysctls(resolution: Resolution, record: Record, now: bytes) -> bytes:
    """Per-interface settings that are asked for and not refused; what only goes back to its original needs no file.

    Router advertisements are off on a NIC from the boot on, whether it is there at this moment or not.
    """
    keys: dict[str, str] = {} if resolution.complete else marks.sysctls_of(now)
    for key in resolution.quiet:
        name = resolution.names.get(key) or (
            "" if key.rank else pinned_name(key.mac, resolution, record)
        )
        if name:
            keys[ACCEPT_RA.replace(OWN, name)] = "0"
    for key, link in resolution.want.links.items():
        request = resolution.requests.get(key)
        for template, value in request.sysctls if request and link.name else ():
            if link.sysctls.get(template) == value:
                keys[template.replace(OWN, link.name or "")] = value
    return marks.sysctl_conf(keys)
