"""The settings that tuning covers, for `neuca tune audit`: current, wanted, source, and effect."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import OWN, LinkKey, LinkRequest, NetworkState
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.layer import Choice, Value
from neuca_tools.tuning.profile import same

RECEIVE = "net/ipv4/tcp_rmem"
USUAL_PATHS = (0.01, 0.05, 0.1)  # seconds: round-trip times to show if none is configured
EFFECTIVE, NOT_YET, OVERRIDDEN = "effective", "not yet", "overridden"  # effects, see Row
SYSCTL = "sysctl."  # what the setting of an origin begins with if it is a sysctl


@dataclass(frozen=True)
class Row:
    """One setting: its current value, the value wanted for it, and where that comes from.

    `effect` is `effective`, `not yet` (a pass at start or `neuca tune apply` sets it), or why the
    value of a profile is not set. `link` is None, and `name` empty, for a setting of the host.
    """

    setting: str
    found: Optional[str]
    wanted: Optional[str]
    source: str
    effect: str
    reason: str = ""
    link: Optional[LinkKey] = None
    name: str = ""

    def to_json(self) -> dict[str, Optional[str]]:
        return {
            "interface": self.name or None,
            "link": str(self.link) if self.link else None,
            "setting": dotted(self.setting),
            "current": self.found,
            "wanted": self.wanted,
            "source": self.source,
            "effect": self.effect,
            "reason": self.reason,
        }


def dotted(path: str) -> str:
    """A sysctl path in the notation of sysctl.d(5); any other setting unchanged.

    >>> dotted("net/ipv4/conf/eth1.1445/rp_filter")
    'net.ipv4.conf.eth1/1445.rp_filter'
    """
    return path.translate(str.maketrans("./", "/.")) if "/" in path else path


def effect_text(effect: str, reason: str) -> str:
    """An effect with its reason, as one phrase: "overridden by FILE", "not applicable: REASON"."""
    if not reason:
        return effect
    return f"{effect} {reason}" if effect == OVERRIDDEN else f"{effect}: {reason}"


def rows(resolution: Resolution, have: NetworkState, link: Optional[LinkKey] = None) -> list[Row]:
    """The settings of the host, then those of each dataplane link, NICs first.

    With `link`, only the settings of that link.
    """
    keys = [key for key in resolution.requests if key in resolution.want.links]
    if link:
        keys = [key for key in keys if key == link]
    found = [] if link else list(_host(resolution, have))
    for key in sorted(keys, key=lambda key: (key.vlan_id is not None, key)):
        found += _link_scalars(key, resolution, have)
        found += _link_sysctls(key, resolution, have)
    return found


def _host(resolution: Resolution, have: NetworkState) -> Iterator[Row]:
    """A request goes before a profile."""
    wanted, named = resolution.want.sysctls, _named_for_host(resolution)
    values = {value.setting: value for value in resolution.tuning.values if value.link is None}
    for path in sorted({*named, *values}):
        found = have.sysctls.get(path)
        if path in named:
            yield _requested(path, found, wanted[path], named[path])
        elif found is None:
            yield _of_profile(values[path], values[path].found)
        else:
            yield _of_profile(values[path], found)


def _named_for_host(resolution: Resolution) -> dict[str, str]:
    """The sysctls of the host that requests set, and where they do so."""
    wanted = resolution.want.sysctls
    return {
        path: where
        for request in resolution.requests.values()
        for path, where in _sysctl_origins(request)
        if OWN not in path and path in wanted
    }


def _link_scalars(key: LinkKey, resolution: Resolution, have: NetworkState) -> Iterator[Row]:
    """The MTU and the queue length of a link, as far as a profile or a request sets them."""
    found, name = have.links.get(key), _name(key, resolution, have)
    sources = {origin.setting: origin.where for origin in resolution.requests[key].origins}
    values = {value.setting: value for value in resolution.tuning.values if value.link == key}
    for setting in ("mtu", "txqueuelen"):
        current = _text(getattr(found, setting, None))
        wanted = _text(getattr(resolution.want.links[key], setting))
        if setting in values:
            yield _of_profile(values[setting], current, name)
        elif setting in sources and wanted is not None:
            row = _requested(setting, current, wanted, sources[setting])
            yield replace(row, link=key, name=name)


def _link_sysctls(key: LinkKey, resolution: Resolution, have: NetworkState) -> Iterator[Row]:
    found, name = have.links.get(key), _name(key, resolution, have)
    wanted = resolution.want.links[key].sysctls
    current = found.sysctls if found else {}
    for path, where in _sysctl_origins(resolution.requests[key]):
        if OWN in path and path in wanted:
            row = _requested(path.replace(OWN, name), current.get(path), wanted[path], where)
            yield replace(row, link=key, name=name)


def _name(key: LinkKey, resolution: Resolution, have: NetworkState) -> str:
    """The current name of a link, or the one it is to get."""
    found = have.links.get(key)
    return (found and found.name) or resolution.names.get(key, "")


def _sysctl_origins(request: LinkRequest) -> Iterator[tuple[str, str]]:
    """The path of each sysctl that a request sets, and where it does so."""
    for origin in request.origins:
        if origin.setting.startswith(SYSCTL):
            yield origin.setting[len(SYSCTL) :], origin.where


def _requested(setting: str, found: Optional[str], wanted: str, source: str) -> Row:
    return Row(setting, found, wanted, source, _effect(found, wanted))


def _of_profile(value: Value, found: Optional[str], name: str = "") -> Row:
    refused = value.effect or value.wanted is None
    return Row(
        value.setting,
        found,
        value.asked if refused else value.wanted,
        value.source,
        value.effect or _effect(found, value.wanted),
        reason=value.reason,
        link=value.link,
        name=name,
    )


def _effect(found: Optional[str], wanted: Optional[str]) -> str:
    return EFFECTIVE if same(found, wanted) else NOT_YET


def _text(number: Optional[int]) -> Optional[str]:
    return None if number is None else str(number)


# --- for status -----------------------------------------------------------------------------------


def notes(resolution: Resolution, have: NetworkState) -> list[str]:
    """One line for each reason why values of a profile are not set for the host; it is no
    problem.
    """
    grouped: dict[str, list[str]] = {}
    for row in _host(resolution, have):
        if row.effect not in (EFFECTIVE, NOT_YET):
            text = effect_text(row.effect, row.reason)
            grouped.setdefault(text, []).append(dotted(row.setting))
    return [f"{', '.join(settings)}: {text}" for text, settings in grouped.items()]


def to_json(
    resolution: Resolution, have: NetworkState, link: Optional[LinkKey] = None
) -> dict[str, Any]:
    """What `neuca tune audit --json` and `neuca status --json` print."""
    layer = resolution.tuning
    choice: dict[str, Union[int, float, list[str], None]] = {
        "profiles": list(layer.choice.profiles),
        "rate": layer.choice.rate,
        "rtt": layer.choice.rtt,
    }
    return {
        **choice,
        "environment": layer.environment.kind,
        "detail": layer.environment.detail,
        "values": [row.to_json() for row in rows(resolution, have, link)],
        "notes": [*layer.notes, *sentences(resolution, have)],
    }


def sentences(resolution: Resolution, have: NetworkState) -> list[str]:
    """The throughput that the receive buffers allow: as they are, and as wanted."""
    row = next((row for row in _host(resolution, have) if row.setting == RECEIVE), None)
    if row is None:
        return []
    values = [row.found]
    if row.effect in (EFFECTIVE, NOT_YET) and row.wanted != row.found:
        values.append(row.wanted)
    texts = [_sentence(value, resolution.tuning.choice) for value in values]
    return [text for text in texts if text]


def _sentence(value: Optional[str], choice: Choice) -> str:
    """The throughput that one value of tcp_rmem (tcp(7)) allows; empty if the value has
    no maximum.
    """
    largest = (value or "").split()[-1:]
    if not largest or not largest[0].isdecimal():
        return ""
    size = int(largest[0])
    first, *more = [choice.rtt] if choice.rtt else USUAL_PATHS
    text = (
        f"{arithmetic.size_text(size)} at {arithmetic.rtt_text(first)} RTT allows "
        f"{arithmetic.rate_text(arithmetic.allowed(size, first))}"
    )
    for rtt in more:
        rate = arithmetic.rate_text(arithmetic.allowed(size, rtt))
        text += f", {arithmetic.rtt_text(rtt)} {rate}"
    return text
