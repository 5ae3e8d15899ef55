"""A cloud is one row: its source, its reader, its names, and what has to be written for it by hand."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import copy
import json
from importlib import import_module
from ipaddress import ip_interface
from pathlib import Path

import cloudmocks
import pytest
from platforms import faults, hints, links, made, routes

from neuca_tools.backends.dhcplease import reason_to_refuse
from neuca_tools.documents.platform import combined
from neuca_tools.model import ACCEPT_RA, World
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.sources import SourceSpec, Surroundings, detected_cloud, parse_source, uses_network
from neuca_tools.status import render

ROOT = Path(__file__).parents[2]
SERVICES = [cloud for cloud in CLOUDS if cloud.is_service]
KINDS = [cloud.kind for cloud in CLOUDS]
A, B, C = "56:00:03:15:c4:65", "5a:00:03:1b:4e:ca", "5a:00:03:1b:4e:cb"


def text(*parts):
    return ROOT.joinpath(*parts).read_text()


@pytest.mark.parametrize("cloud", CLOUDS, ids=KINDS)
def test_the_source_of_a_cloud_is_known_by_its_kind(cloud):
    module, name = cloud.source.split(".")
    home = import_module(f"neuca_tools.sources.{module}")
    source = getattr(home, name)("", Surroundings())
    assert (source.name, source.local) == (cloud.kind, False)
    assert parse_source(cloud.kind) == SourceSpec(cloud.kind)
    assert uses_network([SourceSpec(cloud.kind)]) == cloud.is_service
    assert cloud.usage.startswith(cloud.kind)


@pytest.mark.parametrize("cloud", SERVICES, ids=[cloud.kind for cloud in SERVICES])
def test_no_lease_takes_over_an_address_of_a_cloud(cloud):
    """As none does when a document is not there yet, and the cloud is unknown."""
    module, name = cloud.source.split(".")
    service = getattr(import_module(f"neuca_tools.sources.{module}"), name)("", Surroundings())
    for host in service.hosts():
        assert reason_to_refuse(ip_interface(host), 2, World()), f"{host}: see PLATFORM_HOSTS"


@pytest.mark.parametrize("cloud", CLOUDS, ids=KINDS)
def test_each_sign_alone_recognizes_the_cloud(cloud, tmp_path):
    assert cloud.signs
    for sign in cloud.signs:
        (tmp_path / sign.field).write_text(f"{sign.text}\n")
        assert detected_cloud([SourceSpec("auto")], Surroundings(dmi=tmp_path)) == cloud.kind
        (tmp_path / sign.field).unlink()
    assert render.PLATFORM_TEXTS[cloud.kind] == f"{cloud.label}, as the firmware (DMI) says"


def test_no_two_clouds_have_a_sign_or_a_kind_in_common():
    signs = [sign for cloud in CLOUDS for sign in cloud.signs]
    assert len(set(signs)) == len(signs)
    assert len(set(KINDS)) == len(KINDS)


@pytest.mark.parametrize("page", ["neuca.1", "neuca-status.7"])
def test_the_pages_name_each_cloud(page):
    words = text("docs", "man", page).split()
    assert [kind for kind in KINDS if kind not in words] == []


@pytest.mark.parametrize("cloud", CLOUDS, ids=KINDS)
def test_the_page_about_documents_names_each_cloud(cloud):
    page = text("docs", "man", "neuca-platform-data.5")
    words = [word for word in cloud.label.split() if word != "Cloud"]
    assert any(word in page for word in words), (
        f"docs/man/neuca-platform-data.5 lacks {cloud.label}"
    )


@pytest.mark.parametrize("file", ["neuca", "_neuca"])
def test_the_completions_name_each_cloud(file):
    words = text("packaging", "completion", file).replace('"', " ").split()
    assert [kind for kind in KINDS if kind not in words] == []


@pytest.mark.parametrize("cloud", SERVICES, ids=[cloud.kind for cloud in SERVICES])
def test_each_service_has_a_mock_and_a_row_in_the_table_of_requests(cloud):
    assert hasattr(cloudmocks, cloud.kind)
    page = text("docs", "CLOUDS.md")
    assert f"\n| `{cloud.kind}` |" in page, "no row in the table of requests of docs/CLOUDS.md"
    assert cloud.label.split()[-1] in page, "no row in the first table of docs/CLOUDS.md"


# --- the documents of the clouds without a file of their own ----------------------------------------

VULTR = {
    "hostname": "guest",
    "instance-v2-id": "d2a7f0de",
    "interfaces": [
        {
            "mac": A,
            "network-type": "public",
            "ipv4": {
                "address": "203.0.113.24",
                "netmask": "255.255.254.0",
                "gateway": "203.0.112.1",
                "additional": [{"address": "203.0.113.99", "netmask": "255.255.254.0"}],
            },
            "ipv6": {
                "address": "2001:db8:5::15",
                "network": "2001:db8:5::",
                "prefix": "64",
                "additional": [{"network": "2001:db8:6::", "prefix": "64"}],
            },
        },
        {
            "mac": B,
            "network-type": "private",
            "ipv4": {
                "address": "10.1.112.3",
                "netmask": "255.255.240.0",
                "gateway": "",
                "additional": [{"address": "10.1.112.9"}],
            },
            "ipv6": {"address": "", "network": "", "prefix": "", "additional": []},
        },
        {"mac": C, "network-type": "private"},
    ],
}


def test_vultr_s_interfaces():
    document = made("Vultr instance", json.dumps(VULTR))
    assert faults(document) == []
    assert links(document) == {
        A: ("up", None, None, ["203.0.113.24/23", "203.0.113.99/23", "2001:db8:5::15/64"]),
        B: ("up", None, 1450, ["10.1.112.3/20", "10.1.112.9/32"]),
        C: ("up", None, 1450, []),
    }
    assert list(hints(document)) == [A]
    assert [list(map(str, one.routing.gateways)) for one in document.links] == [
        ["203.0.112.1"],
        [],
        [],
    ]


def vultr_with_options():
    tree = copy.deepcopy(VULTR)
    private, last = tree["interfaces"][1:]
    more = {"network": "10.3.0.0", "netmask": "255.255.0.0", "gateway": "10.1.112.2", "metric": 7}
    private.update({"mtu": 1440, "accept-ra": 0})
    private["routes"] = [{"destination": "10.2.0.0/16", "gateway": "10.1.112.1"}]
    private["ipv4"]["additional"][0]["routes"] = [more]
    last.update(unconfigured=True, mtu=1400, ipv4={"address": "10.9.0.1", "netmask": "255.0.0.0"})
    return tree


def test_vultr_s_optional_keys_mean_what_they_do_for_cloud_init():
    document = made("Vultr instance", json.dumps(vultr_with_options()))
    assert links(document)[B] == ("up", None, 1440, ["10.1.112.3/20", "10.1.112.9/32"])
    assert links(document)[C] == ("user", None, None, [])
    assert dict(document.links[1].sysctls) == {ACCEPT_RA: "0"}
    assert routes(document) == [("10.2.0.0/16", "10.1.112.1", B), ("10.3.0.0/16", "10.1.112.2", B)]
    assert [route.metric for route in document.routes] == [None, 7]
    assert ["left to the user" in text for text in faults(document)] == [True]


DROPLET = {
    "droplet_id": 2756294,
    "interfaces": {
        "private": [
            {
                "ipv4": {
                    "ip_address": "10.132.255.113",
                    "netmask": "255.255.0.0",
                    "gateway": "10.132.0.1",
                },
                "mac": B,
                "type": "private",
            }
        ],
        "public": [
            {
                "ipv4": {
                    "ip_address": "203.0.113.105",
                    "netmask": "255.255.192.0",
                    "gateway": "203.0.64.1",
                },
                "ipv6": {
                    "ip_address": "2001:DB8:0800:0010:0000:0000:017D:2001",
                    "cidr": 64,
                    "gateway": "2001:DB8:0800:0010:0000:0000:0000:0001",
                },
                "anchor_ipv4": {
                    "ip_address": "10.17.0.5",
                    "netmask": "255.255.0.0",
                    "gateway": "10.17.0.1",
                },
                "mac": A,
                "type": "public",
            }
        ],
    },
}


def test_digitalocean_s_interfaces():
    document = made("DigitalOcean droplet", json.dumps(DROPLET))
    assert faults(document) == []
    assert links(document) == {
        A: ("up", None, None, ["203.0.113.105/18", "2001:db8:800:10::17d:2001/64", "10.17.0.5/16"]),
        B: ("up", None, None, ["10.132.255.113/16"]),
    }
    assert list(hints(document)) == [A]
    assert [list(map(str, one.routing.gateways)) for one in document.links] == [
        ["203.0.64.1", "2001:db8:800:10::1"],
        ["10.132.0.1"],
    ]


@pytest.mark.parametrize(
    ("name", "tree"), [("Vultr instance", VULTR), ("DigitalOcean droplet", DROPLET)]
)
def test_a_bad_item_costs_only_itself_and_what_is_not_used_is_not_kept(name, tree):
    broken = json.dumps(tree).replace(B, "nonsense")
    document = made(name, broken.replace("}", ', "token": "CANARY"}', 1))
    assert [text.partition(":")[0] for text in faults(document)] == ["error"]
    assert A in links(document)
    assert B not in links(document)
    assert "CANARY" not in combined.reduce_documents(
        {name: broken.replace("2756294", '"CANARY"').encode()}
    )
