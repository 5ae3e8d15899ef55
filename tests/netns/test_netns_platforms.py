"""The platforms' own documents on real links: each kind applied, the management NIC left alone, nothing lost on a doubt."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import random

import pytest
from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, SERVICE, mac

DOCUMENTS = int(
    os.environ.get("NEUCA_DOCUMENTS", "20")
)  # random ones; 1000 take a quarter of an hour
META = {"uuid": "i", "hostname": "node0", "devices": []}


def network_data(*addresses, mtu=9000, **more):
    """Of the management NIC with DHCP, and one NIC for each address."""
    links = [
        {"id": f"l{number}", "type": "phy", "ethernet_mac_address": mac(number), "mtu": mtu}
        for number, _ in enumerate(addresses, 1)
    ]
    networks = [
        {
            "id": f"n{number}",
            "link": f"l{number}",
            "type": "ipv4",
            "ip_address": address,
            "netmask": "255.255.255.0",
            **more,
        }
        for number, address in enumerate(addresses, 1)
    ]
    return {
        "links": [
            {"id": "m", "type": "ovs", "ethernet_mac_address": MANAGEMENT_MAC, "mtu": None},
            *links,
        ],
        "networks": [{"id": "nm", "link": "m", "type": "ipv4_dhcp"}, *networks],
        "services": [],
    }


def drive(host, data, user_data=None, meta=META):
    place = host.folder / "drive" / "openstack" / "latest"
    place.mkdir(parents=True, exist_ok=True)
    (place / "meta_data.json").write_text(json.dumps(meta))
    (place / "network_data.json").write_text(data if isinstance(data, str) else json.dumps(data))
    if user_data is not None:
        (place / "user_data").write_text(user_data)
    return f"configdrive={host.folder / 'drive'}"


def seed(host, network_config):
    place = host.folder / "seed"
    place.mkdir(exist_ok=True)
    texts = {
        "user-data": "#cloud-config\n",
        "meta-data": "local-hostname: node0\n",
        "network-config": network_config,
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    return f"nocloud={place}"


def dataplane(host):
    return [
        (name, host.addresses(name), host.link(name)["mtu"], "UP" in host.link(name)["flags"])
        for name in ("dp1", "dp2")
    ]


AS_ASKED = [("dp1", {"10.1.0.1/24"}, 9000, True), ("dp2", {"10.2.0.1/24"}, 9000, True)]


def test_a_config_drive_is_applied_and_the_management_nic_is_not_touched(host):
    route = [{"network": "10.9.0.0", "netmask": "255.255.0.0", "gateway": "10.1.0.254"}]
    data = network_data("10.1.0.1", "10.2.0.1")
    data["networks"][1]["routes"] = route
    host.configure(sources=drive(host, data))
    done = host.once()
    assert (done.code, done.err) == (0, done.err)
    assert dataplane(host) == AS_ASKED
    assert [one[:2] for one in host.routes("10.9.0.0/16")] == [("10.1.0.254", "dp1")]
    assert (host.role(MANAGEMENT_MAC), host.role(mac(1))) == ("management", "dataplane")
    assert host.problems() == []


def test_the_neuca_document_wins_setting_by_setting_and_explain_says_so(host):
    text = f"[interface {mac(1)}]\nmtu = 4000\n[interfaces]\n{mac(2).replace(':', '')} = user\n"
    host.configure(sources=drive(host, network_data("10.1.0.1", "10.2.0.1"), text))
    assert host.once().code == 0
    assert dataplane(host) == [("dp1", {"10.1.0.1/24"}, 4000, True), ("dp2", set(), 1500, False)]
    rows = {row["setting"]: row for row in host.neuca("explain", "dp1", "--json").json["settings"]}
    assert rows["mtu"]["overridden"] == "9000 from network_data.json, links[1]"
    assert rows["addresses"]["origin"] == "network_data.json, networks[1]"


@pytest.mark.parametrize("version", [1, 2])
def test_a_nocloud_seed_is_applied(host, version):
    links = [(1, "10.1.0.1/24"), (2, "10.2.0.1/24")]
    if version == 2:
        ethernets = {
            f"nic{number}": {
                "match": {"macaddress": mac(number)},
                "mtu": 9000,
                "addresses": [address],
            }
            for number, address in links
        }
        config = {"network": {"version": 2, "ethernets": {**ethernets, "mgmt0": {"dhcp4": True}}}}
    else:
        physical = [
            {
                "type": "physical",
                "name": f"dp{number}",
                "mac_address": mac(number),
                "mtu": 9000,
                "subnets": [{"type": "static", "address": address}],
            }
            for number, address in links
        ]
        config = {
            "version": 1,
            "config": [
                *physical,
                {"type": "physical", "name": "mgmt0", "subnets": [{"type": "dhcp"}]},
            ],
        }
    host.configure(sources=seed(host, json.dumps(config)))
    assert host.once().code == 0
    assert dataplane(host) == AS_ASKED
    assert host.role(MANAGEMENT_MAC) == "management"


def test_a_nic_that_netplan_renames_gets_its_name(host):
    named = {"match": {"macaddress": mac(1)}, "set-name": "data7", "addresses": ["10.1.0.1/24"]}
    config = {"version": 2, "ethernets": {"a": named}}
    host.configure(sources=seed(host, json.dumps(config)))
    assert host.once().code == 0
    assert host.addresses("data7") == {"10.1.0.1/24"}


@pytest.mark.parametrize("match", ["dp1", "dp1*"])
def test_a_nic_that_netplan_matches_by_name_and_renames_is_known_by_its_new_name(host, match):
    named = {"match": {"name": match}, "set-name": "data7", "addresses": ["10.1.0.1/24"]}
    host.configure(sources=seed(host, json.dumps({"version": 2, "ethernets": {"a": named}})))
    assert host.once().code == 0
    assert host.once().code == 0
    assert host.addresses("data7") == {"10.1.0.1/24"}


def test_openstack_s_service_is_applied(host):
    service = host.service()
    service.tokens = False
    service.tree = {
        "/openstack/latest/meta_data.json": json.dumps(
            {**META, "public_keys": {"mine": "ssh-rsa AAAA mine\n"}}
        ),
        "/openstack/latest/network_data.json": json.dumps(network_data("10.1.0.1", "10.2.0.1")),
    }
    host.configure(sources="openstack")
    assert host.once().code == 0
    assert dataplane(host) == AS_ASKED
    assert host.neuca("get", "public-keys", "mine").out.strip() == "ssh-rsa AAAA mine"
    service.mode = "500"
    assert host.once().code == 4
    assert dataplane(host) == AS_ASKED
    service.mode = "ok"
    assert host.once().code == 0


def test_ec2_s_tree_of_nics_is_applied(host):
    macs = "/latest/meta-data/network/interfaces/macs/"
    tree = {
        "/latest/meta-data/mac": MANAGEMENT_MAC,
        macs: f"{MANAGEMENT_MAC}/\n{mac(1)}/\n",
        f"{macs}{MANAGEMENT_MAC}/": "device-number",
        f"{macs}{MANAGEMENT_MAC}/device-number": "0",
        f"{macs}{mac(1)}/": "local-ipv4s\nsubnet-ipv4-cidr-block",
        f"{macs}{mac(1)}/local-ipv4s": "10.1.0.1\n10.1.0.2",
        f"{macs}{mac(1)}/subnet-ipv4-cidr-block": "10.1.0.0/24",
        "/latest/meta-data/public-keys/": "0=mine",
        "/latest/meta-data/public-keys/0/openssh-key": "ssh-rsa AAAA mine\n",
    }
    host.service("#!/bin/sh\n").tree = tree
    host.configure(sources="ec2")
    assert host.once().code == 0
    assert host.addresses("dp1") == {"10.1.0.1/24", "10.1.0.2/24"}
    assert host.role(MANAGEMENT_MAC) == "management"
    assert host.neuca("get", "public-keys", "0").out == "ssh-rsa AAAA mine\n"


def outside(host, address):
    """An address more of the other end of the management NIC."""
    host.run("ip", "address", "add", address, "dev", "mgmt0", "nodad", where=host.outside)


@pytest.mark.parametrize("source", ["openstack", "auto"])
def test_openstack_is_found_at_its_link_local_ipv6_address(host, source):
    """Nobody is at the IPv4 address; whoever answers on a dataplane NIC is not asked."""
    host.run("ip", "address", "del", f"{SERVICE}/32", "dev", "mgmt0", where=host.outside)
    outside(host, "fe80::a9fe:a9fe/64")
    service = host.service("", "fe80::a9fe:a9fe%mgmt0")
    service.tokens = False
    service.tree = {
        "/openstack/latest/meta_data.json": json.dumps(META),
        "/openstack/latest/network_data.json": json.dumps(network_data("10.1.0.1", "10.2.0.1")),
    }
    host.configure("[metadata]\nplatform = any\n", sources=source, timeout=5)
    assert host.once().code == 0
    assert dataplane(host) == AS_ASKED
    document = host.status()[1]["document"]
    assert (document["source"], document["platform"]) == (
        "openstack",
        "any" if source == "auto" else None,
    )


def test_ec2_is_found_at_its_ipv6_address(host):
    host.run("ip", "address", "del", f"{SERVICE}/32", "dev", "mgmt0", where=host.outside)
    outside(host, "fd00:ec2::254/128")
    host.service(f"[interface {mac(1)}]\naddresses = 10.1.0.1/24\nmtu = 9000\n", "fd00:ec2::254")
    host.configure(sources="ec2", timeout=5)
    assert host.once().code == 0
    assert dataplane(host)[0] == AS_ASKED[0]


def test_a_seed_that_the_volume_points_to_is_fetched(host):
    host.service("[global]\n").tree = {
        "/seed/user-data": f"[interface {mac(1)}]\naddresses = 10.1.0.1/24\nmtu = 9000\n",
        "/seed/meta-data": "instance-id: i\n",
    }
    place = seed(host, "").partition("=")[2]
    for name, text in (("user-data", ""), ("meta-data", f"seedfrom: http://{SERVICE}/seed/\n")):
        (host.folder / "seed" / name).write_text(text)
    (host.folder / "seed" / "network-config").unlink()
    host.configure(sources=f"nocloud={place}")
    host.metadata.tokens = False
    assert host.once().code == 0
    assert dataplane(host)[0] == AS_ASKED[0]
    host.metadata.mode = "500"
    assert host.once().code == 4
    assert dataplane(host)[0] == AS_ASKED[0]
    host.metadata.mode = "ok"
    assert host.once().code == 0


def test_dhcp_on_a_nic_is_left_to_others_and_a_bad_item_costs_only_itself(host):
    data = network_data("10.1.0.1", "10.2.0.1")
    data["networks"][2]["type"] = "ipv4_dhcp"
    data["networks"].append({"id": "x", "link": "l1", "type": "ipv4", "ip_address": "nonsense"})
    host.configure(sources=drive(host, data))
    done = host.once()
    assert done.code == 78
    assert f'error: network_data.json {mac(1)} "networks[3].ip_address" = "nonsense": ' in done.err
    assert dataplane(host)[0] == AS_ASKED[0]
    assert (host.addresses("dp2"), host.role(mac(2))) == (set(), "dataplane")
    assert "DHCP" in host.neuca("explain", mac(2)).out


def test_a_document_that_loses_all_its_nics_takes_them_away_when_it_says_so_twice(host):
    host.configure(sources=drive(host, network_data("10.1.0.1", "10.2.0.1")))
    assert host.once().code == 0
    drive(host, {"links": [], "networks": [], "services": []})
    assert host.once().code == 4
    assert dataplane(host) == AS_ASKED
    assert host.once().code == 0
    assert [addresses for _, addresses, _, _ in dataplane(host)] == [set(), set()]


BROKEN = {"cut": "{", "deep": "[" * 100000, "long": f"[{'0,' * 60000}0]", "text": '"text"'}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_network_document_that_is_a_bomb_or_rubbish_leaves_the_last_good_one(host, broken):
    host.configure(sources=drive(host, network_data("10.1.0.1", "10.2.0.1")))
    assert host.once().code == 0
    drive(host, BROKEN[broken])
    with host.monitored() as monitor:
        assert host.once().code == 78
        assert monitor.lines() == []
    drive(host, network_data("10.1.0.1", "10.2.0.1"))
    assert host.once().code == 0


PLACE = "/openstack/latest/network_data.json"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)


def test_whatever_a_service_makes_of_a_network_document_the_last_good_one_stays(host):
    """Absent, an error page, not UTF-8, a bomb of either kind: nothing is written, and what is good again is taken."""
    service = host.service()
    service.tokens = False
    good = {
        "/openstack/latest/meta_data.json": json.dumps(META),
        PLACE: json.dumps(network_data("10.1.0.1", "10.2.0.1")),
    }
    service.tree = good
    host.configure(sources="openstack")
    assert host.once().code == 0
    for code, answer in (
        (4, None),
        (78, "<html>404</html>"),
        (78, b"\xff\xfe{}"),
        (78, "[" * 100000),
        (78, "{" * 900000),
    ):
        service.tree = (
            {**good, PLACE: answer}
            if answer
            else {name: text for name, text in good.items() if name != PLACE}
        )
        with host.monitored() as monitor:
            assert host.once().code == code, str(answer)[:20]
            assert monitor.lines() == []
    service.tree = good
    assert host.once().code == 0
    assert dataplane(host) == AS_ASKED


def test_whatever_a_seed_away_says_the_last_good_document_stays(host):
    service = host.service()
    service.tokens = False
    ethernets = {
        f"n{number}": {
            "match": {"macaddress": mac(number)},
            "mtu": 9000,
            "addresses": [f"10.{number}.0.1/24"],
        }
        for number in (1, 2)
    }
    good = {
        "/seed/user-data": "",
        "/seed/meta-data": "instance-id: i\n",
        "/seed/network-config": json.dumps({"version": 2, "ethernets": ethernets}),
    }
    service.tree = good
    place = seed(host, "").partition("=")[2]
    (host.folder / "seed" / "meta-data").write_text(f"seedfrom: http://{SERVICE}/seed/\n")
    (host.folder / "seed" / "network-config").unlink()
    host.configure(sources=f"nocloud={place}")
    assert host.once().code == 0
    for text in (
        BOMB,
        "a: !!python/object/apply:os.system [id]\n",
        "version: 2\n---\nversion: 2\n",
        "- " * 1000,
        "\t",
    ):
        service.tree = {**good, "/seed/network-config": text}
        with host.monitored() as monitor:
            assert host.once().code == 78, text[:20]
            assert monitor.lines() == []
    service.tree = good
    assert host.once().code == 0
    assert dataplane(host) == AS_ASKED


def test_a_host_without_any_metadata_is_configured_from_its_own_configuration(host):
    host.configure(f"[interface {mac(1)}]\naddresses = 10.1.0.1/24\nmtu = 9000\n", sources="none")
    done = host.once()
    assert (done.code, host.status()[0]) == (0, 0)
    assert dataplane(host)[0] == AS_ASKED[0]


# --- random documents -----------------------------------------------------------------------------------------------

TEXTS = [
    "",
    "x",
    "10.0.0.1/33",
    "255.0.255.0",
    "::",
    "0.0.0.0",
    "fe80::1",
    "\udc80",
    "9" * 400,
    "169.254.169.254",
    "127.0.0.1",
]


def random_document(chance):
    """A network_data.json that names every NIC, ours or not, with some values that are wrong."""
    macs = [MANAGEMENT_MAC, *map(mac, (1, 2, 3, 9)), "ff:ff:ff:ff:ff:ff"]
    links = [
        {
            "id": f"l{number}",
            "type": chance.choice(["phy", "ovs", "odd", "bond", "vif"]),
            "ethernet_mac_address": chance.choice([address, address.upper().replace(":", "-")]),
            "mtu": chance.choice([None, 1500, 9000, 1280, 600, 70000, "x"]),
        }
        for number, address in enumerate(chance.sample(macs, chance.randint(0, len(macs))))
    ]
    networks = [_random_network(chance, number) for number in range(chance.randint(0, 8))]
    return {"links": links, "networks": networks, "services": chance.choice([[], None, {}, [7]])}


def _random_network(chance, number):
    four = chance.random() < 0.6
    one, other = chance.randint(1, 9), chance.randint(1, 9)
    address = f"10.{one}.0.{other}" if four else f"fd00:{one}::{other}"
    routes = [
        {
            "network": chance.choice(
                ["0.0.0.0", "10.50.0.0", "192.0.2.0", "::", "fd00:50::", *TEXTS]
            ),
            "netmask": chance.choice(["0.0.0.0", "255.255.0.0", "24", "::", "ffff::", *TEXTS]),
            "gateway": chance.choice(
                ["10.1.0.254", "10.2.0.254", "192.0.2.1", "fd00:1::fe", *TEXTS]
            ),
        }
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]
    return {
        "id": f"n{number}",
        "link": f"l{chance.randint(0, 6)}",
        "routes": routes,
        "type": chance.choice(
            ["ipv4" if four else "ipv6"] * 5
            + ["ipv4_dhcp", "ipv6_slaac", "ipv6_dhcpv6-stateful", "odd"]
        ),
        "ip_address": chance.choice([address] * 6 + TEXTS),
        "netmask": chance.choice(["24"] * 6 + ["64", *TEXTS]),
    }


@pytest.mark.parametrize("part", range(4))
def test_random_documents_go_through_show_plan_and_apply_and_touch_no_other_nic(host, part):
    host.veth("ignored0", 3, foreign=True)
    chance = random.Random(part)
    before = ways_out(host)
    ignore = f"[runtime]\ndataplane-macs-to-ignore = {mac(3)}\n"
    host.configure(ignore, sources=drive(host, {}))
    for _ in range(DOCUMENTS // 4):
        drive(host, random_document(chance))
        for words in (("show", "document"), ("plan",), ("apply",)):
            done = host.neuca(*words)
            assert "Traceback" not in done.err, done.err
            assert done.code in (0, 3, 4, 78), done
        host.foreign.check()  # links, addresses, routes, rules and sysctls of all other NICs
        assert ways_out(host) == before
    drive(host, network_data("10.1.0.1", "10.2.0.1"))
    assert host.once().code == 0
    assert dataplane(host) == AS_ASKED


def ways_out(host):
    """The NIC by which the kernel reaches the management gateways, the metadata service and everything else."""
    there = (GATEWAY, GATEWAY6, SERVICE, "203.0.113.9", "2001:db8:fffe::9")
    return [host.look(f"route get {one}")[0]["dev"] for one in there]


@pytest.mark.parametrize("part", range(2))
def test_random_neuca_documents_touch_no_other_nic(host, part):
    """Lines that are right each for itself, about NICs that are ours, the management NIC, an ignored and an absent one."""
    host.veth("ignored0", 3, foreign=True)
    chance = random.Random(100 + part)
    before = ways_out(host)
    host.foreign.may_make("one", "two")
    ignore = f"[runtime]\ndataplane-macs-to-ignore = {mac(3)}\n"
    sources = drive(host, {}, user_data="")
    host.configure(ignore, sources=sources)
    host.foreign.remember()
    for _ in range(DOCUMENTS // 2):
        drive(host, {}, user_data=random_text(chance))
        done = host.neuca("apply")
        assert "Traceback" not in done.err, done.err
        assert done.code in (0, 3, 4, 78), done
        host.foreign.check()
        assert ways_out(host) == before
    # What the last document leaves, such as a bridge without a port, may never come up: there is
    # nothing to wait for before a second pass.
    host.applied = False


def random_text(chance):
    macs = [address.replace(":", "") for address in (MANAGEMENT_MAC, *map(mac, (1, 2, 3, 9)))]
    texts = [text for text in TEXTS if text.isprintable() and text.isascii()]
    lines = ["[interfaces]"]
    for one in chance.sample(macs, chance.randint(0, 5)):
        cidr = f"10.{chance.randint(1, 9)}.0.{chance.randint(1, 9)}/24"
        more = chance.choice(["", "", f":ipv4:{cidr}", f":ipv4:{chance.choice(texts)}/24"])
        lines.append(f"{one} = {chance.choice(('up', 'up', 'down', 'user'))}{more}")
    for kind in chance.sample(("interface", "vlan", "bond", "bridge", "macvlan"), 2):
        ends = {"interface": chance.choice(macs), "vlan": f"{chance.choice(macs)}.7"}
        lines.append(f"[{kind} {ends.get(kind, chance.choice(('one', 'two')))}]")
        lines.append(f"addresses = {chance.choice(texts)}/{chance.choice((1, 3, 8, 24, 32))}")
        lines.append(f"mtu = {chance.choice((600, 1280, 1500, 9000, 70000))}")
        lines.append(f"{chance.choice(('members', 'parent'))} = {chance.choice(macs)}")
        lines += ["mode = active-backup"] if kind == "bond" else []
    lines.append("[routes]")
    for _ in range(chance.randint(0, 3)):
        to = f"{chance.choice(texts)}/{chance.choice((0, 1, 2, 16, 24, 32))}"
        lines.append(f"{to} = {chance.choice(('10.1.0.254', '192.0.2.1', 'down', 'user'))}")
    return "\n".join(lines) + "\n"
