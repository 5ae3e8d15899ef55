"""A config drive: read by its unit when it appears and at a boot, mounted where nobody sees it, and the dataplane as it says."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from guest import MANAGEMENT, mac
from steps import STATUS, assert_left_alone, dataplane

ADDRESSES = {mac(1): {"10.1.0.1/24"}, mac(2): {"10.2.0.1/24"}, mac(3): set()}


def config_drive(folder):
    """A folder as OpenStack fills one: the management NIC with DHCP, two others static."""
    links = [{"id": "m", "type": "ovs", "ethernet_mac_address": MANAGEMENT, "mtu": None}]
    networks = [{"id": "nm", "link": "m", "type": "ipv4_dhcp"}]
    for number in (1, 2):
        links.append({"id": f"l{number}", "type": "phy", "ethernet_mac_address": mac(number), "mtu": 1400})
        networks.append({"id": f"n{number}", "link": f"l{number}", "type": "ipv4", "ip_address": f"10.{number}.0.1",
                         "netmask": "255.255.255.0", "routes": []})
    place = folder / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "meta_data.json").write_text(json.dumps({"uuid": "i", "hostname": "node0"}))
    (place / "network_data.json").write_text(json.dumps({"links": links, "networks": networks, "services": []}))
    return folder


def as_the_drive_says(guest):
    def fits(done):
        return done.output.startswith("{") and done.json["document"]["source"] == "configdrive" and done.json["state"] == "ok"

    status = guest.eventually(STATUS, fits, 300).json
    assert {nic: found & {"10.1.0.1/24", "10.2.0.1/24"} for nic, found in dataplane(guest).items()} == ADDRESSES
    assert next(one["role"] for one in status["interfaces"] if one["mac"] == MANAGEMENT) == "management"
    assert guest.run("grep vfat /proc/mounts").output == ""
    assert guest.check("stat -c %a /run/neuca/drives/config-2/openstack/latest/*").split() == ["600", "600"]


@pytest.mark.long
def test_a_config_drive_is_read_when_it_appears_and_at_a_boot(guests, tmp_path):
    guest = guests("A")
    guest.boot()
    guest.insert(config_drive(tmp_path / "drive"), "config-2")
    as_the_drive_says(guest)
    guest.reboot()
    as_the_drive_says(guest)
    assert guest.check("systemctl list-units --plain --no-legend --all 'neuca-drive@*'").split()[0] == "neuca-drive@vdb1.service"
    assert_left_alone(guest)
    assert guest.reachable()
