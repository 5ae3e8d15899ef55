"""Settings of devices in a real guest, by the service in its sandbox: fq with pacing, rings of virtio, modules on demand."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

import pytest
from guest import mac, nics
from steps import assert_left_alone, in_force, names, serve

PLAIN = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n"
ASKED = f"""{PLAIN}
[interface {mac(1)}]
txqueuelen = 10000
qdisc = fq maxrate 2gbit
rings = rx 128 tx max
offloads = tso off, gro off
pause = rx on
rps = all
sysctl.net.ipv4.tcp_congestion_control = htcp
sysctl.net.core.default_qdisc = fq

[vlan {mac(1)}.7]
addresses = 10.0.7.1/24
qdisc = pfifo
txqueuelen = 5000
"""


def qdisc(guest, name):
    """The root qdisc, or that of the queues below mq, with its limit or rate."""
    text = guest.check(f"tc qdisc show dev {name}")
    kinds = {line.split()[1] for line in text.splitlines()} - {"mq"}
    more = re.findall(r"limit (\d+)p|maxrate (\S+)", text)
    return kinds, {one for pair in more for one in pair if one}


def rings(guest, name):
    numbers = re.findall(r"^(RX|TX):\s+(\d+)$", guest.check(f"ethtool -g {name}"), re.MULTILINE)
    return dict(numbers[2:]), dict(numbers[:2])  # now, and at most: the maxima are printed first


def feature(guest, name, long):
    return re.search(rf"^{long}: (\w+)", guest.check(f"ethtool -k {name}"), re.MULTILINE)[1]


def as_asked(guest, nic):
    kinds, more = qdisc(guest, nic)
    assert kinds == {"fq"}
    assert {one.lower() for one in more} >= {"2gbit"}
    assert qdisc(guest, f"{nic}.7") == ({"pfifo"}, {"5000"})
    now, most = rings(guest, nic)
    assert now == {"RX": "128", "TX": most["TX"]}
    assert [
        feature(guest, nic, name)
        for name in ("tcp-segmentation-offload", "generic-receive-offload")
    ] == ["off", "off"]
    assert (
        int(guest.check(f"cat /sys/class/net/{nic}/queues/rx-0/rps_cpus").replace(",", ""), 16) > 0
    )
    assert guest.check(
        "sysctl -n net.ipv4.tcp_congestion_control net.core.default_qdisc"
    ).split() == ["htcp", "fq"]
    assert "nothing to do" in guest.run("neuca plan").output
    assert_left_alone(guest)


@pytest.mark.long
def test_the_service_sets_a_device_at_boot_and_what_nobody_asks_for_goes_back(guests):
    guest = guests("A", nics(1))
    guest.serve(ASKED)
    guest.boot()
    status = in_force(guest, ASKED)
    nic = names(guest)[mac(1)]
    as_asked(guest, nic)
    (one,) = [one for one in status["interfaces"] if one["name"] == nic]
    notes = {note["setting"]: (note["effect"], note["reason"]) for note in one["notes"]}
    assert notes["pause.rx"] == ("not applicable", "the driver has no pause")
    assert notes["txqueuelen"] == (
        "not applicable",
        'the qdisc is "fq", which has a limit of its own',
    )
    serve(guest, PLAIN)
    now, most = rings(guest, nic)
    assert now == most
    assert (qdisc(guest, nic)[0], feature(guest, nic, "generic-receive-offload")) == (
        {"fq_codel"},
        "on",
    )
    assert guest.check("sysctl -n net.core.default_qdisc").strip() == "fq_codel"
    assert_left_alone(guest)
