"""What a text asks of one link: the keys of `[interface MAC]`, `[vlan MAC.ID]`, `[bond NAME]`, the configuration's too."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Callable, NamedTuple, Optional

from neuca_tools.documents.neuca import device_settings, link_kinds, values
from neuca_tools.documents.neuca.ini import Line, Section
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import link_kind
from neuca_tools.model import Address, Fault, LinkRequest, LinkState, Origin
from neuca_tools.model.links import KINDS, LinkKey, Virtual

DEFAULT = "default"
MAX_SETTINGS = 1024
_STATES: Mapping[str, LinkState] = {"up": "up", "down": "down", "user": "user"}
_SYSCTL = "sysctl."
_SINGLE = ("state", "name", "addresses", "mtu", "txqueuelen")  # fields that one line gives whole


@dataclass(frozen=True)
class Asked:
    """A request with the line that each of its settings came from."""

    request: LinkRequest
    lines: Mapping[str, Line] = field(default_factory=dict)
    # Its state was given and could not be read: then no default may stand in for it.
    unsure: bool = False


class Read(NamedTuple):
    """What came out of some lines of one link."""

    asked: Asked
    faults: list[Fault]


def section_key(section: str) -> LinkKey:
    """The link that a section is about; raises UnusableError where its header names none."""
    _, _, name = section.partition(" ")
    kind = link_kind(section)
    if kind != "vlan":
        return LinkKey(values.mac(name)) if kind == "interface" else link_kinds.link_key(kind, name)
    below, dot, vlan = name.rpartition(".")
    if not dot:
        raise UnusableError(f'"{values.clip(name)}" is not a MAC address, a "." and a VLAN ID')
    made, _, its_name = below.partition(" ")
    mac = link_kinds.link_key(made, its_name).mac if made in KINDS else values.mac(below)
    return LinkKey(mac, values.vlan_id(vlan))


def setting_name(line: Line) -> str:
    """What a line of a link's section sets, whichever way it is written."""
    if not line.key.startswith(_SYSCTL):
        return line.key
    try:
        return _SYSCTL + values.sysctl_key(line.written[len(_SYSCTL) :])
    except UnusableError:
        return line.key


def state(text: str) -> LinkState:
    """A state word."""
    return _STATES[values.word(text, _STATES)]


_READERS: Mapping[str, Callable[[str], object]] = {
    "state": state,
    "name": values.link_name,
    "mtu": values.mtu,
    "txqueuelen": values.txqueuelen,
}


def read_section(key: LinkKey, lines: Iterable[Line]) -> Read:
    """All that the lines of one link's section ask; a line that cannot be used costs only itself."""
    empty = Asked(LinkRequest(key, virtual=Virtual() if key.kind in KINDS else None))
    found: list[Asked] = []
    faults: list[Fault] = []
    for number, line in enumerate(lines):
        if number == MAX_SETTINGS:
            faults.append(
                line._replace(key="").fault(
                    f"more than {MAX_SETTINGS} settings of one link, ignoring the rest"
                )
            )
            break
        asked, more = _try(empty, line)
        found.append(asked)
        faults += more
    return Read(_together(empty, found), faults)


def _together(empty: Asked, found: Iterable[Asked]) -> Asked:
    """What each line of one link asks, as one: a merge for each line would copy all that came before it."""
    fields: dict[str, Any] = {}
    sysctls: dict[str, str] = {}
    device: dict[str, str] = {}
    origins: dict[str, Origin] = {}
    lines: dict[str, Line] = {}
    virtual, unsure = empty.request.virtual, False
    for one in found:
        given = {name: getattr(one.request, name) for name in _SINGLE}
        fields.update({name: value for name, value in given.items() if value})
        sysctls.update(one.request.sysctls)
        device.update(one.request.device)
        virtual = one.request.virtual.over(virtual) if one.request.virtual else virtual
        origins.update({origin.setting: origin for origin in one.request.origins})
        lines.update(one.lines)
        unsure = unsure or one.unsure
    request = replace(
        empty.request,
        sysctls=tuple(sysctls.items()),
        device=tuple(device.items()),
        virtual=virtual,
        origins=tuple(origins.values()),
        **fields,
    )
    return Asked(request, lines, unsure)


def _try(asked: Asked, line: Line) -> Read:
    try:
        return _take(asked, line)
    except UnusableError as reason:
        return Read(
            replace(asked, unsure=asked.unsure or line.key == "state"), [line.fault(str(reason))]
        )


