"""What the agent wants of this host: which devices a test may use, whether all is as planned, and which way is meant."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.host import host
from neuca_tools.config import Config
from neuca_tools.desired.resolve import Resolution
from neuca_tools.errors import UsageError
from neuca_tools.model import Address as Interface
from neuca_tools.model import Host as Address
from neuca_tools.plan.operations import WriteSysctl
from neuca_tools.selftest.measure.host.facts import SWAP
from neuca_tools.selftest.measure.host.kernel import Device, Way
from neuca_tools.state.active_document import confirmed
from neuca_tools.status.report import read_report
from neuca_tools.tuning.layer import CONGESTION

MOST = 50  # texts of what is not as planned


@dataclass(frozen=True)
class Outlook:
    """`reserved`: index and role of each device that is not the dataplane's; `meant`: device and networks of what is.

    `drift`: what a pass would do now; None where the agent has made no pass here, so that nothing is planned.
    """

    reserved: Mapping[int, str] = field(default_factory=dict)
    meant: tuple[tuple[str, tuple[Interface, ...]], ...] = ()
    wanted: Mapping[str, str] = field(default_factory=dict)
    drift: Optional[tuple[str, ...]] = None

    def device_for(self, peer: Address) -> Optional[str]:
        """The device on whose network the peer is, as planned; the narrowest network wins."""
        found = [
            (one.network.prefixlen, name)
            for name, addresses in self.meant
            for one in addresses
            if one.version == peer.version and peer in one.network
        ]
        return max(found)[1] if found else None


def outlook(config: Config) -> Outlook:
    """One look, which changes nothing. Raises ObserveError, RecordError."""
    intake = confirmed(config.state, config.run_directory)
    with host(config, intake) as handles:
        survey = handles.survey()
    passed = read_report(config.run_directory) is not None
    left = (
        [one for one in survey.plan() if not (isinstance(one, WriteSysctl) and one.link is None)]
        if passed
        else []
    )
    problems = [
        one.text
        for one in survey.resolution.problems
        if one.code in ("absent", "contested", "name", "mtu")
    ]
    drift = (
        tuple(dict.fromkeys([*problems, *(one.text for one in left)]))[:MOST] if passed else None
    )
    return Outlook(
        _reserved(survey), _meant(survey), wanted(survey.resolution) if passed else {}, drift
    )


def wanted(resolution: Resolution) -> dict[str, str]:
    """The sysctls that are to be, by name; a congestion control that this kernel has not is wanted all the same."""
    missing = {
        one.setting: one.asked
        for one in resolution.tuning.values
        if one.setting == CONGESTION and one.effect == "unsupported"
    }
    return {
        key.translate(SWAP): value for key, value in {**resolution.want.sysctls, **missing}.items()
    }


def _reserved(survey: Decision) -> dict[int, str]:
    roles = survey.resolution.roles
    found = dict.fromkeys(roles.protected, "an ignored NIC")
    return {**found, **dict.fromkeys(roles.management, "the management NIC")}


def _meant(survey: Decision) -> tuple[tuple[str, tuple[Interface, ...]], ...]:
    links = [
        survey.have.links[key] for key in sorted(survey.want.links) if key in survey.have.links
    ]
    return tuple(
        (link.name or "", survey.want.links[link.key].addresses or link.addresses) for link in links
    )


def permit(
    peer: Address, way: Way, device: Device, outlook: Outlook, interface: Optional[str]
) -> str:
    """The device that is meant for this peer. Raises UsageError for a test that must not be."""
    if way.local or peer.is_loopback:
        raise UsageError(f"test {peer}: it is an address of this host's own")
    if not way.unicast or peer.is_multicast or peer.is_unspecified or peer.is_reserved:
        raise UsageError(f"test {peer}: it is no address of a single host")
    if device.index in outlook.reserved and device.name != interface:
        raise UsageError(
            f"test {peer}: the way there leaves through {device.name}, {outlook.reserved[device.index]}",
            hint=f"--interface {device.name} says that this is meant",
        )
    return interface or outlook.device_for(peer) or device.name
