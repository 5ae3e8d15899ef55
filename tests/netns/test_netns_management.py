"""A guest on three networks with a gateway: one NIC is for management, the others are configured and answer."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import time
from itertools import permutations

import pytest
from lab import SERVICE, mac

from neuca_tools.desired import platform_roles
from neuca_tools.desired.merge import MANAGEMENT_UNKNOWN

NETWORKS = (1, 2, 3)
UUID = "7c2a0c1e-54d1-4f5b-9d39-3a0a0a6f2b11"  # of the instance, which Nova also gives its firmware
KINDS = ("static", "dhcp", "mixed")
ONE_KIND = ["mixed", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("static", "dhcp"))]
# Four NICs, of which the last is in no document: each order of their slots with one kind of document.
ORDERS = [(order, KINDS[at % 3]) for at, order in enumerate(permutations((1, 2, 3, 4)))]
ANSWERS = """import errno, socket, sys
with socket.socket() as one:
    one.settimeout(60)
    one.bind((sys.argv[1], 0))
    assert one.connect_ex((sys.argv[2], 9)) == errno.ECONNREFUSED"""


def is_leased(kind, number):
    return kind == "dhcp" or (kind == "mixed" and number == 2)


def network_data(kind):
    links = [{"id": f"l{n}", "type": "ovs", "ethernet_mac_address": mac(n)} for n in NETWORKS]
    networks = []
    for number in NETWORKS:
        network = {"id": f"n{number}", "link": f"l{number}", "type": "ipv4_dhcp"}
        if not is_leased(kind, number):
            way = {"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": f"10.{number}.0.254"}
            network.update(
                type="ipv4", ip_address=f"10.{number}.0.9", netmask="255.255.255.0", routes=[way]
            )
        networks.append(network)
    return {"links": links, "networks": networks, "services": []}


def plug(lab, order, management):
    """The NICs in the order of their slots; only that of the management link is to stay as it is."""
    for number in order:
        lab.veth(f"net{number}", number, up=True, foreign=number in (management, 4))
        address = f"10.{number}.0.254/24"
        lab.run("ip", "address", "add", address, "dev", f"net{number}", where=lab.outside)


def unplug(lab, order):
    for number in order:
        lab.ip(f"link del net{number}")


def bring_up(lab, kind, number):
    """What DHCP or cloud-init does on a NIC: an address, and a default route without a metric."""
    lease, protocol = "", "static"
    if is_leased(kind, number):
        lease, protocol = " valid_lft 3600 preferred_lft 3600", "dhcp"
    lab.ip(f"address add 10.{number}.0.9/24 dev net{number}{lease}")
    lab.ip(f"route append default via 10.{number}.0.254 dev net{number} proto {protocol}")


def serve(lab, kind, firmware=UUID):
    """The router has the metadata service of OpenStack behind every network."""
    if firmware:
        lab.firmware(product_uuid=firmware)
    lab.run("ip", "address", "add", f"{SERVICE}/32", "dev", "lo", where=lab.outside)
    service = lab.service()
    service.tokens = False
    service.tree = {
        "/openstack/latest/meta_data.json": json.dumps({"uuid": UUID}),
        "/openstack/latest/network_data.json": json.dumps(network_data(kind)),
    }
    lab.configure("[metadata]\nplatform = any\n", sources="openstack")


def drive(lab, kind):
    place = lab.folder / "drive" / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "meta_data.json").write_text(json.dumps({"uuid": "i"}))
    (place / "network_data.json").write_text(json.dumps(network_data(kind)))
    lab.configure(sources=f"configdrive={lab.folder / 'drive'}")


def roles(lab):
    return {number: lab.role(mac(number)) for number in NETWORKS}


def only(number):
    return {**dict.fromkeys(NETWORKS, "dataplane"), number: "management"}


def check(lab, kind, management):
    """A pass succeeds, the roles are right, and every NIC has its address and answers."""
    before = lab.routes("default")
    done = lab.once()
    code, data = lab.status()
    assert (done.code, code, data["state"]) == (0, 0, "ok"), (done.err, data["problems"])
    assert roles(lab) == only(management)
    assert lab.routes("default") == before
    for number in NETWORKS:
        if number == management or not is_leased(kind, number):
            assert lab.addresses(f"net{number}") == {f"10.{number}.0.9/24"}
        if lab.addresses(f"net{number}"):
            ends = f"10.{number}.0.254", f"10.{number}.0.9"
            lab.run("python3", "-c", ANSWERS, *ends, where=lab.outside)
    return data


def marks(lab):
    files = [path for name in ("nm", "networkd") for path in (lab.folder / name).glob("*")]
    return "\n".join(path.read_text() for path in files)


@pytest.mark.parametrize(("order", "kind"), ORDERS, ids=lambda one: "".join(map(str, one)))
def test_in_every_order_of_slots_one_nic_is_for_management_and_the_others_answer(lab, order, kind):
    """All default routes have one metric: the first one that an administrator has set counts, or the first lease."""
    numbers = [number for number in order if number in NETWORKS]
    management = next((number for number in numbers if not is_leased(kind, number)), numbers[0])
    plug(lab, order, management)
    for number in order:
        if number in NETWORKS:
            bring_up(lab, kind, number)
    serve(lab, kind)
    data = check(lab, kind, management)
    assert data["notes"] == []
    for number in NETWORKS:
        marked = number != management and not is_leased(kind, number)
        assert (mac(number) in marks(lab)) is marked


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ready", NETWORKS)
def test_on_a_first_boot_the_nic_that_is_up_is_for_management_and_the_others_get_their_addresses(
    lab, kind, ready
):
    plug(lab, (3, 1, 4, 2), ready)
    bring_up(lab, kind, ready)
    serve(lab, kind)
    check(lab, kind, ready)
    for number in NETWORKS:
        configured = number == ready or not is_leased(kind, number)
        assert bool(lab.addresses(f"net{number}")) is configured


def test_where_nothing_vouches_for_the_nic_with_a_lease_an_administrator_can(lab):
    """The first NIC has a carrier and no lease, and the firmware does not state the instance."""
    plug(lab, (3, 1, 4, 2), 1)
    bring_up(lab, "dhcp", 1)
    serve(lab, "static", firmware="")
    done = lab.once()
    assert (done.code, roles(lab)) == (3, dict.fromkeys(NETWORKS, "unlisted"))
    (command,) = set(re.findall(r"run: neuca (trust \w+)", lab.neuca("status").out))
    assert lab.neuca("trust", "nowhere").code == 2
    assert lab.neuca(*command.split()).code == 0
    check(lab, "static", 1)


def test_while_the_service_behind_the_first_nic_does_not_respond_the_status_says_so(lab):
    plug(lab, (1, 2, 3, 4), 1)
    for number in (1, 2):
        bring_up(lab, "dhcp", number)
    serve(lab, "static", firmware="")
    lab.metadata.mode = "500"
    assert lab.once().code == 3
    assert "; no NIC other than net1 is queried)" in lab.neuca("status").out
    assert {*roles(lab).values()} <= {"management", "unlisted"}
    lab.metadata.mode = "ok"
    check(lab, "static", 1)


@pytest.mark.parametrize("kind", ONE_KIND)
def test_after_reboots_the_recorded_nic_is_still_for_management_whatever_the_slots_and_routes_are(
    lab, kind
):
    plug(lab, (1, 2, 3, 4), 1)
    for number in NETWORKS:
        bring_up(lab, kind, number)
    serve(lab, kind)
    check(lab, kind, 1)
    for order in ((4, 3, 2, 1), (2, 4, 1, 3)):
        unplug(lab, (1, 2, 3, 4))
        plug(lab, order, 1)
        for number in order:
            if number in NETWORKS:
                bring_up(lab, kind, number)
        check(lab, kind, 1)


@pytest.mark.parametrize("kind", ONE_KIND)
def test_with_a_config_drive_the_choice_by_routes_alone_is_told_and_the_configuration_makes_another(
    lab, kind
):
    plug(lab, (2, 3, 1, 4), 2)
    for number in (2, 3, 1):
        bring_up(lab, kind, number)
    drive(lab, kind)
    data = check(lab, kind, 2)
    note = (
        'the management NIC is "net2": it carries the default route; the platform\'s document has a'
        " gateway or DHCP on net1, net3 too: to choose otherwise, set [network] management-macs"
    )
    assert data["notes"] == [note]
    out = lab.neuca("explain", "net3").out
    assert 'but the management NIC is "net2": it carries the default route' in out
    if is_leased(kind, 3):
        assert platform_roles.DHCP_LEFT_TO_OTHERS in out
    text = lab.config_file.read_text() + f"[network]\nmanagement-macs = {mac(3)}\n"
    lab.config_file.write_text(text)
    lab.foreign.may_change(lab.index("net2"))
    assert lab.once().code == 0
    assert roles(lab) == only(3)
    assert lab.status()[1]["notes"] == []


def test_a_config_drive_without_any_route_makes_the_first_network_the_management_network(lab):
    plug(lab, (4, 3, 2, 1), 1)
    drive(lab, "static")
    assert lab.once().code == 0
    assert roles(lab) == only(1)
    assert [lab.addresses(f"net{number}") for number in NETWORKS] == [
        set(),
        {"10.2.0.9/24"},
        {"10.3.0.9/24"},
    ]


def test_beside_a_management_vlan_another_vlan_of_the_nic_gets_its_address_and_the_nic_no_write(
    lab,
):
    lab.veth("trunk", 1, up=True, foreign=True)
    words = "link add link trunk name trunk.{0} type vlan id {0}"
    for number in (10, 20):
        made = lab.run("ip", *words.format(number).split(), where=lab.outside, check=False)
        if "Unknown device type" in made.err:
            pytest.skip("this kernel has no 8021q")
        lab.run("ip", "link", "set", f"trunk.{number}", "up", where=lab.outside)
        address = f"10.{number}.0.254/24"
        lab.run("ip", "address", "add", address, "dev", f"trunk.{number}", where=lab.outside)
    lab.ip(words.format(10))
    lab.ip("link set trunk.10 up")
    lab.ip("address add 10.10.0.9/24 dev trunk.10")
    lab.ip("route add default via 10.10.0.254 dev trunk.10")
    lab.foreign.may_make("trunk.20")
    text = f"[vlan {mac(1)}.20]\naddresses = 10.20.0.9/24\n"
    with lab.monitored() as monitor:
        assert lab.once(text).code == 0
        assert [line for line in monitor.lines() if "trunk.20" not in line] == []
    assert lab.addresses("trunk.20") == {"10.20.0.9/24"}
    for number in (10, 20):
        ends = f"10.{number}.0.254", f"10.{number}.0.9"
        lab.run("python3", "-c", ANSWERS, *ends, where=lab.outside)
    asked = f"[vlan {mac(1)}.10]\nmtu = 1400\n[interface {mac(1)}]\nmtu = 1400\n"
    assert lab.once(text + asked).code == 4
    assert lab.link("trunk.10")["mtu"] == lab.link("trunk")["mtu"] == 1500
    assert lab.once("[global]\n").code == 0
    assert (lab.link("trunk.20"), lab.addresses("trunk.10")) == (None, {"10.10.0.9/24"})


@pytest.mark.parametrize("managers", ["none", "auto"])
def test_soon_after_a_boot_nics_wait_for_the_management_nic_even_without_udev_and_managers(
    lab, daemons, managers
):
    lab.configure(f"[linux]\nmanagers = {managers}")
    for number in NETWORKS:
        lab.veth(f"e{number}", number, up=True)
    lab.document("".join(f"[interface {mac(n)}]\naddresses = 10.{n}.0.4/24\n" for n in NETWORKS))
    uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    young = ("unshare", "--time", "--boottime", str(20 - uptime))
    done = lab.command("neucad", "--once", "--config", lab.config_file, prefix=young)
    assert done.code == 3, done
    assert MANAGEMENT_UNKNOWN in done.out
    assert not any(lab.addresses(f"e{number}") for number in NETWORKS)
    daemons.append(lab.start(*young))
    lab.ip("address add 192.0.2.10/24 dev e1")
    lab.ip("route add default via 192.0.2.1 dev e1")
    lab.wait("the others", lambda: lab.addresses("e2") and lab.addresses("e3"))
    assert lab.addresses("e1") == {"192.0.2.10/24"}
