"""Routes and rules in the journal."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import Any, Optional

from neuca_tools.model import Hop, Host, LinkKey
from neuca_tools.model.addresses import MOST_KEPT
from neuca_tools.model.routing import PLAIN, Rule, Traits
from neuca_tools.state.shapes import fit, made


@lru_cache(MOST_KEPT)  # a record names each link several times
def key_of(text: str) -> LinkKey:
    """The key of a link from its text. Raises ValueError."""
    mac, dot, vlan_id = text.partition(".")
    return LinkKey(mac, int(vlan_id) if dot else None)


def hop_json(hop: Hop) -> dict[str, Any]:
    """The JSON form of a route of ours."""
    data: dict[str, Any] = {
        "to": str(hop.to),
        "link": str(hop.link),
        "via": hop.via and str(hop.via),
        "metric": hop.metric,
    }
    if hop.others:
        data["others"] = [[str(link), via and str(via)] for link, via in hop.others]
    if hop.traits != PLAIN:
        source = hop.traits.source
        data["traits"] = {**asdict(hop.traits), "source": source and str(source)}
    return data


def hop(data: Mapping[str, Any]) -> Hop:
    """The route from its JSON form. Raises TypeError, ValueError, KeyError."""
    others = ((key_of(link), _host(via)) for link, via in data.get("others", ()))
    return Hop(
        ip_network(data["to"]),
        key_of(data["link"]),
        _host(data["via"]),
        fit(data["metric"], int, "metric"),
        traits=_traits(data.get("traits", {})),
        others=tuple(others),
    )


def _traits(data: Mapping[str, Any]) -> Traits:
    plain = {name: value for name, value in data.items() if name != "source"}
    return replace(made(Traits, plain), source=_host(data.get("source")))


def _host(text: Optional[str]) -> Optional[Host]:
    return ip_address(text) if text else None


def tables_json(tables: Mapping[str, int]) -> dict[str, Any]:
    """The tables of the links; an empty object if there are none, as earlier versions wrote it."""
    return {"tables": dict(tables)} if tables else {}


def rules_json(rules: Mapping[Rule, LinkKey]) -> dict[str, Any]:
    """The JSON form of rules of ours, each with its link; as above."""
    found = [{"link": str(link), "rule": asdict(rule)} for rule, link in sorted(rules.items())]
    return {"rules": found} if found else {}


def rules(data: Iterable[Mapping[str, Any]]) -> dict[Rule, LinkKey]:
    """The rules from their JSON form. Raises TypeError, ValueError, KeyError."""
    return {made(Rule, one["rule"]): key_of(one["link"]) for one in data}
