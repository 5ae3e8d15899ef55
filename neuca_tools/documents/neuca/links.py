"""Parse link sections (`[interface MAC]`, `[vlan MAC.ID]`, `[bond NAME]`), and merge requests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from neuca_tools.documents.neuca import automatic_keys, link_kinds, routing_keys, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.link_settings import ATTRIBUTES, SETTINGS
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind
from neuca_tools.model import Address, Fault, LinkRequest, LinkState, Origin
from neuca_tools.model.links import KINDS, LinkKey, Virtual
from neuca_tools.model.routing import UNROUTED
from neuca_tools.model.rows import UnknownWord

# Where a setting comes from that no text gives.
DEFAULT = "default"
MAX_SETTINGS = 1024
_STATES: Mapping[str, LinkState] = {"up": "up", "down": "down", "user": "user"}
_SYSCTL = "sysctl."
# The fields of a request that a single line sets completely.
_SINGLE = ("state", "name", "addresses", "vrf", "dns", *ATTRIBUTES)


class Asked(NamedTuple):
    """A request with the line that each of its settings came from.

    `unsure`: a state was given that is unusable, so the default state must not be used.
    """

    request: LinkRequest
    lines: Mapping[str, Line] = {}
    unsure: bool = False


class Draft:
    """A request in the making: lines about one link add to it, and a later line wins.

    Nothing is copied for each line. `lines` has the line of each setting. `unsure`: see `Asked`.
    """

    def __init__(self, key: LinkKey) -> None:
        self.key = key
        self.lines: dict[str, Line] = {}
        self.unsure = False
        self._fields: dict[str, Any] = {}
        self._pairs: dict[str, dict[str, str]] = {}
        self._origins: dict[str, Origin] = {}
        if key.kind in KINDS:
            self._fields["virtual"] = Virtual()

    def get(self, name: str) -> Any:  # noqa: ANN401 - that of the field
        """The value of a field; None if no line has given one."""
        return self._fields.get(name)

    def give(
        self, line: Line, name: str, value: object, setting: str = "", shown: str = ""
    ) -> None:
        """Set a field; messages name it by `setting`, and its value by `shown`."""
        self._fields[name] = value
        self._note(line, setting or name, shown or _shown(value))

    def add(
        self, line: Line, name: str, pair: tuple[str, Any], setting: str, shown: str = ""
    ) -> None:
        """Add a pair of key and value to a field that consists of such pairs."""
        key, value = pair
        self._pairs.setdefault(name, {})[key] = value
        self._note(line, setting, shown or str(value))

    def _note(self, line: Line, setting: str, value: str) -> None:
        old, overrode = self._origins.get(setting), ""
        if old:
            overrode = f"{old.value} from {old.where}"
        self._origins[setting] = Origin(setting, value, line.where, overrode)
        self.lines[setting] = line

    def asked(self) -> Asked:
        """What the lines have asked for."""
        pairs: dict[str, Any] = {name: tuple(one.items()) for name, one in self._pairs.items()}
        origins = tuple(self._origins.values())
        request = LinkRequest(self.key, origins=origins, **self._fields, **pairs)
        return Asked(request, self.lines, self.unsure and request.state is None)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)


class Read(NamedTuple):
    """A checked request, and the faults of lines that contradict others."""

    asked: Asked
    faults: list[Fault]


def section_key(section: str) -> LinkKey:
    """The link that a section is about; raises UnusableError if its header does not name one."""
    _, _, name = section.partition(" ")
    kind = link_kind(section)
    if kind == "interface":
        return LinkKey(values.nic(name))
    if kind != "vlan":
        return link_kinds.link_key(kind, name)
    below, dot, vlan = name.rpartition(".")
    if not dot:
        raise UnusableError(f'"{values.clip(name)}" is not a MAC address, a "." and a VLAN ID')
    kind_below, _, name_below = below.partition(" ")
    if kind_below in KINDS:
        return link_kinds.vlan(link_kinds.link_key(kind_below, name_below), vlan)
    return LinkKey(values.nic(below), values.vlan_id(vlan))


def setting_name(line: Line) -> str:
    """The setting of a line in a link's section; equal for all spellings of a sysctl key."""
    if not line.key.startswith(_SYSCTL):
        return line.key
    try:
        return _SYSCTL + values.sysctl_key(line.written[len(_SYSCTL) :])
    except UnusableError:
        return line.key


def state(text: str) -> LinkState:
    """Parse a state; raises UnusableError."""
    return _STATES[values.word(text, _STATES)]


def _vrf(text: str) -> str:
    """The name of a VRF that the link is to be a member of."""
    return link_kinds.link_key("vrf", text).given_name


_READERS: Mapping[str, Callable[[str], object]] = {
    "state": state,
    "name": values.link_name,
    "vrf": _vrf,
    "duplicate-address-detection": values.detection,
    "dns": lambda text: values.word(text, ("per-link", "no")),
    **{key: row.parse for key, row in SETTINGS.items()},
}


