"""The files that pin the names of NICs and keep other managers away from them.

They are for udev, NetworkManager, networkd and sysctl.d. Every function returns a whole file. A
name that a reader would parse as syntax is left out: a missing mark shows in `neuca status`, but a
mark that matches a foreign interface breaks a host.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import Optional

from neuca_tools.model import NicRecord
from neuca_tools.model.addresses import MAX_CACHED
from neuca_tools.model.ports import ADDRESS_BYTES, GUID_BYTES, INFINIBAND, is_guid

# Names without a number sort after all numbered ones. The last file wins in both directories, and
# 99-neuca.conf would lose to Debian's 99-sysctl.conf (a link to /etc/sysctl.conf) and to the
# 99-unmanaged-devices.conf of tutorials.
NETWORKMANAGER_FILE = "neuca.conf"
SYSCTL_FILE = "neuca.conf"
# The first matching file wins in networkd; generators write 10-netplan-… and 10-cloud-init-….
NETWORKD_NICS_FILE = "05-neuca-nics.network"
NETWORKD_VLANS_FILE = "05-neuca-vlans.network"

MANAGER = "neucad"
_HEADER = "# Written by neucad, which overwrites it. "
_MAC = r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}(?:(?::[0-9a-f]{2}){2})?"
_RULE = re.compile(
    r"[0-9]+-(?P<substring>.+)-(?P<digits>[0-9a-f]{12}(?:[0-9a-f]{4})?)\.rules", re.DOTALL
)
# A rule for an InfiniBand port has the whole address, or a pattern for the bytes before the GUID.
_NAMING_RULE = (
    r'[^#]*\bATTR\{address\}=="[?*]*:?(?:[0-9a-f:]{36})?(?P<mac>[0-9a-f:]{17}(?:[0-9a-f:]{6})?)"'
    r'.*\bNAME:?="(?P<name>[^"]+)"'
)
_PLAIN = r"[A-Za-z0-9_.@+][A-Za-z0-9_.@+-]*"
_PATTERN = rf"{_PLAIN}\*?"
# The value of ID_NET_MANAGED_BY that stands for a manager (systemd 255, NetworkManager 1.46).
_OWNER_BY_CLIENT = {
    "": MANAGER,
    "networkd": "io.systemd.Network",
    "networkmanager": "org.freedesktop.NetworkManager",
}


@lru_cache(MAX_CACHED)  # a pass that changes something needs each twice
def udev_rule(mac: str, name: str, dataplane: bool, client: str = "") -> bytes:
    """The udev rule file of a NIC: its name and, for a dataplane NIC, properties that claim it.

    `client` is the manager that does DHCP on it, empty for none.

    `DRIVERS` requires a parent device, which a VLAN, macvlan or bond with the same MAC does not
    have. DSA ports and additional interfaces of a WLAN card have one, but also a DEVTYPE, which an
    Ethernet NIC does not have. A NIC in a bond has the MAC of the bond, which is that of another
    NIC: no NIC with a master matches. `dev_id` is not compared: on some cards it is the number of
    the port.

    udevd applies NAME on `add` only (udev(7)); `:=` prevents later rules from naming the NIC, as
    those of netplan and cloud-init would (99-netplan-eth0.rules, 70-persistent-net.rules). The
    properties are set on every event: the master may be set only after `add` (azure-vm-utils #106),
    and networkd reads ID_NET_MANAGED_BY (systemd 255, NetworkManager 1.46) on each event.

    Of the address of an InfiniBand port, only the GUID at its end is compared. An IPoIB child has
    the GUID of its port, but no parent device (ipoib_parent_init).

    >>> print(udev_rule("fe:16:3e:00:6d:af", "eth1", False).decode().splitlines()[-1][-48:])
    ENV{DEVTYPE}!="?*", TEST!="master", NAME:="eth1"
    """
    kind, address = 1, _checked_mac(mac)
    if is_guid(mac):
        kind, address = INFINIBAND, f"*:{address}"
    nic = (
        f'DRIVERS=="?*", ATTR{{type}}=="{kind}", ATTR{{address}}=="{address}",'
        ' ENV{DEVTYPE}!="?*", TEST!="master"'
    )
    lines = [f"{_HEADER}For the NIC {mac}."]
    if dataplane:
        unmanaged = int(client != "networkmanager")
        owner = _OWNER_BY_CLIENT.get(client, MANAGER)
        marks = f'ENV{{NM_UNMANAGED}}="{unmanaged}", ENV{{ID_NET_MANAGED_BY}}="{owner}"'
        lines.append(f'SUBSYSTEM=="net", ACTION=="add|change|move", {nic}, {marks}')
    if re.fullmatch(_PLAIN, name):
        lines.append(f'SUBSYSTEM=="net", ACTION=="add", {nic}, NAME:="{name}"')
    return _file_content(lines)


def udev_rule_name(
    mac: str, dataplane: bool, substring: str, data_priority: int, mgmt_priority: int
) -> str:
    """The name of a NIC's rule file.

    >>> udev_rule_name("fe:16:3e:00:6d:af", True, "neuca-persistent", 10, 15)
    '10-neuca-persistent-fe163e006daf.rules'
    """
    priority = data_priority if dataplane else mgmt_priority
    return f"{priority:02d}-{substring}-{_checked_mac(mac).replace(':', '')}.rules"


def rule_mac(filename: str, substring: str) -> Optional[str]:
    """The MAC of the NIC that our rule file is for; None for a file that is not ours.

    The name may have any priority.

    >>> rule_mac("15-neuca-persistent-fe163e006daf.rules", "neuca-persistent")
    'fe:16:3e:00:6d:af'
    """
    match = _RULE.fullmatch(filename)
    if match is None or match["substring"] != substring:
        return None
    return bytes.fromhex(match["digits"]).hex(":")


def name_by_mac(rules: str) -> dict[str, str]:
    """MAC to name, of the NICs that a udev rules file names as cloud-init and netplan write it.

    >>> name_by_mac('SUBSYSTEM=="net", ACTION=="add", DRIVERS=="?*",'
    ...             ' ATTR{address}=="fe:16:3e:00:6d:af", NAME="ens17"')
    {'fe:16:3e:00:6d:af': 'ens17'}
    """
    matches = filter(None, (re.match(_NAMING_RULE, line) for line in rules.splitlines()))
    return {match["mac"]: match["name"] for match in matches}


def nics_in_rules(
    rules: Mapping[str, Optional[bytes]], substring: str, macs: Container[str]
) -> dict[str, NicRecord]:
    """What our rules, by file name, say about these NICs, in case that the record was lost."""
    nics = {}
    for filename, content in rules.items():
        mac = rule_mac(filename, substring)
        if mac in macs and mac and content:
            text = content.decode(errors="replace")
            is_dataplane = "NM_UNMANAGED" in text
            name = name_by_mac(text).get(mac, "")
            nics[mac] = NicRecord(name, "dataplane" if is_dataplane else "")
    return nics


def networkmanager_conf(macs: Iterable[str], vlan_patterns: Iterable[str]) -> bytes:
    """A conf.d file that keeps NetworkManager away from these NICs and VLANs; empty for none.

    NICs are matched by their permanent MAC. Of the addresses of InfiniBand ports, NetworkManager
    compares only the GUIDs (nm_utils_hwaddr_matches).

    `+=` appends to the administrator's list (NetworkManager.conf(5)). An `except:` in that list,
    such as the `except:type:ethernet` that Ubuntu users are told to add, takes precedence; the
    second section is independent of it.
    """
    # The address of an InfiniBand port is longer than its GUID.
    before_guid = "00:" * (ADDRESS_BYTES - GUID_BYTES)
    checked = map(_checked_mac, sorted(set(macs)))
    specs = [f"mac:{before_guid if is_guid(mac) else ''}{mac}" for mac in checked]
    specs += [f"interface-name:{pattern}" for pattern in _plain_patterns(vlan_patterns)]
    if not specs:
        return b""
    devices = ";".join(specs)
    return _file_content(
        [
            f"{_HEADER}See NetworkManager.conf(5), unmanaged-devices.",
            "[keyfile]",
            f"unmanaged-devices+={devices}",
            "",
            "[device-neuca]",
            f"match-device={devices}",
            "managed=0",
        ]
    )


def networkd_files(
    macs: Iterable[str], vlan_patterns: Iterable[str], kinds: Iterable[str] = ()
) -> dict[str, bytes]:
    """The .network files, by name, that keep systemd-networkd away from NICs, VLANs and kinds.

    There is none for an empty list: a [Match] section without a condition matches every interface
    (systemd.network(5)). A VLAN has no permanent MAC. An InfiniBand port is matched by name and
    kind too, because networkd compares the whole address, of which a part changes.
    """
    ethernet = sorted({mac for mac in macs if not is_guid(mac)})
    nics = [f"PermanentMACAddress={_checked_mac(mac)}" for mac in ethernet]
    vlans = [f"Name={pattern}" for pattern in _plain_patterns(vlan_patterns)]
    files = {NETWORKD_NICS_FILE: nics}
    if vlans:
        files[NETWORKD_VLANS_FILE] = [f"Kind={' '.join(sorted({'vlan', *kinds}))}", *vlans]
    head = [f"{_HEADER}See systemd.network(5), Unmanaged=.", "[Match]"]
    tail = ["", "[Link]", "Unmanaged=yes"]
    return {name: _file_content([*head, *match, *tail]) for name, match in files.items() if match}


def sysctl_conf(keys: Mapping[str, str]) -> bytes:
    """A file for sysctl.d with our per-interface keys; empty for none.

    A key is a path such as `net/ipv4/conf/eth1.1445/rp_filter`.

    udevd runs systemd-sysctl for every new interface (99-systemd.rules); with this file it writes
    our values instead of those of a glob. As the first separator is a slash, dots are not
    converted. With `-`, an absent interface is not an error (sysctl.d(5)).
    """
    lines = [
        f"-{key} = {' '.join(keys[key].split())}"
        for key in sorted(keys)
        if all(re.fullmatch(_PLAIN, part) for part in key.split("/"))
    ]
    return _file_content([f"{_HEADER}See sysctl.d(5).", *lines]) if lines else b""


def sysctls_of(text: bytes) -> dict[str, str]:
    """The settings of a file that `sysctl_conf` made.

    >>> sysctls_of(sysctl_conf({"net/ipv4/conf/eth1/rp_filter": "2"}))
    {'net/ipv4/conf/eth1/rp_filter': '2'}
    """
    lines = (
        line[1:].partition(" = ")
        for line in text.decode("utf-8", "replace").splitlines()
        if line.startswith("-")
    )
    return {key: value for key, _, value in lines}


def is_plain(name: str) -> bool:
    """Whether every reader takes the name of an interface for just that."""
    return bool(re.fullmatch(_PLAIN, name))


def _plain_patterns(patterns: Iterable[str]) -> list[str]:
    """The patterns that all readers take alike: plain characters, and maybe a final `*`."""
    return sorted({pattern for pattern in patterns if re.fullmatch(_PATTERN, pattern)})


def _checked_mac(mac: str) -> str:
    if not re.fullmatch(_MAC, mac):
        raise ValueError(f'"{mac}" is not a MAC address in canonical form')
    return mac


def _file_content(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")
