"""The attacker's host on a dataplane link of a host whose management NIC and service are recorded."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib

import pytest
from boots import Boot
from lab import MANAGEMENT_MAC
from signs import SIGNS

HEALTH = ("well", "404", "500", "hang", "absent")
FAMILIES = ("dual", "IPv4", "IPv6")


def rows():
    """One state for each sign, in turn; a seventh of the signs is not `long`."""
    for number, sign in enumerate(SIGNS):
        health, family = HEALTH[number % len(HEALTH)], FAMILIES[number % len(FAMILIES)]
        marks = [pytest.mark.long] * bool(number % 7)
        yield pytest.param(sign, health, family, id=f"{sign}; {health}, {family}", marks=marks)


@pytest.fixture
def recorded(guest, attackers):
    """The first document is in force, and the service that answered is recorded."""
    with contextlib.ExitStack() as stack:

        def make(family):
            boot = Boot(guest, attackers, stack, ("well", family, "leased"))
            boot.passes(1)
            assert boot.origin()["mac"] == MANAGEMENT_MAC
            return boot

        yield make


@pytest.mark.matrix
@pytest.mark.parametrize(("sign", "health", "family"), rows())
def test_no_sign_of_a_stranger_moves_a_role_of_a_recorded_host(recorded, sign, health, family):
    boot = recorded(family)
    boot.fall_ill(health)
    SIGNS[sign].make(boot.guest, boot.evil)
    boot.check_held()


@pytest.mark.matrix
@pytest.mark.parametrize("sign", ["default route, finite, of a client that does not, no metric",
                                  "prefix everything, flags L, valid forever, router 0 s"])  # fmt: skip
def test_nor_does_it_once_the_lease_of_the_management_nic_has_ended(recorded, sign):
    boot = recorded("dual")
    boot.guest.ip("address flush dev mgmt0")
    boot.has_lease = False
    SIGNS[sign].make(boot.guest, boot.evil)
    boot.passes(1)
    assert boot.evil.asked() == []
    boot.check_held()


def test_a_service_that_answers_on_both_nics_is_the_recorded_one(recorded):
    boot = recorded("dual")
    boot.evil.claim("169.254.169.254", "fd00:ec2::254", "192.0.2.1", "2001:db8:ffff::1")
    boot.evil.answer_arp()
    SIGNS["option 121 to the service, finite, of a client that marks its routes, a better metric"].make(
        boot.guest, boot.evil)  # fmt: skip
    boot.check_held()
