"""Stages as JSON, held against the examples of the specification, and as text for people."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address

import pytest
import yaml
from worlds import Agent, document, key, mac, machine, nic, route, vlan, world

from neuca_tools.commands.look import as_yaml
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.documents.neuca.values import dotted_name
from neuca_tools.model import Device, Document, OriginalValues, Problem, Record, World
from neuca_tools.model.rows import Storage, StoredDocument
from neuca_tools.status import render, render_json

NIC_MAC = "fe:16:3e:00:6d:af"
DESIRED = """
{"version": 1, "hostname": "Node0", "router": "user",
 "links": [
  {"kind": "physical", "mac": "fe:16:3e:00:6d:af", "name": null, "parent": null, "vlan_id": null,
   "role": "dataplane", "state": "up", "mtu": 9000, "txqueuelen": 10000,
   "addresses": ["172.16.0.1/24"], "sysctl": {}},
  {"kind": "vlan", "mac": null, "name": "eth1.1445", "parent": "fe:16:3e:00:6d:af", "vlan_id": 1445,
   "role": "dataplane", "state": "up", "mtu": 9000, "txqueuelen": 10000,
   "addresses": ["10.14.45.1/24", "fd00:1445::1/64"], "sysctl": {"net.ipv4.conf.eth1/1445.rp_filter": "2"}}],
 "routes": [{"to": "10.20.0.0/16", "via": "172.16.0.254", "state": "present"}],
 "sysctl": {"net.core.rmem_max": "16777216"}}
