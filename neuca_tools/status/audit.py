"""The settings that tuning covers, for `neuca tune audit`: current, desired, origin and effect."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Optional

from neuca_tools.desired.resolve import Resolution
from neuca_tools.documents.neuca.values import ACCEPT_DAD, dotted_name
from neuca_tools.model import OWN, LinkKey, LinkRequest, NetworkState, Origin
from neuca_tools.model.device_settings import Note
from neuca_tools.status.judge import problem_json
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.layer import JudgedValue
from neuca_tools.tuning.sysctl_values import is_same_sysctl

RECEIVE = "net/ipv4/tcp_rmem"
USUAL_RTTS: tuple[float, ...] = (0.01, 0.05, 0.1)  # seconds: shown if none is configured
EFFECTIVE, NOT_YET, OVERRIDDEN = "effective", "not yet", "overridden"  # effects, see Row
SYSCTL = "sysctl."  # prefix of the name of a setting that is a sysctl
Setting = tuple[Optional[LinkKey], str]  # without a link: of the host


class Row(NamedTuple):
    """One setting: its current value, its desired value, and the origin of that.

    `effect` is `effective`, `not yet` (a pass at start or `neuca tune apply` sets it), or why the
    value of a profile is not set. `link` is None, and `name` empty, for a setting of the host.
    """

    setting: str
    current: Optional[str]
    desired: Optional[str]
    origin: str
    effect: str
    reason: str = ""
    link: Optional[LinkKey] = None
    name: str = ""

    def to_json(self) -> dict[str, Optional[str]]:
        values = {**self._asdict(), "setting": dotted_name(self.setting)}
        name, link = values.pop("name") or None, values.pop("link")
        return {"interface": name, "link": link and str(link), **values}


def effect_text(effect: str, reason: str) -> str:
    """An effect with its reason, as one phrase: "overridden by FILE", "not applicable: REASON"."""
    if effect == OVERRIDDEN and reason:
        return f"{effect} {reason}"
    return ": ".join(filter(None, (effect, reason)))


def audit_rows(
    resolution: Resolution, observed: NetworkState, link: Optional[LinkKey] = None
) -> Iterator[Row]:
    """The settings of the host and those of each dataplane link, NICs first; or only of `link`."""
    if link is None:
        yield from _host_rows(resolution, observed)
    keys = [key for key in resolution.requests if key in resolution.desired.links]
    tuned = {(value.link, value.setting): value for value in resolution.tuning.values}
    notes = {(note.link, note.setting): note for note in resolution.notes}
    for key in sorted(keys, key=lambda key: (key.vlan_id is not None, key)):
        if link in (None, key):
            scalars = _link_scalars(key, resolution, observed, tuned)
            yield from _without_effect(scalars, notes)
            yield from _link_sysctls(key, resolution, observed)


def _host_rows(resolution: Resolution, observed: NetworkState) -> Iterator[Row]:
    """The settings of the host. A request takes precedence over a profile."""
    desired = resolution.desired.sysctls
    requests = resolution.requests.values()
    named = dict(chain.from_iterable(_sysctl_origins(request, desired) for request in requests))
    values = {value.setting: value for value in resolution.tuning.values if value.link is None}
    for path in sorted({*named, *values}):
        current = observed.sysctls.get(path)
        if path in named:
            yield _requested_row(path, current, desired[path], named[path])
        else:
            value = values[path]
            yield _of_profile(value, value.current if current is None else current)


def _link_scalars(
    key: LinkKey,
    resolution: Resolution,
    observed: NetworkState,
    tuned: Mapping[Setting, JudgedValue],
) -> Iterator[Row]:
    """The MTU and the queue length of a link, if a profile (`tuned`) or a request sets them."""
    link, name = observed.links.get(key), _name_of_link(key, resolution, observed)
    sources = {origin.setting: origin.where for origin in resolution.requests[key].origins}
    for setting in ("mtu", "txqueuelen"):
        current = _number_text(getattr(link, setting, None))
        desired = _number_text(getattr(resolution.desired.links[key], setting))
        if (key, setting) in tuned:
            yield _of_profile(tuned[key, setting], current, name)
        elif setting in sources and desired is not None:
            row = _requested_row(setting, current, desired, sources[setting])
            yield row._replace(link=key, name=name)


def _without_effect(rows: Iterable[Row], notes: Mapping[Setting, Note]) -> Iterator[Row]:
    """The rows, of which none is effective if status has a note that it has no effect."""
    for row in rows:
        note = notes.get((row.link, row.setting))
        if note and row.effect == EFFECTIVE:
            row = row._replace(effect=note.effect, reason=note.reason)
        yield row


def _link_sysctls(key: LinkKey, resolution: Resolution, observed: NetworkState) -> Iterator[Row]:
    desired, name = resolution.desired.links[key].sysctls, _name_of_link(key, resolution, observed)
    current: Mapping[str, str] = getattr(observed.links.get(key), "sysctls", {})
    for path, where in _sysctl_origins(resolution.requests[key], desired):
        row = _requested_row(path.replace(OWN, name), current.get(path), desired[path], where)
        yield row._replace(link=key, name=name)


def _name_of_link(key: LinkKey, resolution: Resolution, observed: NetworkState) -> str:
    link = observed.links.get(key)
    return (link and link.name) or resolution.names.get(key, "")


def _sysctl_origins(request: LinkRequest, desired: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The path of each sysctl that has its desired value from a request, and where that is."""
    origins = origin_by_setting(request)
    for path, value in request.sysctls:
        if desired.get(path) == value and SYSCTL + path in origins:
            yield path, origins[SYSCTL + path].where