def read_section(draft: Draft, lines: Iterable[Line]) -> list[Fault]:
    """Parse the lines of a section of the link; an unusable line becomes a fault and is ignored."""
    faults: list[Fault] = []
    for number, line in enumerate(lines):
        if number == MAX_SETTINGS:
            reason = f"more than {MAX_SETTINGS} settings of one link, ignoring the rest"
            faults.append(line._replace(key="").fault(reason))
            break
        try:
            faults += _take(draft, line)
        except UnusableError as reason:
            draft.unsure = draft.unsure or line.key == "state"
            faults.append(line.fault(str(reason), unknown=reason.unknown))
    return faults


def _take(draft: Draft, line: Line) -> list[Fault]:
    """Add the setting of a line, and return its faults; raises UnusableError."""
    if line.key == "addresses":
        found, faults = _addresses(line)
        if found:
            draft.give(line, "addresses", found)
        return faults
    _take_one(draft, line)
    return []


def _take_one(draft: Draft, line: Line) -> None:
    kind = draft.key.kind
    if line.key.startswith(_SYSCTL):
        key = values.sysctl_key(line.written[len(_SYSCTL) :])
        draft.add(line, "sysctls", (key, values.sysctl_value(line.value)), _SYSCTL + key)
        return
    # Policy routing has no part in a VRF, whose table is its own.
    routed = {} if kind == "vrf" else routing_keys.READERS
    own = link_kinds.names(kind)
    if line.key in routed:
        _take_routing(draft, line)
    elif line.key in automatic_keys.FIELDS:
        _take_automatic(draft, line)
    elif line.key in own or (line.key == "name" and kind in KINDS):
        _take_virtual(draft, line)
    elif line.key in _READERS and line.key != kind:  # no VRF is in another one
        _take_setting(draft, line)
    else:
        known = sorted({"addresses", *_READERS, *routed, *automatic_keys.FIELDS, *own} - {kind})
        reason = f"unknown key; known are {', '.join(known)} and sysctl.KEY"
        raise UnusableError(reason, UnknownWord("key", line.key, (*known, "sysctl.KEY")))


def _take_routing(draft: Draft, line: Line) -> None:
    routing = routing_keys.READERS[line.key](line.value)
    shown, both = routing_keys.shown(routing)[line.key], draft.get("routing") or UNROUTED
    draft.give(line, "routing", routing.over(both), setting=line.key, shown=shown)


def _take_automatic(draft: Draft, line: Line) -> None:
    wish, shown = automatic_keys.read(draft.key, line.key, line.value)
    both = automatic_keys.over(wish, draft.get("automatic"))
    draft.give(line, "automatic", both, setting=line.key, shown=shown)


def _take_setting(draft: Draft, line: Line) -> None:
    found = _READERS[line.key](line.value)
    if line.key in _SINGLE:
        draft.give(line, line.key, found)
    elif isinstance(found, tuple):
        draft.add(line, "sysctls", found, line.key, line.value)
    else:
        draft.add(line, "device", (line.key, found), line.key)


def _take_virtual(draft: Draft, line: Line) -> None:
    """Add a setting that only virtual links have."""
    link = draft.key
    if line.key == "name":
        raise UnusableError(f'its name is "{link.given_name}", as the section says')
    both = link_kinds.setting(link.kind, line.key, line.value).over(draft.get("virtual"))
    shown = link_kinds.shown(both, line.key)
    draft.give(line, "virtual", both, setting=line.key, shown=shown)


def one_address(line: Line, text: str) -> tuple[Address, list[Fault]]:
    """Parse an address; one without a prefix length gets a warning. Raises UnusableError."""
    found = values.address(text)
    if "/" in text:
        return found, []
    reason = f'"{found.ip}" has no prefix length, treated as "{found}"'
    return found, [line.fault(reason, "warning")]


def _addresses(line: Line) -> tuple[tuple[Address, ...], list[Fault]]:
    found: dict[Address, None] = {}
    faults: list[Fault] = []
    texts = [text for text in line.value.split(",") if text.strip()]
    if len(texts) > MAX_SETTINGS:
        raise UnusableError(f"more than {MAX_SETTINGS} addresses")
    for text in texts:
        try:
            address, warnings = one_address(line, text)
        except UnusableError as reason:
            faults.append(line.fault(str(reason), unknown=reason.unknown))
            continue
        if address in found:
            warnings = [line.fault(f'"{address}" is listed twice', "warning")]
        faults += warnings
        found[address] = None
    return tuple(found), faults


# --- Merging requests for one link ----------------------------------------------------------------


