"""DHCP that a NEuca document or the configuration asks for, and DHCP that no program does."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from test_dhcp import FILE, RUNS, decided, netplan, seen
from worlds import PLACES, key, mac

from neuca_tools.apply.decide import Observation, Policies, decide_pass
from neuca_tools.desired import dhcp_files
from neuca_tools.desired.dhcp_clients import UNSERVED
from neuca_tools.desired.management import Policy
from neuca_tools.desired.resolve import Settings
from neuca_tools.documents import parse
from neuca_tools.documents.stacking import combine_requests
from neuca_tools.model import Automatic, Record

NIC = f"interface {mac(2)}"


def document(*lines, section=NIC):
    return parse("\n".join([f"[{section}]", *lines]) + "\n")


def automatic(*lines):
    (found,) = document(*lines).links
    return found.automatic


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        (["dhcp4 = yes"], Automatic(dhcp4=True)),
        (["dhcp4 = Yes", "dhcp6 = no"], Automatic(dhcp4=True, dhcp6=False)),
        (["accept-ra = yes", "dhcp6 = yes"], Automatic(dhcp6=True, accept_ra=True)),
        (["dhcp4 = no", "dhcp4 = yes"], Automatic(dhcp4=True)),
        (["mtu = 1400"], None),
    ],
)
def test_the_keys_of_a_nic(lines, asked):
    assert automatic(*lines) == asked


def test_the_request_of_a_document_reaches_the_client_beside_its_addresses():
    found = decided(seen(), document("dhcp4 = yes", "addresses = 172.16.0.1/24"))
    assert found.desired.files[FILE] == dhcp_files.networkd_file(
        key(2), "", Automatic(dhcp4=True), False
    )
    texts = [one.text for one in found.plan()]
    assert "add the address 172.16.0.1/24 to eth2" in texts


def test_a_document_that_names_the_nic_decides_about_dhcp_for_the_platform():
    platform = netplan(dhcp4=True, dhcp6=True).platform
    for lines, asked in ((["dhcp4 = no"], b""), (["dhcp6 = yes"], b"DHCP=ipv6\n")):
        found = decided(seen(), document(*lines)._replace(platform=platform))
        content = found.desired.files.get(FILE) or b""
        assert asked in content
        assert bool(content) == bool(asked)


def test_the_configuration_goes_before_the_document_key_by_key():
    below, above = document("dhcp4 = yes", "dhcp6 = yes").links, document("dhcp6 = no").links
    (found,) = combine_requests(below, above)
    assert found.automatic == Automatic(dhcp4=True, dhcp6=False)


@pytest.mark.parametrize(
    ("lines", "section", "fault"),
    [
        (["dhcp4 = maybe"], NIC, '"maybe" is'),
        (["dhcp4 = yes"], "vrf red", "a VRF can have neither DHCP nor router advertisements"),
        (["accept-ra = yes"], "vrf red", "a VRF can have neither DHCP nor router advertisements"),
    ],
)
def test_what_is_not_possible_is_a_fault(lines, section, fault):
    (found,) = [one for one in document(*lines, section=section).faults if fault in one.text]
    assert found.severity == "error"


def test_a_member_of_a_bond_gets_no_client():
    text = f"[interface {mac(2)}]\ndhcp4 = yes\n[bond bond0]\nmode = active-backup\n"
    text += f"members = {mac(2)}\n"
    assert FILE not in decided(seen(), parse(text)).desired.files


def test_a_port_of_a_foreign_bridge_gets_no_client():
    look = seen()
    port = look.devices[2]._replace(master=7)
    found = decided(replace(look, devices={**look.devices, 2: port}), document("dhcp4 = yes"))
    assert FILE not in found.desired.files


def problems(look, asked=None):
    found = decided(look, asked or netplan(dhcp4=True)).resolution
    return [one.text for one in found.problems if one.link == key(2) and one.code == "refused"]


def test_dhcp_that_no_program_does_is_a_problem_with_the_remedy():
    alone = seen(managers={}, no_manager_runs=True, leased_addresses=frozenset())
    assert problems(alone) == [UNSERVED]
    assert problems(alone, document("dhcp4 = yes")) == [UNSERVED]
    assert problems(alone, document("dhcp4 = no")) == []
    assert problems(seen(managers={}, no_manager_runs=True)) == []  # another client has a lease
    assert problems(seen(managers=RUNS, leased_addresses=frozenset())) == []
    # The manager of this host may still be starting, or is that of another namespace.
    assert problems(replace(alone, age=10.0)) == []
    assert problems(replace(alone, no_manager_runs=False)) == []


def test_the_management_nic_and_an_ignored_one_get_no_client_whatever_a_document_says():
    found = decided(seen(), document("dhcp4 = yes", section=f"interface {mac(1)}"))
    assert [path for path in found.desired.files if "dhcp" in path] == []
    ignored = Policies(Settings(Policy(frozenset({mac(2)}))), PLACES)
    found = decide_pass(Observation(seen()), document("dhcp4 = yes"), ignored, Record())
    assert [
        path for path, content in found.desired.files.items() if "dhcp" in path and content
    ] == []
