"""Which sources `auto` asks, and where: what the firmware says, which NICs lead out, what the boot says of a NoCloud seed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
from ipaddress import ip_network

import pytest
from sources_server import Server, http
from sources_volumes import SEED, fill
from worlds import mac

from neuca_tools.errors import SourceError
from neuca_tools.model.machine import MetadataService, Outlet
from neuca_tools.sources import (
    _KINDS,
    Session,
    SourceSpec,
    Surroundings,
    ask_sources,
    detected_cloud,
    metadata_hosts,
    nocloud,
    parse_source,
)
from neuca_tools.sources.service import by_outlet
from neuca_tools.state.active_document import fetch_document

LONG = 300
NOVA = {"product_name": "OpenStack Nova"}
UNKNOWN = (
    'auto: the firmware (DMI) names no supported cloud, so no well-known address is queried; set "platform = any" '
    "in [metadata] to query them anyway"
)


@pytest.fixture
def around(tmp_path, monkeypatch):
    """A host without firmware, command line and routes; what is asked of it is given as files."""
    monkeypatch.setattr(nocloud, "_SEEDS", (tmp_path / "seed",))

    def make(dmi=(), check=True, **proc):
        fill(tmp_path / "dmi", {name: f"{text}\n".encode() for name, text in dict(dmi).items()})
        fill(
            tmp_path / "proc",
            {name.replace("__", "/"): text.encode() for name, text in proc.items()},
        )
        return Surroundings(tmp_path / "run", check, tmp_path / "dmi", tmp_path / "proc")

    return make


def ask(text, surroundings, budget=LONG):
    return ask_sources(
        [parse_source(one) for one in text.split(",")], budget, Session(), surroundings
    )


def reason(text, surroundings, budget=LONG):
    with pytest.raises(SourceError) as caught:
        ask(text, surroundings, budget)
    return str(caught.value).partition("no user-data from any source: ")[2]


def asked(text, surroundings):
    """The sources that would ask the network; without any time none does."""
    return [
        part.split(":")[0]
        for part in reason(text, surroundings._replace(outlets=(EC2,)), budget=0).split("; ")
        if " GET " in part
    ]


# --- the platform ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dmi", "cloud"),
    [
        ({}, "unknown"),
        ({"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"}, "unknown"),
        ({"product_name": "OpenStack Novaish"}, "unknown"),
        ({"sys_vendor": "OpenStack Foundation", "product_name": "OpenStack Nova"}, "openstack"),
        ({"sys_vendor": "Red Hat", "product_name": "OpenStack Compute"}, "openstack"),
        ({"product_name": "KVM", "chassis_asset_tag": "OpenTelekomCloud"}, "openstack"),
        ({"chassis_asset_tag": "HUAWEICLOUD"}, "openstack"),
        ({"sys_vendor": "Amazon EC2", "product_name": "m5.large"}, "ec2"),
        ({"chassis_asset_tag": "Amazon EC2"}, "ec2"),
        ({"sys_vendor": "Xen", "bios_version": "4.11.amazon"}, "ec2"),
        ({"sys_vendor": "Xen", "bios_version": "4.11"}, "unknown"),
        ({"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}, "unknown"),
        ({"sys_vendor": "QEMU", "chassis_asset_tag": "OracleCloud.com"}, "oracle"),
        ({"sys_vendor": "Google", "product_name": "Google Compute Engine"}, "gce"),
        ({"sys_vendor": "Google", "product_name": "Google"}, "gce"),
        ({"sys_vendor": "Google", "product_name": "Drallion"}, "unknown"),
        ({"sys_vendor": "Hetzner", "product_name": "vServer"}, "hetzner"),
        ({"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"}, "alibaba"),
        ({"sys_vendor": "Vultr", "product_name": "VHF"}, "vultr"),
        ({"sys_vendor": "DigitalOcean", "product_name": "Droplet"}, "digitalocean"),
        ({"sys_vendor": "VMware, Inc.", "product_name": "VMware7,1"}, "vmware"),
        ({"product_name": "\udcff"}, "unknown"),
    ],
)
def test_the_firmware_says_which_cloud_this_is(around, dmi, cloud):
    dmi = {name: text.encode("utf-8", "replace").decode() for name, text in dmi.items()}
    assert detected_cloud([SourceSpec("auto")], around(dmi)) == cloud


def test_auto_asks_nobody_where_the_firmware_names_no_cloud(around):
    assert reason("auto", around()) == f"configdrive: none; nocloud: none; lxd: none; {UNKNOWN}"


@pytest.mark.parametrize(
    ("dmi", "check", "kinds"),
    [
        ({}, False, ["openstack", "ec2", "ec2"]),
        (NOVA, True, ["openstack", "ec2", "ec2"]),
        ({"sys_vendor": "Amazon EC2"}, True, ["ec2", "ec2"]),
    ],
)
def test_auto_asks_the_services_of_the_platform_at_both_families(around, dmi, check, kinds):
    assert asked("auto", around(dmi, check)) == kinds


def test_a_source_that_is_named_is_asked_whatever_the_firmware_says(around):
    assert asked("ec2", around()) == ["ec2", "ec2"]
    assert asked("auto,openstack", around()) == ["openstack"]


def test_a_local_source_answers_whatever_the_firmware_says(around, tmp_path):
    fill(tmp_path / "run/drives/cidata", SEED)
    assert ask("auto", around()).source == "nocloud"


@pytest.mark.parametrize(
    ("text", "check", "cloud"),
    [
        ("auto", True, "openstack"),
        ("auto", False, "any"),
        ("ec2", True, ""),
        ("file:/x,auto", True, "openstack"),
    ],
)
def test_an_intake_says_what_auto_took_this_host_for(around, tmp_path, text, check, cloud):
    fill(tmp_path / "run/drives/cidata", SEED)
    specs = [parse_source(one) for one in text.split(",")]
    assert (
        fetch_document(specs, 0, Session(), tmp_path / "state", around(NOVA, check)).platform
        == cloud
    )


# --- the addresses, and the NICs that they are requested through -----------------------------------------------------

EC2 = Outlet("mgmt2", mac(3), (ip_network("0.0.0.0/0"), ip_network("fd00::/8")))
MANAGEMENT = Outlet("mgmt0", mac(1), (ip_network("0.0.0.0/0"), ip_network("fe80::/64")))
BOTH = Outlet("mgmt1", mac(2), (ip_network("0.0.0.0/0"), ip_network("::/0")))
UNLIKELY = Outlet("eth9", mac(9), (ip_network("192.0.2.0/24"),), is_likely=False)
ONLY_IPV6 = Outlet("mgmt2", mac(3), (ip_network("::/0"),))


def ways(text, around):
    """The interface and the URL of each request that would be made, in order."""
    spec = parse_source(text)
    made = by_outlet([_KINDS[spec.kind].make(spec.argument, around)])
    return [
        (way.outlet.name if way.outlet else "", str(way.url))
        for source in made
        for way in source.ways()
    ]


def test_a_service_is_asked_at_each_address_on_one_nic_before_the_next(around):
    here = around()._replace(outlets=(MANAGEMENT, BOTH, UNLIKELY))
    assert ways("openstack", here) == [
        ("mgmt0", "http://169.254.169.254"),
        ("mgmt0", "http://[fe80::a9fe:a9fe%mgmt0]"),
        ("mgmt1", "http://169.254.169.254"),
        ("mgmt1", "http://[fe80::a9fe:a9fe%mgmt1]"),
    ]
    assert ways("ec2", here) == [
        ("mgmt0", "http://169.254.169.254"),
        ("mgmt1", "http://169.254.169.254"),
        ("mgmt1", "http://[fd00:ec2::254]"),
    ]


@pytest.mark.parametrize(
    ("kind", "address"),
    [("ec2", "fd00:ec2::254"), ("gce", "fd20:ce::254"), ("oracle", "fd00:c1::a9fe:a9fe")],
)
def test_a_guest_without_ipv4_asks_the_ipv6_address_of_its_cloud(around, kind, address):
    here = around()._replace(outlets=(ONLY_IPV6,))
    assert ways(kind, here) == [("mgmt2", f"http://[{address}]")]
    found = metadata_hosts([kind], here)
    assert list(map(str, found)) == ["169.254.169.254", address]


def test_an_administrators_url_may_be_behind_a_nic_that_merely_has_a_route_to_it(around):
    here = around()._replace(outlets=(UNLIKELY, BOTH))
    assert ways("ec2=http://192.0.2.1:8", here) == [
        ("eth9", "http://192.0.2.1:8"),
        ("mgmt1", "http://192.0.2.1:8"),
    ]
    assert ways("ec2=http://[fe80::1%mgmt0]", here._replace(outlets=(BOTH, MANAGEMENT))) == [
        ("mgmt0", "http://[fe80::1%mgmt0]")
    ]


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]", "192.0.2.10"])
def test_an_address_of_the_host_itself_needs_no_nic(around, address):
    here = around()._replace(own_addresses=frozenset({"192.0.2.10"}), outlets=(BOTH,))
    assert ways(f"ec2=http://{address}", here) == [("", f"http://{address}")]


def test_the_service_that_has_answered_is_the_only_one(around):
    origin = MetadataService("ec2", "http://[fd00:ec2::254]", mac(2))
    here = around()._replace(outlets=(BOTH,), origin=origin, check_platform=False)
    assert ways("ec2", here) == [("mgmt1", "http://[fd00:ec2::254]")]
    assert ways("openstack", here) == []


@pytest.mark.parametrize("text", ["ec2", "openstack", "ec2=http://[fe80::1%dp1]"])
def test_without_a_nic_for_it_a_service_is_not_asked(around, text):
    assert reason(text, around()._replace(blocked="there is none")).endswith(": there is none")


# --- NoCloud --------------------------------------------------------------------------------------------------------

AWAY = {
    "/x/user-data": b"[global]\nhost_name = away\n",
    "/x/meta-data": b"instance-id: away\nlocal-hostname: away\n",
    "/x/network-config": b"version: 2\n",
}


@pytest.fixture
def serve():
    with contextlib.ExitStack() as stack:

        def start(paths):
            def play(request):
                found = paths.get(request.path, 404)
                return http(found) if isinstance(found, int) else http(200, found)

            return stack.enter_context(Server(play))

        yield start


def about(answer):
    return json.loads(answer.parts["meta-data"])


@pytest.mark.parametrize(
    "line",
    ["ro ds=nocloud;s={}/x/ quiet", "ds=nocloud-net;seedfrom={}/x", '"ds=nocloud;i=i;s={}/x/"'],
)
def test_the_command_line_points_to_a_seed(around, serve, line):
    server = serve(AWAY)
    answer = ask("auto", around(cmdline=line.format(server.url)))
    assert (answer.source, answer.data) == ("nocloud", AWAY["/x/user-data"])
    assert answer.parts["network-config"] == b"version: 2\n"
    assert about(answer)["local-hostname"] == "away"
    assert server.asked == ["GET /x/user-data", "GET /x/meta-data", "GET /x/network-config"]


def test_a_page_in_place_of_the_meta_data_of_a_seed_is_an_error(around, serve):
    """As for a seed in a directory; the instance would lose its ID and name."""
    server = serve({**AWAY, "/x/meta-data": b"<html>Welcome</html>"})
    with pytest.raises(SourceError) as caught:
        ask("auto", around(cmdline=f"ds=nocloud;s={server.url}/x/"))
    assert "nocloud: cannot read meta-data: it is not an object" in str(caught.value)


def test_the_serial_number_of_the_firmware_goes_before_the_command_line(around, serve):
    server = serve(AWAY)
    here = around(
        {"product_serial": f"ds=nocloud;s={server.url}/x/;h=here;i=7"},
        cmdline="ds=nocloud;s=http://127.0.0.1:1/",
    )
    assert about(ask("nocloud", here)) == {"local-hostname": "here", "instance-id": "7"}


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("chassis-serial-number", "chassis_serial"),
        ("baseboard-asset-tag", "board_asset_tag"),
        ("baseboard-manufacturer", "board_vendor"),
        ("bios-release-date", "bios_date"),
        ("system-version", "product_version"),
    ],
)
def test_what_the_firmware_says_can_be_part_of_the_address(around, serve, name, file):
    server = serve({path.replace("/x/", "/ab-1/"): data for path, data in AWAY.items()})
    here = around({file: "ab-1"}, cmdline=f"ds=nocloud;s={server.url}/__dmi.{name}__/")
    assert ask("nocloud", here).data == AWAY["/x/user-data"]


def test_a_seed_points_on_and_its_own_items_go_first(around, serve, tmp_path):
    server = serve(AWAY)
    place = fill(
        tmp_path / "own",
        {**SEED, "meta-data": f"instance-id: own\nseedfrom: {server.url}/x/\n".encode()},
    )
    answer = ask(f"nocloud={place}", around())
    assert answer.data == AWAY["/x/user-data"]
    assert {**about(answer), "seedfrom": ""} == {
        "instance-id": "own",
        "local-hostname": "away",
        "seedfrom": "",
    }


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_seed_may_be_at_a_path(around, tmp_path, scheme):
    fill(tmp_path / "elsewhere", SEED)
    assert (
        ask("nocloud", around(cmdline=f"ds=nocloud;s={scheme}{tmp_path}/elsewhere/")).data
        == SEED["user-data"]
    )


def test_a_name_alone_is_a_word_of_the_boot(around):
    answer = ask("auto", around(cmdline="ds=nocloud;h=node7"))
    assert (answer.source, answer.data, about(answer)) == (
        "nocloud",
        None,
        {"local-hostname": "node7"},
    )


@pytest.mark.parametrize(
    "line",
    [
        "ds=nocloud",
        "ds=nocloud;",
        "ds=nocloud;x=y",
        "ds=nocloudy;h=x",
        "ads=nocloud;h=x",
        "ds=none;h=x",
        "",
        "\0",
    ],
)
def test_a_boot_that_says_nothing_of_a_seed_leaves_the_word_to_others(around, line):
    assert ask("nocloud", around(cmdline=line)).is_empty


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (
            "https://192.0.2.1/",
            'the seed is at "https://192.0.2.1", which is neither http://ADDRESS/ nor a path',
        ),
        ("seed/", 'the seed is at "seed", which is neither http://ADDRESS/ nor a path'),
        ("http://seed.example/", 'the seed: "seed.example" is not a literal address'),
        ("/nowhere", 'the seed at "/nowhere" has no user-data or no meta-data'),
        (
            "__dmi.no-such-thing__/",
            'the seed is at "", which is neither http://ADDRESS/ nor a path',
        ),
    ],
)
def test_a_pointer_that_leads_nowhere_is_an_error_and_not_none(around, where, why):
    assert reason("nocloud", around(cmdline=f"ds=nocloud;s={where}")) == f"nocloud: {why}"


@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ({}, 'the seed at "URL/x" has no user-data or no meta-data'),
        ({**AWAY, "/x/user-data": 404}, 'the seed at "URL/x" has no user-data or no meta-data'),
        ({**AWAY, "/x/meta-data": 503}, "GET URL/x/meta-data: HTTP 503"),
        ({**AWAY, "/x/network-config": 403}, "GET URL/x/network-config: HTTP 403"),
        ({**AWAY, "/x/meta-data": b"{"}, "cannot read meta-data: it is not YAML: "),
    ],
)
def test_a_seed_away_that_fails_is_an_error_and_not_none(around, serve, paths, why):
    server = serve(paths)
    said = reason("nocloud", around(cmdline=f"ds=nocloud;s={server.url}/x/")).replace(
        server.url, "URL"
    )
    assert said.startswith(f"nocloud: {why}")
