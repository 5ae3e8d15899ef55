"""What does not change during a test: the host, its sysctls, its devices, and those on the path.

The counters that change are in `counters`.
"""

# SPDX-License-Identifier: MIT

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Optional

from neuca_tools import __version__
from neuca_tools.backends import sysctl
from neuca_tools.backends.ethtool import Ethtool
from neuca_tools.files import text_of
from neuca_tools.model import Device
from neuca_tools.model.device_settings import DeviceSettings
from neuca_tools.selftest.evidence import Host, Link
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.kernel import KernelRoute
from neuca_tools.selftest.measure.iperf import command
from neuca_tools.selftest.measure.program import Program

SYSCTLS = (
    "core/rmem_max core/wmem_max core/rmem_default core/wmem_default core/netdev_max_backlog"
    " core/netdev_budget core/netdev_budget_usecs core/default_qdisc core/somaxconn ipv4/tcp_rmem"
    " ipv4/tcp_wmem ipv4/tcp_mem ipv4/udp_mem ipv4/tcp_congestion_control"
    " ipv4/tcp_available_congestion_control ipv4/tcp_mtu_probing ipv4/tcp_no_metrics_save"
    " ipv4/tcp_slow_start_after_idle ipv4/tcp_timestamps ipv4/tcp_sack ipv4/tcp_window_scaling"
    " ipv4/tcp_max_syn_backlog ipv4/tcp_adv_win_scale ipv4/tcp_limit_output_bytes"
    " ipv4/ip_local_port_range ipv4/ipfrag_high_thresh ipv6/ip6frag_high_thresh"
    " ipv4/neigh/default/gc_thresh1 ipv4/neigh/default/gc_thresh2 ipv4/neigh/default/gc_thresh3"
    " ipv6/neigh/default/gc_thresh1 ipv6/neigh/default/gc_thresh2 ipv6/neigh/default/gc_thresh3"
    " ipv4/ip_forward ipv4/conf/all/rp_filter netfilter/nf_conntrack_max"
).split()
PROGRAM_SECONDS = 10.0  # that iperf3 may take to print its version
# Our names of offloads, and those that `ethtool -k` prints.
OFFLOADS = {
    "offloads.tso": "tcp-segmentation-offload",
    "offloads.gso": "generic-segmentation-offload",
    "offloads.gro": "generic-receive-offload",
    "offloads.lro": "large-receive-offload",
    "offloads.sg": "scatter-gather",
    "offloads.rx": "rx-checksumming",
    "offloads.tx": "tx-checksumming",
}
# From the name of a sysctl to its path and back, as net.ipv4.conf.eth1/1445.rp_filter (sysctl(8)).
SWAP_SEPARATORS = str.maketrans("./", "/.")
SYSFS = Path("/sys/class/net")
# The files with the hardware properties of a NIC.
HARDWARE = ("speed", "duplex", "device/numa_node")
# The most lines of the kernel's log that are kept, and characters of each.
MAX_LOG_LINES = 1000
LOG_LINE_CHARACTERS = 1024


def describe_host(
    route: Optional[KernelRoute] = None,
    planned: Optional[str] = None,
    wanted: Optional[Mapping[str, str]] = None,
    drift: Sequence[str] = (),
) -> Host:
    """This host as it is now. Raises OSError if the kernel cannot be queried.

    `route` is that to the peer, and `planned` the device that it should leave through. `wanted`
    are the planned sysctls by dotted name, `drift` what else differs from the plan.
    """
    devices, planned_sysctls = kernel.read_devices(), dict(wanted or {})
    chain = devices_below(devices, route.device_index) if route else []
    names = [device.name for device in chain]
    addresses_by_index = defaultdict[int, list[str]](list)
    for index, address in kernel.read_addresses():
        if not address.is_link_local:
            addresses_by_index[index].append(str(address))
    links = [
        _describe_link(device, devices, addresses_by_index[device.index], device in chain)
        for device in devices.values()
        if device in chain or device.up
    ]
    system = os.uname()
    return Host(
        name=system.nodename,
        kernel=system.release,
        iperf3=iperf3_version(),
        sysctls={**read_sysctls(planned_sysctls), **read_sysctls(_sysctl_names(names))},
        wanted=planned_sysctls,
        links=tuple(links),
        path=tuple(names),
        planned=planned,
        route_mtu=route.mtu if route else None,
        drift=tuple(drift),
        agent=__version__,
    )


def _sysctl_names(devices: Iterable[str]) -> list[str]:
    """The dotted names of the sysctls that conditions use, with those of these devices."""
    paths = [*SYSCTLS, *(f"ipv4/conf/{name}/rp_filter" for name in sorted(devices))]
    return [f"net/{path}".translate(SWAP_SEPARATORS) for path in paths]


