"""RDMA: which device and which GID belong to the way to the peer, and what is made of what the programs say.

No RDMA device is here: its part of /sys/class/infiniband is laid out as the kernel's ABI documents it, with the entries that an
mlx5 device makes for two addresses, each for RoCE v1 and v2. The programs are scripts that print in the forms of their sources.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import IPv6Address, ip_address

import pytest

from neuca_tools.selftest.evidence import Rdma
from neuca_tools.selftest.measure import program
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.probes import rdma
from neuca_tools.selftest.measure.probes.rdma import (
    PINGPONG,
    WRITE,
    RdmaChoice,
    choose,
    command,
    measure,
    ports,
    rate,
    round_trip,
)

NEAR, NEAR6, OVER_VLAN, PEER = map(
    ip_address, ("172.16.0.1", "fd00:16::1", "10.14.45.1", "172.16.0.2")
)
V1, V2 = "IB/RoCE v1", "RoCE v2"


def mapped(address) -> IPv6Address:
    return address if address.version == 6 else IPv6Address(f"::ffff:{address}")


def make(root, device, gids, netdevs=(), state="4: ACTIVE", layer="Ethernet"):
    """One device with one port, and a table of 16 GIDs of which the rest is empty: their attributes cannot be read."""
    port = root / device / "ports" / "1"
    for folder in (port / "gids", port / "gid_attrs" / "ndevs", port / "gid_attrs" / "types"):
        folder.mkdir(parents=True)
    for name in netdevs:
        (root / device / "device" / "net" / name).mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (port / "link_layer").write_text(f"{layer}\n")
    for index in range(16):
        value, netdev, kind = gids[index] if index < len(gids) else (IPv6Address("::"), "", "")
        (port / "gids" / str(index)).write_text(f"{mapped(value).exploded}\n")
        if netdev:
            (port / "gid_attrs" / "ndevs" / str(index)).write_text(f"{netdev}\n")
            (port / "gid_attrs" / "types" / str(index)).write_text(f"{kind}\n")


@pytest.fixture
def sysfs(tmp_path):
    local = [IPv6Address(f"fe80::{number}") for number in (1, 2)]
    make(
        tmp_path,
        "mlx5_0",
        [(local[0], "eth0", V1), (local[0], "eth0", V2), (ip_address("192.0.2.10"), "eth0", V2)],
        ["eth0"],
    )
    make(
        tmp_path,
        "mlx5_1",
        [
            (local[1], "eth1", V1),
            (local[1], "eth1", V2),
            (NEAR, "eth1", V1),
            (NEAR, "eth1", V2),
            (OVER_VLAN, "eth1.1445", V1),
            (OVER_VLAN, "eth1.1445", V2),
            (NEAR6, "eth1", V1),
        ],
        ["eth1"],
    )
    make(
        tmp_path,
        "ibp1s0",
        [(IPv6Address("fe80::ba59:9f03:f:1"), "", "")],
        ["ib0"],
        layer="InfiniBand",
    )
    make(tmp_path, "mlx5_3", [(NEAR, "eth3", V2)], ["eth3"], state="1: DOWN")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        (["eth1"], NEAR, RdmaChoice("mlx5_1", 1, "ACTIVE", 3, "::ffff:172.16.0.1")),  # v2 before v1
        (
            ["eth1"],
            NEAR6,
            RdmaChoice("mlx5_1", 1, "ACTIVE", 6, "fd00:16::1"),
        ),  # v1 where there is no other
        (
            ["eth1.1445", "eth1"],
            OVER_VLAN,
            RdmaChoice("mlx5_1", 1, "ACTIVE", 5, "::ffff:10.14.45.1"),
        ),
        (["eth1"], ip_address("172.16.0.9"), RdmaChoice("mlx5_1", 1, "ACTIVE", None, "")),
        (["ib0"], NEAR, RdmaChoice("ibp1s0", 1, "ACTIVE", None, "fe80::ba59:9f03:f:1")),
        (["eth3"], NEAR, RdmaChoice("mlx5_3", 1, "DOWN", 0, "::ffff:172.16.0.1")),
        (["eth9"], NEAR, "no RDMA device of this host belongs to eth9"),
    ],
)
def test_the_device_and_the_gid_of_the_way_to_the_peer(sysfs, path, source, expected):
    assert choose(ports(sysfs), path, source) == expected


def test_a_host_without_rdma(tmp_path):
    assert ports(tmp_path / "none") == []
    assert choose([], ["eth1"], NEAR) == "this host has no RDMA device"


def test_a_table_with_rubbish_in_it_is_passed_over(sysfs):
    table = sysfs / "mlx5_1" / "ports" / "1" / "gids"
    (table / "3").write_text("rubbish\n")
    (table / "x").write_text("fe80::1\n")
    assert choose(ports(sysfs), ["eth1"], NEAR).index == 2


def test_the_command_lines():
    chosen = RdmaChoice("mlx5_1", 1, "ACTIVE", 3, "::ffff:172.16.0.1")
    assert (
        " ".join(command(PINGPONG, chosen, 45678, PEER))
        == "ibv_rc_pingpong -d mlx5_1 -i 1 -p 45678 -s 4096 -n 200 -g 3 172.16.0.2"
    )
    assert (
        " ".join(command(WRITE, chosen, 45678))
        == "ib_write_bw -d mlx5_1 -i 1 -p 45678 -D 3 -t 16 -F -x 3"
    )
    assert "-g" not in command(PINGPONG, RdmaChoice("ibp1s0", 1, "ACTIVE", None, "fe80::1"), 45678)


PINGPONG_SAYS = """  local address:  LID 0x0000, QPN 0x000011, PSN 0x5f3b1c, GID ::ffff:172.16.0.1
  remote address: LID 0x0000, QPN 0x000012, PSN 0x92d0a1, GID ::ffff:172.16.0.2
