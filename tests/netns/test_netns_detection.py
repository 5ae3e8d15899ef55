"""Duplicate address detection (RFC 4862): what another host has is reported, and nothing waits but a route that has to."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

ADDRESS = "2001:db8:16::1"
DOCUMENT = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, {ADDRESS}/64\n"
TO = "2001:db8:99::/48"
ROUTED = f"{DOCUMENT}[routes]\n{TO} = 2001:db8:16::ff src {ADDRESS}\n"
LONGEST = 2.0  # seconds: a random delay of up to 1, and the wait for an answer of 1


@pytest.fixture
def checked(lab):
    """A guest whose kernel detects duplicates, as it does by default."""
    lab.veth("dp1", 1)
    for table in ("all", "default", "dp1"):
        lab.sysctl(f"net/ipv6/conf/{table}/accept_dad", 1)
    return lab


def flags(lab, name="dp1", address=ADDRESS):
    (line,) = [
        one
        for one in lab.run("ip", "-6", "-o", "address", "show", "dev", name).out.splitlines()
        if address in one
    ]
    return {"tentative", "dadfailed", "nodad"} & {*line.split()}


def seconds(lab):
    return lab.status()[1]["last_pass"]["seconds"]


def test_an_address_that_another_host_has_is_not_used(checked):
    checked.run(
        "ip", "address", "add", f"{ADDRESS}/64", "dev", "dp1", "nodad", where=checked.outside
    )
    assert checked.once(DOCUMENT).code == 0
    checked.wait("the detection", lambda: "dadfailed" in flags(checked))
    code, data = checked.status()
    assert (code, data["state"]) == (4, "degraded")
    text = f"address {ADDRESS}/64: not in use, because another host has it (dadfailed)"
    assert checked.problems("dp1") == [("contested", text)]
    assert "172.16.0.1/24" in checked.addresses("dp1")
    assert "degraded: nothing to do" in checked.once().out
    assert flags(checked) == {"tentative", "dadfailed"}


def test_a_second_pass_during_the_detection_does_nothing(checked):
    checked.sysctl("net/ipv6/conf/dp1/dad_transmits", 6)  # of 1 s each
    assert checked.once(DOCUMENT).code == 0
    assert checked.plan() == []
    assert checked.once().out == "ok: nothing to do\n"
    assert flags(checked) == {"tentative"}
    checked.wait("the address is in use", lambda: not flags(checked))


def test_without_the_detection_an_address_is_in_use_at_once(checked):
    text = DOCUMENT + "duplicate-address-detection = no\n"
    checked.once(text)
    assert flags(checked) == {"nodad"}
    assert checked.sysctl("net/ipv6/conf/dp1/accept_dad") == "0"
    assert checked.plan() == []
    checked.once(DOCUMENT)
    assert checked.sysctl("net/ipv6/conf/dp1/accept_dad") == "1"


def test_a_route_waits_for_its_source_address(checked):
    assert checked.once(ROUTED).code == 0
    assert checked.routes(TO, 6) == [("2001:db8:16::ff", "dp1", 20, "110")]
    assert flags(checked) == set()
    assert seconds(checked) < LONGEST + 1
    assert checked.plan() == []


def test_without_a_carrier_nothing_waits(checked):
    checked.run("ip", "link", "set", "dp1", "down", where=checked.outside)
    done = checked.once(ROUTED)
    assert done.code == 3, done
    assert seconds(checked) < LONGEST / 2
    assert checked.addresses("dp1") == {"172.16.0.1/24", f"{ADDRESS}/64"}
    ((code, text),) = checked.problems("dp1")
    assert code == "pending"
    assert text.endswith(f"{ADDRESS} is not in use yet")
    checked.run("ip", "link", "set", "dp1", "up", where=checked.outside)
    checked.wait("the address is in use", lambda: not flags(checked))
    assert checked.once().code == 0
    assert checked.routes(TO, 6)


def test_the_route_of_an_address_that_another_host_has_fails_alone(checked):
    checked.run(
        "ip", "address", "add", f"{ADDRESS}/64", "dev", "dp1", "nodad", where=checked.outside
    )
    assert checked.once(ROUTED).code == 3
    assert checked.addresses("dp1") == {"172.16.0.1/24", f"{ADDRESS}/64"}
    assert [code for code, _ in checked.problems("dp1")] == ["contested", "pending"]
    checked.applied = False  # a plan is left: the route


@pytest.mark.parametrize("connected", [True, False])
def test_the_start_of_the_daemon_does_not_wait(checked, connected):
    if not connected:
        checked.run("ip", "link", "set", "dp1", "down", where=checked.outside)
    checked.sysctl("net/ipv6/conf/dp1/dad_transmits", 6)  # of 1 s each
    checked.configure(poll=60)
    checked.document(ROUTED)
    checked.start()
    checked.wait("the first pass", lambda: checked.status()[1]["last_pass"])
    assert seconds(checked) < 5.0
    assert checked.routes(TO, 6) == []
    if not connected:
        assert checked.problems("dp1")[0][0] == "pending"
        checked.run("ip", "link", "set", "dp1", "up", where=checked.outside)
    checked.wait("the route", lambda: checked.routes(TO, 6))
    checked.wait("the status", lambda: checked.status()[0] == 0)


def test_an_address_of_another_program_keeps_its_state_when_it_is_restored(checked):
    checked.ip("link set dp1 up")
    checked.ip("address add 2001:db8:17::1/64 dev dp1 nodad")
    checked.run(
        "ip", "address", "add", "2001:db8:18::1/64", "dev", "dp1", "nodad", where=checked.outside
    )
    checked.ip("address add 2001:db8:18::1/64 dev dp1")
    checked.wait("the detection", lambda: "dadfailed" in flags(checked, address="2001:db8:18::1"))
    restore = (
        "from neuca_tools.backends import kernel_state, raw_requests\n"
        "from ipaddress import ip_interface\n"
        f"world = kernel_state.read_world(); index = {checked.index('dp1')}\n"
        "import subprocess\n"
        "for text in ('2001:db8:17::1/64', '2001:db8:18::1/64'):\n"
        "    message = world.address_messages[index, ip_interface(text)]\n"
        "    subprocess.run(['ip', 'address', 'del', text, 'dev', 'dp1'], check=True)\n"
        "    raw_requests.restore_address(index, message, 0.0)\n"
    )
    checked.run("/usr/bin/python3", "-c", restore)
    checked.foreign.remember()
    assert flags(checked, address="2001:db8:17::1") == {"nodad"}
    assert "tentative" in flags(checked, address="2001:db8:18::1")
