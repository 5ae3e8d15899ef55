"""An answer that cannot be complete is an error: items that are listed and absent, lists without the guest's own NIC."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import copy
import json
import time
from contextlib import suppress
from pathlib import Path

import cloudmocks
import pytest
from sources_server import Server, http
from worlds import mac, nic, vlan, world

from neuca_tools.desired.outlets import pinned_outlets
from neuca_tools.documents.platform import clouds, combined, ec2, netplan, openstack
from neuca_tools.documents.platform.tree import from_yaml
from neuca_tools.errors import IncompleteError, SourceError
from neuca_tools.model import Device, LinkKey, Record
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.model.machine import MetadataService
from neuca_tools.sources import Session, Surroundings, ask_sources, parse_source
from neuca_tools.sources.base import NICS, Token
from neuca_tools.state.active_document import fetch_document, keep_document

LONG = 60
PAGE = Path(__file__).parents[2] / "docs" / "CLOUDS.md"
ONE, TWO = "02:00:00:00:00:01", "02:00:00:00:00:02"
BOTH = [(ONE, 0), (TWO, 1)]
KINDS = tuple(cloud.kind for cloud in CLOUDS if cloud.is_service)
LISTING = [kind for kind in KINDS if kind != "hetzner"]


def serve(play, **more):
    def answer(request):
        status, body, lines = play.reply(request.method, request.path, request.headers)
        return http(status, body, *lines)

    return Server(answer, **more)


def ask(server, kind, session=None):
    return ask_sources([parse_source(f"{kind}={server.url}")], LONG, session or Session())


# --- items that the service lists ------------------------------------------------------------------

LISTED = {
    "ec2": ("local-ipv4s", "subnet-ipv4-cidr-block", "device-number", ""),
    "alibaba": ("private-ipv4s", "vswitch-cidr-block", "gateway", ""),
}
ITEMS = [(kind, item) for kind, items in LISTED.items() for item in items]


@pytest.mark.parametrize("has_user_data", [False, True])
@pytest.mark.parametrize("absence", [None, b"", b" \n"], ids=["404", "empty", "blank"])
@pytest.mark.parametrize(("kind", "item"), ITEMS)
def test_an_item_that_is_listed_and_has_no_value_is_an_error(kind, item, absence, has_user_data):
    play = getattr(cloudmocks, kind)(BOTH)
    path = f"{NICS}{TWO}/{item}"
    play.paths[path] = absence
    if has_user_data:
        play.paths["/latest/user-data"] = "[global]\n"
    problem = "HTTP 404" if absence is None else "an empty response"
    with serve(play) as server:
        text = f"GET {server.url}{path}: {problem}, but the service lists it"
        if has_user_data:
            answer = ask(server, kind)
            assert (answer.data, dict(answer.parts), answer.unread) == (b"[global]\n", {}, text)
            return
        with pytest.raises(IncompleteError) as caught:
            ask(server, kind)
    assert str(caught.value).endswith(text)


@pytest.mark.parametrize(("item", "name"), [(NICS, "network/"), ("/latest/meta-data/mac", "mac")])
@pytest.mark.parametrize("absence", [None, b""])
def test_the_root_of_the_tree_tells_whether_an_item_may_be_absent(item, name, absence):
    play = cloudmocks.ec2(BOTH)
    play.paths[item] = absence
    with serve(play) as server:
        ask(server, "ec2")
        play.paths["/latest/meta-data/"] = f"instance-id\n{name}\n"
        with pytest.raises(IncompleteError) as caught:
            ask(server, "ec2")
    assert f"the service lists {name}, but gives nothing for it" in str(caught.value)


ERROR_PAGE = b"<html><title>Service Unavailable</title></html>"


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_in_place_of_everything_is_not_recorded_as_the_service(kind, tmp_path):
    """Once a service is recorded, no config drive is read any more."""
    with Server(lambda _: http(200, ERROR_PAGE)) as server:
        spec = parse_source(f"{kind}={server.url}")
        intake = fetch_document([spec], LONG, Session(), tmp_path, Surroundings(tmp_path))
    assert (intake.document, intake.origin) == (None, None)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (f"{NICS}{TWO}/", "the response lists nothing known"),
        ("/latest/meta-data/mac", "the service lists mac, but gives nothing for it"),
    ],
)
def test_a_page_in_place_of_an_item_of_ec2_is_an_error(path, problem):
    """Without its list of items, a NIC would lose all its addresses."""
    play = cloudmocks.ec2(BOTH)
    play.paths["/latest/meta-data/"] = "instance-id\nmac\nnetwork/\n"
    with serve(play) as server:
        ask(server, "ec2")
        play.paths[path] = ERROR_PAGE
        with pytest.raises(IncompleteError) as caught:
            ask(server, "ec2")
    assert problem in str(caught.value)


def test_the_nics_of_ec2_may_be_listed_without_slashes():
    play = cloudmocks.ec2(BOTH)
    with serve(play) as server:
        parts = ask(server, "ec2").parts
        play.paths[NICS] = f"{ONE}\n{TWO}"
        assert ask(server, "ec2").parts == parts


def test_network_data_that_openstack_lists_and_does_not_have_is_an_error():
    play = cloudmocks.openstack(BOTH)
    del play.paths["/openstack/latest/network_data.json"]
    with serve(play) as server:
        assert list(ask(server, "openstack").parts) == ["meta_data.json"]
        play.paths["/openstack/latest/"] = "meta_data.json\nnetwork_data.json\n"
        with pytest.raises(IncompleteError) as caught:
            ask(server, "openstack")
    assert "network_data.json: HTTP 404, but the service lists it" in str(caught.value)


@pytest.mark.parametrize("body", [{}, {"error": "try again later"}])
def test_metadata_of_openstack_without_the_id_of_the_instance_is_an_error(body):
    """Without it, the instance would lose its host name, and the roles of its NICs."""
    play = cloudmocks.openstack(BOTH)
    play.paths["/openstack/latest/meta_data.json"] = json.dumps(body)
    with serve(play) as server, pytest.raises(IncompleteError) as caught:
        ask(server, "openstack")
    assert "meta_data.json: the response has no uuid" in str(caught.value)


# --- lists without the guest's own NIC -------------------------------------------------------------

DOCUMENTS = {
    ec2.NAME: lambda macs: {"mac": ONE, "macs": {mac: {} for mac in macs}},
    clouds.AZURE: lambda macs: {
        "network": {"interface": [{"macAddress": mac.replace(":", "").upper()} for mac in macs]}
    },
    clouds.OCI: lambda macs: {clouds.OCI_ROOT: [{"macAddr": mac.upper()} for mac in macs]},
    clouds.GCE: lambda macs: {"networkInterfaces": [{"mac": mac} for mac in macs]},
    clouds.VULTR: lambda macs: {"interfaces": [{"mac": mac} for mac in macs]},
    clouds.DIGITALOCEAN: lambda macs: {
        "interfaces": {"public": [{"mac": mac} for mac in macs], "private": []}
    },
    openstack.NAME: lambda macs: {
        "links": [{"id": mac, "type": "phy", "ethernet_mac_address": mac} for mac in macs]
    },
}

LISTS = [openstack.NAME, *(row.name for row in clouds.FORMATS if row.nics)]


def reason(name, tree, macs=(ONE,), before=""):
    text = combined.reduce_documents({name: json.dumps(tree).encode()})
    return combined.gap(text, before, macs=frozenset(macs))


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_nics_has_the_one_through_which_it_came(name):
    make = DOCUMENTS[name]
    assert reason(name, make([TWO, ONE])) == ""
    assert reason(name, make([ONE])) == ""
    assert reason(name, make([TWO])) == f"{name} lacks the NIC through which it came, {ONE}"
    assert reason(name, make([TWO]), (ONE, TWO)) == ""  # a bond of both
    assert reason(name, make([TWO]), ()) == ""  # through no NIC


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("macs", [(), (ONE,)])
def test_a_list_without_any_nic_is_incomplete(name, macs):
    assert reason(name, DOCUMENTS[name]([]), macs) == f"{name} has no NIC"


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name != ec2.NAME])
def test_a_document_that_always_has_a_list_is_incomplete_without_it(name):
    assert reason(name, {"id": "1", "compute": {"vmId": "x"}}) == f"{name} has no NIC"


def test_a_tree_of_public_keys_alone_is_complete_unless_there_were_nics():
    keys = {"public-keys": ["ssh-ed25519 AAAA"]}
    tree = {**keys, "mac": ONE, "macs": {ONE: {}}}
    before = combined.reduce_documents({ec2.NAME: json.dumps(tree).encode()})
    assert reason(ec2.NAME, keys) == ""
    assert (
        reason(ec2.NAME, keys, before=before) == "EC2 network was there before, and now is missing"
    )


def test_metadata_without_the_network_is_complete_unless_there_was_one():
    before = combined.reduce_documents(
        {openstack.NAME: json.dumps(DOCUMENTS[openstack.NAME]([ONE])).encode()}
    )
    about = {"uuid": "83679162-1378-4288-a2d4-70e13ec132aa"}
    assert reason("meta_data.json", about) == ""
    assert "was there before" in reason("meta_data.json", about, before=before)


@pytest.mark.parametrize("networks", [[], None])
def test_openstack_describes_the_networks_of_its_nics_once_it_has(networks):
    """Nova composes both lists from the ports that it knows; a port may be without a subnet."""
    tree = DOCUMENTS[openstack.NAME]([ONE])
    network = {"id": "n", "link": ONE, "type": "ipv4_dhcp"}
    with_one = {**tree, "networks": [network]}
    before = combined.reduce_documents({openstack.NAME: json.dumps(with_one).encode()})
    assert reason(openstack.NAME, {**tree, "networks": networks}) == ""
    assert reason(openstack.NAME, {**with_one, "x": 1}, before=before) == ""
    assert (
        reason(openstack.NAME, {**tree, "networks": networks}, before=before)
        == "network_data.json no longer has networks"
    )


OTHERS = {
    "the MAC address of a bond": ({"type": "bond", "ethernet_mac_address": ONE, "bond_links": ["a"]}, True),
    "a NIC by its name": ({"type": "phy", "name": "eth0"}, True),
    "a bond without an address": ({"type": "bond", "bond_links": ["a"]}, False),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_openstack_lists_a_nic_in_other_ways(what):
    link, is_complete = OTHERS[what]
    other = {"id": "a", "type": "phy", "ethernet_mac_address": TWO}
    assert (reason(openstack.NAME, {"links": [other, {"id": "b", **link}]}) == "") is is_complete


@pytest.mark.parametrize(
    "text", ["ec:0d:9a:15:e2:c1", "80:00:02:08:fe:80:00:00:00:00:00:00:ec:0d:9a:03:00:15:e2:c1"]
)
def test_a_port_of_infiniband_is_listed_in_each_of_its_forms(text):
    forms = ("ec:0d:9a:03:00:15:e2:c1", "ec:0d:9a:15:e2:c1")
    assert reason(openstack.NAME, DOCUMENTS[openstack.NAME]([text]), forms) == ""


@pytest.mark.parametrize(
    ("name", "tree"), [(clouds.HETZNER, []), ("network-config", {"version": 2, "ethernets": {}})]
)
def test_other_documents_need_not_list_every_nic(name, tree):
    assert reason(name, tree) == ""


@pytest.mark.parametrize("meta", ["", "instance-id: one\n"])
@pytest.mark.parametrize(
    ("text", "is_gap"),
    [
        ("", True),
        ("\n \n", True),
        ("# none\n", True),
        ("version: 2\n", False),
        ("config: disabled\n", False),
    ],
)
def test_a_network_config_that_becomes_empty_removes_no_nic(text, is_gap, meta, tmp_path):
    """A full disk and an interrupted copy leave such files; an empty one is none on a first boot."""
    seed, state = tmp_path / "seed", tmp_path / "state"
    seed.mkdir()
    (seed / "meta-data").write_text(meta)
    (seed / "user-data").write_text("")
    around = Surroundings(tmp_path / "run")
    network = f"version: 2\nethernets: {{one: {{match: {{macaddress: '{ONE}'}}}}}}\n"
    counts, reasons = [], []
    for content in ("", network, text, text, text):
        (seed / "network-config").write_text(content)
        intake = fetch_document([parse_source(f"nocloud={seed}")], LONG, Session(), state, around)
        keep_document(intake, state, around.run_directory)
        platform = intake.document.platform if intake.document else None
        counts.append(len(platform.links) if platform else 0)
        reasons.append(intake.reason)
    assert counts[:2] == [0, 1]
    assert counts[-1] == is_gap, reasons
    assert ("network-config is empty" in reasons[-1]) is (is_gap and bool(meta))


@pytest.mark.parametrize(
    ("kind", "folder", "metadata", "user_data", "name"),
    [
        ("configdrive", "openstack/latest", "meta_data.json", "user_data", "network_data.json"),
        ("nocloud", ".", "meta-data", "user-data", "network-config"),
    ],
)
def test_a_drive_that_loses_its_network_document_removes_no_nic(
    kind, folder, metadata, user_data, name, tmp_path
):
    drive, state = tmp_path / "drive" / folder, tmp_path / "state"
    drive.mkdir(parents=True)
    (drive / metadata).write_text('{"uuid": "one"}')
    (drive / user_data).write_text("[interfaces]\n")
    trees = {"nocloud": {"version": 2, "ethernets": {"a": {"match": {"macaddress": ONE}}}}}
    tree = trees.get(kind, DOCUMENTS[openstack.NAME]([ONE]))
    (drive / name).write_text(json.dumps(tree))
    around = Surroundings(tmp_path / "run")
    specs = [parse_source(f"{kind}={tmp_path / 'drive'}")]
    for _ in range(3):
        intake = fetch_document(specs, LONG, Session(), state, around)
        keep_document(intake, state, around.run_directory)
        assert len(intake.document.platform.links) == 1
        assert (f"{name} is empty or missing" in intake.reason) is not (drive / name).exists()
        (drive / name).unlink(missing_ok=True)
    # A changed NEuca document beside it counts.
    (drive / user_data).write_text(f"[interface {TWO}]\nmtu = 9000\n")
    for is_stale in (False, True):
        intake = fetch_document(specs, LONG, Session(), state, around)
        keep_document(intake, state, around.run_directory)
        assert (len(intake.document.platform.links), len(intake.document.links)) == (1, 1)
        assert f"{name} is empty or missing" in (intake.reason if is_stale else intake.refused)
        assert intake.stale is is_stale


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("network-config", {"config": "disabled"}),
        ("network-config", {"version": 2}),
        (openstack.NAME, {"links": [], "networks": [], "services": []}),
    ],
)
def test_a_document_without_links_can_be_removed(name, tree):
    """Otherwise, nothing that the source has later would be used."""
    metadata = {"meta-data": b"instance-id: one\n"}
    before = combined.reduce_documents({**metadata, name: json.dumps(tree).encode()})
    assert combined.gap(combined.reduce_documents(metadata), before, macs=None) == ""


STATIC = {"link": "a", "type": "ipv4", "ip_address": "10.3.0.5", "netmask": "255.255.255.0"}
SUBNET = {"type": "static", "address": "10.3.0.5/24"}
LINK = {"type": "physical", "name": "a", "mac_address": ONE, "subnets": [SUBNET]}
WITH_ADDRESSES = {
    openstack.NAME: {"links": [{"id": "a", "ethernet_mac_address": ONE}], "networks": [STATIC]},
    netplan.NAME: {"version": 1, "config": [LINK]},
}
VERSION_2 = {"version": 2, "ethernets": {"a": {"match": {"macaddress": ONE}}}}
LACKS = {
    ("links",): "networks[0].link",
    ("links", 0, "id"): "networks[0].link",
    ("networks", 0, "link"): "networks[0].link",
    ("networks", 0, "type"): "networks[0].type",
    ("networks", 0, "ip_address"): "networks[0].ip_address",
    ("config",): "config",
    ("config", 0, "type"): "config[0].type",
    ("config", 0, "subnets", 0, "type"): "config[0].subnets[0].type",
    ("ethernets", "a", "match", "macaddress"): "ethernets.a.match.macaddress",
}


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, value) for path in LACKS for value in (None, "", []) if (path[0], value) != ("ethernets", None)],
)  # fmt: skip
def test_a_part_without_what_tells_its_meaning_requests_no_removal(path, value):
    """As an error, with which nothing is removed; but a list of links may be empty."""
    name = openstack.NAME if path[0] in ("links", "networks") else netplan.NAME
    whole = VERSION_2 if path[0] == "ethernets" else WITH_ADDRESSES[name]
    tree = holder = copy.deepcopy(whole)
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    text = combined.reduce_documents({name: json.dumps(tree).encode()})
    errors = [fault.key for fault in combined.parse(text).faults if fault.severity == "error"]
    is_empty = path == ("config",) and value == []
    assert (LACKS[path] in errors) is not is_empty


@pytest.mark.parametrize("key", ["links", "networks"])
@pytest.mark.parametrize("value", [None, "missing", []])
def test_a_list_of_a_drive_that_is_lost_removes_no_nic(key, value):
    tree = WITH_ADDRESSES[openstack.NAME]
    before = combined.reduce_documents({openstack.NAME: json.dumps(tree).encode()})
    changed = {**tree, "services": [{"type": "dns", "address": "9.9.9.9"}], key: value}
    if value == "missing":
        del changed[key]
    text = combined.reduce_documents({openstack.NAME: json.dumps(changed).encode()})
    expected = "" if value == [] else f"{openstack.NAME} no longer has {key}"
    assert combined.gap(text, before, macs=None) == expected
    # An empty one is no loss.
    empty = combined.reduce_documents({openstack.NAME: json.dumps({**tree, key: []}).encode()})
    assert combined.gap(text, empty, macs=None) == ""


def test_an_object_in_place_of_hetzner_s_list_removes_no_nic(tmp_path):
    play = cloudmocks.hetzner(BOTH)
    state, around = tmp_path / "state", Surroundings(tmp_path / "run")
    with serve(play) as server:
        for number in range(3):
            specs = [parse_source(f"hetzner={server.url}")]
            intake = fetch_document(specs, LONG, Session(), state, around)
            keep_document(intake, state, around.run_directory)
            assert len(intake.document.platform.links) == 1
            assert ("it is not a list" in intake.refused) is (number > 0)
            play.paths["/hetzner/v1/metadata/private-networks"] = {"error": "try again later"}


def empty(kind, play):
    """The service, with an empty list of NICs."""
    if kind in ("ec2", "alibaba"):
        play.paths[NICS] = None
        play.paths["/latest/meta-data/public-keys/"] = "0=mine"
        play.paths["/latest/meta-data/public-keys/0/openssh-key"] = "ssh-ed25519 AAAA mine"
    for path, tree in play.paths.items():
        if path == "/opc/v2/vnics/":
            play.paths[path] = []
        elif isinstance(tree, dict):
            play.paths[path] = {
                **tree,
                **{name: type(tree[name])() for name in EMPTY & tree.keys()},
            }


EMPTY = {"links", "networks", *(row.nics for row in clouds.FORMATS)}


@pytest.mark.parametrize("kind", LISTING)
def test_a_service_that_no_longer_lists_any_nic_removes_none(kind, tmp_path):
    play = getattr(cloudmocks, kind)(BOTH)
    play.times = None
    state, around = tmp_path / "state", Surroundings(tmp_path / "run")
    with serve(play) as server:
        session, intakes = Session(), []
        for number in range(4):
            if number == 1:
                empty(kind, play)
                session = session.without_trees()
            specs = [parse_source(f"{kind}={server.url}")]
            intake = fetch_document(specs, LONG, session, state, around)
            keep_document(intake, state, around.run_directory)
            session = intake.session
            intakes.append(intake)
    assert all(len(intake.document.platform.links) == 2 for intake in intakes)
    assert [intake.stale for intake in intakes] == [False, True, True, True]
    assert "incomplete" in intakes[-1].reason
    assert not any(intake.unanswered for intake in intakes)


# --- NICs that a service describes in part ---------------------------------------------------------


def azure_nic(tree):
    return tree["network"]["interface"][1]


PARTS = {
    ("azure", "addresses"): lambda tree: azure_nic(tree)["ipv4"].update(ipAddress=[]),
    ("azure", "family"): lambda tree: azure_nic(tree).update(ipv4=None),
    ("azure", "subnet"): lambda tree: azure_nic(tree)["ipv4"].update(subnet=[]),
    ("azure", "prefix"): lambda tree: azure_nic(tree)["ipv4"]["subnet"][0].update(prefix=""),
    ("oracle", "address"): lambda tree: tree[1].pop("privateIp"),
    ("oracle", "subnet"): lambda tree: tree[1].pop("subnetCidrBlock"),
    ("gce", "address"): lambda tree: tree["networkInterfaces"][1].update(ip=""),
    ("digitalocean", "family"): lambda tree: tree["interfaces"]["private"][0].pop("ipv4"),
    ("vultr", "address"): lambda tree: tree["interfaces"][1]["ipv4"].update(address=""),
    ("hetzner", "addresses"): lambda tree: tree[0].update(ip="", alias_ips=[]),
}


def spoil(play, change):
    """Change the tree of a service; its other trees have no such part."""
    for path, body in play.paths.items():
        tree = from_yaml(body, "") if isinstance(body, bytes) else copy.deepcopy(body)
        with suppress(AttributeError, IndexError, KeyError, TypeError):
            change(tree)
            play.paths[path] = json.dumps(tree).encode()


def fetched(server, kind, folder):
    """What a pass gets from the service, and keeps."""
    state, around = folder / "state", Surroundings(folder / "run")
    specs = [parse_source(f"{kind}={server.url}")]
    intake = fetch_document(specs, LONG, Session(), state, around)
    keep_document(intake, state, around.run_directory)
    return intake


def addresses(intake):
    links = intake.document.platform.links
    return {str(link.key): [str(address) for address in link.addresses] for link in links}


@pytest.mark.parametrize(("kind", "part"), PARTS)
def test_a_nic_that_had_addresses_keeps_them_if_the_service_gives_none(kind, part, tmp_path):
    play = getattr(cloudmocks, kind)(BOTH)
    play.times = None
    with serve(play) as server:
        before = addresses(fetched(server, kind, tmp_path))
        assert before[TWO]
        spoil(play, PARTS[kind, part])
        intakes = [fetched(server, kind, tmp_path) for _ in range(3)]
    assert all(addresses(intake) == before for intake in intakes)
    assert f"no longer gives any address of {TWO}" in intakes[-1].reason


@pytest.mark.parametrize("version", [4, 6])
def test_a_nic_with_addresses_of_both_versions_can_lose_the_ipv6_ones(version):
    families = {
        4: {"ipAddress": [{"privateIpAddress": "10.1.0.5"}], "subnet": [{"address": "10.1.0.0", "prefix": "24"}]},
        6: {"ipAddress": [{"privateIpAddress": "fd00:1::5"}]},
    }  # fmt: skip
    nic = {"macAddress": ONE.replace(":", "").upper()}
    second = {"macAddress": TWO.replace(":", "").upper()}
    both = {**second, "ipv4": families[4], "ipv6": families[6]}
    left = {**second, f"ipv{version}": families[version]}
    before = combined.reduce_documents(
        {clouds.AZURE: json.dumps({"network": {"interface": [nic, both]}}).encode()}
    )
    expected = "" if version == 4 else f"{clouds.AZURE} no longer gives any IPv4 address of {TWO}"
    assert reason(clouds.AZURE, {"network": {"interface": [nic, left]}}, before=before) == expected


def test_a_vlan_on_the_primary_nic_keeps_its_addresses_too():
    """Of the primary NIC itself, no document has any."""
    vlan_nic = {"mac": TWO, "vlan": 30, "ip": "10.1.30.4", "gateway": "10.1.30.1"}
    tree = DOCUMENTS[clouds.GCE]([ONE])
    with_vlan = {**tree, "vlanNetworkInterfaces": {"0": {"30": vlan_nic}}}
    before = combined.reduce_documents({clouds.GCE: json.dumps(with_vlan).encode()})
    without = {**tree, "vlanNetworkInterfaces": {"0": {"30": {**vlan_nic, "ip": ""}}}}
    assert reason(clouds.GCE, {**with_vlan, "x": 1}, before=before) == ""
    assert reason(clouds.GCE, tree, before=before) == ""
    expected = f"GCE instance no longer gives any address of {LinkKey(ONE, 30)}"
    assert reason(clouds.GCE, without, before=before) == expected


def test_an_interface_of_vultr_may_lose_its_addresses_when_it_is_left_to_the_user(tmp_path):
    play = cloudmocks.vultr(BOTH)
    with serve(play) as server:
        fetched(server, "vultr", tmp_path)
        spoil(play, lambda tree: tree["interfaces"][1].update(unconfigured=True))
        intakes = [fetched(server, "vultr", tmp_path) for _ in range(2)]
    assert addresses(intakes[-1])[TWO] == []


MISSING = {
    ("azure", "macAddress"): lambda tree: azure_nic(tree).update(macAddress=""),
    ("azure", "privateIpAddress"): PARTS["azure", "subnet"],
    ("oracle", "macAddr"): lambda tree: tree[1].pop("macAddr"),
    ("oracle", "subnetCidrBlock"): PARTS["oracle", "subnet"],
    ("oracle", "virtualRouterIp"): lambda tree: tree[1].pop("virtualRouterIp"),
    ("gce", "mac"): lambda tree: tree["networkInterfaces"][1].update(mac=None),
    ("gce", "gateway"): lambda tree: tree["networkInterfaces"][1].pop("gateway"),
    ("digitalocean", "mac"): lambda tree: tree["interfaces"]["private"][0].pop("mac"),
    ("vultr", "mac"): lambda tree: tree["interfaces"][1].update(mac=""),
    ("hetzner", "mac_address"): lambda tree: tree[0].pop("mac_address"),
    ("hetzner", "ip"): lambda tree: tree[0].update(ip=None),
    ("hetzner", "network"): lambda tree: tree[0].pop("network"),
    ("hetzner", "gateway"): lambda tree: tree[0].update(gateway=""),
    ("hetzner", "networks[0]"): lambda tree: tree.__setitem__(0, None),
}


@pytest.mark.parametrize(("kind", "key"), MISSING)
def test_what_a_service_gives_for_each_nic_is_missed(kind, key, tmp_path):
    """As an error, with which nothing of the NIC is removed."""
    play = getattr(cloudmocks, kind)(BOTH)
    spoil(play, MISSING[kind, key])
    with serve(play) as server:
        document = fetched(server, kind, tmp_path).document.platform
    faults = [fault for fault in document.faults if fault.severity == "error"]
    assert [fault.key.rpartition(".")[2] for fault in faults] == [key]


def test_a_list_in_place_of_a_value_is_not_also_missed():
    tree = {"interfaces": [{"mac": [TWO], "ipv4": {}}]}
    text = combined.reduce_documents({clouds.VULTR: json.dumps(tree).encode()})
    reasons = [fault.reason for fault in combined.parse(text).faults]
    assert reasons == ["it is not a single value"]


@pytest.mark.parametrize(("kind", "leaf"), [("ec2", "subnet-ipv4-cidr-block"), ("alibaba", "vswitch-cidr-block")])  # fmt: skip
def test_an_address_of_ec2_without_its_subnet_is_not_a_single_address(kind, leaf, tmp_path):
    play = getattr(cloudmocks, kind)(BOTH)
    path = f"{NICS}{TWO}/"
    play.paths[path] = play.paths[path].replace(leaf, "")
    with serve(play) as server:
        intake = fetched(server, kind, tmp_path)
    assert addresses(intake)[TWO] == []
    assert "its subnet is not known, ignoring the address" in str(intake.document.platform.faults)


BONDED = (
    nic(1, master=9, mac=mac(7)),
    nic(2, master=9, mac=mac(7)),
    Device(9, "bond0", "bond", mac(7), up=True),
)
INTERFACES = {
    "a NIC": ((nic(1, up=True),), mac(1), {mac(1)}),
    "a NIC with another address": ((nic(1, up=True, mac=mac(8)),), mac(1), {mac(1), mac(8)}),
    "a VLAN": ((nic(1, up=True), vlan(5, 1, 7)._replace(up=True)), f"{mac(1)}.7", {mac(1)}),
    "a bond": (BONDED, mac(1), {mac(1), mac(2), mac(7)}),
    "a VLAN on a bond": ((*BONDED, vlan(5, 9, 7)._replace(up=True)), f"{mac(1)}.7", {mac(1), mac(2), mac(7)}),
}  # fmt: skip


@pytest.mark.parametrize("what", INTERFACES)
def test_an_interface_may_be_listed_by_every_address_below_it(what):
    devices, name, macs = INTERFACES[what]
    (outlet,) = pinned_outlets(
        MetadataService("ec2", "http://169.254.169.254", name), world(*devices), Record()
    )
    assert macs <= outlet.macs <= macs | {devices[-1].mac}


# --- what a query costs ----------------------------------------------------------------------------


class Costs:
    """The requests to a server and its connections since the last call."""

    def __init__(self, server):
        self.server, self.before = server, (0, 0)

    def __call__(self):
        now = len(self.server.requests), len(self.server.connections)
        requests, connections = self.before
        self.before = now
        return now[0] - requests, now[1] - connections


USER_DATA = ("/latest/user-data", "/hetzner/v1/userdata", "/openstack/latest/user_data")


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_of_the_page_about_clouds(kind):
    """With 15 NICs, user-data and without keys; the token comes once in six hours."""
    nics = [(f"02:00:00:00:00:{number:02x}", number) for number in range(15)]
    play = getattr(cloudmocks, kind)(nics)
    play.times = None
    for path in USER_DATA:
        play.paths[path] = "[global]\n"
    with serve(play, most=1000) as server:
        cost = Costs(server)
        session = ask(server, kind).session
        cost()
        ask(server, kind, session)
        poll, *connections = cost()
        ask(server, kind, session.without_trees())
        full, again = cost()
    assert (connections, again) == ([1], 1)
    rows = [row for row in PAGE.read_text().splitlines() if row.startswith(f"| `{kind}` |")]
    assert rows == [f"| `{kind}` | {poll} | {full} | 1 |"], (
        "docs/CLOUDS.md lacks the row on the right"
    )


def test_the_whole_tree_is_read_again_when_a_cheap_answer_changes_or_its_time_is_over():
    play = cloudmocks.ec2(BOTH)
    with serve(play, most=1000) as server:
        cost = Costs(server)
        session = ask(server, "ec2").session
        changes = {
            "/latest/user-data": "[global]\n",
            NICS: f"{ONE}/\n{TWO}/\n{TWO[:-1]}3/\n",
        }
        for path, text in changes.items():
            before = play.paths.get(path)
            play.paths[path] = text
            cost()
            try:
                ask(server, "ec2", session)
            except SourceError:
                assert path == NICS  # nothing is there yet for the new NIC
            assert cost()[0] > 2
            play.paths[path] = before
        (key,) = [key for key in session.tokens if key.endswith(NICS)]
        over = session.keep(key, Token(session.tokens[key].value, time.monotonic()))
        ask(server, "ec2", over)
        assert cost()[0] > 2


def test_a_tree_that_is_absent_is_asked_for_again_within_seconds():
    play = cloudmocks.ec2(BOTH)
    play.paths["/latest/user-data"], macs = "[global]\n", play.paths[NICS]
    play.paths[NICS] = None
    with serve(play) as server:
        session = ask(server, "ec2").session
        play.paths[NICS] = macs
        (token,) = [token for key, token in session.tokens.items() if key.endswith(NICS)]
        assert token.expires - time.monotonic() <= 5
        assert list(ask(server, "ec2", session.without_trees()).parts) == [ec2.NAME]
