"""Add the MTU and queue length of the profiles to the requests for dataplane NICs and VLANs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

from neuca_tools.documents.stacking import merge_requests
from neuca_tools.model import (
    UNCHANGED,
    Device,
    LinkKey,
    LinkRequest,
    Origin,
    Record,
    Requests,
    WrittenSetting,
)
from neuca_tools.model.device_settings import Note
from neuca_tools.tuning.layer import Asked, Layer, Value


class Tuned(NamedTuple):
    """The requests with the values of the profiles, and every such value as judged."""

    requests: dict[LinkKey, LinkRequest]
    values: tuple[Value, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """Why values of the profiles are not set, for status."""
        return tuple(
            Note(value.setting, value.effect, value.reason, value.link)
            for value in self.values
            if value.effect
        )


def tune_links(
    requests: Requests, layer: Layer, devices: Mapping[LinkKey, Device], record: Record
) -> Tuned:
    """Add the profiles' values to each NIC and VLAN with state `up`, where no value is requested.

    `devices` are those present. Virtual links are left out: a bond gets the MTU of its members, the
    others follow their lower devices.
    """
    tuned = dict(requests)
    values: list[Value] = []
    # NICs come first, because the MTU of a VLAN depends on that of its NIC.
    for key in sorted(requests, key=lambda key: (key.vlan_id is not None, key)):
        if requests[key].state != "up" or key.nic not in devices or key.virtual_kind:
            continue
        for setting, asked in _missing_settings(requests[key], layer):
            limit = _Limit(int(asked.value))
            if setting == "mtu":
                limit = _highest_mtu(key, layer, tuned, devices)
            value = Value(setting, asked.value, asked.source, link=key)
            present = _present_value(key, setting, devices.get(key), record, limit)
            value, kept = _judge_link_value(value, present, limit)
            values.append(value)
            if value.wanted is not None and not kept:
                tuned[key] = _with_value(tuned[key], value)
    return Tuned(tuned, tuple(values))


def _missing_settings(request: LinkRequest, layer: Layer) -> Iterator[tuple[str, Asked]]:
    """The settings of the profiles that the request lacks, with their values."""
    for setting, asked in (("mtu", layer.mtu), ("txqueuelen", layer.txqueuelen)):
        if asked is not None and getattr(request, setting) is None:
            yield setting, asked


class _Limit(NamedTuple):
    """The highest value that may be set, and what limits it."""

    most: int
    reason: str = ""


class _Present(NamedTuple):
    """The present value of a setting, None if the link does not exist yet.

    `base` is the value without the agent, 0 if unknown. `ours`: the agent wrote the present value.
    `changed`: the agent has changed the setting before.
    """

    current: Optional[int]
    base: int
    ours: bool
    changed: bool


def _present_value(
    key: LinkKey, setting: str, device: Optional[Device], record: Record, limit: _Limit
) -> _Present:
    original: Optional[int] = getattr(record.originals.get(key, UNCHANGED), setting)
    # A new VLAN inherits the MTU of its NIC.
    current: Optional[int] = limit.most
    if device is not None:
        current = getattr(device, setting)
    elif setting != "mtu":
        current = None
    ours = record.written.get(WrittenSetting(setting, key)) == str(current)
    if ours and device is not None:
        return _Present(current, original or 0, ours=True, changed=original is not None)
    return _Present(current, current or 0, ours=False, changed=original is not None)


def _judge_link_value(value: Value, present: _Present, limit: _Limit) -> tuple[Value, bool]:
    """The judged value, and whether the link has it without the agent."""
    asked = int(value.asked)
    wanted = max(present.base, min(asked, limit.most))
    kept = wanted == present.current and not present.changed
    judged = value._replace(wanted=str(wanted))
    if limit.most >= asked:
        return judged, kept
    if wanted > present.base:
        return judged._replace(reason=limit.reason), kept
    if present.ours or kept:
        judged = value
    return judged._replace(effect="not applicable", reason=limit.reason), kept


def _highest_mtu(
    key: LinkKey, layer: Layer, tuned: Requests, devices: Mapping[LinkKey, Device]
) -> _Limit:
    """The highest MTU in bytes.

    In datagram mode, only the subnet manager knows that of an InfiniBand port.
    """
    nic = devices[key.nic]
    if nic.infiniband and nic.mode != "connected":
        return _Limit(nic.mtu, f'"{nic.name}" is an InfiniBand port in datagram mode')
    if key.vlan_id is not None:
        most = tuned[key.nic].mtu or nic.mtu
        return _Limit(most, f'its NIC "{nic.name}" has {most}')
    device = _Limit(nic.max_mtu or 65535, f'"{nic.name}" supports at most {nic.max_mtu}')
    if layer.environment.kind == "bare metal":
        return device
    where = layer.environment.text
    return _Limit(0, f"in {where} its maximum says nothing about the path; request an MTU by name")


def _with_value(request: LinkRequest, value: Value) -> LinkRequest:
    """The request with a judged value."""
    setting: dict[str, Any] = {value.setting: int(value.wanted or 0)}
    origin = Origin(value.setting, value.wanted or "0", value.source)
    return merge_requests(LinkRequest(request.key, origins=(origin,), **setting), request)
