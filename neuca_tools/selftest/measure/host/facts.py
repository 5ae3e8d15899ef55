"""What does not change during a test: the host, its settings, its devices, and which of them are on the way to the peer."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Optional

from neuca_tools.backends import sysctl
from neuca_tools.backends.ethtool import Ethtool
from neuca_tools.model.device_settings import DeviceSettings
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.kernel import NetDevice, Way
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.program import Program

SETTINGS = (
    "core/rmem_max core/wmem_max core/rmem_default core/wmem_default core/netdev_max_backlog core/netdev_budget"
    " core/netdev_budget_usecs core/default_qdisc core/somaxconn ipv4/tcp_rmem ipv4/tcp_wmem ipv4/tcp_mem ipv4/udp_mem"
    " ipv4/tcp_congestion_control ipv4/tcp_available_congestion_control ipv4/tcp_mtu_probing ipv4/tcp_no_metrics_save"
    " ipv4/tcp_slow_start_after_idle ipv4/tcp_timestamps ipv4/tcp_sack ipv4/tcp_window_scaling ipv4/tcp_max_syn_backlog"
    " ipv4/tcp_adv_win_scale ipv4/tcp_limit_output_bytes ipv4/ip_local_port_range ipv4/ipfrag_high_thresh ipv4/ip_forward"
    " ipv4/neigh/default/gc_thresh1 ipv4/neigh/default/gc_thresh2 ipv4/neigh/default/gc_thresh3"
    " ipv6/neigh/default/gc_thresh3 ipv4/conf/all/rp_filter netfilter/nf_conntrack_max"
).split()
OFFLOADS = {  # as ethtool -k has always named them
    "offloads.tso": "tcp-segmentation-offload",
    "offloads.gso": "generic-segmentation-offload",
    "offloads.gro": "generic-receive-offload",
    "offloads.lro": "large-receive-offload",
    "offloads.sg": "scatter-gather",
    "offloads.rx": "rx-checksumming",
    "offloads.tx": "tx-checksumming",
}
SWAP = str.maketrans(
    "./", "/."
)  # a sysctl's name and its path, and back (sysctl(8): net.ipv4.conf.eth1/1445.rp_filter)
SYSFS = Path("/sys/class/net")
LINES = 1000  # of the kernel's log, and bytes of each
LINE = 1024


def host(
    way: Optional[Way] = None,
    planned: Optional[str] = None,
    wanted: Optional[Mapping[str, str]] = None,
    drift: Sequence[str] = (),
) -> Host:
    """This end now. `way`: how it reaches the peer; `planned`: the device it should use for that. Raises OSError."""
    devices = kernel.devices()
    held: dict[int, list[str]] = {}
    for index, address in kernel.addresses():
        if not address.is_link_local:
            held.setdefault(index, []).append(str(address))
    chain = path(devices, way.index) if way else []
    names = {device.name for device in chain}
    links = tuple(
        _link(device, devices, held.get(device.index, []), device.name in names)
        for device in devices.values()
        if device.name in names or device.up
    )
    names_of = [*SETTINGS, *(f"ipv4/conf/{name}/rp_filter" for name in sorted(names))]
    sysctls = {
        **settings(wanted or {}),
        **settings(f"net/{name}".translate(SWAP) for name in names_of),
    }
    return Host(
        os.uname().nodename,
        os.uname().release,
        version(),
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        sysctls,
        dict(wanted or {}),
        links,
        tuple(device.name for device in chain),
        planned,
        way.mtu if way else None,
        drift=tuple(drift),
    )


def settings(names: Iterable[str]) -> dict[str, str]:
    """Sysctls by their names with dots; those that are not there are left out."""
    return {
        name: value
        for name in names
        for value in [sysctl.read(name.translate(SWAP))]
        if value is not None
    }


def path(devices: Mapping[int, NetDevice], index: int) -> list[NetDevice]:
    """The device that packets leave through, and all that carries it: what it is stacked on, the members of a bond."""
    found: list[NetDevice] = []
    waiting = [index]
    while waiting:
        device = devices.get(waiting.pop(0))
        if device is not None and device not in found:
            found.append(device)
            members = [
                one.index
                for one in devices.values()
                if one.master == device.index and device.kind in ("bond", "team")
            ]
            waiting += [device.parent, *members] if device.parent else members
    return found


def node_for(host: Host, asked: Optional[str]) -> Optional[int]:
    """The NUMA node that iperf3 should run on: the one asked for, or that of the NIC on the way; None for any."""
    nodes = [
        link.numa_node
        for link in host.links
        if link.name in host.path and link.numa_node is not None
    ]
    return min(nodes, default=None) if asked == "auto" else None if asked is None else int(asked)


def version() -> Optional[str]:
    """Of iperf3; None where there is none."""
    try:
        program = Program([command.PROGRAM, "--version"])
    except OSError:
        return None
    return command.version(program.finish().out)


def _link(
    device: NetDevice, devices: Mapping[int, NetDevice], addresses: Sequence[str], on_path: bool
) -> Link:
    kind = device.kind or ("loopback" if device.name == "lo" else "physical")
    settings = _settings(device.index) if on_path else DeviceSettings()
    more = _hardware(device) if on_path and kind == "physical" else {}
    numbers = {**{f"{name}_max": value for name, value in settings.most.items()}, **settings.values}
    parent = devices.get(device.parent)
    return Link(
        device.name,
        kind,
        parent.name if parent else None,
        device.mtu or None,
        device.max_mtu or None,
        speed=_megabits(more.get("speed")),
        duplex=more.get("duplex") if more.get("duplex") != "unknown" else None,
        qdisc=device.qdisc or None,
        txqueuelen=device.txqueuelen,
        numa_node=_node(more.get("device/numa_node")),
        offloads={
            OFFLOADS.get(name, name.partition(".")[2]): value == "on"
            for name, value in settings.values.items()
            if name.startswith("offloads.")
        },
        rings={
            name.partition(".")[2]: int(value)
            for name, value in numbers.items()
            if name.startswith("rings.") and value.isdecimal()
        },
        pcie_speed=more.get("device/current_link_speed"),
        pcie_max_speed=more.get("device/max_link_speed"),
        mac=device.mac or None,
        addresses=tuple(addresses),
    )


def _settings(index: int) -> DeviceSettings:
    """Nothing where the kernel has no ethtool netlink, or the device has just gone."""
    with suppress(OSError), Ethtool() as asked:
        return asked.read(index, ("rings", "offloads"))
    return DeviceSettings()


def _hardware(device: NetDevice) -> dict[str, str]:
    """What sysfs says, if it shows this namespace."""
    place = SYSFS / os.fsdecode(device.name)
    if _word(place / "ifindex") != str(device.index):
        return {}
    names = (
        "speed",
        "duplex",
        "device/numa_node",
        "device/current_link_speed",
        "device/max_link_speed",
    )
    return {name: word for name in names for word in [_word(place / name)] if word}


def _word(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(100).decode("ascii", "replace").strip()
    except OSError:  # a NIC that is down has no speed (EINVAL)
        return ""


def _megabits(word: Optional[str]) -> Optional[float]:
    return float(word) * 1e6 if word and word.isdecimal() and int(word) > 0 else None


def _node(word: Optional[str]) -> Optional[int]:
    return int(word) if word and word.isdecimal() else None


class Messages:
    """What the kernel logs from now on (/dev/kmsg); nothing where this process may not read it."""

    def __init__(self) -> None:
        self._descriptor: Optional[int] = None
        with suppress(OSError):
            self._descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def end(self) -> tuple[str, ...]:
        """At most a thousand lines, without their prefix."""
        found: list[str] = []
        if self._descriptor is None:
            return ()
        for _ in range(LINES):
            try:
                line = os.read(self._descriptor, 8192)
            except BrokenPipeError:  # the next ones were overwritten
                continue
            except OSError:
                break
            found.append(
                line.partition(b";")[2].partition(b"\n")[0].decode("utf-8", "replace")[:LINE]
            )
        os.close(self._descriptor)
        self._descriptor = None
        return tuple(found)
