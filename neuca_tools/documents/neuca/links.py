"""Parse link sections: `[interface MAC]`, `[vlan MAC.ID]`, `[bond NAME]`."""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Union

from neuca_tools.documents.neuca import link_kinds, routing, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.link_settings import SETTINGS
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind
from neuca_tools.documents.stacking import (
    SINGLE,
    hands_off,
    ignored_links,
    without_setting,
    without_small_mtu,
)
from neuca_tools.model import Address, Automatic, Fault, LinkRequest, LinkState, Origin
from neuca_tools.model.links import KINDS, LinkKey, Virtual
from neuca_tools.model.routing import NicRouting
from neuca_tools.model.rows import UnknownWord

MAX_SETTINGS = 1024  # of one link
_STATES: Mapping[str, LinkState] = {"up": "up", "down": "down", "user": "user"}
_SYSCTL = "sysctl."
_Mergeable = Union[NicRouting, Automatic, Virtual]
# The settings that name other links, which this one is on.
_LOWER = ("members", "parent", "vrf")
# Keys whose loss changes nothing of the rest, also where the link is made.
_APART = frozenset(
    ("addresses", "name", "dns", "duplicate-address-detection", *SETTINGS, *routing.AUTOMATIC)
)


class RequestWithLines(NamedTuple):
    """A request with the line that each of its settings came from.

    `unusable`: a line was unusable without which the link would be another one.
    """

    request: LinkRequest
    lines: Mapping[str, Line]
    unusable: bool


class Draft:
    """A request in the making: lines about one link add to it, and a later line wins.

    Nothing is copied for each line. `lines` has the line of each setting, `unusable` the keys of
    unusable lines that no later one repeats.
    """

    def __init__(self, key: LinkKey) -> None:
        self.key = key
        self.lines: dict[str, Line] = {}
        self.unusable: set[str] = set()
        self._fields: dict[str, Any] = {}
        self._pairs: dict[str, dict[str, str]] = {}
        self._origins: dict[str, Origin] = {}
        if key.kind in KINDS:
            self._fields["virtual"] = Virtual()

    def set_field(
        self, line: Line, name: str, value: object, setting: str = "", shown: str = ""
    ) -> None:
        """Set a field; messages name it by `setting`, and its value by `shown`."""
        self._fields[name] = value
        if isinstance(value, tuple):
            shown = shown or ", ".join(map(str, value))
        self._note_origin(line, setting or name, shown or str(value))

    def merged(self, name: str, value: _Mergeable) -> Any:  # noqa: ANN401 - as the value
        """The value of a line, over what earlier lines say of the same field."""
        return value.over(self._fields.get(name))

    def add(
        self, line: Line, name: str, pair: tuple[str, Any], setting: str, shown: str = ""
    ) -> None:
        """Add a pair of key and value to a field that consists of such pairs."""
        key, value = pair
        self._pairs.setdefault(name, {})[key] = value
        self._note_origin(line, setting, shown or str(value))

    def _note_origin(self, line: Line, setting: str, value: str) -> None:
        old = self._origins.get(setting)
        overrode = f"{old.value} from {old.where}" if old else ""
        self._origins[setting] = Origin(setting, value, line.where, overrode)
        self.lines[setting] = line
        self.unusable.discard(setting)

    def depends_on(self, key: str) -> bool:
        """Whether the link would be another one without the line with this key.

        It would be made with a default in place of an option, or be taken from its user.
        """
        if key in ("state", "vrf") or key in link_kinds.own_keys(self.key.kind):
            return True
        is_apart = key in _APART or key.startswith(_SYSCTL) or key in routing.LINK_READERS
        return self.key.kind != "physical" and not is_apart

    def finished(self) -> RequestWithLines:
        """The request, with the lines that it came from."""
        fields: dict[str, Any] = {name: tuple(own.items()) for name, own in self._pairs.items()}
        origins = tuple(self._origins.values())
        request = LinkRequest(self.key, origins=origins, **self._fields, **fields)
        if self.unusable & routing.LINK_READERS.keys():
            # With a default in place of one of these keys, packets would take another way.
            request = request._replace(routing=NicRouting(choice="no"))
        # One usable state is enough.
        unusable = self.unusable - ({"state"} if request.state else set())
        return RequestWithLines(request, self.lines, any(map(self.depends_on, unusable)))


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
        return link_kinds.vlan_key(link_kinds.link_key(kind_below, name_below), vlan)
    return LinkKey(values.nic(below), values.vlan_id(vlan))