def _take(asked: Asked, line: Line) -> Read:
    if line.key == "addresses":
        found, faults = _addresses(line)
        return Read(give(asked, line, "addresses", found) if found else asked, faults)
    if line.key.startswith(_SYSCTL):
        key, value = (
            values.sysctl_key(line.written[len(_SYSCTL) :]),
            values.sysctl_value(line.value),
        )
        sysctls = tuple({**dict(asked.request.sysctls), key: value}.items())
        return Read(give(asked, line, "sysctls", sysctls, setting=_SYSCTL + key, shown=value), [])
    if line.key in device_settings.READERS:
        value = device_settings.READERS[line.key](line.value)
        settings = tuple({**dict(asked.request.device), line.key: value}.items())
        return Read(give(asked, line, "device", settings, setting=line.key, shown=value), [])
    if line.key in link_kinds.names(asked.request.key.kind) or (
        line.key == "name" and asked.request.key.kind in KINDS
    ):
        return Read(_take_own(asked, line), [])
    if line.key not in _READERS:
        known = sorted(
            {
                "addresses",
                *_READERS,
                *device_settings.READERS,
                *link_kinds.names(asked.request.key.kind),
            }
        )
        raise UnusableError(f"unknown key; known are {', '.join(known)} and sysctl.KEY")
    return Read(give(asked, line, line.key, _READERS[line.key](line.value)), [])


def _take_own(asked: Asked, line: Line) -> Asked:
    """What only links that are made can be asked."""
    link = asked.request.key
    if line.key == "name":
        raise UnusableError(f'its name is "{link.given_name}", as the section says')
    both = link_kinds.setting(link.kind, line.key, line.value).over(asked.request.virtual)
    return give(
        asked, line, "virtual", both, setting=line.key, shown=link_kinds.shown(both, line.key)
    )


def give(
    asked: Asked, line: Line, name: str, value: object, setting: str = "", shown: str = ""
) -> Asked:
    """The same request with one field more; `setting` is its name for people where it is not that of the field."""
    setting = setting or name
    text = shown or (", ".join(map(str, value)) if isinstance(value, tuple) else str(value))
    origins = _overlay_origins(asked.request.origins, [Origin(setting, text, line.where)])
    changes: dict[str, Any] = {name: value}
    request = replace(asked.request, origins=origins, **changes)
    return replace(asked, request=request, lines={**asked.lines, setting: line})


def one_address(line: Line, text: str) -> tuple[Address, list[Fault]]:
    """An address, with a warning where it has no prefix length."""
    found = values.address(text)
    if "/" in text:
        return found, []
    reason = f'"{found.ip}" has no prefix length, taken as "{found}"'
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
            faults.append(line.fault(str(reason)))
            continue
        faults += (
            [line.fault(f'"{address}" is given twice', "warning")] if address in found else warnings
        )
        found[address] = None
    return tuple(found), faults


# --- Two texts about one link ---------------------------------------------------------------------------------------


def overlay(below: LinkRequest, above: LinkRequest) -> LinkRequest:
    """Both requests, setting by setting; `above` wins, but for a state that is only its default."""
    defaulted = any(
        origin.setting == "state" and origin.where == DEFAULT for origin in above.origins
    )
    own = (
        replace(above, state=None, origins=_but(above.origins, "state"))
        if defaulted and below.state
        else above
    )
    return LinkRequest(
        above.key,
        state=own.state or below.state,
        name=own.name or below.name,
        addresses=own.addresses or below.addresses,
        mtu=own.mtu or below.mtu,
        txqueuelen=own.txqueuelen or below.txqueuelen,
        sysctls=tuple({**dict(below.sysctls), **dict(own.sysctls)}.items()),
        device=tuple({**dict(below.device), **dict(own.device)}.items()),
        virtual=own.virtual.over(below.virtual) if own.virtual else below.virtual,
        origins=_overlay_origins(below.origins, own.origins),
    )


def _overlay_origins(below: Iterable[Origin], above: Iterable[Origin]) -> tuple[Origin, ...]:
    merged = {origin.setting: origin for origin in below}
    for origin in above:
        old = merged.get(origin.setting)
        merged[origin.setting] = (
            replace(origin, overrode=f"{old.value} from {old.where}") if old else origin
        )
    return tuple(merged.values())


