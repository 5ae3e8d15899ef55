"""MTU and transmit queue of the dataplane NICs, then of their VLANs: what the profiles add to what is asked for by name."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, Optional

from neuca_tools.documents.neuca.links import overlay
from neuca_tools.model import Device, LinkKey, LinkRequest, Origin, Original, Record
from neuca_tools.model.effects import Note
from neuca_tools.tuning.layer import Asked, Layer, Value


class Tuned(NamedTuple):
    """The requests with what profiles add to them, and every value of the profiles, with its reason where it is not wanted."""

    requests: dict[LinkKey, LinkRequest]
    values: tuple[Value, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """Why values of a profile are not set, for status."""
        return tuple(
            Note(one.setting, one.effect, one.reason, one.link) for one in self.values if one.effect
        )


def tune(
    requests: Mapping[LinkKey, LinkRequest],
    layer: Layer,
    devices: Mapping[LinkKey, Device],
    record: Record,
) -> Tuned:
    """Add to each NIC and VLAN that should be up what the profiles want of it, where nothing is asked by name.

    `devices` are found. A bond has the MTU that its members are asked to have; what else is made of NICs follows them.
    """
    tuned = dict(requests)
    values: list[Value] = []
    for key in sorted(requests, key=lambda key: (key.vlan_id is not None, key)):
        if requests[key].state != "up" or key.nic not in devices or key.made:
            continue
        for setting, asked in (("mtu", layer.mtu), ("txqueuelen", layer.txqueuelen)):
            if asked is not None and getattr(requests[key], setting) is None:
                value, kept = _judge(setting, key, asked, layer, tuned, devices, record)
                values.append(value)
                tuned[key] = (
                    _with(tuned[key], value)
                    if value.wanted is not None and not kept
                    else tuned[key]
                )
    return Tuned(tuned, tuple(values))


def _judge(
    setting: str,
    key: LinkKey,
    asked: Asked,
    layer: Layer,
    tuned: Mapping[LinkKey, LinkRequest],
    devices: Mapping[LinkKey, Device],
    record: Record,
) -> tuple[Value, bool]:
    """The value, and whether the link has it without the agent."""
    value = Value(setting, asked.value, asked.source, link=key)
    device, before = devices.get(key), getattr(record.originals.get(key, Original()), setting)
    found: Optional[int] = getattr(device, setting) if device else None
    ours = found is not None and record.written.get(f"{key} {setting}") == str(found)
    most, reason = _room(key, layer, tuned, devices) if setting == "mtu" else (int(asked.value), "")
    if found is None and setting == "mtu":
        found = most  # a new VLAN inherits the MTU of its NIC
    base = (before or 0) if ours else (found or 0)
    within = min(int(asked.value), most)
    limit = reason if most < int(asked.value) else ""
    wanted = within if asked.exact else max(base, within)
    kept = before is None and wanted == found
    if limit and wanted <= base:
        return replace(
            value,
            effect="not applicable",
            reason=limit,
            wanted=None if ours or kept else str(wanted),
        ), kept
    return replace(value, wanted=str(wanted), reason=limit), kept


def _room(
    key: LinkKey,
    layer: Layer,
    tuned: Mapping[LinkKey, LinkRequest],
    devices: Mapping[LinkKey, Device],
) -> tuple[int, str]:
    """The highest MTU that may be set, and what limits it."""
    nic = devices[key.nic]
    if key.vlan_id is not None:
        most = tuned[key.nic].mtu or nic.mtu
        return most, f'its NIC "{nic.name}" has {most}'
    if layer.environment.kind != "bare metal" and key.mac not in layer.probed:
        return 0, f"in {layer.environment.text} only an acknowledged probe of the path may raise it"
    limits = [(nic.max_mtu or 65535, f'"{nic.name}" takes at most {nic.max_mtu}')]
    if layer.environment.kind != "bare metal":
        limits.append(
            (
                layer.probed[key.mac],
                f"the path carries {layer.probed[key.mac]} (acknowledged probe)",
            )
        )
    return min(limits)


def _with(request: LinkRequest, value: Value) -> LinkRequest:
    number = int(value.wanted or 0)
    below = LinkRequest(request.key, origins=(Origin(value.setting, str(number), value.source),))
    below = (
        replace(below, mtu=number) if value.setting == "mtu" else replace(below, txqueuelen=number)
    )
    return overlay(below, request)