def setting_name(line: Line) -> str:
    """The setting of a line in a link's section; equal for all spellings of a sysctl key."""
    if not line.key.startswith(_SYSCTL):
        return line.key
    try:
        return _SYSCTL + values.sysctl_key(line.written[len(_SYSCTL) :])
    except UnusableError:
        return line.key


def link_state(text: str) -> LinkState:
    """Parse a state; raises UnusableError."""
    return _STATES[values.word(text, _STATES)]


_READERS: Mapping[str, Callable[[str], object]] = {
    "state": link_state,
    "name": values.link_name,
    "vrf": lambda text: link_kinds.link_key("vrf", text).virtual_name,
    "duplicate-address-detection": values.duplicate_detection,
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
            if line.key == "addresses":
                _add_addresses(draft, line, faults)
            else:
                _add_setting(draft, line)
        except UnusableError as reason:
            draft.unusable.add(line.key)
            is_ignored = line.key != "state" and draft.depends_on(line.key)
            text = f"{reason}, ignoring the link" if is_ignored else str(reason)
            faults.append(line.fault(text, unknown=reason.unknown))
    return faults


def _add_setting(draft: Draft, line: Line) -> None:
    kind = draft.key.kind
    if line.key.startswith(_SYSCTL):
        key = values.sysctl_key(line.written[len(_SYSCTL) :])
        draft.add(line, "sysctls", (key, values.sysctl_value(line.value)), _SYSCTL + key)
        return
    # Policy routing has no part in a VRF, whose table is its own.
    routed = {} if kind == "vrf" else routing.LINK_READERS
    own = link_kinds.own_keys(kind)
    if line.key in routed:
        nic_routing = routing.LINK_READERS[line.key](line.value)
        shown = routing.shown_values(nic_routing)[line.key]
        draft.set_field(line, "routing", draft.merged("routing", nic_routing), line.key, shown)
    elif line.key in routing.AUTOMATIC:
        requested, shown = routing.read_automatic(draft.key, line.key, line.value)
        draft.set_field(line, "automatic", draft.merged("automatic", requested), line.key, shown)
    elif line.key in own or (line.key == "name" and kind in KINDS):
        _set_virtual(draft, line)
    elif line.key in _READERS and line.key != kind:  # no VRF is in another one
        _set_setting(draft, line)
    else:
        known = sorted({"addresses", *_READERS, *routed, *routing.AUTOMATIC, *own} - {kind})
        reason = f"unknown key; known are {', '.join(known)} and sysctl.KEY"
        raise UnusableError(reason, UnknownWord("key", line.key, (*known, "sysctl.KEY")))


def _set_setting(draft: Draft, line: Line) -> None:
    value = _READERS[line.key](line.value)
    if line.key in SINGLE:
        draft.set_field(line, line.key, value)
    elif isinstance(value, tuple):
        draft.add(line, "sysctls", value, line.key, line.value)
    else:
        draft.add(line, "device", (line.key, value), line.key)


def _set_virtual(draft: Draft, line: Line) -> None:
    """Add a setting that only virtual links have."""
    if line.key == "name":
        raise UnusableError(f'its name is "{draft.key.virtual_name}", as the section says')
    setting = link_kinds.read_setting(draft.key.kind, line.key, line.value)
    virtual = draft.merged("virtual", setting)
    draft.set_field(line, "virtual", virtual, line.key, link_kinds.shown_value(virtual, line.key))


def read_address(line: Line, text: str) -> tuple[Address, list[Fault]]:
    """Parse an address; one without a prefix length gets a warning. Raises UnusableError."""
    address = values.address(text)
    if "/" in text:
        return address, []
    reason = f'"{address.ip}" has no prefix length, treated as "{address}"'
    return address, [line.fault(reason, "warning")]


def _add_addresses(draft: Draft, line: Line, faults: list[Fault]) -> None:
    """Add the usable addresses of a line, and the faults of the others; raises UnusableError."""
    addresses: dict[Address, None] = {}
    texts = [text for text in line.value.split(",") if text.strip()]
    if len(texts) > MAX_SETTINGS:
        raise UnusableError(f"more than {MAX_SETTINGS} addresses")
    for text in texts:
        try:
            address, warnings = read_address(line, text)
        except UnusableError as reason:
            faults.append(line.fault(str(reason), unknown=reason.unknown))
            continue
        if address in addresses:
            warnings = [line.fault(f'"{address}" is listed twice', "warning")]
        faults += warnings
        addresses[address] = None
    if addresses:
        draft.set_field(line, "addresses", tuple(addresses))


# --- Checks of complete requests ------------------------------------------------------------------


class CheckedLinks(NamedTuple):
    """The usable links, and the faults of the others.

    `ignored` has each ignored link with the link that is unusable: itself, or one below it.
    """

    links: list[RequestWithLines]
    faults: list[Fault]
    ignored: Mapping[LinkKey, LinkKey]


def check_links(links: Iterable[RequestWithLines]) -> CheckedLinks:
    """The links without unusable ones, what is on these, and settings that contradict others."""
    every = tuple(links)
    unusable = [link.request.key for link in every if link.unusable]
    ignored = ignored_links(unusable, [link.request for link in every]) if unusable else {}
    usable: list[RequestWithLines] = []
    faults: list[Fault] = []
    for link in every:
        lower = ignored.get(link.request.key)
        if lower is None:
            usable.append(_without_contradictions(link, faults))
        elif not link.unusable:
            faults.append(_line_of_lower(link).fault(why_ignored(lower)))
    return CheckedLinks(_with_unique_names(usable, faults), faults, ignored)


def _line_of_lower(link: RequestWithLines) -> Line:
    """The line that names a lower device; else the first one, if there is any."""
    lines = (link.lines[name] for name in (*_LOWER, *link.lines) if name in link.lines)
    return next(lines, Line(0, f"vlan {link.request.key}", "", ""))


def why_ignored(lower: LinkKey) -> str:
    """Why something is ignored that is on an unusable link."""
    return f"it is on {lower}, which is ignored, so it is ignored too"


def _without_contradictions(link: RequestWithLines, faults: list[Fault]) -> RequestWithLines:
    if link.request.state == "user":
        faults += (
            line.fault(f'the state is "user", ignoring {setting}', "warning")
            for setting, line in link.lines.items()
            if setting not in ("state", "name")
        )
        return link._replace(request=hands_off(link.request))
    request, reason = without_small_mtu(link.request)
    if reason:
        faults.append(link.lines["mtu"].fault(reason))
    return link._replace(request=request)


def _with_unique_names(
    links: list[RequestWithLines], faults: list[Fault]
) -> list[RequestWithLines]:
    """The links without names that an earlier line gives to another link."""
    owners: dict[str, LinkKey] = {}
    unique = {link.request.key: link for link in links}
    named = [link for link in links if link.request.name]
    for link in sorted(named, key=lambda link: link.lines["name"].number):
        name, key = link.request.name or "", link.request.key
        if owners.setdefault(name, key) != key:
            unique[key] = link._replace(request=without_setting(link.request, "name"))
            reason = f'the name "{name}" is requested for {owners[name]} too'
            faults.append(link.lines["name"].fault(reason))
    return list(unique.values())
