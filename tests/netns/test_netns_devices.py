"""Settings of the device itself: qdisc, channels, offloads, CPUs of queues. What a driver has not is said, and no failure."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os

import pytest
from lab import mac

NIC = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n[interface {mac(1)}]\n"


def qdiscs(lab, name="dp1"):
    """Kind, where, and the limit of each qdisc, as tc prints them; handles are as they come."""
    lines = [line.split() for line in lab.run("tc", "qdisc", "show", "dev", name).out.splitlines()]
    limits = [words[words.index("limit") + 1] if "limit" in words else "" for words in lines]
    return [
        (words[1], words[3] if words[3] == "root" else "queue", limit)
        for words, limit in zip(lines, limits)
    ]


def settings(lab, name="dp1"):
    """What explain finds, by setting."""
    return {
        row["setting"]: row["current"]
        for row in lab.neuca("explain", name, "--json").json["settings"]
    }


def queued(lab, number=1, queues=4):
    """A NIC with several queues."""
    return lab.veth("dp1", number, queues=queues)


def test_a_qdisc_is_put_in_force_and_goes_back_when_nobody_asks_any_more(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"{NIC}qdisc = pfifo limit 500\n").code == 0
    assert qdiscs(lab) == [("pfifo", "root", "500p")]
    assert lab.once(f"{NIC}qdisc = pfifo limit 700\n").code == 0
    assert qdiscs(lab) == [("pfifo", "root", "700p")]
    lab.settle()
    assert lab.once(NIC).code == 0
    assert qdiscs(lab) == [("noqueue", "root", "")]


def test_a_pfifo_is_made_anew_for_another_txqueuelen(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"{NIC}qdisc = pfifo\ntxqueuelen = 5000\n").code == 0
    assert (qdiscs(lab), lab.link("dp1")["txqlen"]) == ([("pfifo", "root", "5000p")], 5000)
    assert lab.once(f"{NIC}qdisc = pfifo\ntxqueuelen = 9000\n").code == 0
    assert (qdiscs(lab), lab.link("dp1")["txqlen"]) == ([("pfifo", "root", "9000p")], 9000)


def test_a_pfifo_of_the_users_gets_the_txqueuelen_that_is_asked_for(lab):
    lab.veth("dp1", 1)
    lab.run("tc", "qdisc", "replace", "dev", "dp1", "root", "pfifo")
    assert lab.once(f"{NIC}txqueuelen = 5000\n").code == 0
    assert qdiscs(lab) == [("pfifo", "root", "5000p")]
    assert lab.once(NIC).code == 0
    assert (qdiscs(lab), lab.link("dp1")["txqlen"]) == ([("pfifo", "root", "1000p")], 1000)


def test_a_txqueuelen_without_a_queue_is_set_and_said_to_be_of_no_use(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"{NIC}txqueuelen = 5000\n").code == 0
    assert lab.link("dp1")["txqlen"] == 5000
    assert lab.notes("dp1") == [
        ("txqueuelen", "not applicable", 'the qdisc is "noqueue", which has no queue')
    ]
    assert (
        'txqueuelen: not applicable: the qdisc is "noqueue", which has no queue'
        in lab.neuca("explain", "dp1").out
    )


def test_a_qdisc_that_this_kernel_has_not_fails_nothing_and_is_tried_once(lab):
    lab.veth("dp1", 1)
    if lab.run("tc", "qdisc", "add", "dev", "dp1", "root", "fq_codel", check=False).code == 0:
        pytest.skip("this kernel has fq_codel")
    done = lab.once(f"{NIC}qdisc = fq_codel\n")
    assert (done.code, lab.addresses("dp1"), lab.plan()) == (0, {"172.16.0.1/24"}, [])
    reason = '"fq_codel" was tried: No such file or directory (Specified qdisc kind is unknown)'
    assert lab.notes("dp1") == [("qdisc", "unsupported", reason)]
    with lab.monitored():
        assert lab.once().code == 0


def test_each_queue_has_the_qdisc_where_there_is_one_for_each(lab):
    queued(lab)
    lab.run("tc", "qdisc", "replace", "dev", "dp1", "root", "mq")
    assert lab.once(f"{NIC}channels = rx 2 tx 2\nqdisc = pfifo limit 300\n").code == 0
    assert sorted(qdiscs(lab)) == [
        ("mq", "root", ""),
        ("pfifo", "queue", "300p"),
        ("pfifo", "queue", "300p"),
    ]
    assert settings(lab)["qdisc"] == "pfifo limit 300"
    shown = lab.run("tc", "qdisc", "show", "dev", "dp1").out.splitlines()
    (mq,) = (line.split()[2] for line in shown if line.startswith("qdisc mq"))
    lab.run(*f"tc qdisc replace dev dp1 parent {mq}1 pfifo limit 100".split())
    assert settings(lab)["qdisc"] == "mixed"
    assert lab.once().code == 0
    assert settings(lab)["qdisc"] == "pfifo limit 300"


def test_an_administrators_qdisc_is_replaced_and_finally_left_to_the_kernel(lab):
    lab.veth("dp1", 1)
    lab.run(
        "tc",
        "qdisc",
        "add",
        "dev",
        "dp1",
        "root",
        "tbf",
        "rate",
        "1gbit",
        "burst",
        "64k",
        "latency",
        "20ms",
    )
    assert lab.once(f"{NIC}qdisc = pfifo_fast\n").code == 0
    assert qdiscs(lab) == [("pfifo_fast", "root", "")]
    assert lab.neuca("revert").code == 0
    assert qdiscs(lab) == [("noqueue", "root", "")]
    lab.once()


def test_channels_are_set_and_go_back(lab):
    queued(lab)
    assert lab.once(f"{NIC}channels = rx 2 tx max\n").code == 0
    assert (settings(lab)["channels.rx"], settings(lab)["channels.tx"]) == ("2", "4")
    assert lab.neuca("revert").code == 0
    assert lab.plan() == [
        f'write "{lab.folder}/sysctl/neuca.conf"',
        'set channels of dp1 from "rx 4" to "rx 2"',
    ]
    assert lab.once(NIC).code == 0


def test_more_than_the_driver_has_is_as_much_as_it_has_and_said(lab):
    queued(lab)
    assert lab.once(f"{NIC}channels = rx 64\n").code == 0
    assert settings(lab)["channels.rx"] == "4"
    assert lab.notes("dp1") == [
        (
            "channels.rx",
            "not applicable",
            "64 requested, but the device supports at most 4, which is set",
        )
    ]


def test_offloads_by_their_short_and_by_their_own_names(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"{NIC}offloads = tso off, gro on, tx-udp-segmentation off\n").code == 0
    found = {name: value for name, value in settings(lab).items() if name.startswith("offloads.")}
    assert found == {
        "offloads.tso": "off",
        "offloads.gro": "on",
        "offloads.tx-udp-segmentation": "off",
    }
    assert lab.once(NIC).code == 0
    assert lab.once(f"{NIC}offloads = tso on, gro off\n").code == 0


def test_what_the_driver_has_not_is_not_applicable_and_no_failure(lab):
    lab.veth("dp1", 1)
    asked = "rings = rx 256\npause = rx on\ncoalesce = rx-usecs 50\noffloads = lro on, no-such-thing on\n"
    done = lab.once(NIC + asked)
    assert (done.code, lab.plan(), lab.addresses("dp1")) == (0, [], {"172.16.0.1/24"})
    assert {(setting, effect) for setting, effect, _ in lab.notes("dp1")} == {
        (setting, "not applicable")
        for setting in (
            "rings.rx",
            "pause.rx",
            "coalesce.rx-usecs",
            "offloads.lro",
            "offloads.no-such-thing",
        )
    }


def test_what_a_device_that_came_back_does_not_take_is_tried_once(lab):
    lab.veth("dp1", 1)
    asked = f"{NIC}qdisc = fq maxrate 1gbit\n"  # which the kernel of a small build machine has not
    lab.once(asked)
    lab.run("ip", "link", "delete", "dp1")
    lab.veth("dp1", 1)
    assert lab.once().err.count("set qdisc of dp1") == 1
    assert lab.plan() == []


def as_root():
    """Files in /sys that ask for the capability outside of the user namespace."""
    if os.geteuid():
        pytest.skip("a user namespace may not write to queues")


def test_cpus_of_receive_queues(lab):
    as_root()
    queued(lab)
    assert lab.once(f"{NIC}channels = rx 2\nrps = 0\n").code == 0
    assert [
        lab.run("cat", f"/sys/class/net/dp1/queues/rx-{queue}/rps_cpus").out.strip()
        for queue in (0, 1)
    ] == ["1", "1"]
    assert lab.once(f"{NIC}channels = rx 2\nrps = 0 / none\n").code == 0
    assert [
        lab.run("cat", f"/sys/class/net/dp1/queues/rx-{queue}/rps_cpus").out.strip()
        for queue in (0, 1)
    ] == ["1", "0"]
    assert lab.once(NIC).code == 0


def deferral(lab, name="dp1"):
    """gro_flush_timeout in ns, and napi_defer_hard_irqs."""
    files = ("gro_flush_timeout", "napi_defer_hard_irqs")
    return [lab.run("cat", f"/sys/class/net/{name}/{file}").out.strip() for file in files]


def test_interrupts_are_deferred_while_a_document_asks_for_it(lab):
    as_root()
    lab.veth("dp1", 1)
    if lab.run("cat", "/sys/class/net/dp1/napi_defer_hard_irqs", check=False).code:
        pytest.skip("this kernel has no napi_defer_hard_irqs (Linux 5.8)")
    asked = f"{NIC}gro_flush_timeout = 20000\nnapi_defer_hard_irqs = 2\n"
    assert lab.once(asked).code == 0
    assert (deferral(lab), lab.notes("dp1"), lab.plan()) == (["20000", "2"], [], [])
    with lab.monitored():
        assert lab.once().code == 0
    assert lab.once(asked.replace("20000", "50000")).code == 0
    assert deferral(lab) == ["50000", "2"]
    assert lab.neuca("revert").code == 0
    assert deferral(lab) == ["0", "0"]
    assert 'set gro_flush_timeout of dp1 from "0" to "50000"' in lab.plan()
    assert lab.once().code == 0
    assert lab.once(NIC).code == 0
    assert deferral(lab) == ["0", "0"]


def test_a_kernel_without_such_a_setting_is_noted_and_fails_nothing(lab):
    lab.veth("dp1", 1)
    node = "/sys/devices/virtual/net/dp1"
    index = lab.link("dp1")["ifindex"]
    lab.run("sh", "-c", f"mount -t tmpfs none {node} && echo {index} > {node}/ifindex")
    done = lab.once(f"{NIC}gro_flush_timeout = 20000\n")
    assert (done.code, lab.addresses("dp1"), lab.plan()) == (0, {"172.16.0.1/24"}, [])
    reason = "this kernel has no gro_flush_timeout"
    assert lab.notes("dp1") == [("gro_flush_timeout", "unsupported", reason)]


def test_a_vlan_has_its_own_qdisc_from_the_first_pass(lab):
    lab.veth("dp1", 1)
    document = (
        f"[vlan {mac(1)}.7]\naddresses = 10.0.7.1/24\nqdisc = pfifo limit 50\noffloads = tso off\n"
    )
    if lab.run(
        "ip", "link", "add", "link", "dp1", "name", "x", "type", "vlan", "id", "9", check=False
    ).code:
        pytest.skip("this kernel has no 8021q")
    lab.ip("link del x")
    assert lab.once(document).code == 0
    assert qdiscs(lab, "dp1.7") == [("pfifo", "root", "50p")]


def test_nothing_of_the_management_nic_is_changed(lab):
    lab.management()
    before = qdiscs(lab, "mgmt0")
    address = lab.link("mgmt0")["address"]
    assert (
        lab.once(
            f"[interface {address}]\nqdisc = pfifo limit 5\noffloads = tso off\nrps = 0\n"
        ).code
        == 4
    )
    assert qdiscs(lab, "mgmt0") == before
