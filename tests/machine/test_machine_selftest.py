"""The self-test that a boot starts by itself: when, how, what it leaves behind, and what it says a reboot has changed.

The peer is a NIC of the same guest, at the other end of the cable, in a network namespace that has nothing else; a unit of the
lab makes that anew at each boot, and serves tests in it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import MANAGEMENT, mac
from qemu import Nic, link
from steps import in_force

NEAR, FAR, PORT = "172.16.0.1", "172.16.0.2", 45678
SERVICE, TIMER = "neuca-selftest.service", "neuca-selftest.timer"
SECRET = "/etc/neuca/selftest.secret"
# As fast as an emulated guest can be at any time, for what varies is not what this is about.
CONFIG = (
    f"[selftest]\npeers = far@{FAR}\nsecret-file = {SECRET}\nrate = 4M\nexpect = 2M\ntime = 10\n"
)
FAR_CONFIG = """[runtime]
state-directory = /var/lib/lab-far
run-directory = /run/lab-far
[metadata]
sources = none
[tuning]
profile = none
[linux]
managers = none
"""
FAR_UNIT = f"""[Unit]
After=neuca-names.service

[Service]
ExecStartPre=/bin/mkdir -p /var/lib/lab-far /run/lab-far
ExecStartPre=/bin/sh -ec 'ip netns add far; ip link set eth2 netns far; ip -n far link set lo up; \\
    ip -n far address add {FAR}/24 dev eth2; ip -n far link set eth2 mtu 9000 up'
ExecStart=/sbin/ip netns exec far neuca-selftest --serve --for 7200 --address {FAR} --config /etc/lab-far --secret-file {SECRET}
ExecStartPost=/bin/sh -c 'until ip netns exec far ss -Hlnt | grep -q :{PORT + 1}; do sleep 1; done'
TimeoutStartSec=5min

[Install]
WantedBy=multi-user.target
"""
QUICK = ("as-planned", "reach", "latency", "path-mtu", "tcp", "loaded", "tcp-reverse")
CHILDREN = f"/sys/fs/cgroup/system.slice/{SERVICE}/cgroup.procs"
WATCH = (
    f"until [[ -e {CHILDREN} ]]; do sleep 2; done; "
    f"until ps -o user=,ni=,comm=,args= -p $(paste -sd, {CHILDREN}) > /run/lab-watch "
    '&& grep -q "iperf3 -c" /run/lab-watch; do sleep 1; done'
)
LISTENING = "ss -Hlntu | awk '{print $1, $5}' | sort"


def asking(mtu):
    return f"[interfaces]\n{mac(1)} = up:ipv4:{NEAR}/24\n\n[interface {mac(1)}]\nmtu = {mtu}\n"


def properties(guest, unit, *names):
    """Of a unit, or of systemd itself (""); times are microseconds since the kernel's start."""
    said = guest.check(f"systemctl show {unit} {' '.join(f'--property={name}' for name in names)}")
    found = dict(line.partition("=")[::2] for line in said.splitlines())
    return [int(found[name]) if found[name].isdecimal() else found[name] for name in names]


def fired(guest):
    """Until the timer has, and what it started is over."""
    ask = f"systemctl show {TIMER} --property=LastTriggerUSecMonotonic; systemctl show {SERVICE} --property=ActiveState"
    guest.eventually(
        ask,
        lambda done: "Monotonic=0\n" not in done.output and "=activating" not in done.output,
        600,
    )


def records(guest):
    names = guest.check("ls -rt /var/lib/neuca/ | grep ^selftest- || true").split()
    return [guest.run(f"zcat /var/lib/neuca/{name}").json["evidence"] for name in names]


def sent(guest, name):
    return int(guest.check(f"cat /sys/class/net/{name}/statistics/tx_bytes"))


