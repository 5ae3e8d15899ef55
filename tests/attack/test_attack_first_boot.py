"""The attacker's host on a dataplane link at a first boot: every sign that it can leave, in every state of the real service.

Nothing that it leaves on its NIC makes its service believed or moves a role.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import signal
import time

import frames
import pytest
from attacker import PATIENCE, SERVICES
from boots import STATES, Boot
from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, SERVICE, mac
from signs import NIC, ROUTER, SIGNS
from unpacked import has_program, program

# Text that a reader of dhclient's lease file could take for statements of the file.
EXTRAS = {
    "plain": {},
    "statements in the root path": {"option_17": b"interface lo; fixed-address 10.9.9.9; x"},
    "an end in the root path": {"option_17": b"x expire 5 2030/01/01; }"},
    "another lease in the root path": {"option_17": b"x } lease { interface lo; expire soon; x"},
}


def rows():
    """Three states for each sign, in turn, so that all occur with each kind of sign; a third of the signs is not `long`."""
    step = 7  # has no divisor in common with the number of the states
    for number, sign in enumerate(SIGNS):
        for turn in range(3):
            state = STATES[(number * step + turn * 13) % len(STATES)]
            marks = [pytest.mark.long] * bool(turn or number % 3)
            yield pytest.param(sign, state, id=f"{sign}; {', '.join(state)}", marks=marks)


@pytest.fixture
def boot(guest, attackers):
    with contextlib.ExitStack() as stack:
        yield lambda state: Boot(guest, attackers, stack, state)


@pytest.mark.matrix
@pytest.mark.parametrize(("sign", "state"), rows())
def test_no_sign_of_a_stranger_makes_it_the_metadata_service(boot, sign, state):
    made = boot(state)
    SIGNS[sign].make(made.guest, made.evil)
    made.check_held()


@pytest.mark.matrix
@pytest.mark.parametrize("state", [("absent", "dual", "no lease"), ("404", "IPv6", "leased"), ("hang", "IPv4", "leased")],
                         ids=", ".join)  # fmt: skip
@pytest.mark.parametrize("its_mac", ["", MANAGEMENT_MAC], ids=["its own MAC", "the MAC of mgmt0"])
def test_claims_and_redirects_bring_no_first_document(boot, state, its_mac):
    """Neighbour entries for the service, the gateway and the guest; its frames may have the MAC of the management NIC."""
    made = boot(state)
    evil = made.evil
    evil.mac = its_mac or evil.mac
    evil.claim(*SERVICES, GATEWAY, GATEWAY6, "192.0.2.10", "2001:db8:ffff::10")
    evil.answer_arp()
    for router, victim in ((GATEWAY, "192.0.2.10"), (ROUTER, "10.66.0.2")):
        evil.send(frames.redirect4(evil.mac, mac(7), router, victim, SERVICE, ROUTER))
    source = "2001:db8:ffff::10"
    for router in (GATEWAY6, evil.link_local):
        told = (router, source, "fd00:ec2::254", evil.link_local)
        evil.send(frames.redirect6(evil.mac, mac(7), *told))
    made.check_held()


@pytest.mark.matrix
@pytest.mark.skipif(
    not has_program("usr/sbin/dhclient"), reason="this distribution has no dhclient"
)
@pytest.mark.parametrize("more", EXTRAS)
@pytest.mark.parametrize("end", [600, frames.FOREVER], ids=["finite", "infinite"])
@pytest.mark.parametrize(("health", "lease"), [("404", "leased"), ("absent", "no lease")])
def test_a_lease_that_dhclient_takes_brings_no_first_document(
    boot, daemons, health, lease, end, more
):
    """dhclient itself with the script of its package, which sets no protocol and, without an end, no lifetime."""
    made = boot((health, "IPv4", lease))
    guest = made.guest
    made.evil.serve_dhcp(
        option_1=frames.packed("255.255.255.0"), option_3=frames.packed(ROUTER),
        option_51=end.to_bytes(4, "big"), **EXTRAS[more])  # fmt: skip
    script = guest.folder / "dhclient-script"
    script.write_text(program("usr/sbin/dhclient-script").read_text())
    script.chmod(0o755)
    guest.run("mount", "-t", "tmpfs", "tmpfs", "/run")
    files = (
        "-lf",
        "/run/dhclient.eth7.leases",
        "-pf",
        guest.folder / "dhclient.pid",
        "-cf",
        "/dev/null",
    )
    with guest.foreign.changing():
        guest.run(program("usr/sbin/dhclient"), "-4", "-1", "-q", "-sf", script, *files, NIC)
    daemons.append(Process(guest.folder / "dhclient.pid"))
    assert "10.66.0.2/24" in guest.addresses(NIC)
    assert any(route[1] == NIC for route in guest.routes("default"))
    made.check_held()


UDHCPC_SCRIPT = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip address add $ip/$mask dev $interface
ip route add default via $router dev $interface
"""


@pytest.mark.matrix
@pytest.mark.parametrize("pid_file", ["udhcpc.eth7.pid", "udhcpc-eth7.pid"])
@pytest.mark.parametrize(("health", "lease"), [("404", "leased"), ("absent", "no lease")])
def test_a_lease_that_udhcpc_takes_brings_no_first_document(boot, daemons, health, lease, pid_file):
    """udhcpc itself; like the scripts of distributions, this one sets neither a protocol nor a lifetime."""
    made = boot((health, "IPv4", lease))
    guest = made.guest
    made.evil.serve_dhcp(
        option_1=frames.packed("255.255.255.0"), option_3=frames.packed(ROUTER),
        option_51=(600).to_bytes(4, "big"))  # fmt: skip
    script = guest.folder / "udhcpc-script"
    script.write_text(UDHCPC_SCRIPT)
    script.chmod(0o755)
    guest.run("mount", "-t", "tmpfs", "tmpfs", "/run")
    with guest.foreign.changing():
        guest.run(
            program("usr/bin/busybox"),
            "udhcpc",
            "-b",
            "-i",
            NIC,
            "-s",
            script,
            "-p",
            f"/run/{pid_file}",
        )
    guest.run("cp", f"/run/{pid_file}", guest.folder / "udhcpc.pid")
    daemons.append(Process(guest.folder / "udhcpc.pid"))
    assert "10.66.0.2/24" in guest.addresses(NIC)
    assert any(route[1] == NIC for route in guest.routes("default"))
    made.check_held()


class Process:
    """A daemon that writes its number into a file, which may be after the program that started it has returned."""

    def __init__(self, place):
        ends = time.monotonic() + PATIENCE
        while not place.exists() or not place.read_text().strip():
            assert time.monotonic() < ends, f"{place.name} was not written"
            time.sleep(0.02)
        self.number = int(place.read_text())

    def stop(self):
        with contextlib.suppress(ProcessLookupError):  # udhcpc ends if it gets no lease
            os.kill(self.number, signal.SIGKILL)
