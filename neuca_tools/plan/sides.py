"""The two states that a plan compares, with the effects of its renames and deletions."""

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
    """Both states, and the effects of the plan's renames and deletions.

    `steps` are the renames, `names` the names after them. `bounced` are the MACs of NICs that are
    taken down for a rename. `gone` are the links that the plan deletes.
    """

    have: NetworkState
    want: NetworkState
    owned: Owned
    steps: tuple[Step[LinkKey], ...] = ()
    bounced: frozenset[str] = frozenset()
    names: Mapping[LinkKey, str] = field(default_factory=dict)
    gone: frozenset[LinkKey] = frozenset()

    def found(self, key: LinkKey) -> Optional[Link]:
        """The link as it is, None if it is absent or this plan deletes it."""
        return None if key in self.gone else self.have.links.get(key)

    def target(self, key: LinkKey) -> Target:
        found = self.found(key)
        return Target(key, self.names.get(key, ""), found.index if found else 0)

    def both(self) -> Iterator[tuple[LinkKey, Optional[Link], Link]]:
        """Key, present link and wanted link, lower devices first; nothing is planned for an absent NIC."""
        for key in sorted(self.want.links, key=lambda key: key.order):
            if self.there(key):
                found, wanted = self.found(key), self.want.links[key]
                if found and _is_other(found.virtual, wanted.virtual):
                    # A link that cannot be recreated keeps the MTU that it was created with.
                    wanted = replace(wanted, mtu=None)
                yield key, found, wanted

    def there(self, key: LinkKey) -> bool:
        """Whether the link is present, or can be created."""
        below = self.have.links.get(key.nic) or (self.want.links.get(key.nic) if key.made else None)
        return key in self.have.links or below is not None

    def moves(self, nic: LinkKey) -> bool:
        """Whether this NIC joins or leaves a bond: the kernel takes it down for that, and restores its MTU."""
        return "bond" in {master.kind for master in (self.leaves(nic), self.joins(nic)) if master}

    def leaves(self, key: LinkKey) -> Optional[LinkKey]:
        """The bond or bridge that the link is taken out of, if any.

        A link that is asked for nowhere stays in a bond or bridge whose members are not all known.
        """
        found, wanted = self.have.links.get(key), self.want.links.get(key)
        before, after = found.master if found else None, wanted.master if wanted else None
        if before in self.gone:
            return before
        if before is None or before == after:
            return None
        master = self.want.links.get(before) if before in self.owned.vlans else None
        has_members = master is not None and master.virtual is not None
        return before if after is not None or has_members else None

    def joins(self, key: LinkKey) -> Optional[LinkKey]:
        """The bond or bridge that the link is put into, if any."""
        found, wanted = self.found(key), self.want.links.get(key)
        before = found.master if found and found.master not in self.gone else None
        return wanted.master if wanted and wanted.master != before else None

    def bounces(self, key: LinkKey) -> bool:
        """Whether the plan takes the link down and up again."""
        return key.mac in self.bounced or self.moves(key.nic)

    def comes_up(self, nic: LinkKey) -> bool:
        """Whether the plan sets the NIC up."""
        wanted, found = self.want.links.get(nic), self.found(nic)
        if wanted is None or wanted.state != "up":
            return False
        return found is None or found.state != "up" or self.bounces(nic)

    def goes_down(self, key: LinkKey) -> bool:
        """Whether the plan takes the link down, even for a moment: it then loses its routes and IPv6 addresses."""
        if self.bounces(key) or _is_taken_down(
            self.have.links.get(key.nic), self.want.links.get(key.nic)
        ):
            return True
        link = self.want.links.get(key)
        if _is_taken_down(self.found(key), link):
            return True
        follows = key.vlan_id is not None and self.comes_up(key.nic)
        return follows and link is not None and link.state == "down"


def _is_taken_down(found: Optional[Link], wanted: Optional[Link]) -> bool:
    """Whether a link that is up is asked to be down."""
    if found is None or wanted is None:
        return False
    return found.state == "up" and wanted.state == "down"


def _gone(have: NetworkState, want: NetworkState, owned: Owned) -> frozenset[LinkKey]:
    """The links of ours that the plan deletes, to recreate them or for good, with all links on them."""
    gone: set[LinkKey] = set()
    for key in sorted(have.links, key=lambda key: key.order):
        found, wanted = have.links[key], want.links.get(key)
        ours = key in owned.vlans and (wanted is None or _is_other(found.virtual, wanted.virtual))
        parent = found.virtual.parent if found.virtual else None
        if ours or (key != key.nic and key.nic in gone) or parent in gone:
            gone.add(key)
    return frozenset(gone)


def _is_other(found: Optional[Virtual], wanted: Optional[Virtual]) -> bool:
    """Whether the link has to be recreated: only its members can be changed."""
    if found is None or wanted is None:
        return False
    return found.parent != wanted.parent or not set(wanted.options) <= set(found.options)


def _names(state: NetworkState) -> dict[LinkKey, str]:
    return {key: link.name for key, link in state.links.items() if link.name}


def _is_in(key: LinkKey, scope: Optional[Collection[str]]) -> bool:
    return scope is None or key.mac in scope or str(key) in scope


def renamed(
    have: NetworkState,
    want: NetworkState,
    owned: Owned,
    scope: Optional[Collection[str]],
    live: bool,
) -> Sides:
    """The two sides with their renames; `live`: the kernel renames devices that are up."""
    gone = _gone(have, want, owned)
    everything, asked = _names(have), _names(want)
    current = {key: name for key, name in everything.items() if key not in gone}
    wanted = {key: name for key, name in asked.items() if key in current and _is_in(key, scope)}
    steps = tuple(rename_steps(everything, wanted))
    names = {**everything, **asked, **current, **{step.key: step.new for step in steps}}
    bounced: frozenset[str] = frozenset()
    if not live:
        bounced = frozenset(step.key.mac for step in steps if have.links[step.key].state == "up")
    return Sides(have, want, owned, steps, bounced, names, gone)
