"""A NIC that keeps failing: how often the daemon tries it, whatever else the host has."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import errno
import time

import pytest
from lab import Lab, mac, refused_route

# The kernel refuses a route through the second NIC, so all of the NIC is rolled back.
ROUTE = f"[routes]\n{refused_route('172.16.2.254')}"
FAILING = f"{ROUTE}[interface {mac(2)}]\naddresses = 172.16.2.1/24, fd00:2::1/64\n"
GATEWAY = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\ngateway = 172.16.1.254\n"
PLAIN = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
# The configuration has no routes. The kernel makes no second VXLAN with the same ID and addresses, which takes its NIC back.
SECOND_VXLAN = (
    f"[interface {mac(2)}]\naddresses = 172.16.2.1/24\n"
    f"[vxlan vx7]\nparent = {mac(2)}\nid = 7\nlocal = 172.16.2.1\nremote = 172.16.2.2\n"
)
FIRST_VXLAN = "link add theirs type vxlan id 7 local 172.16.2.1 remote 172.16.2.2 dstport 4789"
BRIDGE = f"{ROUTE}[bridge br0]\nmembers = {mac(2)}\naddresses = 172.16.2.1/24, fd00:2::1/64\n"
SECONDS = 25.0  # with intervals of 2, 4, 8, … seconds
MAX_ATTEMPTS = 5  # at the start, which may take two, and after 2, 6 and 14 s


def looks(lab):
    return (lab.folder / "run/last-pass.json").stat().st_mtime_ns


def passes(*labs, seconds=SECONDS):
    """How many reports each daemon has written, sampled faster than passes can follow each other."""
    reports, end = [set() for _ in labs], time.monotonic() + seconds
    while time.monotonic() < end:
        for lab, seen in zip(labs, reports):
            with contextlib.suppress(FileNotFoundError):
                seen.add(looks(lab))
        time.sleep(0.05)
    return [len(seen) for seen in reports]


@pytest.fixture
def failing(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    yield lab
    lab.applied = False  # a plan is left: what fails


CHOSEN = ("policy routing", "a virtual link", "sources = none")  # of a quick run
SITUATIONS = {
    "policy routing": (GATEWAY + FAILING, False, ""),
    "it was up": (GATEWAY + FAILING, True, ""),
    "a virtual link": (PLAIN + BRIDGE, False, ""),
    "all drift is corrected": (GATEWAY + FAILING, False, "[network]\ndrift = enforce"),
    "sources = none": (PLAIN + SECOND_VXLAN, False, ""),
    "nothing else": (PLAIN + FAILING, False, ""),
    "its own gateway": (PLAIN + FAILING + "gateway = 172.16.2.254\n", False, ""),
}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "situation",
    [pytest.param(name, marks=() if name in CHOSEN else pytest.mark.long) for name in SITUATIONS],
)
def test_the_events_of_an_attempt_do_not_cause_another(failing, situation):
    document, is_up, text = SITUATIONS[situation]
    if is_up:
        failing.ip("link set dp2 up")
    if situation == "sources = none":
        failing.ip(FIRST_VXLAN)
        failing.configure(document, sources="none")
    else:
        failing.configure(text)
        failing.document(document)
    failing.start()
    (made,) = passes(failing)
    attempts = failing.daemon.log().count("pass: ")  # no other pass is logged
    assert 2 <= attempts <= MAX_ATTEMPTS, failing.daemon.log()
    # One for the events of each, and one more at the start.
    assert made <= 2 * attempts + 1, failing.daemon.log()
    assert failing.addresses("dp1") == {"172.16.1.1/24"}
    assert failing.status()[0] == 1


def test_a_nic_that_appears_meanwhile_is_configured_at_once(failing):
    failing.configure(poll=60)
    failing.document(GATEWAY + FAILING + f"[interface {mac(3)}]\naddresses = 172.16.3.1/24\n")
    failing.start()
    failing.wait("the first attempt", lambda: failing.status()[0] == 1)
    failing.veth("dp3", 3)
    failing.wait("it is configured", lambda: failing.addresses("dp3") == {"172.16.3.1/24"}, 30)
    assert failing.status()[0] == 1  # what failed is still reported


def test_the_failing_nic_is_configured_at_once_when_it_is_plugged_in_again(failing):
    failing.configure(poll=60)
    failing.document(GATEWAY + FAILING)
    failing.start()
    failing.wait("the first attempt", lambda: failing.status()[0] == 1)
    failing.permit()
    failing.ip("link del dp2")
    failing.veth("dp2", 2)
    failing.wait("it is configured", lambda: failing.status()[0] == 0, 30)
    assert "172.16.2.1/24" in failing.addresses("dp2")


def test_with_enforce_drift_of_other_nics_is_corrected_meanwhile(failing):
    failing.configure("[network]\ndrift = enforce")
    failing.document(PLAIN + FAILING)
    failing.start()
    # Attempts begin 2, 4, 8 s after each other: after the third, nothing is tried again for 8 s.
    failing.wait("the third attempt", lambda: failing.daemon.log().count("1 failed") >= 3)
    failing.ip("address del 172.16.1.1/24 dev dp1")
    failing.wait("it is corrected", lambda: failing.addresses("dp1") == {"172.16.1.1/24"}, 6)
    assert failing.status()[0] == 1


LONG_SECONDS, MAX_IN_LONG = 600.0, 12


def begin(lab, situation):
    """A daemon with a failing NIC, as it is usually configured (`poll-interval = 10`)."""
    young = situation == "the first minutes after a boot"
    if not young:
        lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    if (
        young
    ):  # the NIC of the document waits for the management NIC, that of the configuration does not
        lab.ip(FIRST_VXLAN)
        lab.configure(SECOND_VXLAN, poll=10)
        lab.document(PLAIN)
    elif situation == "sources = none":
        lab.ip(FIRST_VXLAN)
        lab.configure(PLAIN + SECOND_VXLAN, sources="none", poll=10)
    else:
        lab.configure(poll=10)
        lab.document(SITUATIONS[situation][0])
    uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    lab.start(*(("unshare", "--time", "--boottime", str(-uptime)) if young else ()))


@pytest.mark.parametrize(
    ("asked", "broken"),
    [
        ("[routes]\n10.60.0.0/16 = blackhole\n", "route 10.60"),
        ("[routes]\n10.50.0.0/16 = down\n", "delete the route to 10.50"),
        ("sysctl.net.ipv4.ip_local_port_range = 10000 60000\n", "set the sysctl"),
        ("qdisc = fq\n", "set qdisc"),
    ],
    ids=["blackhole", "down", "sysctl", "device setting"],
)
def test_what_failed_alone_is_tried_again_after_a_pass_for_something_else(lab, asked, broken):
    lab.environment["ERRNO"] = str(errno.EBUSY)  # not that a device lacks the setting
    lab.foreign.may_set("net/ipv4/ip_local_port_range")
    lab.management()
    lab.veth("dp1", 1, up=True)
    lab.ip("address add 10.40.0.7/24 dev dp1")
    lab.ip("route add 10.50.0.0/16 via 10.40.0.9")
    lab.once(PLAIN)
    cause = lab.start_failing(broken)
    lab.wait("it has started", lambda: "pass: " in lab.daemon.log())
    lab.document(PLAIN + asked)
    lab.wait("it fails", lambda: ", 1 failed" in lab.daemon.log())
    before = looks(lab)
    lab.veth("dp3", 3)
    lab.wait("a pass for the new NIC", lambda: looks(lab) > before)
    assert lab.status()[0] == 1
    cause.unlink()
    lab.wait("it is done", lambda: lab.plan() == [] and lab.status()[0] == 0, 30)


@pytest.mark.long
def test_a_failing_nic_costs_at_most_twelve_passes_in_ten_minutes(tmp_path):
    names = [*CHOSEN, "the first minutes after a boot", "nothing else"]
    labs = {}
    try:
        for name in names:
            folder = tmp_path / str(len(labs))
            folder.mkdir()
            labs[name] = Lab(folder)
            begin(labs[name], name)
        made = dict(zip(names, passes(*labs.values(), seconds=LONG_SECONDS)))
        print(made)
        logs = {name: lab.daemon.log() for name, lab in labs.items()}
        assert all(log.count("pass:") >= 2 for log in logs.values()), logs
        assert max(made.values()) <= MAX_IN_LONG, made
        assert all(lab.status()[0] == 1 for lab in labs.values())
    finally:
        for lab in labs.values():
            lab.close()