def _but(origins: Iterable[Origin], *settings: str) -> tuple[Origin, ...]:
    return tuple(origin for origin in origins if origin.setting not in settings)


def stack(below: Asked, above: Asked) -> Asked:
    """`overlay` for requests whose lines are still known."""
    request = overlay(below.request, above.request)
    return Asked(
        request,
        {**below.lines, **above.lines},
        (below.unsure or above.unsure) and request.state is None,
    )


# --- What can only be judged when a link is complete ----------------------------------------------------------------


def up_by_default(request: LinkRequest) -> LinkRequest:
    """The request with the state that a link has where no text gives one."""
    if request.state:
        return request
    return replace(request, state="up", origins=(Origin("state", "up", DEFAULT), *request.origins))


def check(asked: Asked) -> Read:
    """The request without what its own settings forbid."""
    return _hands_off(asked) if asked.request.state == "user" else _without_small_mtu(asked)


def hands_off(request: LinkRequest) -> LinkRequest:
    """What is left to do for a link in state `user`: its name is pinned, nothing else."""
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
    return Read(replace(asked, request=hands_off(asked.request)), faults)


def _without_small_mtu(asked: Asked) -> Read:
    """RFC 8200, section 5: no IPv6 below 1280 bytes; the kernel takes every IPv6 address away then (addrconf.c)."""
    request = asked.request
    if (
        not request.mtu
        or request.mtu >= values.IPV6_MINIMUM_MTU
        or all(a.version == 4 for a in request.addresses)
    ):
        return Read(asked, [])
    reason = f"an MTU below {values.IPV6_MINIMUM_MTU} cannot carry the IPv6 addresses of this link"
    request = replace(request, mtu=None, origins=_but(request.origins, "mtu"))
    return Read(replace(asked, request=request), [asked.lines["mtu"].fault(reason)])


def unique_names(links: Iterable[Asked]) -> tuple[tuple[Asked, ...], list[Fault]]:
    """The links, a name that an earlier line gave to another one taken from them again."""
    everything = tuple(links)
    owners: dict[str, LinkKey] = {}
    faults = []
    losers = set()
    for asked in sorted(
        everything, key=lambda one: one.lines["name"].number if "name" in one.lines else 0
    ):
        name, key = asked.request.name, asked.request.key
        if name and owners.setdefault(name, key) != key:
            losers.add(key)
            faults.append(
                asked.lines["name"].fault(f'the name "{name}" is asked for {owners[name]} too')
            )
    return tuple(
        _nameless(asked) if asked.request.key in losers else asked for asked in everything
    ), faults


def _nameless(asked: Asked) -> Asked:
    return replace(
        asked,
        request=replace(asked.request, name=None, origins=_but(asked.request.origins, "name")),
    )


def combine(below: Iterable[LinkRequest], above: Iterable[LinkRequest]) -> tuple[LinkRequest, ...]:
    """Two sets of requests as one, `above` winning setting by setting; links of `below` come first.

    Only what is nothing but the parent of a VLAN, or a part of a bond or its like, is left without a state.
    """
    merged = {request.key: request for request in below}
    for request in above:
        merged[request.key] = (
            overlay(merged[request.key], request) if request.key in merged else request
        )
    asked = (
        up_by_default(one) if one.origins or one.key.vlan_id or one.virtual else one
        for one in merged.values()
    )
    return tuple(hands_off(one) if one.state == "user" else one for one in asked)


def sections(
    found: Iterable[Section], lines: Iterable[Line]
) -> tuple[dict[LinkKey, list[Line]], list[Fault]]:
    """The lines of every link that has a section, even an empty one; a header that names no link is a fault."""
    by_section: dict[str, Optional[LinkKey]] = {}
    grouped: dict[LinkKey, list[Line]] = {}
    faults = []
    for section in found:
        if link_kind(section.name) and section.name not in by_section:
            try:
                by_section[section.name] = section_key(section.name)
            except UnusableError as reason:
                by_section[section.name] = None
                faults.append(
                    Fault(section.number, section.name, "", "", f"{reason}, ignoring the section")
                )
    for key in filter(None, by_section.values()):
        grouped.setdefault(key, [])
    for line in lines:
        owner = by_section.get(line.section)
        if owner:
            grouped[owner].append(line)
    return grouped, faults
