"""What became of every setting that tuning is about: current, wanted, from where, its effect, and the arithmetic in words."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

from neuca_tools.desired.resolve import Resolution
from neuca_tools.model import OWN, LinkKey, LinkRequest, NetworkState
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.layer import Choice, Value
from neuca_tools.tuning.profile import same

RECEIVE = "net/ipv4/tcp_rmem"
USUAL_PATHS = (0.01, 0.05, 0.1)  # seconds: where nothing is known of the path
NOT_YET = "not yet"
TUNED = ("mtu", "txqueuelen")


@dataclass(frozen=True)
class Row:
    """One setting. `effect` is `effective`, `not yet` (a start, or neuca tune apply, sets it), or why it is not set."""

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
    """A sysctl path as sysctl.d(5) writes it; any other setting as it is."""
    return path.translate(str.maketrans("./", "/.")) if "/" in path else path


def rows(resolution: Resolution, have: NetworkState, link: Optional[LinkKey] = None) -> list[Row]:
    """The host's settings, then those of each dataplane link, NICs first; with `link` its own alone."""
    host = [] if link else list(_host(resolution, have))
    keys = sorted(resolution.requests, key=lambda key: (key.vlan_id is not None, key))
    return host + [
        row
        for key in keys
        if link in (None, key) and key in resolution.want.links
        for row in _link(key, resolution, have)
    ]


def _host(resolution: Resolution, have: NetworkState) -> Iterator[Row]:
    named = {
        path: where
        for request in resolution.requests.values()
        for path, where in _sysctl_origins(request)
        if OWN not in path and path in resolution.want.sysctls
    }
    values = {value.setting: value for value in resolution.tuning.values if value.link is None}
    for path in sorted({*named, *values}):
        found = have.sysctls.get(path)
        if path in named:
            yield Row(path, found, *_judged(found, resolution.want.sysctls[path], named[path]))
        else:
            yield _of_profile(values[path], values[path].found if found is None else found)


def _link(key: LinkKey, resolution: Resolution, have: NetworkState) -> Iterator[Row]:
    request, wanted, found = (
        resolution.requests[key],
        resolution.want.links[key],
        have.links.get(key),
    )
    name = (found.name if found else None) or resolution.names.get(key, "")
    sources = {origin.setting: origin.where for origin in request.origins}
    values = {value.setting: value for value in resolution.tuning.values if value.link == key}
    for setting in TUNED:
        current = _text(getattr(found, setting)) if found else None
        if setting in values:
            yield _of_profile(values[setting], current, name)
        elif setting in sources and getattr(wanted, setting) is not None:
            yield Row(
                setting,
                current,
                *_judged(current, _text(getattr(wanted, setting)), sources[setting]),
                link=key,
                name=name,
            )
    for path, where in _sysctl_origins(request):
        if OWN in path and path in wanted.sysctls:
            current = found.sysctls.get(path) if found else None
            yield Row(
                path.replace(OWN, name),
                current,
                *_judged(current, wanted.sysctls[path], where),
                link=key,
                name=name,
            )


def _sysctl_origins(request: LinkRequest) -> Iterator[tuple[str, str]]:
    for origin in request.origins:
        if origin.setting.startswith("sysctl."):
            yield origin.setting[len("sysctl.") :], origin.where


def _judged(
    found: Optional[str], wanted: Optional[str], source: str
) -> tuple[Optional[str], str, str]:
    return wanted, source, "effective" if same(found, wanted) else NOT_YET


def _of_profile(value: Value, found: Optional[str], name: str = "") -> Row:
    effect = value.effect or ("effective" if same(found, value.wanted) else NOT_YET)
    wanted = value.asked if value.effect or value.wanted is None else value.wanted
    return Row(value.setting, found, wanted, value.source, effect, value.reason, value.link, name)


def _text(number: Optional[int]) -> Optional[str]:
    return None if number is None else str(number)


# --- for status -----------------------------------------------------------------------------------------------------


def notes(resolution: Resolution, have: NetworkState) -> list[str]:
    """One line for each reason why values of a profile are not set for the host; they are no shortfall."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in _host(resolution, have):
        if row.effect not in ("effective", NOT_YET):
            grouped.setdefault((row.effect, row.reason), []).append(dotted(row.setting))
    return [
        f"{', '.join(settings)}: {effect}{'' if effect == 'overridden' else ':'} {reason}"
        for (effect, reason), settings in grouped.items()
    ]


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
    """What the receive buffers allow: now, and as wanted."""
    row = next((row for row in _host(resolution, have) if row.setting == RECEIVE), None)
    if row is None:
        return []
    wanted = row.wanted if row.effect in ("effective", NOT_YET) else None
    texts = [
        _sentence(value, resolution.tuning.choice) for value in dict.fromkeys([row.found, wanted])
    ]
    return [text for text in texts if text]


def _sentence(value: Optional[str], choice: Choice) -> str:
    """What one value of tcp_rmem allows; empty if it has no number to say it."""
    largest = (value or "").split()[-1:]
    if not largest or not largest[0].isdecimal():
        return ""
    size = int(largest[0])
    paths = [choice.rtt] if choice.rtt else USUAL_PATHS
    first, *more = [
        f"{arithmetic.rtt_text(rtt)}{' RTT' if rtt == paths[0] else ''} allows "
        f"{arithmetic.rate_text(arithmetic.allowed(size, rtt))}"
        for rtt in paths
    ]
    text = f"{arithmetic.size_text(size)} at {first}"
    return ", ".join([text, *(one.replace(" allows", "") for one in more)]) if more else text
