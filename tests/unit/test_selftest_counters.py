"""What the running self-test reads of the kernel: each form, whole and damaged."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest

from neuca_tools.backends import wire
from neuca_tools.backends.ethtool import fastest_common_mode
from neuca_tools.model import Device
from neuca_tools.model.device_settings import DeviceSettings
from neuca_tools.selftest.evidence import Cpu, Link
from neuca_tools.selftest.measure.host import counters, facts, kernel, tcp_info
from neuca_tools.selftest.measure.probes.echo import answered_number, echo_request
from neuca_tools.selftest.measure.probes.roundtrip import MAX_REQUESTS, latency_of

NETSTAT = """TcpExt: SyncookiesSent ListenDrops TCPTimeouts
TcpExt: 0 4 17
IpExt: InNoRoutes InOctets
IpExt: 0 18446744073709551615
"""


def test_a_sysctl_has_the_value_of_proc_and_one_that_does_not_exist_none():
    value = Path("/proc/sys/net/ipv4/tcp_sack").read_text(encoding="ascii").strip()
    names = ["net.ipv4.tcp_sack", "net.ipv4.no_such"]
    assert facts.read_sysctls(names) == {"net.ipv4.tcp_sack": value}


def test_pairs_of_lines():
    assert counters.parse_pairs(NETSTAT) == {
        "TcpExt.SyncookiesSent": 0,
        "TcpExt.ListenDrops": 4,
        "TcpExt.TCPTimeouts": 17,
        "IpExt.InNoRoutes": 0,
        "IpExt.InOctets": 2**64 - 1,
    }


@pytest.mark.parametrize(
    "text", ["", "\n\n", "TcpExt:", "TcpExt: A B\nIpExt: 1 2\n", "A: x\nA: y\n", "A: one two\nA:\n"]
)
def test_damaged_pairs_are_nothing(text):
    assert counters.parse_pairs(text) == {}


def test_udp_of_ipv6_counts_with_that_of_ipv4():
    text = "Ip6ReasmFails   3\nUdp6RcvbufErrors\t7\nUdp6NoPorts 1\nIcmp6InMsgs 2\nodd\n"
    text += "Udp6InDatagrams 6\nUdp6InErrors 5\nUdp6MemErrors 4\n"
    assert counters.parse_snmp6(text) == {
        "Ip6.Ip6ReasmFails": 3,
        "Udp.RcvbufErrors": 7,
        "Udp.InDatagrams": 6,
        "Udp.InErrors": 5,
        "Udp.MemErrors": 4,
        "Udp.NoPorts": 1,
    }


def test_softnet_of_all_cpus():
    row = "{:08x} {:08x} {:08x} 0 0 0 0 0 0 0 0 0 {:08x}\n"
    text = row.format(10, 1, 2, 0) + row.format(32, 0x13, 4, 5)
    assert counters.parse_softnet(text) == {"softnet.dropped": 20}
    assert counters.parse_softnet("") == {}


def test_entries_of_a_table_are_said_once_for_each_cpu_and_counts_are_summed():
    text = "entries  allocs  table_fulls\n00000400 00000010 00000001\n00000400 00000001 00000002\n"
    assert counters.parse_table("arp_cache", text) == {
        "arp_cache.entries": 1024,
        "arp_cache.allocs": 17,
        "arp_cache.table_fulls": 3,
    }
    assert counters.parse_table("nf_conntrack", "entries drop\n0000000a 00000002\n") == {
        "conntrack.entries": 10,
        "conntrack.drop": 2,
    }


def test_cpus_in_seconds():
    tick = os.sysconf("SC_CLK_TCK")
    line = " ".join(str(value * tick) for value in (1, 2, 3, 40, 5, 6, 7, 8))
    assert counters.parse_cpus(f"cpu  9 9 9\ncpu0 {line} 0 0\ncpu1 {tick}\nintr 3\n") == (
        Cpu(user=3, system=9, softirq=7, idle=45, steal=8),
        Cpu(user=1),
    )


def test_a_cpu_that_is_offline_keeps_its_place():
    tick = os.sysconf("SC_CLK_TCK")
    assert counters.parse_cpus(f"cpu  9 9\ncpu0 {tick}\ncpu2 {2 * tick}\n") == (
        Cpu(user=1),
        Cpu(),
        Cpu(user=2),
    )


# --- TCP_INFO -------------------------------------------------------------------------------------------------------------


def message(info: bytes) -> bytes:
    head = struct.pack("=BBBB", 2, 1, 0, 0) + struct.pack(">HH", 45678, 5000).ljust(48, b"\0")
    head += struct.pack("=IIIII", 0, 1234, 0, 0, 0)
    memory = struct.pack("=9I", 0, 6291456, 0, 4194304, 0, 77, 0, 0, 0)
    return (
        head
        + wire.encode_attribute(2, info)
        + wire.encode_attribute(4, b"cubic\0")
        + wire.encode_attribute(7, memory)
    )


def test_tcp_info_of_a_new_kernel():
    info = bytearray(240)
    info[4], info[7] = 3, 1
    struct.pack_into("=I", info, 16, 1448)
    struct.pack_into("=II", info, 68, 20_000, 5)
    struct.pack_into("=QQ", info, 120, 10**12, 7)
    struct.pack_into("=QQQ", info, 168, 1_000_000, 800_000, 20_000)
    struct.pack_into("=I", info, 228, 3_144_960)
    found = tcp_info._parse_socket(message(bytes(info)))
    assert (found.local_port, found.remote_port, found.recv_q, found.congestion) == (
        45678,
        5000,
        1234,
        "cubic",
    )
    assert (found.mss, found.rtt, found.bytes_acked, found.bytes_received) == (
        1448,
        20_000,
        10**12,
        7,
    )
    assert (found.busy_time, found.rwnd_limited, found.sndbuf_limited, found.snd_wnd) == (
        1_000_000,
        800_000,
        20_000,
        3_144_960,
    )
    assert (found.backoff, found.app_limited, found.rcvbuf, found.sndbuf, found.wmem_queued) == (
        3,
        True,
        6291456,
        4194304,
        77,
    )


def test_tcp_info_of_an_old_kernel_has_less():
    found = tcp_info._parse_socket(message(bytes(104)))
    assert (found.mss, found.snd_cwnd) == (0, 0)
    assert (found.bytes_acked, found.busy_time, found.snd_wnd, found.min_rtt) == (
        None,
        None,
        None,
        None,
    )


# --- Devices and round trips ----------------------------------------------------------------------------------------------


def device(index: int, name: str, kind: str = "", parent: int = 0, master: int = 0) -> Device:
    return Device(index, name, kind, lower=parent, master=master)


def test_the_path_goes_down_to_what_carries_it():
    devices = {
        one.index: one
        for one in (
            device(2, "eth1", master=4),
            device(3, "eth2", master=4),
            device(4, "bond0", "bond"),
            device(5, "bond0.7", "vlan", 4),
            device(6, "vx0", "vxlan", 5),
            device(7, "br0", "bridge"),
            device(8, "eth3", master=7),
        )
    }
    assert [one.name for one in facts.devices_below(devices, 6)] == [
        "vx0",
        "bond0.7",
        "bond0",
        "eth1",
        "eth2",
    ]
    assert [one.name for one in facts.devices_below(devices, 7)] == ["br0"]
    assert facts.devices_below(devices, 99) == []


def test_latency_by_the_nearest_rank():
    found = latency_of([value / 1000 for value in range(1, 101)], 4)
    assert (found.count, found.lost, found.p50, found.p99, found.maximum) == (
        104,
        4,
        0.051,
        0.1,
        0.1,
    )
    assert (latency_of([], 3).count, latency_of([], 3).lost, latency_of([], 3).p50) == (3, 3, None)
    assert latency_of([], 0).count is None


def test_the_answer_to_an_echo_request():
    request = echo_request(4, 77, 5, 64)
    assert (len(request), request[0]) == (64, 8)
    answer = b"\0" + request[1:]
    header = b"\x45" + bytes(19)
    assert answered_number(4, 77, header + answer) == 5
    assert answered_number(4, 78, header + answer) == answered_number(4, 77, header + request) == 0
    assert answered_number(4, 77, b"") == answered_number(6, 77, b"x") == 0
    assert answered_number(6, 77, b"\x81" + echo_request(6, 77, 5, 64)[1:]) == 5


@pytest.mark.parametrize("identity", [0, 1, 0x7FFF, 0xF7FE, 0xF7FF, 0xF800, 0xFFFF])
@pytest.mark.parametrize("number", [1, 0x800, MAX_REQUESTS])
def test_the_words_of_an_echo_request_add_up_to_ones(identity, number):
    """The complement of their sum is zero (RFC 1071)."""
    request = echo_request(4, identity, number, 64)
    total = sum(struct.unpack("!32H", request))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF


def test_the_last_request_of_a_probe_has_a_number_of_its_own():
    answer = b"\x81" + echo_request(6, 77, MAX_REQUESTS, 64)[1:]
    assert answered_number(6, 77, answer) == MAX_REQUESTS


AVAILABLE = "net.ipv4.tcp_available_congestion_control"


def test_the_sockets_of_a_port_are_read_until_they_are_closed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as first:
            (known,) = tcp_info.read_sockets(4, remote_port=port)
            assert known.congestion in facts.read_sysctls([AVAILABLE])[AVAILABLE].split()
            assert min(known.rcvbuf, known.sndbuf, known.mss, known.snd_wnd) > 0
            first.sendall(b"x" * 1000)
            (again,) = tcp_info.read_sockets(4, remote_port=port)
            assert (known.bytes_sent, again.bytes_sent) == (0, 1000)
            linger = struct.pack("ii", 1, 0)  # close by a reset, without TIME_WAIT
            first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        assert tcp_info.read_sockets(4, remote_port=port) == ()


@pytest.mark.parametrize(
    ("ours", "peers", "fastest"),
    [
        ("100baseT/Full 1000baseT/Full TP Autoneg", "100baseT/Full 1000baseT/Full Autoneg", 1e9),
        ("1000baseT/Full 10000baseT/Full", "100baseT/Full 1000baseT/Full", 1e9),
        ("10baseT/Half 100baseT/Half MII", "10baseT/Half 100baseT/Half", 1e8),
        ("10000baseKR/Full Backplane FEC_BASER", "1000baseKX/Full 10000baseKR/Full", 1e10),
        ("10000baseSR/Full FIBRE", "", None),
    ],
)
def test_a_link_can_be_as_fast_as_both_ends_offer(ours, peers, fastest):
    """A cable of two pairs carries 100 Mbit/s of the 1000 that both offer; a slower peer is no fault."""
    sets = (dict.fromkeys(each.split(), True) for each in (ours, peers))
    assert fastest_common_mode(*sets) == fastest


def test_a_mode_that_one_end_supports_but_does_not_offer_does_not_count():
    ours = {"100baseT/Full": True, "1000baseT/Full": False}
    assert fastest_common_mode(ours, dict.fromkeys(ours, True)) == 100e6
    assert fastest_common_mode(dict.fromkeys(ours, False), dict.fromkeys(ours, True)) is None


@pytest.mark.parametrize(
    ("name", "kind", "shown"),
    [("eth1", "", "physical"), ("lo", "", "loopback"), ("eth1.7", "vlan", "vlan")],
)
def test_a_device_without_a_kind_is_physical_unless_it_is_the_loopback_device(name, kind, shown):
    link = facts._describe_link(Device(3, name, kind, lower=2), {2: Device(2, "eth1")}, (), False)
    assert (link.kind, link.parent) == (shown, "eth1")


# The files of a NIC in sysfs; its speed, NUMA node and duplex.
HARDWARE = [
    ({"speed": "25000", "duplex": "full"}, (25e9, None, "full")),
    ({"speed": "-1", "duplex": "unknown"}, (None, None, None)),
    ({"device/numa_node": "0"}, (None, 0, None)),
    ({"device/numa_node": "-1"}, (None,) * 3),
    ({"speed": "25000", "ifindex": "8"}, (None,) * 3),
]


@pytest.mark.parametrize(("files", "values"), HARDWARE)
def test_the_hardware_of_a_nic_is_what_sysfs_shows(tmp_path, monkeypatch, files, values):
    """A file may say "unknown" or -1, and a name may be that of a NIC of another namespace."""
    monkeypatch.setattr(facts, "SYSFS", tmp_path)
    for name, text in {"ifindex": "7", **files}.items():
        path = tmp_path / "eth9" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    device = Device(7, "eth9")
    link = facts._with_settings(Link("eth9", "physical"), device)
    assert (link.speed, link.numa_node, link.duplex) == values
    assert facts._with_settings(Link("eth9", "bond"), device) == Link("eth9", "bond")


# As `ethtool -k` prints them.
OFFLOADS = {
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
    "sg": "scatter-gather",
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "rx-all": "rx-all",
}


def test_offloads_that_can_be_changed_and_rings_are_evidence():
    settings = DeviceSettings(
        {**{f"offloads.{name}": "on" for name in OFFLOADS}, "offloads.lro": "on", "wol": "7"}
        | {"offloads.gro": "off", "rings.rx": "512", "rings.tx": "none"},
        missing={"offloads.lro": "fixed by the driver"},
        maximums={"rings.rx": "4096", "offloads.tso": "1"},
    )
    assert facts._changeable_offloads(settings) == {
        name: name != "generic-receive-offload" for name in OFFLOADS.values()
    }
    assert facts._ring_sizes(settings) == {"rx_max": 4096, "rx": 512}
    lro = DeviceSettings({"offloads.lro": "on"})
    assert facts._changeable_offloads(lro) == {"large-receive-offload": True}


# --- The counters of this kernel --------------------------------------------------------------------------------------

# Of each file, one that a condition uses.
COUNTED = (
    "Tcp.RetransSegs TcpExt.ListenDrops Udp.RcvbufErrors IpExt.InOctets softnet.dropped"
    " arp_cache.table_fulls lo.carrier_changes lo.rx_bytes"
).split()


def test_this_kernel_has_the_counters_that_conditions_use():
    assert [name for name in COUNTED if name not in counters.read_counters()] == []
    assert sum(cpu.idle for cpu in counters.read_cpus()) > 0


def test_the_counters_of_a_device_are_those_of_sysfs():
    def shown():
        folder = Path("/sys/class/net/lo/statistics")
        return {path.name: int(path.read_text(encoding="ascii")) for path in folder.iterdir()}

    before, counted, after = shown(), kernel.read_link_counters()["lo"], shown()
    for name in ("carrier_changes", "qdisc.drops"):
        counted.pop(name, None)
    assert before.keys() == counted.keys()
    assert all(before[name] <= counted[name] <= after[name] for name in before)
