"""A NIC that keeps failing: how often the daemon tries it, whatever else the host has."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import time

import pytest
from lab import mac, refused_route

# The kernel refuses a route through the second NIC, so all of the NIC is rolled back.
ROUTE = f"[routes]\n{refused_route('172.16.2.254')}"
FAILING = f"{ROUTE}[interface {mac(2)}]\naddresses = 172.16.2.1/24, fd00:2::1/64\n"
GATEWAY = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\ngateway = 172.16.1.254\n"
PLAIN = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
# The configuration has no routes, but gateways, and none is the broadcast address.
BROADCAST = (
    f"[interface {mac(2)}]\naddresses = 172.16.2.1/24, fd00:2::1/64\ngateway = 172.16.2.255\n"
)
BRIDGE = f"{ROUTE}[bridge br0]\nmembers = {mac(2)}\naddresses = 172.16.2.1/24, fd00:2::1/64\n"
SECONDS = 25.0  # with intervals of 2, 4, 8, … seconds
MOST = 9  # passes: an attempt at the start and after 2, 6 and 14 s, each with one for its events


def looks(lab):
    return (lab.folder / "run/last-pass.json").stat().st_mtime_ns


def passes(lab, seconds=SECONDS):
    """The reports that the daemon has written, sampled faster than passes can follow each other."""
    reports, end = set(), time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(FileNotFoundError):
            reports.add(looks(lab))
        time.sleep(0.05)
    return len(reports)


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
    "sources = none": (PLAIN + BROADCAST, False, ""),
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
        failing.configure(document, sources="none")
    else:
        failing.configure(text)
        failing.document(document)
    failing.start()
    assert 2 <= passes(failing) <= MOST, failing.daemon.log()
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
