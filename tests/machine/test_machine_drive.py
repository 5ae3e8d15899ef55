"""Config drives and NoCloud volumes: read by their unit when they appear and at a boot, mounted where nobody sees it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from guest import MANAGEMENT, mac
from steps import STATUS, assert_left_alone, dataplane, names

ADDRESSES = {mac(1): {"10.1.0.1/24"}, mac(2): {"10.2.0.1/24"}, mac(3): set()}
UNITS = {"vfat": "neuca-drive@vdb1.service", "iso9660": "neuca-drive@sr0.service"}
SEED = f"""network:
  version: 2
  ethernets:
    management: {{match: {{macaddress: "{MANAGEMENT}"}}, dhcp4: true}}
    one: {{match: {{macaddress: "{mac(1)}"}}, set-name: data1, mtu: 1400, addresses: [10.1.0.1/24]}}
    two: {{match: {{macaddress: "{mac(2)}"}}, mtu: 1400, addresses: [10.2.0.1/24]}}
"""


def config_drive(folder):
    """As OpenStack fills one: the management NIC with DHCP, two others static."""
    links = [{"id": "m", "type": "ovs", "ethernet_mac_address": MANAGEMENT, "mtu": None}]
    networks = [{"id": "nm", "link": "m", "type": "ipv4_dhcp"}]
    for number in (1, 2):
        links.append(
            {"id": f"l{number}", "type": "phy", "ethernet_mac_address": mac(number), "mtu": 1400}
        )
        networks.append(
            {
                "id": f"n{number}",
                "link": f"l{number}",
                "type": "ipv4",
                "ip_address": f"10.{number}.0.1",
                "netmask": "255.255.255.0",
                "routes": [],
            }
        )
    place = folder / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "meta_data.json").write_text(json.dumps({"uuid": "i", "hostname": "node0"}))
    (place / "network_data.json").write_text(
        json.dumps({"links": links, "networks": networks, "services": []})
    )


def seed(folder):
    """As a hypervisor of one's own fills one."""
    folder.mkdir()
    for name, text in {
        "user-data": "",
        "meta-data": "instance-id: i\n",
        "network-config": SEED,
    }.items():
        (folder / name).write_text(text)


FILL = {"config-2": config_drive, "cidata": seed}
SOURCE = {"config-2": "configdrive", "cidata": "nocloud"}


def as_the_volume_says(guest, label):
    def fits(done):
        return (
            done.output.startswith("{")
            and done.json["document"]["source"] == SOURCE[label]
            and done.json["state"] == "ok"
        )

    status = guest.eventually(STATUS, fits, 600).json
    assert {
        nic: found & {"10.1.0.1/24", "10.2.0.1/24"} for nic, found in dataplane(guest).items()
    } == ADDRESSES
    assert (
        next(one["role"] for one in status["interfaces"] if one["mac"] == MANAGEMENT)
        == "management"
    )
    assert guest.check("cat /proc/[0-9]*/mounts 2>/dev/null | grep -E 'vfat|iso9660' || true") == ""
    assert set(guest.check(f"find /run/neuca/drives/{label} -type f -printf '%m '").split()) == {
        "600"
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("image", "label", "kind"),
    [
        ("A", "config-2", "vfat"),
        ("C", "config-2", "iso9660"),
        ("A", "cidata", "iso9660"),
        ("C", "cidata", "vfat"),
    ],
)
def test_a_volume_is_read_when_it_appears_and_at_a_boot(guests, tmp_path, image, label, kind):
    guest = guests(image)
    guest.boot()
    FILL[label](tmp_path / "volume")
    guest.insert(tmp_path / "volume", label, kind)
    as_the_volume_says(guest, label)
    called = names(guest)
    guest.reboot()
    as_the_volume_says(guest, label)
    assert names(guest) == called
    assert called[mac(1)] == ("data1" if label == "cidata" else "eth1")
    assert (
        guest.check("systemctl list-units --plain --no-legend --all 'neuca-drive@*'").split()[0]
        == UNITS[kind]
    )
    assert_left_alone(guest, mac(3))
    assert guest.reachable()
