"""Whether the state directory belongs to this machine, or came with an image or a clone.

The instance ID from the platform decides if both sides have one; it comes with the first response
of a source. Before that, only NICs and hardware are known, and the result must be certain: a
recorded NIC proves that it is this machine, whatever else has changed, and a machine whose NICs
were all replaced still has its UUID. Nothing follows from what is unknown on one side.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple, Optional, Union

INSTANCE = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A UUID of all zeros or all ones is not set (SMBIOS 3.7, 7.2.1).
_NOT_SET = ({"0", "-"}, {"f", "-"})
# The format is that of machine-id(5).
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")


class MetadataService(NamedTuple):
    """The metadata service that responded for this instance: the only one requested from then on.

    `source` is `openstack` or `ec2`. `url` is the base URL without an interface
    (`http://169.254.169.254`, `http://[fe80::a9fe:a9fe]`). `mac` identifies the NIC through which
    it responded (its permanent MAC, followed by `.ID` for a VLAN); empty for an address of the host
    itself. `others` are the MACs of the other NICs at that time: none of them ever replaces that
    NIC.
    """

    source: str
    url: str
    mac: str = ""
    others: tuple[str, ...] = ()


class Outlet(NamedTuple):
    """An interface through which metadata may be requested, with the networks that it routes to.

    `identity` is what `MetadataService.mac` keeps. `is_likely`: it is believed to be for
    management; the well-known addresses are requested through no other one. `is_vouched`: something
    that no stranger on the link can cause says so; otherwise, an answer is used only if the
    firmware proves that it is for this instance. `macs`: the addresses by which a platform may list
    it: those of the NICs below it, of a bond between, and its own.
    """

    name: str
    identity: str
    networks: tuple[Union[IPv4Network, IPv6Network], ...] = ()
    is_likely: bool = True
    is_vouched: bool = True
    macs: frozenset[str] = frozenset()

    def reaches(self, address: Union[IPv4Address, IPv6Address]) -> bool:
        """Whether the interface has a route to this address."""
        networks = (network for network in self.networks if network.version == address.version)
        return any(address in network for network in networks)


class Machine(NamedTuple):
    """What distinguishes one machine from another; every part is empty if unknown.

    `machine_id` and `uuid` are digests, because a machine ID is confidential (machine-id(5)).
    `instances` has the instance ID by kind of platform. `set_aside` says why the state of another
    machine was found here and set aside. `origin` is None until a network source has
    responded for this instance. `volume` is the digest of the volume that the active document was
    read from; empty for none.
    """

    machine_id: str = ""
    uuid: str = ""
    instances: Mapping[str, str] = {}
    set_aside: str = ""
    origin: Optional[MetadataService] = None
    volume: str = ""


def known_machine(machine_id: str, uuid: str) -> Machine:
    """The machine by /etc/machine-id and the UUID of the firmware, as far as they are valid."""
    own, hardware = machine_id.strip().lower(), uuid.strip().lower()
    is_set = _UUID.fullmatch(hardware) and {*hardware} not in _NOT_SET
    return Machine(
        _salted_digest(own) if _MACHINE_ID.fullmatch(own) else "",
        _salted_digest(hardware) if is_set else "",
    )


def _salted_digest(text: str) -> str:
    return sha256(f"neuca-guest-tools {text}".encode()).hexdigest()[:32]


def instance_text(kind: str, text: str) -> str:
    """The instance ID with the kind of its platform, as `KIND:ID`; empty if `text` is not valid."""
    return f"{kind}:{text}" if re.fullmatch(INSTANCE, text) else ""


def renewed_reason(before: Machine, instance_id: str) -> str:
    """Why the source's instance ID means another machine; empty if it does not, or is unknown."""
    kind, _, name = instance_id.partition(":")
    old = before.instances.get(kind, name)
    if old == name:
        return ""
    return f'the id of the instance changed from "{old}" to "{name}"'


def is_other_hardware(before: Machine, now: Machine) -> bool:
    """Whether the hardware differs: by its UUID, or else the machine ID, if known on both sides."""
    if before.uuid and now.uuid:
        return before.uuid != now.uuid
    return bool(before.machine_id and now.machine_id and before.machine_id != now.machine_id)


def foreign_reason(
    before: Machine, now: Machine, recorded: Collection[str], present: Collection[str]
) -> str:
    """Why NICs (their MACs) and hardware are of another machine; empty if that is not certain."""
    if not recorded or not present or set(recorded) & set(present):
        return ""
    if not is_other_hardware(before, now):
        return ""
    if before.uuid and now.uuid:
        return "none of its NICs is present, and the hardware has a different UUID"
    return "none of its NICs is present, and the machine id is different"


def updated_machine(before: Machine, now: Machine, instance_id: str) -> Machine:
    """The record of this machine, brought up to date; what is unknown now is kept."""
    kind, _, name = instance_id.partition(":")
    instances = dict(before.instances)
    if name:
        instances[kind] = name
    machine_id, uuid = now.machine_id or before.machine_id, now.uuid or before.uuid
    return before._replace(machine_id=machine_id, uuid=uuid, instances=instances)