8192000 bytes in 0.18 seconds = 370.97 Mbit/sec
1000 iters in 0.18 seconds = 176.65 usec/iter
"""
WRITE_SAYS = """ TX depth        : 128
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      1945             0.00               40.53\t\t   0.000648
---------------------------------------------------------------------------------------
"""


def test_what_the_programs_say():
    assert (rate(PINGPONG, PINGPONG_SAYS.encode()), round_trip(PINGPONG_SAYS.encode())) == (
        370.97e6,
        176.65e-6,
    )
    assert (
        rate(WRITE, WRITE_SAYS.encode()) == 40.53 * 8 * 2**20
    )  # 648 messages a second are 339.7 Mbit/s
    assert [rate(PINGPONG, b"x"), rate(WRITE, b"65536 1 2"), round_trip(b"")] == [None] * 3


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Scripts in the place of the two programs, which need a device."""

    def write(name, text, code=0):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\nexit {code}\n")
        path.chmod(0o755)

    monkeypatch.setattr(program, "PATH", f"{tmp_path}:{program.PATH}")
    monkeypatch.setattr(rdma, "PATH", f"{tmp_path}")
    write(PINGPONG, f"cat <<'E'\n{PINGPONG_SAYS}E")
    write(WRITE, f"cat <<'E'\n{WRITE_SAYS}E")
    return write


CHOICE = RdmaChoice("rxe0", 1, "ACTIVE", 1, "::ffff:172.16.0.1")


@pytest.mark.usefixtures("programs")
def test_both_programs_are_run_each_with_a_server_of_its_own():
    asked: list[str] = []
    found = measure(
        CHOICE, 45678, PEER, lambda name: asked.append(name) or "", lambda: asked.append("finish")
    )
    assert found == Rdma("rxe0", "ACTIVE", "::ffff:172.16.0.1", 40.53 * 8 * 2**20, 176.65e-6)
    assert asked == [PINGPONG, "finish", WRITE, "finish"]
    assert (rdma.hindrance(PEER), rdma.hindrance(NEAR6)) == (
        "",
        "ibv_rc_pingpong and ib_write_bw support only IPv4",
    )


def test_what_goes_wrong_is_its_error(programs, monkeypatch):
    programs(WRITE, "echo Failed to modify QP to RTR >&2", 1)
    found = measure(CHOICE, 45678, PEER, lambda _: "", lambda: None)
    assert (found.rate, found.error) == (370.97e6, "ib_write_bw: Failed to modify QP to RTR")
    programs(WRITE, "echo ' 65536      0             0.00               0.00\t\t   0.000000'")
    assert (
        measure(CHOICE, 45678, PEER, lambda _: "", lambda: None).error
        == "ib_write_bw: nothing arrived in its time"
    )
    programs(PINGPONG, "", 7)
    assert (
        measure(CHOICE, 45678, PEER, lambda _: "", lambda: None).error
        == "ibv_rc_pingpong: it ended with 7"
    )
    monkeypatch.setattr(rdma, "GRACE", -rdma.SECONDS + 0.2)
    programs(PINGPONG, "exec sleep 30")
    assert (
        measure(CHOICE, 45678, PEER, lambda _: "", lambda: None).error
        == "ibv_rc_pingpong: it did not end in time"
    )

    def refuses(name):
        raise ChannelError(f"the peer: rdma: {name} does not listen there")

    broken = measure(CHOICE, 45678, PEER, refuses, lambda: None)
    assert broken.error == "the peer: rdma: ibv_rc_pingpong does not listen there"


def test_an_other_end_without_rdma_is_no_error():
    assert (
        measure(CHOICE, 45678, PEER, lambda _: "this host has no RDMA device", lambda: None)
        == "this host has no RDMA device"
    )


@pytest.mark.usefixtures("programs")
def test_a_program_that_is_missing_is_named_by_its_package(tmp_path):
    (tmp_path / WRITE).unlink()
    assert rdma.missing() == "this needs the package perftest"
    (tmp_path / PINGPONG).unlink()
    assert rdma.missing() == "this needs the packages ibverbs-utils and perftest"
