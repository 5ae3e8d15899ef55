"""Which interfaces the sources may use: judged by record, last good document and configuration."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.backends import hostid, kernel_state, udev
from neuca_tools.config import Config
from neuca_tools.desired.outlets import (
    is_overruled,
    likely_outlets,
    outlet_identity,
    pinned_outlets,
)
from neuca_tools.desired.policy import Policy
from neuca_tools.errors import RecordError
from neuca_tools.model import Record, World
from neuca_tools.model.machine import Machine, MetadataService, Outlet, is_other_hardware
from neuca_tools.model.topology import identity, is_nic
from neuca_tools.sources import SourceSpec, Surroundings, is_known_service, uses_network
from neuca_tools.state.active_document import last_good
from neuca_tools.state.records import load_machine, load_record

UNREADABLE = "no metadata is requested over the network, because its origin is unknown: {}"
ABSENT = (
    "only {url} through the NIC {mac} is queried, which responded for this instance, and that NIC"
    " is absent (neucad(8), Where metadata comes from)"
)


def read_surroundings(config: Config, specs: Sequence[SourceSpec]) -> Surroundings:
    """What these sources have to know of the host. Raises ObserveError."""
    surroundings = config.surroundings
    if not uses_network(specs):
        return surroundings
    try:
        record = load_record(config.state)
        machine = load_machine(config.state)
    except RecordError as error:
        # Which NIC is for management, or which service has answered, must not be guessed.
        return surroundings._replace(blocked=UNREADABLE.format(error.text))
    world = kernel_state.read_world()
    if config.managers == "auto" and udev.serves_this_namespace():
        world = replace(world, age=hostid.boot_age())
    origin = _usable_origin(config, specs, machine)
    surroundings = _with_interfaces(world, config, origin, surroundings, record)
    is_local = surroundings.origin is not None and not surroundings.origin.mac
    own_addresses = _own_addresses(world, surroundings.outlets, is_local)
    return surroundings._replace(own_addresses=frozenset(own_addresses))


def _with_interfaces(
    world: World,
    config: Config,
    origin: Optional[MetadataService],
    surroundings: Surroundings,
    record: Record,
) -> Surroundings:
    """The surroundings with the service that has answered (`origin`), and the interfaces to use."""
    nics = {identity(device) for device in world.devices.values() if is_nic(device)}
    surroundings = surroundings._replace(nic_macs=frozenset(nics))
    if origin is None:
        return surroundings._replace(outlets=_candidate_outlets(config, world, record))
    outlets = pinned_outlets(origin, world, record)
    if outlets or not origin.mac:
        return surroundings._replace(origin=origin, outlets=outlets)
    surroundings = surroundings._replace(blocked=ABSENT.format(url=origin.url, mac=origin.mac))
    if origin.mac.partition(".")[0] in nics:
        return surroundings._replace(origin=origin)
    # Its NIC is absent: another one may have replaced it.
    return surroundings._replace(outlets=_candidate_outlets(config, world, record, origin))


def _own_addresses(world: World, outlets: Sequence[Outlet], is_local: bool) -> Iterator[str]:
    """The addresses of this host at which a service of its own may be requested.

    Not one of a NIC that is not for management, as a DHCP server there may have chosen it, unless
    a service of this host is the one that has answered (`is_local`).
    """
    usable = {outlet.name for outlet in outlets if outlet.is_likely and outlet.is_vouched}
    for device in world.devices.values():
        if is_local or device.name in usable or not outlet_identity(world, device):
            yield from (str(address.ip) for address in world.addresses.get(device.index, ()))


def _configured_policy(config: Config) -> Policy:
    return Policy(config.ignored_macs, config.management_macs)


def _usable_origin(
    config: Config, specs: Sequence[SourceSpec], machine: Machine
) -> Optional[MetadataService]:
    """The service that has answered for this instance; None if the configuration overrules it."""
    origin = machine.origin
    if origin is None or is_other_hardware(machine, hostid.read_machine()):
        return None
    configured = {request.key.mac for request in config.links}
    is_refused = is_overruled(origin, _configured_policy(config), configured)
    return origin if is_known_service(specs, origin.url) and not is_refused else None


def _candidate_outlets(
    config: Config, world: World, record: Record, origin: Optional[MetadataService] = None
) -> tuple[Outlet, ...]:
    """The interfaces through which metadata may be requested if no service has answered yet.

    With `origin`, whose NIC is gone, only NICs that have appeared since it answered.
    """
    # Only until a service has answered: it saves 6 ms of a poll.
    from neuca_tools.desired.merge import stack_layers

    document, policy = last_good(config.state).document, _configured_policy(config)
    layers = stack_layers(document, config.links, policy, world, record)
    without = (origin.mac.partition(".")[0], *origin.others) if origin else ()
    return likely_outlets(world, layers.roles, layers.policy, record, without)