def read_sysctls(names: Iterable[str]) -> dict[str, str]:
    """The values of these sysctls by their dotted names; those that do not exist are left out."""
    values = {name: sysctl.read_value(name.translate(SWAP_SEPARATORS)) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def devices_below(devices: Mapping[int, Device], index: int) -> list[Device]:
    """The device `index` and everything below it: its lower devices, and the members of a bond."""
    chain: list[Device] = []
    waiting = [index]
    while waiting:
        device = devices.get(waiting.pop(0))
        if device is not None and device not in chain:
            chain.append(device)
            waiting.append(device.lower)
            if device.kind in ("bond", "team"):
                # All of its members are in use; of a bridge, one port is.
                waiting += [
                    other.index for other in devices.values() if other.master == device.index
                ]
    return chain


def node_for(host: Host, option: Optional[str]) -> Optional[int]:
    """The NUMA node to run iperf3 on; None for any.

    `option` is the number of a node, or "auto" for the lowest one of the NICs on the path.
    """
    if option != "auto":
        return None if option is None else int(option)
    nodes = (link.numa_node for link in host.links if link.name in host.path)
    return min((node for node in nodes if node is not None), default=None)


def iperf3_version() -> Optional[str]:
    """The version of iperf3; None if it is not installed."""
    try:
        program = Program([command.PROGRAM, "--version"])
    except OSError:
        return None
    return command.parse_version(program.end(PROGRAM_SECONDS).out)


def _describe_link(
    device: Device, devices: Mapping[int, Device], addresses: Sequence[str], is_on_path: bool
) -> Link:
    """A device as evidence; only on the path, with the settings of its driver and hardware."""
    lower = devices.get(device.lower)
    link = Link(
        name=device.name,
        kind=device.kind or ("loopback" if device.name == "lo" else "physical"),
        parent=lower.name if lower else None,
        mtu=device.mtu or None,
        qdisc=device.qdisc or None,
        txqueuelen=device.txqueuelen,
        mac=device.mac or None,
        addresses=tuple(addresses),
    )
    return _with_settings(link, device) if is_on_path else link


def _with_settings(link: Link, device: Device) -> Link:
    """With the settings of the driver, and of a NIC what sysfs shows of its hardware."""
    settings, fastest = DeviceSettings(), None
    # The kernel may have no ethtool netlink, and the device may no longer exist or have no modes.
    with suppress(OSError), Ethtool() as ethtool:
        settings = ethtool.read(device.index, ("rings", "offloads"))
        fastest = ethtool.fastest_mode(device.index)
    link = replace(link, offloads=_changeable_offloads(settings), rings=_ring_sizes(settings))
    if link.kind != "physical":
        return link
    hardware = _read_hardware(device)
    speed = _parse_number(hardware.get("speed", ""))
    return replace(
        link,
        speed=speed * 1e6 if speed else None,
        max_speed=fastest,
        duplex=hardware.get("duplex"),
        numa_node=_parse_number(hardware.get("device/numa_node", "")),
    )


def _changeable_offloads(settings: DeviceSettings) -> dict[str, bool]:
    """The offloads that can be changed: what a driver has fixed is no fault of the host."""
    return {
        OFFLOADS.get(name, name.partition(".")[2]): value == "on"
        for name, value in settings.values.items()
        if name.startswith("offloads.") and name not in settings.missing
    }


def _ring_sizes(settings: DeviceSettings) -> dict[str, int]:
    """The sizes of the rings, and under `…_max` the largest that the device supports."""
    largest = {f"{name}_max": value for name, value in settings.maximums.items()}
    return {
        name.partition(".")[2]: int(value)
        for name, value in {**largest, **settings.values}.items()
        if name.startswith("rings.") and value.isdecimal()
    }


def _read_hardware(device: Device) -> dict[str, str]:
    """What sysfs shows; empty if /sys belongs to another network namespace."""
    directory = SYSFS / device.name
    if text_of(directory / "ifindex") != str(device.index):
        return {}
    texts = {name: text_of(directory / name) for name in HARDWARE}
    return {name: text for name, text in texts.items() if text not in ("", "unknown")}


def _parse_number(text: str) -> Optional[int]:
    """None for no number and for -1, by which sysfs shows that there is no speed or NUMA node."""
    return int(text) if text.isdecimal() else None


class Messages:
    """What the kernel logs from now on (/dev/kmsg); nothing if this process may not read that."""

    def __init__(self) -> None:
        self._descriptor: Optional[int] = None
        with suppress(OSError):
            self._descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def end(self) -> tuple[str, ...]:
        """At most MAX_LOG_LINES lines, without their prefix. Stops listening."""
        if self._descriptor is None:
            return ()
        lines: list[str] = []
        for _ in range(MAX_LOG_LINES):
            try:
                line = os.read(self._descriptor, 8192)
            except BrokenPipeError:
                # The kernel overwrote the next ones; the read after this continues after them.
                continue
            except OSError:
                break
            text = line.partition(b";")[2].partition(b"\n")[0]
            lines.append(text.decode("utf-8", "replace")[:LOG_LINE_CHARACTERS])
        os.close(self._descriptor)
        self._descriptor = None
        return tuple(lines)
