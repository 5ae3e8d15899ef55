"""The self-test's RDMA step between two guests: RoCE v2 in software (rdma_rxe), on the dataplane NICs and on others."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import MANAGEMENT, mac
from qemu import Nic, link
from steps import in_force, names

NEAR, FAR, FAR6, PORT = "172.16.0.1", "172.16.0.2", "fd00:16::2", 45678
SECRET = "/etc/neuca/selftest.secret"
LOSE_ROCE = "tc filter add dev eth1 ingress protocol ip flower ip_proto udp dst_port 4791 action drop"  # version 2
TEST = f"neuca-selftest --only rdma --json --secret-file {SECRET}"


def macs(host):
    """Of the NIC that leads to the other guest, and of one that leads nowhere. rdma_rxe sends nothing to a MAC of its own."""
    return mac(2 * host - 1), mac(2 * host)


def asking(host):
    """The first address of the NIC that leads to the other guest is not the one that leads there."""
    cabled, free = macs(host)
    return f"""[interface {cabled}]
addresses = 10.9.0.{host}/24, 172.16.0.{host}/24, fd00:16::{host}/64

[interface {free}]
addresses = 172.17.0.{host}/24
"""


def outcome(guest, peer=FAR):
    """Verdict and text of the step, and what it has found."""
    done = guest.run(f"{TEST} {peer}", 240)
    assert done.output.startswith("{"), done.output
    report = done.json
    (step,) = [one for one in report["evidence"]["steps"] if one["name"] == "rdma"]
    assert ("D45" in {one["id"] for one in report["findings"]}) is (step["verdict"] == "fail")
    return step["verdict"], step["text"], report["evidence"].get("rdma", {})


def counted(guest, name):
    """Packets that this RDMA device has sent."""
    return int(guest.check(f"cat /sys/class/infiniband/{name}/ports/1/hw_counters/sent_pkts"))


@pytest.fixture
def pair(guests):
    """Two guests, the second of which serves tests."""
    made = []
    for host, end in enumerate(link(), 1):
        cabled, free = macs(host)
        guest = guests(
            "R",
            [Nic(MANAGEMENT, 0x10, management=True), Nic(cabled, 0x11, link=end), Nic(free, 0x12)],
        )
        guest.serve(asking(host))
        guest.power_on()
        made.append(guest)
    for host, guest in enumerate(made, 1):
        guest.wait_for_boot()
        in_force(guest, asking(host))
        assert [names(guest)[one] for one in macs(host)] == ["eth1", "eth2"]
        guest.put(SECRET, "a secret that both ends share")
        guest.check(f"chmod 600 {SECRET}")
    made[1].check(
        f"systemd-run --unit=far neuca-selftest --serve --for 3600 --secret-file {SECRET}"
    )
    made[1].eventually("ss -Hlnt", lambda done: f"{FAR}:{PORT + 1}" in done.output, 180)
    return made


@pytest.mark.long
def test_rdma_is_tested_on_the_device_and_with_the_gid_that_lead_to_the_peer(pair):
    near, far = pair
    assert outcome(near) == ("skipped", "not applicable here: this host has no RDMA device", {})
    near.check("rdma link add first type rxe netdev eth2")
    assert outcome(near) == (
        "skipped",
        "not applicable here: no RDMA device of this host belongs to eth1",
        {},
    )
    near.check("rdma link add second type rxe netdev eth1")
    mine = f"second port 1, ACTIVE, GID ::ffff:{NEAR}"
    assert outcome(near)[:2] == ("skipped", f"the peer: this host has no RDMA device; {mine}")
    far.check("rdma link add alpha type rxe netdev eth2; rdma link add beta type rxe netdev eth1")

    before = int(near.check("cat /sys/class/net/eth1/statistics/tx_bytes"))
    verdict, text, found = outcome(near)
    sent = int(near.check("cat /sys/class/net/eth1/statistics/tx_bytes")) - before
    assert (verdict, text.endswith(mine), "error" in found) == ("pass", True, False), text
    assert (found["device"], found["state"], found["gid"]) == ("second", "ACTIVE", f"::ffff:{NEAR}")
    assert (
        near.check("cat /sys/class/infiniband/second/ports/1/gids/1").strip()
        == "0000:0000:0000:0000:0000:ffff:0a09:0001"
    )
    assert 0 < found["round_trip"] < 1
    assert 100_000 < found["rate"] <= 8 * sent / 3  # bit/s, of ib_write_bw's 3 s
    assert (
        min(counted(near, "second"), counted(far, "beta")) > 400
    )  # ibv_rc_pingpong: 200 messages each way, 4 packets each
    assert (counted(near, "first"), counted(far, "alpha")) == (0, 0)
    assert (
        far.run(f"ss -Hlnt | grep -w {PORT}; ps -o args= -C ibv_rc_pingpong,ib_write_bw").output
        == ""
    )

    far.check(f"tc qdisc add dev eth1 clsact; {LOSE_ROCE}")
    verdict, text, _ = outcome(near)
    assert (verdict, text) == (
        "fail",
        f"ibv_rc_pingpong: it did not end in time; {mine}",
    )  # rdma_rxe tries on for longer
    far.check("tc qdisc del dev eth1 clsact")
    assert outcome(near, FAR6)[:2] == (
        "skipped",
        "ibv_rc_pingpong and ib_write_bw support only IPv4; second port 1, ACTIVE, GID fd00:16::1",
    )
    for guest, whose in ((far, "the peer: "), (near, "")):
        guest.check("mv /usr/bin/ib_write_bw /usr/bin/away")
        assert outcome(near)[:2] == ("skipped", f"{whose}this needs the package perftest; {mine}")
