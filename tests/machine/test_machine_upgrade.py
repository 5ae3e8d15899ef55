"""An earlier version is replaced by this one while the links that it made are in use: traffic goes on, and names stay."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import images
import pytest
from guest import mac, nics
from steps import addresses, assert_left_alone, assert_nothing_odd, in_force, links, names

EARLIER = "aa08c39f"
# QEMU answers pings at .2 of each NIC's network.
PEERS = {"bond0": "10.99.1.2", "br0": "10.99.3.2"}
DOCUMENT = f"""[bond bond0]
mode = active-backup
members = {mac(1)}, {mac(2)}
addresses = 10.99.1.50/24

[vlan bond bond0.100]
addresses = 10.100.0.1/24, fd00:100::1/64

[vxlan vx7]
id = 7
local = 10.99.1.50
remote = 10.99.1.60

[bridge br0]
members = {mac(3)}, vxlan vx7
addresses = 10.99.3.50/24
"""
MADE = ("bond0", "bond0.100", "vx7", "br0")
PING = "nohup ping -n -i 0.5 {peer} > /root/ping-{name} 2>&1 & echo $! >> /root/pings"


# A reboot gives another index, and a VXLAN another MAC.
KEPT_BY_REBOOT = ("mtu", "txqlen", "operstate", "master")
KEPT = ("ifindex", "address", "permaddr", *KEPT_BY_REBOOT)


def facts(guest, keys=KEPT):
    """Of each link these facts, its kind and its addresses."""
    networks = addresses(guest)
    return {
        name: (
            [link.get(key) for key in keys],
            link.get("linkinfo", {}).get("info_kind"),
            networks[name],
        )
        for name, link in links(guest).items()
    }


def counted(guest, name):
    """Pings sent and received."""
    said = guest.check(f"cat /root/ping-{name}")
    sent, received = re.search(r"(\d+) packets transmitted, (\d+) received", said).groups()
    return int(sent), int(received)


@pytest.mark.long
def test_an_earlier_version_is_replaced_while_its_links_are_in_use(guests):
    try:
        deb = images.earlier_package(EARLIER)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no history in this checkout: {error.stderr.strip()}")
    cards = [replace(nic, dhcp=not nic.management) for nic in nics(3)]
    guest = guests("A", cards, of=images.image("A", earlier=deb))
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    called, before, kept = names(guest), facts(guest), facts(guest, KEPT_BY_REBOOT)
    assert {*MADE} <= before.keys()

    guest.put("/root/present.deb", images.package().read_bytes())
    for name, peer in PEERS.items():
        guest.check(f"ping -n -c 1 -w 60 {peer}", 120)
        guest.check(PING.format(peer=peer, name=name))
    guest.check("nohup ip monitor link address route > /root/monitor 2>&1 & echo $! > /root/watch")
    guest.check("DEBIAN_FRONTEND=noninteractive dpkg --install /root/present.deb", 1800)
    guest.check('test "$(cat /root/watch)" && systemctl is-active neuca-guest-tools')
    guest.cloud.wait_for(2)
    in_force(guest, DOCUMENT)
    assert facts(guest) == before
    assert names(guest) == called
    guest.check("kill -INT $(cat /root/pings); kill $(cat /root/watch); sleep 1")
    seen = guest.check("cat /root/monitor").splitlines()
    devices = [*MADE, *(called[mac(number)] for number in (1, 2, 3))]
    ours = [line for line in seen if any(re.search(rf"\b{device}\b", line) for device in devices)]
    assert [line for line in ours if "Deleted" in line or "state DOWN" in line] == []
    for name in PEERS:
        sent, received = counted(guest, name)
        assert sent > 10
        assert sent - received <= 1, "the last one may have been under way"

    guest.reboot()
    in_force(guest, DOCUMENT)
    assert names(guest) == called
    assert facts(guest, KEPT_BY_REBOOT) == kept
    for peer in PEERS.values():
        guest.check(f"ping -n -c 1 -w 60 {peer}", 120)
    assert_left_alone(guest)
    assert_nothing_odd(guest)
    assert guest.reachable()