"""
TEXT = """[global]
host_name = Node0
router = user
[interfaces]
fe163e006daf = up:ipv4:172.16.0.1/24
[interface fe163e006daf]
mtu = 9000
txqueuelen = 10000
sysctl.net.core.rmem_max = 16777216
[vlan fe163e006daf.1445]
addresses = 10.14.45.1/24, fd00:1445::1/64
mtu = 9000
txqueuelen = 10000
sysctl.net.ipv4.conf.{interface}.rp_filter = 2
[routes]
10.20.0.0/16 = 172.16.0.254
"""
PORT = nic(1, "eth1", mac=NIC_MAC, permanent_mac=NIC_MAC)
MAIN = {"table": 254, "type": "unicast"}
ROUTES = "[routes]\n10.1.0.0/16 = 10.0.0.9\n10.2.0.0/16 = down\n10.3.0.0/16 = user\n"


def resolved(text, *devices, **more):
    return resolve_state(document(text), Settings(), world(*devices, **more), Record())


def test_the_example_of_show_desired():
    data = render_json.desired_json(resolved(TEXT, PORT))
    assert data.pop("problems") == []
    later = ("device", "members", "master", "options")
    assert [[link.pop(key) for key in later] for link in data["links"]] == [
        [{}, [], None, {}]
    ] * 2  # keys that came later
    assert data.pop("rules") == []
    assert [[one.pop(key) for key in ("metric", "table", "type")] for one in data["routes"]] == [
        [20, 254, "unicast"]
    ]
    assert data == json.loads(DESIRED)


def test_a_vlan_whose_nic_is_absent_has_no_name_of_its_own():
    nic_shown, vlan_shown = render_json.desired_json(resolved(TEXT))["links"]
    assert (vlan_shown["name"], vlan_shown["mtu"], vlan_shown["addresses"]) == (
        None,
        9000,
        ["10.14.45.1/24", "fd00:1445::1/64"],
    )
    assert (nic_shown["name"], nic_shown["state"], nic_shown["addresses"]) == (
        None,
        "up",
        ["172.16.0.1/24"],
    )
    named = render_json.desired_json(resolved(TEXT.replace(".1445]\n", ".1445]\nname = blue\n")))[
        "links"
    ][1]
    assert named["name"] == "blue"


def test_every_link_has_every_key_whatever_its_role():
    text = f"[interface {mac(2)}]\n[vlan {mac(1)}.7]\n[interface {mac(9)}]\n"
    data = render_json.desired_json(
        resolved(text, nic(1), nic(2), nic(3), routes=[route("0.0.0.0/0", 1)])
    )
    keys = {frozenset(link) for link in data["links"]}
    assert keys == {
        frozenset(json.loads(DESIRED)["links"][0]) | {"device", "members", "master", "options"}
    }
    assert {(link["mac"] or link["parent"], link["role"]) for link in data["links"]} == {
        (mac(1), "management"),
        (mac(2), "dataplane"),
        (mac(3), "unlisted"),
        (mac(9), "dataplane"),
    }


def test_the_three_states_of_a_route():
    data = render_json.desired_json(
        resolved(f"[interface {mac(2)}]\naddresses = 10.0.0.1/24\n{ROUTES}", nic(2))
    )
    assert data["routes"] == [
        {"to": "10.1.0.0/16", "via": "10.0.0.9", "state": "present", "metric": 20, **MAIN},
        {"to": "10.2.0.0/16", "via": None, "state": "absent", "metric": None, **MAIN},
        {"to": "10.3.0.0/16", "via": None, "state": "user", "metric": None, **MAIN},
    ]


def test_a_refusal_is_told_with_its_link():
    data = render_json.desired_json(
        resolved(f"[interface {mac(2)}]\nmtu = 60000\n[vlan {mac(2)}.7]\n", nic(2, max_mtu=9000))
    )
    assert data["problems"] == [
        {
            "link": mac(2),
            "code": "mtu",
            "text": 'MTU 60000 requested, but "eth2" supports at most 9000',
        }
    ]


def test_what_cannot_be_set_for_a_link_is_null_or_empty():
    link = render_json.desired_json(resolved(f"[interfaces]\n{mac(2)} = user\n", nic(2)))["links"][
        0
    ]
    assert link == {
        "members": [],
        "master": None,
        "options": {},
        "kind": "physical",
        "mac": mac(2),
        "name": None,
        "parent": None,
        "vlan_id": None,
        "role": "dataplane",
        "state": "user",
        "mtu": None,
        "txqueuelen": None,
        "addresses": [],
        "sysctl": {},
        "device": {},
    }


def test_every_stage_can_be_written_as_json():
    agent = Agent(machine(PORT, nic(2), mgmt=2), TEXT)
    agent.run()
    survey = agent.survey()
    stored = StoredDocument("ec2", "00", "2026-11-20T19:00:00Z", TEXT)
    for data in (
        render_json.desired_json(survey.resolution),
        render_json.observed_json(survey.world),
        render_json.document_json(agent.document, stored),
        render_json.explain_link(
            key(2), survey.resolution, survey.observed, survey.record, survey.world
        ),
    ):
        assert json.loads(json.dumps(data)) == data
        assert yaml.safe_load(as_yaml(data))["version"] == data["version"]


def test_what_is_observed():
    seen = world(
        nic(1, up=True, carrier=True),
        vlan(2, 1, 7),
        Device(3, "br0", "bridge", mac(3), max_mtu=0),
        nic(4, master=3, permanent_mac=""),
        addresses={1: "10.0.0.1/24 fe80::1/64"},
        routes=[route("0.0.0.0/0", 1, "10.0.0.9", 100, 16), route("10.0.0.0/24", 99)],
        metadata=1,
    )
    data = render_json.observed_json(seen)
    assert data["links"][0] == {
        "name": "eth1",
        "index": 1,
        "kind": "physical",
        "mac": mac(1),
        "permanent_mac": mac(1),
        "state": "up",
        "carrier": True,
        "mtu": 1500,
        "max_mtu": 65535,
        "txqueuelen": 1000,
        "parent": None,
        "master": None,
        "vlan_id": None,
        "options": {},
        "addresses": ["10.0.0.1/24", "fe80::1/64"],
    }
    assert [(one["kind"], one["parent"], one["master"]) for one in data["links"][1:]] == [
        ("vlan", "eth1", None),
        ("bridge", None, None),
        ("physical", None, "br0"),
    ]
    assert data["routes"] == [
        {
            "to": "0.0.0.0/0",
            "via": "10.0.0.9",
            "interface": "eth1",
            "metric": 100,
            "protocol": 16,
            **MAIN,
        },
        {"to": "10.0.0.0/24", "via": None, "interface": None, "metric": 0, "protocol": 4, **MAIN},
    ]
    assert data["metadata_interface"] == "eth1"


def test_no_chap_secret_is_shown():
    its = ("disks", "quiet")
    storage = Storage("sda", ip_address("10.0.0.5"), 3260, 1, "joe", "hush", mutual_chap=its)
    data = render_json.document_json(
        Document(storage=(storage,)), StoredDocument("ec2", "00", "x", "")
    )
    assert data["storage"][0]["chap_secret"] == "(not shown)"
    assert data["storage"][0]["mutual_chap"] == "(not shown)"
    assert not {"hush", "quiet", "disks"} & set(json.dumps(data).split('"'))


def test_no_document_is_told_as_such():
    assert render_json.document_json(None, None) == {"version": 1, "source": None}


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("net/core/rmem_max", "net.core.rmem_max"),
        ("net/ipv4/conf/eth1.1445/rp_filter", "net.ipv4.conf.eth1/1445.rp_filter"),
    ],
)
def test_a_sysctl_is_written_as_sysctl_d_reads_it(path, written):
    assert dotted_name(path) == written


def test_a_plan_for_people():
    agent = Agent(
        machine(nic(2, max_mtu=9000)),
        f"[interface {mac(2)}]\nmtu = 9001\n[routes]\n0.0.0.0/0 = 10.0.0.1\n",
    )
    survey = agent.survey()
    operations = [one for one in survey.plan() if one.kind != "write-file"]
    assert render.plan_text(operations, survey.resolution.problems, survey.resolution.names).split(
        "\n"
    ) == [
        "bring eth2 up",
        'not done: eth2: MTU 9001 requested, but "eth2" supports at most 9000',
        "not done: route to 0.0.0.0/0: a prefix of length 0 or 1 would replace the default route",
    ]
    assert render.plan_text([], [Problem("absent", "gone")], {}) == "nothing to do\nnot done: gone"


STATUS = {
    "version": 1,
    "neuca": "2.0.0",
    "state": "degraded",
    "document": {
        "source": "ec2",
        "sha256": "00",
        "fetched": "2026-11-20T19:00:00Z",
        "stale": True,
        "reason": "no response",
        "platform": None,
    },
    "interfaces": [
        {
            "mac": mac(2),
            "name": "eth2",
            "desired_name": "data",
            "kind": "physical",
            "role": "dataplane",
            "desired_state": "up",
            "state": "up",
            "carrier": False,
            "mtu": 1500,
            "addresses": ["172.16.0.1/24", "fd00::1/64", "fe80::2/64"],
            "ok": False,
            "managers": {"networkmanager": "unmanaged", "networkd": "absent"},
            "problems": [{"code": "mtu", "text": "too large"}],
            "notes": [],
            "parent": None,
            "vlan_id": None,
        },
        {
            "mac": None,
            "name": "eth2.7",
            "desired_name": "eth2.7",
            "kind": "vlan",
            "role": "dataplane",
            "desired_state": "up",
            "state": "up",
            "carrier": True,
            "mtu": 9000,
            "addresses": [],
            "ok": True,
            "managers": {"networkmanager": "unmanaged", "networkd": "absent"},
            "problems": [],
            "notes": [
                {
                    "setting": "txqueuelen",
                    "effect": "not applicable",
                    "reason": "the qdisc noqueue has no queue",
                }
            ],
            "parent": mac(2),
            "vlan_id": 7,
        },
    ],
    "problems": [{"code": "invalid", "text": "line 3"}],
    "notes": ["networkmanager: no answer"],
    "last_pass": {"finished": "2026-11-20T19:00:01Z", "seconds": 0.08, "changed": 7, "failed": 0},
}


def test_status_for_people_has_a_mark_for_each_link_and_a_reason_for_each_shortfall():
    lines = render.status_text(STATUS, color=False).split("\n")
    assert lines == [
        "degraded: neuca 2.0.0, document of ec2, read 2026-11-20T19:00:00Z, stale: no response",
        "last pass: 2026-11-20T19:00:01Z, 0.08 s, 7 changed, 0 failed",
        "    NAME    ROLE       MODE  LINK        MTU   ID                      NM",
        "!!  eth2    dataplane  up    no carrier  1500  02:00:00:00:00:02       unmanaged",
        "      desired name: data",
        "      addresses: 172.16.0.1/24, fd00::1/64",
        "      mtu: too large",
        "ok  eth2.7  dataplane  up    up          9000  VLAN 7 on               unmanaged",
        "                                               02:00:00:00:00:02",
        "      note: txqueuelen: not applicable: the qdisc noqueue has no queue",
        "!! invalid: line 3",
        "   note: networkmanager: no answer",
    ]


def test_colour_is_for_terminals():
    """Amber is for what is to be done, red for what failed, green for what was checked."""
    assert "\033[" not in render.status_text(STATUS, color=False)
    assert "\033[33mdegraded\033[0m" in render.status_text(STATUS, color=True)
    assert "\033[33m!!\033[0m  eth2" in render.status_text(STATUS, color=True)
    assert "\033[33mpending\033[0m" in render.status_text(
        {**STATUS, "state": "pending"}, color=True
    )
    assert "\033[31mfailed\033[0m" in render.status_text({**STATUS, "state": "failed"}, color=True)
    failed = {**STATUS["interfaces"][0], "problems": [{"code": "failed", "text": "boom"}]}
    text = render.status_text({**STATUS, "interfaces": [failed]}, color=True)
    assert "\033[31m!!\033[0m  eth2" in text


def test_a_nic_of_which_nothing_is_requested_is_not_shown_as_correct():
    unlisted = {**STATUS["interfaces"][1], "role": "unlisted", "desired_state": None}
    lines = render.status_text({**STATUS, "interfaces": [unlisted]}, color=True).split("\n")
    assert next(line for line in lines if "eth2.7" in line).startswith("--  eth2.7  ")


def test_a_column_without_values_is_left_out_and_a_wide_terminal_has_no_second_lines():
    nic_up = {**STATUS["interfaces"][0], "desired_name": "eth2", "carrier": True}
    nic_up["managers"] = {"networkmanager": "absent", "networkd": "absent"}
    lines = render.status_text({**STATUS, "interfaces": [nic_up]}, color=False).split("\n")
    assert lines[2:4] == [
        "    NAME  ROLE       MODE  LINK  MTU   ID",
        "!!  eth2  dataplane  up    up    1500  02:00:00:00:00:02",
    ]
    wide = render.status_text(STATUS, color=False, width=120).split("\n")
    assert "    NAME    ROLE       MODE  LINK        MTU   ID" in wide[2]


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_a_table_is_no_wider_than_the_terminal(width):
    unbreakable = "2001:0db8:1234:5678:9abc:def0:1234:5678/128"
    rows = [["SETTING", "VALUE", "EMPTY", "SOURCE"]]
    rows += [["net.ipv6.conf.eth1.accept_ra", unbreakable, "-", "line 2, [interface 020000000002]"]]
    lines = "\n".join(render.table_lines(rows, width)).split("\n")
    assert max(map(len, lines)) <= width
    assert "".join("".join(lines).split()).count("EMPTY") == 0
    assert (len(lines) == 2) == (width == 132)


def test_status_with_nothing_to_show():
    data = {
        **STATUS,
        "state": "ok",
        "interfaces": [],
        "problems": [],
        "notes": [],
        "last_pass": None,
        "document": {
            "source": None,
            "sha256": None,
            "fetched": None,
            "stale": False,
            "reason": None,
            "platform": None,
        },
    }
    assert render.status_text(data, color=False).split("\n") == [
        "ok: neuca 2.0.0, no document",
        "no pass since the boot",
        "no interfaces",
    ]


@pytest.mark.parametrize(
    ("platform", "line"),
    [
        ("openstack", "platform: OpenStack, as the firmware (DMI) says"),
        ("ec2", "platform: EC2, as the firmware (DMI) says"),
        (
            "unknown",
            "platform: not named by the firmware (DMI), so no well-known address is queried",
        ),
        ("any", "platform: not checked (platform = any)"),
        ("of a later version", "platform: of a later version"),
    ],
)
def test_status_says_what_auto_took_this_host_for(platform, line):
    data = {**STATUS, "document": {**STATUS["document"], "platform": platform}}
    assert render.status_text(data, color=False).split("\n")[1] == line


# --- explain --------------------------------------------------------------------------------------------------------


def test_explain_tells_where_a_value_is_from_and_what_it_was_before():
    text = f"[interfaces]\n{mac(2)} = up:ipv4:10.0.0.1/24\n[interface {mac(2)}]\nmtu = 9000\naddresses = 10.0.0.2/24\n"
    agent = Agent(machine(nic(2)), text)
    agent.run()
    survey = agent.survey()
    data = render_json.explain_link(
        key(2), survey.resolution, survey.observed, survey.record, survey.world
    )
    rows = {row["setting"]: row for row in data["settings"]}
    assert (data["link"], data["role"], data["reason"]) == (
        mac(2),
        "dataplane",
        "a document or the configuration names it",
    )
    assert rows["mtu"] == {
        "setting": "mtu",
        "desired": 9000,
        "current": 9000,
        "origin": f"line 4, [interface {mac(2)}]",
        "overridden": "",
        "original": 1500,
    }
    assert rows["addresses"]["overridden"] == "10.0.0.1/24 from line 2, [interfaces]"
    assert rows["txqueuelen"] == {
        "setting": "txqueuelen",
        "desired": None,
        "current": 1000,
        "origin": "",
        "overridden": "",
        "original": None,
    }


def test_explain_has_the_sysctls_of_the_host_that_the_link_requests():
    text = (
        f"[interface {mac(2)}]\nsysctl.net.core.rmem_max = 300000\nsysctl.net.core.wmem_max = 1\n"
        "duplicate-address-detection = no\n"
    )
    kernel = machine(nic(2))
    kernel.sysctls.update({"net/core/rmem_max": "212992", "net/core/wmem_max": "212992"})
    agent = Agent(kernel, text)
    agent.run()
    survey = agent.survey()
    rows = {
        row["setting"]: (row["desired"], row["current"], row["original"], row["origin"])
        for row in render_json.explain_link(
            key(2), survey.resolution, survey.observed, survey.record, survey.world
        )["settings"]
    }
    section = f"[interface {mac(2)}]"
    assert rows["sysctl.net/core/rmem_max"] == ("300000", "300000", "212992", f"line 2, {section}")
    assert rows["sysctl.net/core/wmem_max"] == (None, None, None, f"line 3, {section}")  # refused
    dad = rows["sysctl.net/ipv6/conf/{interface}/accept_dad"]
    assert (dad[0], dad[3]) == ("0", f"line 4, {section}")


def test_explain_for_people_is_a_table():
    survey = Agent(machine(nic(2)), f"[interface {mac(2)}]\nmtu = 9000\n").survey()
    lines = render.explanation_text(
        render_json.explain_link(
            key(2),
            survey.resolution,
            survey.observed,
            Record(originals={key(2): OriginalValues(1400)}),
            survey.world,
        )
    ).split("\n")
    assert lines[0] == f"{mac(2)}: dataplane, because a document or the configuration names it"
    assert lines[1].split() == "SETTING DESIRED CURRENT ORIGINAL".split()
    at = next(at for at, line in enumerate(lines) if line.startswith("mtu"))
    assert lines[at].split() == ["mtu", "9000", "1500", "1400"]
    assert lines[at + 1] == f"      origin: line 2, [interface {mac(2)}]"


def test_explain_shows_what_a_nic_has_of_which_nothing_is_requested():
    agent = Agent(machine(nic(1), nic(2), mgmt=1), f"[interface {mac(2)}]\nmtu = 9000\n")
    survey = agent.survey()
    data = render_json.explain_link(
        key(1), survey.resolution, survey.observed, survey.record, survey.world
    )
    assert (data["role"], survey.observed.links.get(key(1))) == ("management", None)
    current = {row["setting"]: row["current"] for row in data["settings"]}
    assert (current["name"], current["state"], current["mtu"]) == ("eth1", "up", 1500)
    assert current["addresses"]
    assert render.explanation_text(data).split("\n")[1].split() == ["SETTING", "CURRENT"]


def test_explain_shows_the_sysctls_that_the_agent_itself_wants_with_the_name_of_the_link():
    agent = Agent(machine(nic(2)), f"[interfaces]\n{mac(2)} = up:ipv4:10.0.0.1/24\n")
    path = "net/ipv6/conf/{interface}/accept_ra"
    decision = agent.survey()
    desired = decision.resolution.desired
    links = {key(2): desired.links[key(2)]._replace(name="dp.2", sysctls={path: "0"})}
    absent = replace(decision.resolution.roles, nics={})
    resolution = decision.resolution._replace(desired=desired._replace(links=links), roles=absent)
    data = render_json.explain_link(
        key(2), resolution, decision.observed._replace(links={}), Record(), World()
    )
    lines = [line.split() for line in render.explanation_text(data).split("\n")]
    assert ["sysctl.net.ipv6.conf.dp/2.accept_ra", "0"] in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": None, "c": [], "d": {"e": "x"}}, "a: 1\nd:\n  e: x"),
        ({"a": ["x", "y"]}, "a:\n- x\n- y"),
        ({"a": "x\ny\n"}, "a: |\n  x\n  y"),
        ({"a": False, "b": 0, "c": "0", "d": "no"}, "a: false\nb: 0\nc: '0'\nd: 'no'"),
        ({"rule": "0: from all lookup 255"}, "rule: '0: from all lookup 255'"),
    ],
)
def test_what_show_prints_is_yaml_that_a_parser_reads(value, text):
    assert as_yaml(value) == text
    read = yaml.safe_load(f"{text}\n")
    assert read == {key: one for key, one in value.items() if one not in (None, [])}


def test_a_table_that_cannot_fit_breaks_no_word():
    """Else its rows would be wrapped once more, as lines, and their columns would be mixed up."""
    head = ["", "NAME", "ROLE", "MODE", "LINK", "MTU", "ID"]
    row = ["ok", "eth0", "management", "-", "up", "1500", "fe:16:3e:00:6d:a0"]
    rows = [head, row, [*row[:3], "up", *row[4:]]]
    assert not any("\n" in text for text in render.table_lines(rows, 40))
    assert ["\n" in text for text in render.table_lines(rows, 42)] == [False, True, True]


def test_a_column_of_short_words_makes_room_for_a_table():
    rows = [["A", "B"], ["a b c d", "fe:16:3e:00:6d:a0"]]
    assert render.table_lines(rows, 9)[1].splitlines()[0] == "a  fe:16:"
    assert render.table_lines(rows, 8)[1].splitlines()[0] == "a  fe:16:3e:00:6d:a0"


def test_a_table_has_aligned_columns_and_no_blanks_at_its_end():
    assert render.table_lines([["a", "bb"], ["ccc", ""]], 80) == ["a    bb", "ccc"]
    assert render.table_lines([["", "A"], ["", "b"]], 80) == ["   A", "   b"]
    assert render.table_lines([], 80) == []