def origin_by_setting(request: LinkRequest) -> dict[str, Origin]:
    """The origin of each setting of a request, also of the sysctl that has a key of its own."""
    origins = {origin.setting: origin for origin in request.origins}
    if "duplicate-address-detection" in origins:
        origins.setdefault(SYSCTL + ACCEPT_DAD, origins["duplicate-address-detection"])
    return origins


def _requested_row(setting: str, current: Optional[str], desired: str, source: str) -> Row:
    return Row(setting, current, desired, source, _effect_of(setting, current, desired))


def _of_profile(value: JudgedValue, current: Optional[str], name: str = "") -> Row:
    desired, effect = value.wanted, value.effect or _effect_of(value.setting, current, value.wanted)
    if value.effect or desired is None:
        desired = value.requested
    row = Row(value.setting, current, desired, value.source, effect)
    return row._replace(reason=value.reason, link=value.link, name=name)


def _effect_of(setting: str, current: Optional[str], desired: Optional[str]) -> str:
    return EFFECTIVE if is_same_sysctl(setting, current, desired) else NOT_YET


def _number_text(number: Optional[int]) -> Optional[str]:
    return None if number is None else str(number)


def overridden_notes(resolution: Resolution, observed: NetworkState) -> list[str]:
    """For status: one line for each reason why values of a profile are not set for the host."""
    grouped: dict[str, list[str]] = {}
    for row in _host_rows(resolution, observed):
        if row.effect not in (EFFECTIVE, NOT_YET):
            text = effect_text(row.effect, row.reason)
            grouped.setdefault(text, []).append(dotted_name(row.setting))
    return [f"{', '.join(settings)}: {text}" for text, settings in grouped.items()]


def to_json(
    resolution: Resolution, observed: NetworkState, link: Optional[LinkKey] = None
) -> dict[str, Any]:
    """What `neuca tune audit --json` and `neuca status --json` print."""
    layer = resolution.tuning
    return {
        "profiles": list(layer.choice.profiles),
        "rate": layer.choice.rate,
        "rtt": layer.choice.rtt,
        "environment": layer.environment.kind,
        "detail": layer.environment.detail,
        "values": [row.to_json() for row in audit_rows(resolution, observed, link)],
        "problems": list(map(problem_json, layer.problems)),
        "notes": [*layer.notes, *throughput_sentences(resolution, observed)],
    }


def throughput_sentences(resolution: Resolution, observed: NetworkState) -> Iterator[str]:
    """The throughput that the current and the desired receive buffers allow."""
    for row in _host_rows(resolution, observed):
        if row.setting == RECEIVE:
            is_set = row.effect in (EFFECTIVE, NOT_YET)
            values = dict.fromkeys([row.current, row.desired] if is_set else [row.current])
            sentences = (_throughput_sentence(value, resolution.tuning.choice) for value in values)
            yield from filter(None, sentences)


def _throughput_sentence(value: Optional[str], choice: Choice) -> str:
    """The throughput that a value of tcp_rmem (tcp(7)) allows; empty if it has no maximum."""
    largest = (value or "").split()[-1:]
    if not largest or not largest[0].isdecimal():
        return ""
    size = int(largest[0])
    rtts = (choice.rtt,) if choice.rtt else USUAL_RTTS
    names = map(arithmetic.rtt_text, rtts)
    rates = (arithmetic.rate_text(arithmetic.allowed_rate(size, rtt)) for rtt in rtts)
    first, *more = zip(names, rates)
    text = f"{arithmetic.size_text(size)} at {first[0]} RTT allows {first[1]}"
    return ", ".join([text, *map(" ".join, more)])
