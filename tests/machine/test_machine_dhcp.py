"""The network manager does DHCP on dataplane NICs for the agent, and nothing else there."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace

import pytest
from guest import MANAGEMENT, mac, nics
from steps import STATUS, addresses, names

SOURCE = "/etc/lab-drive"
PLACE = f"{SOURCE}/openstack/latest"
LEASES = {mac(1): "10.99.1.16/24", mac(2): "10.99.2.16/24"}
STATIC = {mac(1): {"172.16.0.1/24"}, mac(3): {"172.18.0.1/24"}}
AGENT = "neuca-guest-tools"
KEPT_OFF = f"""sed -i s/Type=ether/MACAddress={MANAGEMENT}/ /etc/systemd/network/80-dhcp.network
systemctl restart systemd-networkd.service
for name in eth1 eth2 eth3; do ip address flush dev $name scope global; done"""
FILES = "/etc/systemd/network /etc/NetworkManager/system-connections"


def tempted():
    return [replace(nic, dhcp=not nic.management) for nic in nics(3)]


def network_data(leased, kinds=("ipv4_dhcp",)):
    links = (MANAGEMENT, *(mac(number) for number in (1, 2, 3)))
    networks = [{"id": "m", "link": MANAGEMENT, "type": "ipv4_dhcp"}]
    networks += [
        {"id": f"{kind} {nic}", "link": nic, "type": kind} for nic in leased for kind in kinds
    ]
    for nic, some in STATIC.items():
        for address in some:
            ip, length = address.split("/")
            networks.append(
                {"id": ip, "link": nic, "type": "ipv4", "ip_address": ip, "netmask": length}
            )
    return json.dumps(
        {
            "links": [{"id": nic, "type": "ovs", "ethernet_mac_address": nic} for nic in links],
            "networks": networks,
            "services": [],
        }
    )


def write(guest, leased, *kinds):
    for name, text in (
        ("network_data.json", network_data(leased, kinds or ("ipv4_dhcp",))),
        ("meta_data.json", json.dumps({"uuid": "i"})),
    ):
        encoded = base64.b64encode(text.encode()).decode()
        guest.check(f"mkdir -p {PLACE}; echo {encoded} | base64 -d > {PLACE}/{name}")


def expected(leased):
    found = {nic: set(STATIC.get(nic, ())) for nic in (mac(1), mac(2), mac(3))}
    for nic in leased:
        found[nic].add(LEASES[nic])
    return found


def settled(guest, leased):
    """Addresses, roles and routes are right, and the agent has nothing left to do."""
    called = names(guest)

    def has_all(done):
        if not done.output.startswith("{"):
            return False
        seen, data = addresses(guest), done.json
        rules = guest.check("ip rule show")
        return (
            {nic: seen[called[nic]] for nic in called if nic != MANAGEMENT} == expected(leased)
            and data["state"] == "ok"
            and all(f"from {LEASES[nic].partition('/')[0]} " in rules for nic in leased)
        )

    status = guest.eventually(STATUS, has_all, 400).json
    roles = {one["mac"]: one["role"] for one in status["interfaces"]}
    assert roles == {
        MANAGEMENT: "management",
        **dict.fromkeys((mac(1), mac(2), mac(3)), "dataplane"),
    }
    routes = guest.check("ip route show default").splitlines()
    assert [f" dev {called[MANAGEMENT]} " in f"{route} " for route in routes] == [True]
    for nic in leased:
        way = guest.check(f"ip route get {LEASES[nic].rpartition('.')[0]}.2")
        assert f" dev {called[nic]} " in way
        source = LEASES[nic].partition("/")[0]
        way = guest.check(f"ip route get 203.0.113.1 from {source}")
        assert f" via {source.rpartition('.')[0]}.2 dev {called[nic]} " in way
    return status


def defaults_seen(guest):
    """The default routes of the main table that were ever set on dataplane links in this boot."""
    called = names(guest)
    found = []
    for line in guest.check("cat /run/lab-monitor").splitlines():
        match = re.search(r"\] (default via .* dev (\S+) .*)", f"{line} ")
        if match and " table " not in line and match.group(2) != called[MANAGEMENT]:
            found.append(match.group(1))
    return found


def lost(guest, nic):
    """How often the lease was taken from a NIC in this boot."""
    address = LEASES[nic].partition("/")[0]
    lines = guest.check("cat /run/lab-monitor").splitlines()
    return sum(f" inet {address}/" in line and "Deleted " in line for line in lines)


@pytest.mark.long
@pytest.mark.parametrize(
    ("image", "manager"),
    [
        ("A", "NetworkManager"),
        ("C", "systemd-networkd"),
        ("G", "systemd-networkd"),
        ("S", "NetworkManager"),
        ("N", "systemd-networkd"),
    ],
)
def test_the_manager_does_dhcp_and_the_agent_policy_routing_without_a_default_route(
    guests, image, manager
):
    guest = guests(image, tempted())
    guest.boot()
    guest.check(f"systemctl stop {AGENT}")
    guest.check(
        f"printf '[metadata]\\nsources = configdrive={SOURCE}\\n' > /etc/neuca/config.d/lab.conf"
    )
    write(guest, LEASES)
    guest.check(f"systemctl start {AGENT}", 120)
    settled(guest, LEASES)
    before = lost(guest, mac(1))
    guest.check(f"systemctl restart {AGENT}", 120)
    guest.check(f"systemctl restart {manager}", 120)
    status = settled(guest, LEASES)
    assert lost(guest, mac(1)) == before
    assert any("10.99.1.16/24" in note for note in status["notes"]), status["notes"]
    guest.reboot()
    settled(guest, LEASES)
    assert defaults_seen(guest) == []
    assert "management" in guest.check("neuca status")
    write(guest, [mac(2)])
    guest.check("neuca apply", 300)
    settled(guest, [mac(2)])
    files = guest.check(f"ls {FILES} 2> /dev/null | grep neuca-dhcp || true").split()
    assert [mac(2).replace(":", "") in name for name in files] == [True]
    assert guest.reachable()


@pytest.mark.long
def test_clients_of_our_own_run_in_the_sandbox_of_their_units_and_survive_the_agent(guests):
    """Although systemd-networkd runs: `dhcp-client` in neuca-config(5)."""
    guest = guests("G", [replace(nic, ipv6=nic.dhcp) for nic in tempted()])
    guest.boot()
    guest.check(f"systemctl stop {AGENT}")
    # A NIC that has a lease of another program would be left to it.
    guest.check(KEPT_OFF)
    settings = f"[metadata]\\nsources = configdrive={SOURCE}\\n[linux]\\ndhcp-client = dhcpcd\\n"
    guest.check(f"printf '{settings}' > /etc/neuca/config.d/lab.conf")
    write(guest, LEASES, "ipv4_dhcp", "ipv6_slaac")
    guest.check(f"systemctl start {AGENT}", 120)
    assert_served_by_units(guest)
    before = lost(guest, mac(1))
    guest.check(f"systemctl restart {AGENT}", 120)
    assert_served_by_units(guest)
    assert lost(guest, mac(1)) == before
    guest.reboot()
    assert_served_by_units(guest)
    assert defaults_seen(guest) == []
    write(guest, [mac(2)])
    guest.check("neuca apply", 300)
    guest.eventually("ip -br address", lambda done: "10.99.1.16" not in done.output, 60)
    assert len(units(guest)) == 1
    assert guest.reachable()


def units(guest):
    words = "systemctl list-units --plain --no-legend --state=running 'neuca-dhcp@*'"
    return guest.check(words).splitlines()


def assert_served_by_units(guest):
    """Each NIC has its lease and its address of a router advertisement, and nobody the default route."""
    called = names(guest)

    def is_served(_):
        seen = addresses(guest)
        return all(
            lease in seen[called[nic]]
            and any(one.startswith(f"fd00:99:{nic[-1]}:") for one in seen[called[nic]])
            for nic, lease in LEASES.items()
        )

    guest.eventually("true", is_served, 400)
    assert len(units(guest)) == 4
    guest.eventually(STATUS, lambda done: done.json["state"] == "ok", 200)
    for family in ("-4", "-6"):
        routes = guest.check(f"ip {family} route show default").splitlines()
        assert [line for line in routes if called[MANAGEMENT] not in line] == []