@pytest.mark.long
def test_a_boot_ends_with_a_self_test_that_reports_what_the_reboot_changed(
    guests,
):
    near, far = link()
    guest = guests("R", [Nic(MANAGEMENT, 0x10, management=True), Nic(mac(1), 0x11, link=near, host_mtu=9000),
                         Nic(mac(2), 0x12, link=far, host_mtu=9000)])  # fmt: skip
    guest.serve(asking(1500))
    guest.boot()
    in_force(guest, asking(1500))
    fired(guest)
    assert properties(guest, SERVICE, "Result", "ExecMainStartTimestampMonotonic") == [
        "exec-condition",
        0,
    ]  # nobody to test
    assert records(guest) == []
    listening = guest.check(LISTENING)

    guest.put(SECRET, "a secret that both ends share")
    guest.put("/etc/neuca/config.d/selftest.conf", CONFIG)
    guest.put("/etc/lab-far", FAR_CONFIG)
    guest.put("/etc/systemd/system/lab-far.service", FAR_UNIT)
    guest.check(f"chmod 600 {SECRET}; systemctl enable lab-far.service")
    guest.check(
        f"systemctl start {SERVICE}", 120
    )  # a peer that does not exist says nothing of this host
    assert properties(guest, SERVICE, "Result", "ExecMainStatus") == ["success", 8]
    guest.check("systemctl start lab-far.service; neuca-selftest --plan quick", 240)
    first = records(guest)
    assert [[step["verdict"] for step in one["steps"][:2]] for one in first] == [
        ["pass", "fail"],
        ["pass", "pass"],
    ]

    guest.serve(asking(4000))
    guest.reboot()
    guest.check(f"systemd-run --no-block bash -c '{WATCH}'")
    fired(guest)
    in_force(guest, asking(4000))
    processes = [line.split() for line in guest.check("cat /run/lab-watch").splitlines()]
    assert {name for _, _, name, *_ in processes} >= {"iperf3", "neuca-selftest"}
    assert {nice for _, nice, *_ in processes} == {"10"}
    assert {user for user, _, name, *_ in processes if name == "iperf3"} == {"nobody"}
    assert "selftest" not in guest.check("systemd-analyze critical-chain", 120)
    result, status, began = properties(
        guest, SERVICE, "Result", "ExecMainStatus", "ExecMainStartTimestampMonotonic"
    )
    assert (result, status) == ("success", 0), guest.check(f"journalctl -b --no-pager -u {SERVICE}")
    (ready,) = properties(guest, "neuca-guest-tools.service", "ActiveEnterTimestampMonotonic")
    (over,) = properties(guest, "", "FinishTimestampMonotonic")
    assert max(ready, over) < began
    (reached,) = properties(guest, "multi-user.target", "ActiveEnterTimestampMonotonic")
    assert (
        30e6 <= began - reached <= 100e6
    )  # 30 to 90 s, and what an emulated processor needs to start it

    *earlier, found = records(guest)
    assert earlier == first
    assert (found["label"], found["boot"], found["address"]) == ("boot", guest.boot_id, FAR)
    assert {
        one["name"]: one["verdict"] for one in found["steps"] if one["name"] in QUICK
    } == dict.fromkeys(QUICK, "pass")
    assert (found["local"]["path"], found["path_mtu"]) == (
        ["eth1"],
        {"forward": 4000, "backward": 4000, "told": False},
    )
    assert guest.check("stat -c %a /var/lib/neuca/selftest-*") == "600\n" * 3
    assert guest.check(LISTENING) == listening
    assert f"tcp {FAR}:{PORT}\n" not in guest.check(f"ip netns exec far {LISTENING}")
    assert (
        sent(guest, "eth0") < 1_000_000 < 4_000_000 < sent(guest, "eth1")
    )  # bytes; the test alone sends 5 MB

    compared = guest.run("neuca-selftest compare last-boot --json")
    assert (compared.code, compared.json["verdict"]) == (0, "pass")
    assert [(one["name"], one["direction"], one["count"]) for one in compared.json["rates"]] == [
        ("tcp", "forward", 1),
        ("tcp", "reverse", 1),
    ]
    changed = [
        (one["field"], one["before"], one["after"])
        for one in compared.json["changes"]
        if one["where"] == "local"
    ]
    assert changed == [("eth1 mtu", "1500", "4000")]
