"""The routing table of each link for policy routing, and the tables that no link may have."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Mapping

from neuca_tools.desired import vrfs
from neuca_tools.desired.roles import Scene
from neuca_tools.desired.routes import foreign_vrfs
from neuca_tools.model import LinkKey, World
from neuca_tools.model.routing import KERNEL_TABLES, ROUTE_PROTOCOL, SeenRule

TABLES = range(31001, 32000)


def closed(scene: Scene) -> dict[int, str]:
    """The tables that no document may give a default route, with the reasons.

    Whoever marks packets for a table means this table.
    """
    found = {
        seen.rule.table: f"rule {seen.rule.priority} of another program refers to its table"
        for seen in scene.world.rules
        if seen.protocol != ROUTE_PROTOCOL and seen.rule.table and not _is_marked(seen)
    }
    found.update(dict.fromkeys(vrfs.tables(scene.requests).values(), "its table is that of a VRF"))
    found.update(
        (table, f'its table is that of the VRF "{name}", which neucad did not create')
        for table, name in foreign_vrfs(scene.world, scene.roles).items()
    )
    return found


def _is_marked(seen: SeenRule) -> bool:
    """Whether a rule is about packets with a mark only."""
    return seen.plain and bool(seen.rule.mask)


def assigned(links: Collection[LinkKey], scene: Scene) -> dict[LinkKey, int]:
    """The table of each link: the requested one, its previous one, or the first unused one.

    No two links have the same: the routes of one would replace those of the other. Of links that
    request the same table, only the first gets it.
    """
    requests, recorded = scene.requests, scene.record.tables
    foreign, ours = _used_tables(scene.world)
    asked = {request.routing.table for request in requests.values()}
    spare = iter(_spare_tables(foreign | ours | asked, recorded, set(map(str, requests))))
    usable = set(TABLES) - (foreign - ours) - asked
    found: dict[int, LinkKey] = {}
    for key in sorted(links, key=lambda key: key.order):
        table = requests[key].routing.table
        before = recorded.get(str(key), 0)
        if not table and before in usable:
            usable.remove(before)
            table = before
        table = table or next(spare, 0)
        if table:
            found.setdefault(table, key)
    return {key: table for table, key in found.items()}


def _spare_tables(
    taken: Collection[int], recorded: Mapping[str, int], requested: Collection[str]
) -> list[int]:
    """The tables for links without one.

    That of a link that is not requested now is given to another one last of all.
    """
    kept = {table for key, table in recorded.items() if key in requested}
    others = set(recorded.values()) - kept
    used = {*taken, *kept, *others}
    free = [table for table in TABLES if table not in used]
    return [*free, *sorted(others.difference(taken))]


def _used_tables(world: World) -> tuple[set[int], set[int]]:
    """The tables with routes or rules of other programs, and those with ours."""
    foreign: set[int] = set(KERNEL_TABLES)
    ours: set[int] = set()
    for route in world.tables:
        (ours if route.protocol == ROUTE_PROTOCOL else foreign).add(route.traits.table)
    for seen in world.rules:
        (ours if seen.protocol == ROUTE_PROTOCOL else foreign).add(seen.rule.table)
    return foreign, ours
