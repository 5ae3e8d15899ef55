"""Add the MTU and queue length of the profiles to the requests for dataplane NICs and VLANs."""

# SPDX-License-Identifier: MIT

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, Optional

from neuca_tools.documents.stacking import merge_requests
from neuca_tools.model import (
    UNCHANGED,
    UNRECORDED,
    Device,
    LinkKey,
    LinkRequest,
    Origin,
    Record,
    Requests,
    WrittenSetting,
)
from neuca_tools.model.device_settings import USUAL_TXQUEUELEN, Note
from neuca_tools.tuning.layer import JudgedValue, Layer, ProfileValue


class Tuned(NamedTuple):
    """The requests with the values of the profiles, and the judgement of every such value."""

    requests: dict[LinkKey, LinkRequest]
    values: tuple[JudgedValue, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """Why values of the profiles are not set, for status."""
        return tuple(
            Note(value.setting, value.effect, value.reason, value.link)
            for value in self.values
            if value.effect
        )


def tune_links(
    requests: Requests,
    layer: Layer,
    devices: Mapping[LinkKey, Device],
    record: Record,
    guarded: Collection[int] = (),
) -> Tuned:
    """Add the profiles' values to each NIC and VLAN with state `up`, where no value is requested.

    `devices` are those present, `guarded` the indexes of those that stay as they are. Virtual links
    are left out: a bond gets the MTU of its members, the others follow their lower devices.
    """
    tuned = dict(requests)
    values: list[JudgedValue] = []
    # NICs come first, because the MTU of a VLAN depends on that of its NIC.
    for key in sorted(requests, key=lambda key: (key.vlan_id is not None, key)):
        if requests[key].state != "up" or key.nic not in devices or key.virtual_kind:
            continue
        for setting, requested in _missing_settings(requests[key], layer):
            limit = _Limit(int(requested.value))
            if setting == "mtu":
                limit = _highest_mtu(key, layer, tuned, devices, guarded)
            value = JudgedValue(setting, requested.value, requested.source, link=key)
            value, is_unchanged = _judge_link_value(value, key, devices.get(key), record, limit)
            values.append(value)
            if value.wanted is not None and not is_unchanged:
                tuned[key] = _with_value(tuned[key], value)
    return Tuned(tuned, tuple(values))


def _missing_settings(request: LinkRequest, layer: Layer) -> Iterator[tuple[str, ProfileValue]]:
    """The settings of the profiles that the request lacks, with their values."""
    for setting, value in (("mtu", layer.mtu), ("txqueuelen", layer.txqueuelen)):
        if value is not None and getattr(request, setting) is None:
            yield setting, value


class _Limit(NamedTuple):
    """The highest value that may be set, and what limits it."""

    value: int
    reason: str = ""


def _judge_link_value(
    value: JudgedValue, key: LinkKey, device: Optional[Device], record: Record, limit: _Limit
) -> tuple[JudgedValue, bool]:
    """The judged value, and whether the link has it without the agent."""
    setting, requested = value.setting, int(value.requested)
    current = _current_value(setting, device, limit)
    # The value before the agent changed it, if it is to be restored.
    original: Optional[int] = getattr(record.originals.get(key, UNCHANGED), setting)
    is_ours = _is_ours(setting, key, device, record)
    base = current
    if is_ours:
        if original is not None:
            base = original
        elif setting == "mtu" and key in record.owned.vlans:
            base = limit.value  # a VLAN of ours has the MTU of its NIC
    wanted = max(base, min(requested, limit.value))
    is_unchanged = wanted == current and original is None
    judged = value._replace(wanted=str(wanted))
    if limit.value >= requested:
        return judged, is_unchanged
    if wanted > base:
        return judged._replace(reason=limit.reason), is_unchanged
    if is_ours or is_unchanged:
        judged = value
    return judged._replace(effect="not applicable", reason=limit.reason), is_unchanged


def _is_ours(setting: str, key: LinkKey, device: Optional[Device], record: Record) -> bool:
    """Whether the agent has set what the link has, perhaps in a pass that was interrupted.

    A bond sets the MTU of its members; a VLAN of ours has that of its NIC, unless we set another.
    """
    if device is None:
        return False
    if setting == "mtu" and (device.slave or key in record.owned.vlans):
        return True
    is_interrupted = record.nics.get(key.mac, UNRECORDED).is_interrupted
    written = record.written.get(WrittenSetting(setting, key))
    return is_interrupted or written == str(getattr(device, setting))


def _current_value(setting: str, device: Optional[Device], limit: _Limit) -> int:
    """The value that the link has; a new VLAN inherits the MTU of its NIC."""
    if device is not None:
        return int(getattr(device, setting))
    return limit.value if setting == "mtu" else USUAL_TXQUEUELEN


def _highest_mtu(
    key: LinkKey,
    layer: Layer,
    tuned: Requests,
    devices: Mapping[LinkKey, Device],
    guarded: Collection[int],
) -> _Limit:
    """The highest MTU in bytes, 0 to leave it alone.

    A member cannot be taken out of a guarded bond, so it and the VLANs on it keep their MTU. That
    of an InfiniBand port in datagram mode is known to the subnet manager only.
    """
    nic = devices[key.nic]
    if nic.slave and nic.master in guarded:
        return _Limit(nic.mtu, f'"{nic.name}" stays in a bond with MTU {nic.mtu}')
    if nic.infiniband and nic.mode != "connected":
        return _Limit(nic.mtu, f'"{nic.name}" is an InfiniBand port in datagram mode')
    if key.vlan_id is not None:
        mtu = tuned[key.nic].mtu or nic.mtu
        return _Limit(mtu, f'its NIC "{nic.name}" has {mtu}')
    # A driver without a limit reports 0. No profile has more than 65535.
    device = _Limit(nic.max_mtu or 65535, f'"{nic.name}" supports at most {nic.max_mtu}')
    if layer.environment.kind == "bare metal":
        return device
    where = layer.environment.text
    return _Limit(0, f"in {where} its maximum says nothing about the path; request an MTU by name")


def _with_value(request: LinkRequest, value: JudgedValue) -> LinkRequest:
    setting: dict[str, Any] = {value.setting: int(value.wanted or 0)}
    origin = Origin(value.setting, value.wanted or "0", value.source)
    return merge_requests(LinkRequest(request.key, origins=(origin,), **setting), request)
