"""Add the MTU and transmit queue length of the profiles to the requests for dataplane NICs and their VLANs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.documents.neuca.links import overlay
from neuca_tools.model import Device, LinkKey, LinkRequest, Origin, Original, Record, Written
from neuca_tools.model.effects import Note
from neuca_tools.tuning.layer import Layer, Value


class Tuned(NamedTuple):
    """The requests with the values of the profiles, and every such value as judged."""

    requests: dict[LinkKey, LinkRequest]
    values: tuple[Value, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """Why values of the profiles are not set, for status."""
        return tuple(
            Note(one.setting, one.effect, one.reason, one.link) for one in self.values if one.effect
        )


def tune(
    requests: Mapping[LinkKey, LinkRequest],
    layer: Layer,
    devices: Mapping[LinkKey, Device],
    record: Record,
) -> Tuned:
    """Add the profiles' values to every NIC and VLAN with state `up` that has no such value requested.

    `devices` are those present. Virtual links are left out: a bond gets the MTU of its members, the
    others follow their lower devices.
    """
    tuned = dict(requests)
    values: list[Value] = []
    # NICs come first, because the MTU of a VLAN depends on that of its NIC.
    for key in sorted(requests, key=lambda key: (key.vlan_id is not None, key)):
        if requests[key].state != "up" or key.nic not in devices or key.made:
            continue
        for setting, asked in (("mtu", layer.mtu), ("txqueuelen", layer.txqueuelen)):
            if asked is None or getattr(requests[key], setting) is not None:
                continue
            most, limit = int(asked.value), ""
            if setting == "mtu":
                most, limit = _highest_mtu(key, layer, tuned, devices)
            present = _present(setting, key, devices, record)
            value = Value(setting, asked.value, asked.source, link=key)
            value, kept = _judge(value, asked.exact, present, most, limit)
            values.append(value)
            if value.wanted is not None and not kept:
                tuned[key] = _with(tuned[key], value)
    return Tuned(tuned, tuple(values))


class _Present(NamedTuple):
    """A setting of a link now, None where the link does not exist yet.

    `original` is the value before the agent first changed it, None if it has not; `ours`: the agent
    wrote the present value.
    """

    found: Optional[int]
    original: Optional[int]
    ours: bool


def _present(
    setting: str, key: LinkKey, devices: Mapping[LinkKey, Device], record: Record
) -> _Present:
    original: Optional[int] = getattr(record.originals.get(key, Original()), setting)
    if key not in devices:
        return _Present(None, original, ours=False)
    found: int = getattr(devices[key], setting)
    return _Present(found, original, record.written.get(Written(setting, key)) == str(found))


def _judge(
    value: Value, exact: bool, present: _Present, most: int, reason: str
) -> tuple[Value, bool]:
    """The judged value, and whether the link has it without the agent.

    `most` is the highest possible value, and `reason` says why.
    """
    asked = int(value.asked)
    found, base = present.found, present.found or 0
    if found is None and value.setting == "mtu":
        # A new VLAN inherits the MTU of its NIC.
        found = base = most
    if present.ours:
        base = present.original or 0
    wanted = min(asked, most)
    if not exact:
        wanted = max(base, wanted)
    kept = present.original is None and wanted == found
    if most >= asked:
        return replace(value, wanted=str(wanted)), kept
    if wanted > base:
        return replace(value, wanted=str(wanted), reason=reason), kept
    if present.ours or kept:
        return replace(value, effect="not applicable", reason=reason), kept
    return replace(value, effect="not applicable", reason=reason, wanted=str(wanted)), kept


def _highest_mtu(
    key: LinkKey,
    layer: Layer,
    tuned: Mapping[LinkKey, LinkRequest],
    devices: Mapping[LinkKey, Device],
) -> tuple[int, str]:
    """The highest MTU in bytes that may be set, and what limits it."""
    nic = devices[key.nic]
    if key.vlan_id is not None:
        most = tuned[key.nic].mtu or nic.mtu
        return most, f'its NIC "{nic.name}" has {most}'
    if layer.environment.kind != "bare metal" and key.mac not in layer.probed:
        return 0, f"in {layer.environment.text} only an acknowledged probe of the path may raise it"
    limits = [(nic.max_mtu or 65535, f'"{nic.name}" takes at most {nic.max_mtu}')]
    if layer.environment.kind != "bare metal":
        probed = layer.probed[key.mac]
        limits.append((probed, f"the path carries {probed} (acknowledged probe)"))
    return min(limits)


def _with(request: LinkRequest, value: Value) -> LinkRequest:
    """The request with a judged value."""
    number = int(value.wanted or 0)
    below = LinkRequest(request.key, origins=(Origin(value.setting, str(number), value.source),))
    if value.setting == "mtu":
        return overlay(replace(below, mtu=number), request)
    return overlay(replace(below, txqueuelen=number), request)
