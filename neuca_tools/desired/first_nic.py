"""Which NIC is believed on a first boot, before anything has shown which one is for management.

Any host on a dataplane link can respond to DHCP, advertise itself as a router and respond at the
address of a metadata service, so nothing of that tells the management NIC from another. Nearly
every cloud and testbed plugs it in first, and no stranger can change the order of the bus. Hence
the first NIC with a carrier is believed, as cloud-init's fallback NIC is. While it has no address,
the guest waits for one, and no other NIC takes its place.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Sequence
from typing import NamedTuple

from neuca_tools.model import Device, World
from neuca_tools.model.topology import SWITCH, identity, nics_in, with_lower_devices

# Seconds after a boot. A NIC without a carrier is passed over after the first (autonegotiation and
# link training take a few seconds), one without an address after the second (NetworkManager tries
# DHCP four times for 45 s each, NetworkManager.conf(5)).
CARRIER_SECONDS = 30.0
LEASE_SECONDS = 180.0


class Belief(NamedTuple):
    """The NIC that is believed, empty for none, and those that nothing vouches for, by MAC.

    The latter have an address, while the first NIC has remained without one.
    """

    mac: str = ""
    unvouched: tuple[str, ...] = ()


def believed_nic(world: World, candidates: Collection[str]) -> Belief:
    """The first of these NICs (MACs) in the order of the bus that has a carrier."""
    addressed = devices_with_address(world)
    nics = [nic for nic in nics_in(world) if identity(nic) in candidates]
    nics = sorted(_without_guests(nics, addressed, world), key=bus_order)
    leased = [identity(nic) for nic in nics if nic.index in addressed]
    for nic in nics:
        if nic.index in addressed:
            return Belief(identity(nic))
        if not _is_passed_over(nic, world):
            return Belief(identity(nic), tuple(leased) if world.is_aged(LEASE_SECONDS) else ())
    return Belief()


def _without_guests(
    nics: Sequence[Device], addressed: Collection[int], world: World
) -> Sequence[Device]:
    """Without the veths and taps of containers, guests and VPNs, if hardware has an address.

    Of a container, one that is in no bridge is its own.
    """
    if not any(nic.hardware and nic.index in addressed for nic in nics):
        return nics
    return [nic for nic in nics if nic.hardware or not (world.hosts_guests or _is_port(nic, world))]


def _is_port(nic: Device, world: World) -> bool:
    master = world.devices.get(nic.master)
    return master is not None and master.kind in ("bridge", SWITCH)


def bus_order(device: Device) -> tuple[bool, tuple[int, ...], int]:
    """The place of a NIC: by interface index, which is the order of probing, before PCI addresses.

    Devices on no PCI bus go first: a paravirtual NIC is the master of its virtual function.
    """
    return bool(device.slot), device.slot, device.index


def devices_with_address(world: World) -> frozenset[int]:
    """The devices that have, or below one that has, any but a link-local IPv6 address.

    A management network may be a link-local one of IPv4, around the service's address.
    """
    return with_lower_devices(
        world,
        (
            index
            for index, addresses in world.addresses.items()
            if any(address.version == 4 or not address.is_link_local for address in addresses)
        ),
    )


def is_addressed(world: World, mac: str) -> bool:
    """Whether the NIC with this MAC is present, and it or a device on it has an address."""
    nics = [nic.index for nic in nics_in(world) if identity(nic) == mac]
    return not devices_with_address(world).isdisjoint(nics)


def _is_passed_over(nic: Device, world: World) -> bool:
    """Whether the NIC is down or has no carrier, although the links have had their time."""
    if nic.up and nic.carrier:
        return False
    return world.is_aged(CARRIER_SECONDS if nic.up else LEASE_SECONDS)
