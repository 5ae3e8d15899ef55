"""Read netplan's `routes` and `routing-policy` of one link (netplan-yaml(5), "Routing")."""

# SPDX-License-Identifier: MIT

from typing import Optional, cast

from neuca_tools.documents.neuca import routing, values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.platform.drafts import UNSPECIFIED, Draft
from neuca_tools.documents.platform.parts import Part, cidr_text, masked_network
from neuca_tools.model import Network
from neuca_tools.model.addresses import EVERYTHING
from neuca_tools.model.routing import (
    KINDS,
    MAIN_TABLE,
    RouteKind,
    RouteRequest,
    RuleRequest,
    Traits,
)

KEYS = frozenset(
    "metric on-link scope table type mtu advertised-mss from routing-policy priority mark"
    " type-of-service".split()
)
# The other types of netplan-yaml(5).
_FOREIGN_KINDS = ("anycast", "broadcast", "local", "multicast", "nat", "throw", "xresolve")
_ROUTE_KEYS = frozenset(
    "from to via table type scope metric mtu on-link congestion-window advertised-receive-window"
    " advertised-mss".split()
)
_DEFAULT = ("default", "0.0.0.0/0", "::/0")


def read(draft: Draft) -> None:
    """Add the routes and rules of a link; those of a VRF are in its table, or lead to it."""
    own = 0
    if draft.key.kind == "vrf" and draft.virtual:
        own = int(draft.virtual.option("table") or 0)
    for kind, known, add in (
        ("routes", _ROUTE_KEYS, _add_route),
        ("routing-policy", _RULE_READERS.keys(), _add_rule),
    ):
        for item in draft.part.parts(kind):
            with draft.all_or_nothing():
                item.refuse_besides(known)
                add(draft, item, own)


def _add_route(draft: Draft, route: Part, own: int) -> None:
    table = route.read("table", values.route_table) or own
    if own and table != own:
        route.fault("table", str(table), f"the table of this VRF is {own}, ignoring the route")
        return
    kind: RouteKind = route.read("type", _route_type) or "unicast"
    to, before = route.text("to") or "", len(draft.routes)
    if table in (0, MAIN_TABLE) and _is_plain(route, kind):
        draft.add_route(route, "to", *_split_destination(to))
    else:
        _add_special(draft, route, to, kind)
    draft.routes[before:] = [
        _with_traits(request, route, table or MAIN_TABLE, kind) for request in draft.routes[before:]
    ]


def _route_type(text: str) -> RouteKind:
    if text in _FOREIGN_KINDS:
        raise values.ForeignValueError(f"routes of the type {text} are left to other programs")
    return cast(RouteKind, values.word(text, KINDS))


def _is_plain(route: Part, kind: RouteKind) -> bool:
    """Whether it is a default route, or one with a next hop in a network of its link."""
    has_gateway = not route.flag("on-link") and bool(_hop_text(route))
    return kind == "unicast" and (has_gateway or route.text("to") in _DEFAULT)


def _hop_text(route: Part) -> str:
    """The next hop; empty if there is none, which networkd also takes 0.0.0.0 and :: for."""
    text = route.text("via") or ""
    return "" if text in UNSPECIFIED else text


def _add_special(draft: Draft, route: Part, to: str, kind: str) -> None:
    """Add a route that may have no next hop, or lead anywhere, as it is in a table of its own."""
    text = _hop_text(route)
    if text and kind != "unicast":
        route.warn("via", f"a route of the type {kind} cannot have a next hop, ignoring it")
        text = ""
    via = route.parse("via", text, values.next_hop) if text else None
    network = _special_prefix(route, to)
    if network is None or (text and via is None):
        return
    if via and via.version != network.version:
        route.fault("via", str(via), f'the next hop is not of the family of "{network}"')
    else:
        draft.routes.append(RouteRequest(network, "present", via, route.where, draft.key))


def _special_prefix(route: Part, to: str) -> Optional[Network]:
    if to == "default":
        to = str(EVERYTHING[6 if ":" in str(route.text("via")) else 4])
    return route.parse("to", to, _selected_prefix)


def _split_destination(to: str) -> tuple[str, Optional[str]]:
    """A destination and its prefix length: a bare address is a host, as in ip-route(8)."""
    if "/" in to or to == "default":
        return to, None
    return to, "128" if ":" in to else "32"


def _selected_prefix(text: str) -> Network:
    """The prefix that a rule selects; host bits are masked, as by networkd."""
    return masked_network(cidr_text(*_split_destination(text)))


_RULE_READERS = {**routing.RULE_READERS, "from": _selected_prefix, "to": _selected_prefix}


def _with_traits(request: RouteRequest, route: Part, table: int, kind: RouteKind) -> RouteRequest:
    source = route.read("from", values.host)
    if source and source.version != request.to.version:
        route.fault("from", str(source), f'the source is not of the family of "{request.to}"')
    traits = Traits(
        table,
        kind,
        route.read("scope", lambda text: values.word(text, routing.SCOPES)) or "",
        bool(route.flag("on-link")) and request.via is not None,
        route.mtu() or 0,
        route.read("advertised-mss", routing.advmss) or 0,
        source,
    )
    return request._replace(traits=traits, metric=route.read("metric", routing.metric))


def _add_rule(draft: Draft, rule: Part, own: int) -> None:
    """Add a rule; with an unusable value, it is ignored as a whole."""
    errors = rule.faults.unusable
    read = {key: rule.read(key, read_value) for key, read_value in _RULE_READERS.items()}
    selectors = {key: value for key, value in read.items() if value is not None}
    if rule.faults.unusable != errors:
        return
    table = selectors.setdefault("table", own)
    if not table:
        rule.fault("table", None, "a rule without a table, ignoring it", "warning")
        return
    if own and table != own:
        rule.fault("table", rule.text("table"), f"the table of this VRF is {own}, ignoring it")
        return
    try:
        own_rules = routing.rules_of(selectors)
        draft.rules += [RuleRequest(own_rule, rule.where, draft.key) for own_rule in own_rules]
    except UnusableError as reason:
        rule.fault("", None, f"{reason}, ignoring it")
