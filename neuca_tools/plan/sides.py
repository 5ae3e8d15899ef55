"""The two states that a plan compares, with the effects of its renames and deletions."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import filterfalse
from typing import Optional

from neuca_tools.desired.mtu import USUAL_MTU
from neuca_tools.desired.names import Step, rename_steps
from neuca_tools.documents.neuca.link_kinds import kernel_defaults
from neuca_tools.documents.neuca.link_settings import is_of_place
from neuca_tools.model import Address, Host, Link, LinkKey, NetworkState, OwnedObjects, Virtual
from neuca_tools.model.routing import OF_KERNEL
from neuca_tools.plan.operation import Scope, Target


@dataclass(frozen=True)
class Sides:
    """Both states, and the effects of the plan's renames and deletions.

    `steps` are the renames, `names` the names after them. `bounced` are the links that are taken
    down for a rename, `deleted` those that the plan deletes, for good or to recreate them.
    """

    observed: NetworkState
    desired: NetworkState
    owned: OwnedObjects
    steps: tuple[Step[LinkKey], ...]
    bounced: frozenset[LinkKey]
    names: Mapping[LinkKey, str]
    deleted: frozenset[LinkKey]

    def is_present(self, key: LinkKey) -> bool:
        """Whether the link is there, and this plan does not delete it."""
        return key in self.observed.links and key not in self.deleted

    def current(self, key: LinkKey) -> Link:
        """The link as it is; one without any settings if it does not exist."""
        return self.observed.links[key] if self.is_present(key) else _no_link(key)

    def wanted(self, key: LinkKey) -> Link:
        """The link as it is wanted; one without any settings if nothing is wanted of it."""
        return self.desired.links.get(key) or _no_link(key)

    def target(self, key: LinkKey) -> Target:
        return Target(key, self.names.get(key, ""), self.current(key).index)

    @cached_property
    def link_pairs(self) -> Sequence[tuple[LinkKey, Link, Link]]:
        """Key, current and wanted link of each that can exist, lower devices first, to compare."""
        pairs = []
        for key in sorted(self.desired.links, key=lambda key: key.order):
            if self.can_exist(key):
                current, wanted = self.current(key), self.desired.links[key]
                if must_recreate(current, wanted):
                    # A link that cannot be recreated keeps the MTU that it was created with.
                    wanted = wanted._replace(mtu=None)
                if key.virtual_kind == "bridge" and self._leaves_mtu_to_ports(key, wanted):
                    current = current._replace(mtu=None)
                pairs.append((key, *self._in_place(key, current, wanted)))
        return pairs

    def _in_place(self, key: LinkKey, current: Link, wanted: Link) -> tuple[Link, Link]:
        """Both links, without the settings that change as the link joins or leaves a master.

        Those of its place in the new master are new. A bond sets the MTU of its members, so an
        original one is not restored there; when a member leaves, the kernel restores one itself.
        """
        left, joined = self.master_left(key), self.master_joined(key)
        if left and left.kind == "bond":
            current = current._replace(mtu=None)
        if joined:
            kept = filterfalse(is_of_place, current.device)
            current = current._replace(device={name: current.device[name] for name in kept})
        stays = not (left or joined or wanted.master)
        if stays and current.is_in_bond:
            wanted = wanted._replace(mtu=None)
        return current, wanted

    def _leaves_mtu_to_ports(self, key: LinkKey, wanted: Link) -> bool:
        """Whether a bridge, or a VLAN on one, loses the wanted MTU with the ports that leave.

        The kernel gives a bridge the lowest MTU of its ports until somebody sets it
        (br_mtu_auto_adjust). Its VLANs keep the lower one that it has without any port.
        """
        if not wanted.mtu or not self.is_present(key):
            return False
        ports = self._ports_of(key.nic)
        mtu = _mtu_over_ports(port.mtu for port in ports)
        if mtu != self.current(key.nic).mtu:
            return False
        if key.vlan_id is not None:
            is_empty = all(self.master_left(port.key) for port in ports)
            return is_empty and min(mtu, wanted.mtu) > USUAL_MTU
        then = [self._mtu_at_the_end(port) for port in self._ports_at_the_end(key)]
        return wanted.mtu == mtu != _mtu_over_ports(then)

    def _ports_of(self, bridge: LinkKey) -> list[Link]:
        return [link for link in self.observed.links.values() if link.master == bridge]

    def _ports_at_the_end(self, bridge: LinkKey) -> Iterator[LinkKey]:
        for key in {*self.observed.links, *self.desired.links}:
            joined = self.master_joined(key)
            stays = self.current(key).master == bridge and not self.master_left(key)
            if self.can_exist(key) and (joined == bridge or (stays and not joined)):
                yield key

    def _mtu_at_the_end(self, key: LinkKey) -> int:
        """The MTU of a link after the plan; a new VLAN inherits that of its lower device."""
        mtu = self.wanted(key).mtu or self.current(key).mtu
        if not mtu and key.vlan_id is not None:
            return self._mtu_at_the_end(key.nic)
        return mtu or USUAL_MTU

    def is_lowered_first(self, wanted: Link) -> bool:
        """Whether the link gets its lower MTU before its lower device gets another one.

        A VXLAN keeps its MTU when that of its parent is lowered. The kernel then takes no MTU that
        the parent has no room for, not even a lower one (vxlan_change_mtu).
        """
        current = self.current(wanted.key)
        parent = current.virtual.parent if current.virtual else None
        if wanted.key.kind != "vxlan" or parent is None:
            return True
        before, after = self.current(parent).mtu, self.wanted(parent).mtu
        return before is None or after is None or before >= after

    def can_exist(self, key: LinkKey) -> bool:
        """Whether the link is present, or can be created."""
        if key in self.observed.links or key.nic in self.observed.links:
            return True
        return bool(key.virtual_kind) and key.nic in self.desired.links

    def _moves(self, key: LinkKey, kind: str) -> bool:
        """Whether this link joins or leaves a bond or VRF.

        The kernel takes it down for a bond, restoring its MTU, and down and up for a VRF (vrf.c).
        """
        masters = self.master_left(key), self.master_joined(key)
        return any(master.kind == kind for master in masters if master)

    def master_left(self, key: LinkKey) -> Optional[LinkKey]:
        """The bond, bridge or VRF that the link is taken out of, if any.

        A link that is requested nowhere stays in one whose members are not all known.
        """
        observed, asked = self.observed.links.get(key), self.desired.links.get(key)
        before = observed.master if observed else None
        after = asked.master if asked else None
        if before is None or before in self.deleted:
            return before
        if before == after:
            return None
        has_members = before in self.owned.vlans and self.wanted(before).virtual is not None
        return None if after is None and not has_members else before

    def master_joined(self, key: LinkKey) -> Optional[LinkKey]:
        """The bond, bridge or VRF that the link is put into, if any."""
        before, after = self.current(key).master, self.wanted(key).master
        return None if before == after and before not in self.deleted else after

    def bounces(self, key: LinkKey) -> bool:
        """Whether the plan takes the link down and up again."""
        goes_down = self.is_bounced(key) or self._moves(key.nic, "bond")
        return goes_down and not self.is_taken_down(self.carrier(key))

    def is_bounced(self, key: LinkKey) -> bool:
        """Whether the plan takes the link down for a rename, itself or with the NIC below it."""
        return key in self.bounced or key.nic in self.bounced

    def comes_up(self, nic: LinkKey) -> bool:
        """Whether the plan sets the NIC up."""
        if self.wanted(nic).state != "up":
            return False
        return self.current(nic).state != "up" or self.bounces(nic) or self._moves(nic, "vrf")

    def carrier(self, key: LinkKey) -> LinkKey:
        """The link that the kernel takes up and down together with this one, or else itself.

        It is that of a VLAN, or the port of an IPoIB child (ipoib_open, ipoib_stop).
        """
        if key.kind != "ipoib":
            return key.nic
        virtual = self.wanted(key).virtual or self.current(key).virtual or Virtual()
        return virtual.parent or key

    @cached_property
    def without_ipv4(self) -> frozenset[LinkKey]:
        """The links with IPv4 routes that lose their last IPv4 address, and these with it.

        Routes of other programs count if they can be set again without it.
        """
        routed = [hop for hop in self.desired.hops if hop.to.version == 4]
        links = {link for hop in routed for link in hop.links} | {*self._foreign_ipv4_links()}
        return frozenset(filter(self._loses_ipv4, links & self.observed.links.keys()))

    def _foreign_ipv4_links(self) -> Iterator[LinkKey]:
        keys = {link.index: key for key, link in self.observed.links.items()}
        for route in self.observed.foreign_routes:
            is_set = route.to.version == 4 and route.protocol not in OF_KERNEL
            if is_set and self.is_reached_otherwise(keys[route.index], route.via):
                yield keys[route.index]

    def is_reached_otherwise(self, key: LinkKey, via: Optional[Host]) -> bool:
        """Whether a next hop on the link is in no network of its present IPv4 addresses."""
        if via is None or via.version == 6:
            return True
        return not any(via in own.network for own in self.current(key).addresses)

    def _loses_ipv4(self, key: LinkKey) -> bool:
        pairs = {(key, own) for own in self.current(key).addresses if own.version == 4}
        stays = any(address.version == 4 for address in self.wanted(key).addresses)
        return bool(pairs) and not stays and pairs <= self.owned.addresses

    def goes_down(self, key: LinkKey) -> bool:
        """Whether the link goes down, even briefly, and loses its routes and IPv6 addresses."""
        carrier = self.carrier(key)
        for link in {key, carrier}:
            if self.bounces(link) or self.is_taken_down(link) or self._moves(link, "vrf"):
                return True
        follows = carrier != key and self.comes_up(carrier)
        return follows and self.wanted(key).state == "down"

    def is_interrupted(self, key: LinkKey) -> bool:
        """Whether the link goes away or down, and comes back to the same place."""
        stays = not (self.master_joined(key) or self.master_left(key))
        return key in self.deleted or (stays and self.goes_down(key))

    def is_up_at_the_end(self, key: LinkKey) -> bool:
        links = self.wanted(key), self.observed.links.get(key, _no_link(key))
        return next((link.state for link in links if link.state in ("up", "down")), "down") == "up"

    def is_taken_down(self, key: LinkKey) -> bool:
        """Whether a link that is up is requested to be down."""
        return self.current(key).state == "up" and self.wanted(key).state == "down"


def unrouted_addresses(current: Link, wanted: Link) -> tuple[Address, ...]:
    """The requested addresses that are present without the route to their network."""
    unrouted = {*current.bare} - {*wanted.bare}
    kept = (address for address in wanted.addresses if address in unrouted)
    return tuple(address for address in kept if address.network.prefixlen < address.max_prefixlen)


def _mtu_over_ports(mtus: Iterable[Optional[int]]) -> int:
    """The MTU that the kernel gives a bridge with ports that have these."""
    return min(filter(None, mtus), default=USUAL_MTU)


def _no_link(key: LinkKey) -> Link:
    return Link(key, key.kind, "dataplane")


def _links_to_delete(
    observed: NetworkState, desired: NetworkState, owned: OwnedObjects
) -> frozenset[LinkKey]:
    """Our links that the plan deletes, for good or to recreate them, with their upper links."""
    if not owned.vlans:
        return frozenset()
    deleted: set[LinkKey] = set()
    for key in sorted(observed.links, key=lambda key: key.order):
        current, wanted = observed.links[key], desired.links.get(key)
        ours = key in owned.vlans and (wanted is None or must_recreate(current, wanted))
        below = {key.nic} - {key}
        if current.virtual and current.virtual.parent:
            below.add(current.virtual.parent)
        if ours or below & deleted:
            deleted.add(key)
    return frozenset(deleted)


def must_recreate(current: Link, wanted: Link) -> bool:
    """Whether the link has to be recreated: only members can change. Defaults are the kernel's."""
    if current.virtual is None or wanted.virtual is None:
        return False
    if current.virtual.parent != wanted.virtual.parent:
        return True
    defaults = kernel_defaults(current.kind)
    # What this kernel does not show is as it is by default.
    options = {**defaults, **dict(current.virtual.options)}
    wishes = {**defaults, **dict(wanted.virtual.options)}
    return not wishes.items() <= options.items()


def _names_of(state: NetworkState) -> dict[LinkKey, str]:
    return {key: link.name for key, link in state.links.items() if link.name}


def _is_in(scope: Scope, key: LinkKey) -> bool:
    return scope is None or key.mac in scope or str(key) in scope


def sides_after_renames(
    observed: NetworkState, desired: NetworkState, owned: OwnedObjects, scope: Scope, live: bool
) -> Sides:
    """The two sides with their renames; `live`: the kernel renames devices that are up."""
    deleted = _links_to_delete(observed, desired, owned)
    everything, asked = _names_of(observed), _names_of(desired)
    current = {key: name for key, name in everything.items() if key not in deleted}
    wanted = {key: asked[key] for key in asked if key in current and _is_in(scope, key)}
    steps = tuple(rename_steps(current, wanted))
    names = {**everything, **asked, **current, **{step.key: step.new for step in steps}}
    renamed = () if live else steps
    bounced = frozenset(step.key for step in renamed if observed.links[step.key].state == "up")
    return Sides(observed, desired, owned, steps, bounced, names, deleted)
