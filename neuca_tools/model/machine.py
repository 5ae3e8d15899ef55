"""Whether this is the machine that the state directory is about, or one that has its disk from an image or a clone.

The instance id that a platform gives decides where both sides have one; it comes with the first answer of a source. Before
that the NICs and the hardware have to do, and only what is certain counts: a NIC that is known is this machine, whatever else
has changed, and a machine whose NICs were all replaced still has its UUID. What is not known on both sides says nothing.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Optional, Union

INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NOT_SET = frozenset("0f")  # a UUID of nothing but these is none: SMBIOS 3.7, 7.2.1
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")  # machine-id(5)


@dataclass(frozen=True)
class Origin:
    """The metadata service that answered for this instance: the only one that is asked from then on.

    `source` is `openstack` or `ec2`. `url` is the base URL without an interface
    (`http://169.254.169.254`, `http://[fe80::a9fe:a9fe]`). `mac` identifies the NIC through which
    it answered (its permanent MAC, with `.ID` behind it for a VLAN); empty for an address of the
    host itself. `others` are the MACs of the other NICs that were there: none of them ever takes
    the place of the one that answered.
    """

    source: str
    url: str
    mac: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outlet:
    """An interface through which metadata may be requested, with the networks that it routes to.

    `identity` is what `Origin.mac` keeps. `likely`: something other than a router advertisement
    says that it is for management; the well-known addresses are requested through no other one.
    """

    name: str
    identity: str
    networks: tuple[Union[IPv4Network, IPv6Network], ...] = ()
    likely: bool = True

    def reaches(self, address: Union[IPv4Address, IPv6Address]) -> bool:
        """Whether the interface has a route to this address."""
        return any(
            address.version == network.version and address in network for network in self.networks
        )


@dataclass(frozen=True)
class Machine:
    """What tells one machine from another; empty: not known. `instances`: an id for each kind of platform that gave one.

    Of `machine_id` and `uuid` only digests are kept: machine-id(5) asks that it be shown to nobody.
    `origin` is None until a network source has answered for this instance.
    `volume` is the digest of the volume that the document in force was read from; empty for none.
    """

    machine_id: str = ""
    uuid: str = ""
    instances: Mapping[str, str] = field(default_factory=dict)
    set_aside: str = ""
    origin: Optional[Origin] = None
    volume: str = ""


def known(machine_id: str, uuid: str) -> Machine:
    """Out of the texts of /etc/machine-id and of the firmware, either of which may be no id at all."""
    own, hardware = machine_id.strip().lower(), uuid.strip().lower()
    is_set = _UUID.fullmatch(hardware) and not any(set(hardware) == {one, "-"} for one in _NOT_SET)
    return Machine(
        _digest(own) if _MACHINE_ID.fullmatch(own) else "", _digest(hardware) if is_set else ""
    )


def _digest(text: str) -> str:
    return hashlib.sha256(f"neuca-guest-tools {text}".encode()).hexdigest()[:32]


def instance(kind: str, text: str) -> str:
    """The id that a platform of this kind gives, to compare with one of the same kind; empty for what is no id."""
    return f"{kind}:{text}" if INSTANCE.fullmatch(text) else ""


def renewed(before: Machine, instance_id: str) -> str:
    """Why this is another machine, by what a source says of it now; empty if that is not known."""
    kind, _, name = instance_id.partition(":")
    old = before.instances.get(kind, name)
    return f'the id of the instance is "{name}", and was "{old}"' if old != name else ""


def elsewhere(before: Machine, now: Machine) -> bool:
    """Whether this is other hardware than that of the record: by its UUID, or by the machine id
    where one of the UUIDs is not known. False if neither is known on both sides.
    """
    if before.uuid and now.uuid:
        return before.uuid != now.uuid
    return bool(before.machine_id and now.machine_id and before.machine_id != now.machine_id)


def foreign(
    before: Machine, now: Machine, recorded: Collection[str], present: Collection[str]
) -> str:
    """Why this is another machine, before any document; empty if that is not certain. MACs `recorded` and `present`."""
    if not recorded or not present or set(recorded) & set(present):
        return ""
    if not elsewhere(before, now):
        return ""
    if before.uuid and now.uuid:
        return "none of its NICs is here, and the hardware has another UUID"
    return "none of its NICs is here, and the machine id is another one"


def met(before: Machine, now: Machine, instance_id: str) -> Machine:
    """What to keep of this machine, which is the one of before: what is not known now stays."""
    kind, _, name = instance_id.partition(":")
    return replace(
        before,
        machine_id=now.machine_id or before.machine_id,
        uuid=now.uuid or before.uuid,
        instances={**before.instances, **({kind: name} if name else {})},
    )
