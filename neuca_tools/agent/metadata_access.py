"""Where the sources may look: the interfaces of this moment, judged by the record, the documents and the configuration."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Optional

from neuca_tools.backends import hostid, outlook
from neuca_tools.config import Config
from neuca_tools.desired.merge import stack
from neuca_tools.desired.outlets import is_void, outlets, pinned, strangers
from neuca_tools.desired.roles import Policy
from neuca_tools.errors import RecordError
from neuca_tools.model import LinkRequest, Record, World
from neuca_tools.model.machine import Machine, Origin, Outlet, elsewhere
from neuca_tools.model.topology import identity, is_nic
from neuca_tools.sources import SourceSpec, Surroundings, offers, uses_network
from neuca_tools.state.active_document import last_good
from neuca_tools.state.records import load_machine, load_record

UNREADABLE = "which NIC is for management cannot be told: {}"
ABSENT = (
    "only {url} through the NIC {mac} is asked, which answered for this instance, and that NIC is"
    " not there (neucad(8), Where metadata comes from)"
)


def surroundings(config: Config, specs: Sequence[SourceSpec]) -> Surroundings:
    """What these sources have to know of the host. Raises ObserveError."""
    around = config.surroundings
    if not uses_network(specs):
        return around
    try:
        record = load_record(config.state)
    except RecordError as error:  # whom a NIC belongs to is not known then: it is not guessed
        return replace(around, blocked=UNREADABLE.format(error.text))
    world = outlook.look()
    policy = Policy(config.ignored_macs, config.management_macs)
    origin = _origin(config, specs, policy, config.links)
    own = {str(address.ip) for found in world.addresses.values() for address in found}
    nics = {identity(device) for device in world.devices.values() if is_nic(device)}
    around = replace(around, own=frozenset(own), nics=frozenset(nics))
    if origin is None:
        return replace(around, outlets=_candidates(config, world, record, policy))
    around = replace(around, origin=origin, outlets=pinned(origin, world, record))
    if around.outlets or not origin.mac:
        return around
    if not strangers(origin, world):
        return replace(around, blocked=ABSENT.format(url=origin.url, mac=origin.mac))
    others = _candidates(config, world, record, policy, origin)
    blocked = ABSENT.format(url=origin.url, mac=origin.mac)
    return replace(around, origin=None, outlets=others, blocked=blocked)


def _origin(
    config: Config, specs: Sequence[SourceSpec], policy: Policy, links: Sequence[LinkRequest]
) -> Optional[Origin]:
    """The service that has answered for this instance, unless the administrator says otherwise."""
    try:
        before = load_machine(config.state)
    except RecordError:
        before = Machine()
    origin = None if elsewhere(before, hostid.look()) else before.origin
    configured = {request.key.mac for request in links}
    if origin is None or is_void(origin, policy, configured) or not offers(specs, origin.url):
        return None
    return origin


def _candidates(
    config: Config, world: World, record: Record, policy: Policy, origin: Optional[Origin] = None
) -> tuple[Outlet, ...]:
    """Where no service has answered, or its NIC is gone (`origin`): then only a NIC that is new since."""
    document = last_good(config.state).document
    roles = stack(document, config.links, policy, world, record).roles
    without = (origin.mac.partition(".")[0], *origin.others) if origin else ()
    return outlets(world, roles, policy, record, without)
