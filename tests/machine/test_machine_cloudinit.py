"""An image with cloud-init, on an OpenStack whose network_data has every NIC: it keeps the management NIC, we have the dataplane.

cloud-init writes names and addresses for all four NICs (netplan, for networkd), and renames by itself at each boot.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from guest import MANAGEMENT, mac
from steps import (
    ADDRESSES,
    DOCUMENT,
    addresses,
    assert_left_alone,
    bare,
    dataplane,
    in_force,
    links,
    names,
)

DATA = {
    mac(1): "172.16.0.99",
    mac(2): "172.17.0.99",
    mac(3): "172.18.0.99",
}  # what the cloud says, and the document does not
ASKED = f"{DOCUMENT}\n[interface {bare(mac(1))}]\nname = data0\nmtu = 9000\n"
SWAP, CYCLE, TURN = (0x11, 0x10, 0x12, 0x13), (0x13, 0x12, 0x11, 0x10), (0x11, 0x12, 0x13, 0x10)
# Of each one's own processes, printed with -s: netplan, udevd and networkd work for cloud-init besides.
COST = """for unit in neuca-names neuca-guest-tools cloud-init-local cloud-init cloud-config cloud-final; do
    echo "processor time of $unit: $(($(systemctl show --property CPUUsageNSec --value $unit) / 1000000)) ms"
done"""


def openstack():
    """What Nova and Neutron serve to cloud-init, path to text."""
    data = [
        {
            "id": nic,
            "link": nic,
            "type": "ipv4",
            "ip_address": address,
            "netmask": "255.255.255.0",
            "routes": [],
        }
        for nic, address in DATA.items()
    ]
    network = {
        "links": [
            {"id": nic, "type": "ovs", "mtu": 1450, "ethernet_mac_address": nic}
            for nic in (MANAGEMENT, *DATA)
        ],
        "networks": [{"id": "m", "link": MANAGEMENT, "type": "ipv4_dhcp"}, *data],
        "services": [],
    }
    meta = {"uuid": "6a1e3a1c-4a3b-4f2e-9d55-1f0c6b1f2a77", "hostname": "node0", "name": "node0"}
    texts = {
        "meta_data.json": json.dumps(meta),
        "network_data.json": json.dumps(network),
        "user_data": ASKED,
    }
    files = {
        f"/openstack/{version}/{name}": text
        for version in ("latest", "2018-08-27")
        for name, text in texts.items()
    }
    return {"/openstack": "latest\n2018-08-27", **files}


def assert_as_asked(guest):
    """Names, addresses and MTU of ours, those of cloud-init on the management NIC, and nobody on the other's."""
    status = in_force(guest, ASKED, patience=400)
    assert names(guest) == {MANAGEMENT: "ens16", mac(1): "data0", mac(2): "ens18", mac(3): "ens19"}
    assert dataplane(guest) == ADDRESSES
    assert links(guest)["data0"]["mtu"] == 9000
    assert addresses(guest)["ens16"] == {"169.254.169.16/24"}
    assert links(guest)["ens16"]["mtu"] == 1450, "cloud-init's, and not ours to set"
    assert_left_alone(guest)
    assert guest.reachable()
    return status


@pytest.mark.long
@pytest.mark.parametrize(
    "order", [SWAP, CYCLE, TURN], ids=lambda order: "-".join(f"{slot:x}" for slot in order)
)
def test_each_keeps_to_its_own_nics_at_the_first_boot_and_with_permuted_slots(guests, order):
    guest = guests("E")
    guest.cloud.files = openstack()
    guest.serve(ASKED)
    guest.boot()
    assert_as_asked(guest)
    assert "172.16.0.99/24" in guest.check("cat /etc/netplan/50-cloud-init.yaml"), (
        "cloud-init means to have this NIC"
    )
    guest.shut_down()
    guest.permute(order)
    guest.boot()
    status = assert_as_asked(guest)
    named = [note for note in status["notes"] if "names" in note]
    assert named == [
        (
            f'"/run/udev/rules.d/99-netplan-ens17.rules" names {mac(1)} "ens17" instead of "data0", so it is'
            " renamed twice at each boot: use the same name in both, or remove the NIC from that file"
        )
    ]
    networkd = guest.check("journalctl -b -u systemd-networkd --no-pager -o cat")
    assert "ens16: Configuring with /run/systemd/network/10-netplan-ens16.network" in networkd
    assert not [
        line
        for line in networkd.splitlines()
        for name in ("data0", "ens17", "ens18", "ens19")
        if line.startswith(f"{name}: Configuring")
    ]
    guest.check("cloud-init status --wait", 600)
    print(guest.check(COST), end="")