def overlay(below: LinkRequest, above: LinkRequest) -> LinkRequest:
    """Merge two requests setting by setting; `above` wins, unless its state is only a default."""
    defaulted = any(one.setting == "state" and one.where == DEFAULT for one in above.origins)
    own = above
    if defaulted and below.state:
        own = replace(above, state=None, origins=_without(above.origins, "state"))
    virtual = below.virtual
    if own.virtual:
        virtual = own.virtual.over(virtual)
    single: dict[str, Any] = {name: getattr(own, name) or getattr(below, name) for name in _SINGLE}
    return LinkRequest(
        above.key,
        **single,
        sysctls=tuple({**dict(below.sysctls), **dict(own.sysctls)}.items()),
        device=tuple({**dict(below.device), **dict(own.device)}.items()),
        virtual=virtual,
        routing=own.routing.over(below.routing),
        automatic=automatic_keys.over(own.automatic, below.automatic),
        offers=own.offers or below.offers,
        origins=_overlay_origins(below.origins, own.origins),
    )


def _overlay_origins(below: Iterable[Origin], above: Iterable[Origin]) -> tuple[Origin, ...]:
    merged = {origin.setting: origin for origin in below}
    for origin in above:
        old = merged.get(origin.setting)
        if old:
            origin = origin._replace(overrode=f"{old.value} from {old.where}")
        merged[origin.setting] = origin
    return tuple(merged.values())


def _without(origins: Iterable[Origin], *settings: str) -> tuple[Origin, ...]:
    return tuple(origin for origin in origins if origin.setting not in settings)


# --- Checks of complete requests ------------------------------------------------------------------


def up_by_default(request: LinkRequest) -> LinkRequest:
    """The request with state `up` if it has none."""
    if request.state:
        return request
    return replace(request, state="up", origins=(Origin("state", "up", DEFAULT), *request.origins))


def check(asked: Asked) -> Read:
    """The request without settings that contradict others, and their faults."""
    if asked.request.state == "user":
        return _hands_off(asked)
    return _without_small_mtu(asked)


def hands_off(request: LinkRequest) -> LinkRequest:
    """The request for a link in state `user`: nothing but its name."""
    kept = tuple(origin for origin in request.origins if origin.setting in ("state", "name"))
    return LinkRequest(
        request.key, state="user", name=request.name, origins=kept, virtual=request.virtual
    )


def _hands_off(asked: Asked) -> Read:
    faults = [
        line.fault(f'the state is "user", ignoring {setting}', "warning")
        for setting, line in asked.lines.items()
        if setting not in ("state", "name")
    ]
    return Read(asked._replace(request=hands_off(asked.request)), faults)


def _without_small_mtu(asked: Asked) -> Read:
    """Drop an MTU below 1280 bytes from a link with IPv6 addresses (RFC 8200, section 5).

    The kernel would remove every IPv6 address (addrconf.c).
    """
    request = asked.request
    if not request.mtu or request.mtu >= values.IPV6_MINIMUM_MTU:
        return Read(asked, [])
    if all(address.version == 4 for address in request.addresses):
        return Read(asked, [])
    reason = f"an MTU below {values.IPV6_MINIMUM_MTU} cannot carry the IPv6 addresses of this link"
    request = replace(request, mtu=None, origins=_without(request.origins, "mtu"))
    return Read(asked._replace(request=request), [asked.lines["mtu"].fault(reason)])


def unique_names(links: Iterable[Asked]) -> tuple[tuple[Asked, ...], list[Fault]]:
    """The links without names that an earlier line gives to another link, and the faults."""
    everything = tuple(links)
    owners: dict[str, LinkKey] = {}
    faults = []
    losers = set()
    for asked in sorted(everything, key=_line_of_name):
        name, key = asked.request.name, asked.request.key
        if name and owners.setdefault(name, key) != key:
            losers.add(key)
            reason = f'the name "{name}" is requested for {owners[name]} too'
            faults.append(asked.lines["name"].fault(reason))
    named = [_without_name(asked, losers) for asked in everything]
    return tuple(named), faults


def _line_of_name(asked: Asked) -> int:
    if "name" not in asked.lines:
        return 0
    return asked.lines["name"].number


def _without_name(asked: Asked, losers: Collection[LinkKey]) -> Asked:
    """The same request; without its name if its link is one of `losers`."""
    request = asked.request
    if request.key not in losers:
        return asked
    request = replace(request, name=None, origins=_without(request.origins, "name"))
    return asked._replace(request=request)


def combine(below: Iterable[LinkRequest], above: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """Merge two sets of requests, setting by setting; `above` wins, links of `below` come first.

    The result has a state, unless the link is only named as a lower device of another one.
    """
    merged = {request.key: request for request in below}
    for request in above:
        if request.key in merged:
            merged[request.key] = overlay(merged[request.key], request)
        else:
            merged[request.key] = request
    return tuple(map(_completed, merged.values()))


def _completed(request: LinkRequest) -> LinkRequest:
    if request.origins or request.key.vlan_id or request.virtual:
        request = up_by_default(request)
    if request.state == "user":
        return hands_off(request)
    return request
