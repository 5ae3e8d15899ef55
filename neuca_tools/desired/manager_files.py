"""The files on disk: udev rules, drop-ins for the network managers, and sysctls for new links.

Every NIC has a udev rule. A dataplane NIC keeps its files until a complete document no
longer lists it; its name stays pinned after that.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.desired import dhcp_files, marks
from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import ACCEPT_RA, OWN, UNCHANGED, UNRECORDED, LinkKey, Record, World
from neuca_tools.model.links import MAX_ABSENT_NICS
from neuca_tools.model.ports import is_guid
from neuca_tools.model.topology import VIRTUAL_NICS

_Contents = Mapping[str, Optional[bytes]]  # of files, by path


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
    """Our files with their contents, None for one that must not exist.

    `manager_by_file` maps the path of a file to the network manager that has to read it again;
    `profiles` a NIC to the UUID of the NetworkManager profile that it has to use.
    """

    files: Mapping[str, Optional[bytes]]
    manager_by_file: Mapping[str, str]
    profiles: Mapping[LinkKey, str] = {}


def wanted_files(resolution: Resolution, record: Record, places: Places, files: _Contents) -> Marks:
    """All files with their content. `files` are our present files, by path.

    Without a complete document, a file is removed only if its NIC is ignored or released, or if
    another of our files replaces it.
    """
    work = _Files(resolution, record, places, files)
    lists, clients = work.manager_lists(), work.dhcp_client()
    return Marks(
        {**work.rules(), **lists.files, **clients.files},
        {**lists.manager_by_file, **clients.manager_by_file},
        clients.profiles,
    )


def with_lost_nics(record: Record, world: World, places: Places) -> Record:
    """The record with the present NICs that only our rules know: it may have been lost."""
    devices = world.devices.values()
    macs = {device.permanent_mac or device.mac for device in devices} - record.nics.keys()
    if not macs:
        return record
    directory = f"{places.udev}/"
    rules = {path.removeprefix(directory): content for path, content in world.files.items()}
    lost = marks.nics_in_rules(rules, places.substring, macs)
    if not lost:
        return record
    # While the NIC was absent, another one may have got its name.
    taken = {nic.name for nic in record.nics.values()}
    nameless = {mac: nic._replace(name="") for mac, nic in lost.items() if nic.name in taken}
    return record._replace(nics={**record.nics, **lost, **nameless})


def marked_macs(resolution: Resolution, record: Record) -> frozenset[str]:
    """The MACs of the NICs that managers must leave alone, except for the client of one with DHCP.

    Dataplane NICs; without a complete document also those that were dataplane NICs before.
    """
    roles = resolution.roles
    named = {mac for mac, role in roles.by_mac.items() if role == "dataplane"}
    before = set[str]()
    if not resolution.is_complete:
        known = record.macs_of("dataplane") - record.released
        before = {mac for mac in known if roles.role(mac) == "unlisted"}
    return frozenset(named - roles.dhcp.left_to_others | before)


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


def asked_mtu(key: LinkKey, resolution: Resolution, record: Record) -> Optional[int]:
    """The MTU that the agent keeps on a NIC, in bytes; None if that of a lease is used.

    An original value is restored once only, and then the MTU is left to the client.
    """
    request, link = resolution.requests.get(key), resolution.desired.links.get(key)
    if link is None:
        return None
    original = record.originals.get(key, UNCHANGED).mtu
    if (request is None or request.mtu is None) and link.mtu == original:
        return None
    return link.mtu


class _Files:
    """The files for one resolution; `dataplane` are the MACs of the NICs that are marked."""

    def __init__(
        self, resolution: Resolution, record: Record, places: Places, files: _Contents
    ) -> None:
        self.resolution, self.record, self.places, self.files = resolution, record, places, files
        self.roles, self.names = resolution.roles, resolution.names
        self.dataplane = marked_macs(resolution, record) | resolution.roles.marked_early

    # --- udev rules ---

    def rules(self) -> dict[str, Optional[bytes]]:
        """A rule for each NIC; None for those of other NICs, and for those that are replaced.

        A name goes into one rule only: that of a NIC that is present, first of a management NIC.
        """
        rules: dict[str, Optional[bytes]] = {}
        used: set[str] = set()
        recorded = {mac for mac in self.record.nics if not LinkKey(mac).virtual_kind}
        nics = self.roles.by_mac.keys() | recorded
        for mac in sorted(nics, key=self._rule_order):
            name = self._pinned_name(mac)
            if name in used:
                name = ""
            is_of_use = bool(name) or mac in self.dataplane
            if is_of_use and has_rule(mac, self.resolution, self.record, self.dataplane):
                used.add(name)
                rules.update(self._rule(mac, name))
        return {**rules, **dict.fromkeys(self._stale_rules(rules))}

    def _rule_order(self, mac: str) -> tuple[bool, bool, str]:
        return mac not in self.roles.nics, self.roles.role(mac) != "management", mac

    def _stale_rules(self, rules: _Contents) -> set[str]:
        """The paths of the present rules to remove."""
        known = self._mac_by_rule(self.files)
        others = known.keys() - rules.keys()
        if self.resolution.is_complete or not others:
            return others
        replaced = {*self._mac_by_rule(rules).values()}
        gone = self.record.released
        unrecorded = {*known.values()} - self.record.nics.keys() - self.roles.by_mac.keys()
        if len(unrecorded) >= MAX_ABSENT_NICS:
            gone |= unrecorded
        gone |= {mac for mac in known.values() if self.roles.role(mac) == "ignored"}
        return {path for path in others if known[path] in gone | replaced}

    def _mac_by_rule(self, files: _Contents) -> dict[str, str]:
        """The MAC of each of these files that exists and is one of our rules."""
        split = {path: path.rpartition("/") for path in files if files[path] is not None}
        mac_by_path = {
            path: marks.rule_mac(name, self.places.substring)
            for path, (directory, _, name) in split.items()
            if directory == str(self.places.udev)
        }
        return {path: mac for path, mac in mac_by_path.items() if mac}

    def _rule(self, mac: str, name: str) -> dict[str, bytes]:
        places, is_dataplane = self.places, mac in self.dataplane
        file = marks.udev_rule_name(
            mac, is_dataplane, places.substring, places.data_priority, places.mgmt_priority
        )
        client = self.roles.dhcp.clients.get(LinkKey(mac), "")
        return {f"{places.udev}/{file}": marks.udev_rule(mac, name, is_dataplane, client)}

    def _pinned_name(self, mac: str) -> str:
        """The name that the NIC should have at the next boot; empty if it is not known yet."""
        key = LinkKey(mac)
        requested, granted = self.resolution.requested_name(key), self.names.get(key)
        if requested and granted in (requested, None):
            return requested
        return self.record.nics.get(mac, UNRECORDED).name or granted or ""

    # --- lists ---

    def manager_lists(self) -> Marks:
        """The lists of NICs and links that managers leave alone, and our file in sysctl.d."""
        places = self.places
        sysctls = str(places.sysctl / marks.SYSCTL_FILE)
        told = {
            str(places.networkd / marks.NETWORKD_NICS_FILE): "networkd",
            str(places.networkd / marks.NETWORKD_VLANS_FILE): "networkd",
            str(places.networkmanager / marks.NETWORKMANAGER_FILE): "networkmanager",
        }
        now = self.files.get(sysctls) or b""
        contents = {**self._list_contents(), sysctls: self._sysctls(now)}
        is_held = bool(self.roles.waiting_nics)
        kept = {
            path: contents.get(path) or None
            for path in (*told, sysctls)
            if contents.get(path) or self.resolution.is_complete or is_held
        }
        return Marks(kept, told if is_held or self._is_news() else {})

    def _list_contents(self) -> dict[str, bytes]:
        """The lists by path; absent or empty if there is nothing to list."""
        places, patterns = self.places, sorted(self._name_patterns())
        kinds = {key.kind for key in self.names if key.virtual_kind}
        # The kernel has the same kind for InfiniBand ports and their children.
        kinds |= {"ipoib" for mac in self.dataplane if is_guid(mac)}
        nics = self.dataplane - self._nics_of_client("networkd")
        networkd = marks.networkd_files(nics, patterns, kinds)
        lists = {str(places.networkd / name): content for name, content in networkd.items()}
        nics = self.dataplane - self._nics_of_client("networkmanager")
        path = str(places.networkmanager / marks.NETWORKMANAGER_FILE)
        return {**lists, path: marks.networkmanager_conf(nics, patterns)}

    def _is_news(self) -> bool:
        """Whether a dataplane NIC is one that the network managers have not been told about."""
        nics = self.record.nics.items()
        told = {mac for mac, nic in nics if nic.role == "dataplane" and not nic.unheard}
        return bool(self.dataplane - told)

    def _nics_of_client(self, manager: str) -> frozenset[str]:
        return frozenset(key.mac for key in self.roles.dhcp.links_of([manager]) if not key.rank)

    def _name_patterns(self) -> set[str]:
        """The names and patterns of the links that network managers have to leave alone.

        These are the names of virtual links and of InfiniBand ports, and a pattern for the VLANs of
        each dataplane NIC and virtual link. A name that is requested and not granted is left out:
        the interface that has it now belongs to another manager.
        """
        nics, names, left = self.roles.nics, self.names, self.roles.dhcp.left_to_others
        others = {device.name for mac, device in nics.items() if mac not in self.dataplane}
        recorded = {mac: self.record.nics.get(mac, UNRECORDED).name for mac in self.dataplane}
        bases = {names.get(LinkKey(mac), recorded[mac]) for mac in recorded}
        bases.update(key.virtual_name for key in names)  # empty for a NIC
        made = {name for key, name in names.items() if key.rank and key.mac not in left}
        made.update(map(self._pinned_name, filter(is_guid, self.dataplane)))
        return {f"{name}.*" for name in bases - others - {""}} | (made - others - {""})

    def _sysctls(self, now: bytes) -> bytes:
        """The requested and accepted sysctls of interfaces. Restored original values need no file.

        Router advertisements are off on a dataplane NIC from boot on, whether it is present now or
        not. `now` is the file as it is.
        """
        keys: dict[str, str] = {}
        if not self.resolution.is_complete:
            keys = marks.sysctls_of(now)
        for key in self.resolution.without_advertisements:
            name = self.names.get(key)
            if not name and not key.rank:
                name = self._pinned_name(key.mac)
            if name:
                keys[ACCEPT_RA.replace(OWN, name)] = "0"
        for key, link in self.resolution.desired.links.items():
            request = self.resolution.requests.get(key)
            if request and link.name:
                granted = {*request.sysctls} & link.sysctls.items()
                keys.update((path.replace(OWN, link.name), value) for path, value in granted)
        return marks.sysctl_conf(keys)

    # --- DHCP ---

    def dhcp_client(self) -> Marks:
        """The files that make a manager the DHCP client of NICs.

        A file is removed once the document no longer requests it, or its NIC is ignored.
        """
        contents: dict[str, Optional[bytes]] = {}
        told: dict[str, str] = {}
        for path, (manager, key) in dhcp_files.known_files(self.files).items():
            if self._is_decided(key) and key.mac not in self.roles.waiting_nics:
                contents[path], told[path] = None, manager
        profiles: dict[LinkKey, str] = {}
        for key in sorted(self.roles.dhcp.links_of(dhcp_files.MANAGERS)):
            path, content = self._client_file(key)
            contents.pop(path, None)
            if self.resolution.is_undecided(key):
                content = self.files.get(path) or content
            if content:
                contents[path], told[path] = content, self.roles.dhcp.clients[key]
                profiles[key] = dhcp_files.uuid_of(content)
        return Marks(contents, {path: told[path] for path in contents}, profiles)

    def _is_decided(self, key: LinkKey) -> bool:
        """Whether it is known what is requested of the link."""
        is_complete = self.resolution.is_complete or key in self.resolution.requests
        return is_complete or self.roles.role(key.mac) == "ignored"

    def _client_file(self, key: LinkKey) -> tuple[str, bytes]:
        """The path of the file for the client of a link, and its content, empty if it stays."""
        request = self.resolution.requests.get(key)
        asked = request.automatic if request is not None else None
        mtu = asked_mtu(key, self.resolution, self.record)
        if self.roles.dhcp.clients[key] == "networkmanager":
            path = str(self.places.profiles / dhcp_files.file_name("networkmanager", key))
            return path, dhcp_files.networkmanager_profile(key, asked, mtu) if asked else b""
        path = str(self.places.networkd / dhcp_files.file_name("networkd", key))
        name = self.names.get(key, "")
        if asked is None or (key.rank and not marks.is_plain(name)):
            return path, b""
        return path, dhcp_files.networkd_file(key, name, asked, mtu is not None)
