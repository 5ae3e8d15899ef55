"""Hot plug: a NIC that appears is configured at once, one that goes is missed, and one may come before its document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time

import pytest
from guest import mac, nics
from qemu import Nic
from steps import ADDRESSES, DOCUMENT, assert_left_alone, dataplane, in_force, names

# What the same costs without an agent: an interpreter that imports pyroute2 and sets one address.
BARE = """date +%s.%N; python3 -c 'from pyroute2 import IPRoute
with IPRoute() as route: route.addr("add", index=1, address="{}", prefixlen=32)'; date +%s.%N"""
RATIO = 5


def with_more(count):
    """The document, and so many more NICs."""
    lines = [f"{mac(number)} = up:ipv4:172.20.{number}.1/24\n" for number in range(4, 4 + count)]
    return DOCUMENT + "".join(lines), {
        mac(number): {f"172.20.{number}.1/24"} for number in range(4, 4 + count)
    }


@pytest.mark.parametrize(
    "image", ["A", *(pytest.param(image, marks=pytest.mark.long) for image in "BCSN")]
)
def test_nics_come_and_go_while_the_guest_runs(guests, prepared, image):
    before = prepared(image)
    guest = guests(image, nics(3), after=before)
    guest.serve(with_more(4)[0])
    guest.boot()
    come_and_go(guest, before.names, 4)


def come_and_go(guest, known, count):
    """Plug in so many NICs that its document names already, take one out and put it elsewhere."""
    document, more = with_more(count)
    in_force(guest, document, "degraded")
    for number in range(4, 4 + count):
        guest.plug(Nic(mac(number), 0x10 + number))
    in_force(guest, document)
    assert dataplane(guest) == ADDRESSES | more
    assert_left_alone(guest)
    pinned = names(guest)
    assert {nic: name for nic, name in pinned.items() if nic in known} == known
    guest.unplug(mac(4))
    in_force(guest, document, "degraded")
    guest.plug(Nic(mac(4), 0x18))
    in_force(guest, document)
    assert names(guest) == pinned
    assert guest.reachable()


@pytest.mark.long
def test_a_nic_that_comes_half_a_minute_before_its_document_is_configured(guests, prepared):
    guest = guests("C", nics(3), after=prepared("C"))
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    guest.plug(Nic(mac(4), 0x14))
    guest.eventually(f"ip -br link | grep {mac(4)}", lambda done: done.code == 0)
    guest.cloud.wait_for(3)  # the service is asked every 10 s
    document, more = with_more(1)
    guest.serve(document)
    in_force(guest, document)
    assert dataplane(guest) == ADDRESSES | more
    assert_left_alone(guest)


@pytest.mark.long
def test_a_plugged_nic_is_configured_as_fast_as_an_interpreter_can(guests, prepared):
    document, _ = with_more(1)
    guest = guests("A", nics(3), after=prepared("A"))
    guest.serve(document)
    guest.boot()
    in_force(guest, document, "degraded")
    guest.check("systemctl is-system-running --wait || true", 180)
    guest.check(BARE.format("127.9.9.8"))  # the first one reads the disk
    began, ended = map(float, guest.check(BARE.format("127.9.9.9")).split())
    guest.check("nohup ip -ts monitor link address > /root/monitor 2>&1 & sleep 1")
    guest.plug(Nic(mac(4), 0x14))
    in_force(guest, document)
    lines = guest.check("cat /root/monitor").splitlines()
    came = next(line for line in lines if ": eth" in line and "state" in line)
    set_ = next(line for line in lines if "172.20.4.1" in line)
    took, bare = _clock(set_) - _clock(came), ended - began
    print(
        f"from the link's first word to its address {took:.2f} s, the bare interpreter {bare:.2f} s"
    )
    assert took <= max(1.0, RATIO * bare)


def _clock(line):
    """The seconds of `ip -ts`: [2026-11-20T19:00:00.123456] …"""
    stamp = line[1 : line.index("]")]
    return time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) + float(f"0.{stamp[20:]}")
