"""Routes, rules and the settings of policy routing as data for JSON."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union

from neuca_tools.desired.resolve import Resolution
from neuca_tools.documents.neuca import routing
from neuca_tools.model import LinkKey, LinkRequest, NetworkState, Origin, RouteRequest, World
from neuca_tools.model.addresses import Host, Network
from neuca_tools.model.routing import PLAIN, Traits

SettingValue = Union[str, int, None]


def desired_routes(resolution: Resolution) -> list[dict[str, Any]]:
    """The routes that must be present, those that must be absent, and those left to the user."""
    desired = resolution.desired
    routes = [
        _route_json(hop.to, hop.via, "present", hop.metric, hop.traits) for hop in desired.hops
    ]
    routes += [_route_json(to, None, "absent", None) for to in desired.banned]
    return routes + [_route_json(to, None, "user", None) for to in resolution.left_alone]


def requested_routes(routes: Iterable[RouteRequest]) -> list[dict[str, Any]]:
    return [
        {
            **_route_json(route.to, route.via, route.state, route.metric, route.traits),
            "link": route.link and str(route.link),
        }
        for route in routes
    ]


def _route_json(
    to: Network, via: Optional[Host], state: str, metric: Optional[int], traits: Traits = PLAIN
) -> dict[str, Any]:
    return {
        "to": str(to),
        "via": via and str(via),
        "state": state,
        "metric": metric,
        "table": traits.table,
        "type": traits.kind,
    }


def observed_routes(world: World, names: Mapping[int, str]) -> list[dict[str, Any]]:
    """All routes but the kernel's own in the table `local`. `names` are interfaces by index."""
    return [
        {
            "to": str(route.to),
            "via": route.via and str(route.via),
            "interface": names.get(route.index),
            "metric": route.metric,
            "protocol": route.protocol,
            "table": route.traits.table,
            "type": route.traits.kind,
        }
        for route in (*world.routes, *world.other_routes)
    ]


def observed_rules(world: World) -> list[dict[str, Any]]:
    return [
        {"family": f"ipv{seen.rule.family}", "rule": seen.rule.text, "protocol": seen.protocol}
        for seen in world.rules
    ]


def explained_routing(
    key: LinkKey, request: LinkRequest, resolution: Resolution, observed: NetworkState
) -> list[dict[str, Any]]:
    """The rows of `neuca explain` on the policy routing of a link, none if it is not requested."""
    origins = {origin.setting: origin for origin in request.origins}
    desired = routing.shown_values(request.routing)
    table = resolution.tables.get(key)
    if table:
        desired["table"] = str(table)
    used = {hop.traits.table for hop in observed.hops if hop.ours and hop.link == key}
    current = {"table": table if table in used else None}
    return [
        explained_setting(name, origins.get(name), value, current.get(name), None)
        for name, value in desired.items()
    ]


def explained_setting(
    setting: str,
    origin: Optional[Origin],
    desired: SettingValue,
    current: SettingValue,
    original: SettingValue,
) -> dict[str, SettingValue]:
    """A row of `neuca explain`."""
    return {
        "setting": setting,
        "desired": desired,
        "current": current,
        "origin": origin.where if origin else "",
        "overridden": origin.overrode if origin else "",
        "original": original,
    }
