"""The two states that a plan compares, and what the renames and deletions of the plan do to them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Optional

from neuca_tools.desired.names import Step, rename_steps
from neuca_tools.model import Link, LinkKey, NetworkState, Owned, Virtual
from neuca_tools.plan.operation import Target


@dataclass(frozen=True)
class Sides:
    """Both states, and what the renames of this plan do to them."""

    have: NetworkState
    want: NetworkState
    owned: Owned
    steps: tuple[Step[LinkKey], ...] = ()
    bounced: frozenset[str] = frozenset()
    names: Mapping[LinkKey, str] = field(default_factory=dict)
    gone: frozenset[LinkKey] = frozenset()

    def found(self, key: LinkKey) -> Optional[Link]:
        """What is found and stays."""
        return None if key in self.gone else self.have.links.get(key)

    def target(self, key: LinkKey) -> Target:
        found = self.found(key)
        return Target(key, self.names.get(key, ""), found.index if found else 0)

    def both(self) -> Iterator[tuple[LinkKey, Optional[Link], Link]]:
        """Every wanted link with what is found of it, what is below first; an absent NIC is not planned for."""
        for key in sorted(self.want.links, key=lambda key: key.order):
            if self.there(key):
                found, wanted = self.found(key), self.want.links[key]
                if found and _is_other(found.virtual, wanted.virtual):
                    wanted = replace(wanted, mtu=None)  # it stays as it was made, with its room
                yield key, found, wanted

    def there(self, key: LinkKey) -> bool:
        """Whether it is there, or can be made."""
        below = self.have.links.get(key.nic) or (self.want.links.get(key.nic) if key.made else None)
        return key in self.have.links or below is not None

    def moves(self, nic: LinkKey) -> bool:
        """Whether this NIC gets into a bond or out of one: the kernel takes it down for that, and gives it back its own MTU."""
        return "bond" in {master.kind for master in (self.leaves(nic), self.joins(nic)) if master}

    def leaves(self, key: LinkKey) -> Optional[LinkKey]:
        """The bond or bridge that it is taken out of, if any; one that is not asked about in full lets none go."""
        found, wanted = self.have.links.get(key), self.want.links.get(key)
        before, after = found.master if found else None, wanted.master if wanted else None
        whole = self.want.links.get(before) if before in self.owned.vlans else None
        lets_go = (
            before in self.gone
            or after is not None
            or (whole is not None and whole.virtual is not None)
        )
        return before if lets_go and (before != after or before in self.gone) else None

    def joins(self, key: LinkKey) -> Optional[LinkKey]:
        """The one that it is put into, if any."""
        found, wanted = self.found(key), self.want.links.get(key)
        before = found.master if found and found.master not in self.gone else None
        return wanted.master if wanted and wanted.master != before else None

    def bounces(self, key: LinkKey) -> bool:
        """Whether it is down for a moment."""
        return key.mac in self.bounced or self.moves(key.nic)

    def comes_up(self, nic: LinkKey) -> bool:
        wanted, found = self.want.links.get(nic), self.found(nic)
        return (
            wanted is not None
            and wanted.state == "up"
            and (found is None or found.state != "up" or self.bounces(nic))
        )

    def goes_down(self, key: LinkKey) -> bool:
        """Whether this plan takes the link down, if only for a moment: it then loses routes and IPv6 addresses."""
        nic, nic_found = self.want.links.get(key.nic), self.have.links.get(key.nic)
        nic_down = (
            nic is not None
            and nic.state == "down"
            and nic_found is not None
            and nic_found.state == "up"
        )
        link, found = self.want.links.get(key), self.found(key)
        own_down = (
            link is not None and link.state == "down" and found is not None and found.state == "up"
        )
        follows = (
            link is not None
            and link.state == "down"
            and key.vlan_id is not None
            and self.comes_up(key.nic)
        )
        return self.bounces(key) or nic_down or own_down or follows


def _gone(have: NetworkState, want: NetworkState, owned: Owned) -> frozenset[LinkKey]:
    """What this plan deletes of ours, for good or to make it anew; with it goes what is on it."""
    gone: set[LinkKey] = set()
    for key in sorted(have.links, key=lambda key: key.order):
        found, wanted = have.links[key], want.links.get(key)
        ours = key in owned.vlans and (wanted is None or _is_other(found.virtual, wanted.virtual))
        parent = found.virtual.parent if found.virtual else None
        if ours or (key != key.nic and key.nic in gone) or parent in gone:
            gone.add(key)
    return frozenset(gone)


def _is_other(found: Optional[Virtual], wanted: Optional[Virtual]) -> bool:
    """Whether it has to be made anew: all but the members is for the whole life of a link."""
    if found is None or wanted is None:
        return False
    return found.parent != wanted.parent or not set(wanted.options) <= set(found.options)


def renamed(
    have: NetworkState,
    want: NetworkState,
    owned: Owned,
    scope: Optional[Collection[str]],
    live: bool,
) -> Sides:
    gone = _gone(have, want, owned)
    everything = {key: link.name for key, link in have.links.items() if link.name}
    current = {key: name for key, name in everything.items() if key not in gone}
    wanted = {
        key: link.name
        for key, link in want.links.items()
        if link.name and key in current and (scope is None or {key.mac, str(key)} & set(scope))
    }
    steps = tuple(rename_steps(everything, wanted))
    names = {
        **everything,
        **{key: link.name for key, link in want.links.items() if link.name and key not in current},
        **current,
        **{step.key: step.new for step in steps},
    }
    up = {key for key, link in have.links.items() if link.state == "up"}
    bounced = frozenset() if live else frozenset(step.key.mac for step in steps if step.key in up)
    return Sides(have, want, owned, steps, bounced, names, gone)
