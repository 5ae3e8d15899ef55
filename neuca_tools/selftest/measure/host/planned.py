"""What the self-test needs to know from the agent, and where it may test from."""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.model import Address as Interface
from neuca_tools.model import Device
from neuca_tools.model import Host as Address
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.kernel import KernelRoute
from neuca_tools.selftest.measure.program import Program

# RFC 1112, 4. What Python calls reserved of IPv6 includes the hosts behind NAT64 (RFC 6052).
RESERVED = ip_network("240.0.0.0/4")


class AgentPlan(NamedTuple):
    """What the agent intends for this host: all that the self-test knows about the agent.

    `reserved` is the role of each device outside the dataplane by its index: "the management NIC" …
    `networks` are the name and the planned addresses, with their networks, of each dataplane
    device. `sysctls` are the desired ones by their dotted names. `drift` says how the host differs
    from the plan; None where the agent has not made a pass yet. The defaults are those of a host or
    a network namespace without an agent.
    """

    reserved: Mapping[int, str] = {}
    networks: tuple[tuple[str, tuple[Interface, ...]], ...] = ()
    sysctls: Mapping[str, str] = {}
    drift: Optional[tuple[str, ...]] = None


def permitted_device(
    peer: Address, route: KernelRoute, device: Device, plan: AgentPlan, interface: Optional[str]
) -> str:
    """The name of the device that a test of `peer` should leave through.

    It may differ from `device`, the one that the route leads through. `interface` is the one that
    the user named, which permits a reserved device. Raises UsageError if the peer must not be
    tested: an address of this host, a group of hosts, or one behind a reserved device.
    """
    if route.is_local or peer.is_loopback:
        raise UsageError(f"test {peer}: it is an address of this host")
    if not route.is_unicast or any((peer.is_multicast, peer.is_unspecified, peer in RESERVED)):
        raise UsageError(f"test {peer}: it is not the address of a single host")
    if device.index in plan.reserved and device.name != interface:
        raise UsageError(
            f"test {peer}: the route to it leaves through {device.name},"
            f" {plan.reserved[device.index]}",
            hint=f"--interface {device.name} permits this",
        )
    return interface or planned_device(plan, peer) or device.name


class PeerRoute(NamedTuple):
    """The route to a peer from an address of this host, its device, and the planned device."""

    peer: Address
    source: Address
    kernel_route: KernelRoute
    device: Device
    planned: str

    @property
    def is_as_planned(self) -> bool:
        return self.device.name == self.planned


def permitted_route(
    peer: Address,
    plan: AgentPlan,
    interface: Optional[str] = None,
    source: Optional[Address] = None,
) -> PeerRoute:
    """The route to a peer, from `source` if given, before anything is sent.

    Raises UsageError for a peer that must not be tested, OSError if there is no usable route.
    """
    check_scope("test", peer)
    route = kernel.route_to(peer, source)
    device = kernel.read_devices().get(route.device_index)
    if device is None or route.source is None:
        raise OSError(0, "the route has no device or no source address")
    planned = permitted_device(peer, route, device, plan, interface)
    return PeerRoute(peer, route.source, route, device, planned)


def check_scope(action: str, address: Address) -> None:
    """Raise UsageError for a link-local IPv6 address, which means nothing without its scope."""
    if address.version == 6 and address.is_link_local:
        hint = "use a global or a unique local address"
        raise UsageError(f"{action} {address}: it is link-local, which is not supported", hint)


def planned_device(plan: AgentPlan, peer: Address) -> Optional[str]:
    """The device whose planned network contains the peer; of several, the narrowest network's."""
    candidates = [
        (interface.network.prefixlen, name)
        for name, addresses in plan.networks
        for interface in addresses
        if peer in interface.network
    ]
    return max(candidates)[1] if candidates else None


NAMED_NAMESPACES = Path("/run/netns")  # ip-netns(8)
ENGINES = ("docker", "podman")
INSPECT_SECONDS = 10.0  # for one of these to answer
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def named_namespace(name: str) -> Path:
    """The file of a namespace made by `ip netns add`. Raises UsageError."""
    if not NAME.fullmatch(name):
        raise UsageError(f'--netns "{name}": it is not a valid name of a network namespace')
    return NAMED_NAMESPACES / name


def container_namespace(name: str) -> Path:
    """The file of the network namespace of a running docker or podman container.

    No program is needed in the container. Raises UsageError, SelftestError.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f'--container "{name}": it is not a valid name of a container')
    reasons = []
    for engine in ENGINES:
        try:
            program = Program([engine, "inspect", "--format", "{{.State.Pid}}", name])
        except OSError as error:
            reasons.append(f"{engine}: {error.strerror}")
            continue
        result = program.end(INSPECT_SECONDS)
        process = result.out.strip().decode("ascii", "replace")
        if result.code == 0 and process.isdecimal() and process != "0":
            return Path("/proc") / process / "ns" / "net"
        reason = result.error.decode("utf-8", "replace").strip()[:200] or "it is not running"
        if result.was_killed:
            reason = f"no response in {INSPECT_SECONDS:g} s"
        reasons.append(f"{engine}: {reason}")
    raise SelftestError(f'enter the container "{name}": {"; ".join(reasons)}')
