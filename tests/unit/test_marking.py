"""Which files there should be, for whom, with which names, and when they go."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from pathlib import Path

import pytest
from worlds import ANYONE, PLACES, Agent, bare, document, mac, machine, nic, route, world

from neuca_tools.desired.manager_files import Places, wanted_files
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.desired.roles import Policy
from neuca_tools.model import NicRecord, Record

NM, NICS, VLANS, SYSCTL = (
    "/nm/neuca.conf",
    "/networkd/05-neuca-nics.network",
    "/networkd/05-neuca-vlans.network",
    "/sysctl.d/neuca.conf",
)
TWO = f"[interfaces]\n{mac(2)} = up\n"
NOTHING = Record()


def marks(text, *devices, record=NOTHING, policy=ANYONE, present=(), places=PLACES):
    devices = {one.index: one for one in (nic(1), nic(2), nic(3), *devices)}.values()
    seen = world(*devices, routes=[route("0.0.0.0/0", 1, "192.0.2.1")])
    return wanted_files(
        resolve_state(document(text) if text else None, Settings(policy), seen, record),
        record,
        places,
        {f"/udev/{name}": b"" for name in present},
    )


def rules(found):
    return {
        Path(path).name: content
        for path, content in found.files.items()
        if path.startswith("/udev/")
    }


def pinned(found):
    """MAC to (priority, name) of every rule file that should be there."""
    return {
        name.split("-")[-1][:-6]: (
            int(name[:2]),
            content.decode().rpartition('NAME:="')[2].rstrip('"\n'),
        )
        for name, content in rules(found).items()
        if content is not None
    }


def remembers(**roles):
    return Record(
        nics={
            mac(int(one[3:])): NicRecord(name=f"eth{one[3:]}", role="" if role == "none" else role)
            for one, role in roles.items()
        }
    )


def test_every_nic_that_is_there_has_a_rule_and_dataplane_ones_an_earlier_one():
    assert pinned(marks(TWO)) == {
        bare(1): (15, "eth1"),
        bare(2): (10, "eth2"),
        bare(3): (15, "eth3"),
    }


def test_only_dataplane_rules_keep_networkmanager_off():
    found = rules(marks(TWO))
    assert b'ENV{NM_UNMANAGED}="1"' in found[f"10-neuca-persistent-{bare(2)}.rules"]
    assert (
        b"NM_UNMANAGED"
        not in found[f"15-neuca-persistent-{bare(1)}.rules"]
        + found[f"15-neuca-persistent-{bare(3)}.rules"]
    )


def test_another_setting_changes_no_rule():
    asked = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24\n"
    assert rules(marks(asked)) == rules(marks(f"{asked}mtu = 1400\ntxqueuelen = 500\n"))


@pytest.mark.parametrize("policy", [Policy(frozenset({mac(2)})), Policy(frozenset({mac(9)}))])
def test_an_ignored_nic_has_no_rule_and_is_in_no_list(policy):
    found = marks(TWO, nic(2, mac=mac(9)), policy=policy)
    assert bare(2) not in pinned(found)
    assert [
        path
        for path, content in found.files.items()
        if content and (mac(2).encode() in content or b"eth2" in content)
    ] == []


@pytest.mark.parametrize(
    ("kind", "text", "record", "has"),
    [
        ("veth", "", Record(), False),
        ("tun", "", Record(), False),
        ("", "", Record(), True),
        ("veth", TWO, Record(), True),
        ("veth", "", remembers(nic2="none"), True),
        ("veth", "", remembers(nic2="dataplane"), True),
    ],
)
def test_a_veth_has_a_rule_only_once_it_was_named(kind, text, record, has):
    found = marks(text, nic(2, kind=kind, hardware=not kind), record=record)
    assert (bare(2) in pinned(found)) is has


def test_a_veth_that_is_management_has_one():
    seen = world(nic(1, kind="veth", hardware=False), routes=[route("0.0.0.0/0", 1, "192.0.2.1")])
    found = wanted_files(resolve_state(None, Settings(), seen, Record()), Record(), PLACES, {})
    assert pinned(found) == {bare(1): (15, "eth1")}


@pytest.mark.parametrize(
    ("text", "priority", "managed"),
    [
        (TWO, 10, False),
        ("[interfaces]\n", 15, True),
        ("", 10, False),
        ("[interfaces]\nnonsense = 1\n", 10, False),
        (f"[interface {mac(3)}]\nmtu = 12\n", 10, False),
    ],
)
def test_marks_go_with_a_complete_document_alone_and_the_name_stays(text, priority, managed):
    found = marks(text, record=remembers(nic2="dataplane"))
    assert pinned(found)[bare(2)] == (priority, "eth2")
    assert (mac(2).encode() in (found.files[NM] or b"")) is not managed
    assert (mac(2).encode() in (found.files[NICS] or b"")) is not managed


def test_the_name_of_an_absent_nic_stays_pinned():
    assert pinned(marks("[interfaces]\n", record=remembers(nic7="none")))[bare(7)] == (15, "eth7")


def test_the_recorded_name_is_pinned_and_not_the_one_of_the_moment():
    record = Record(nics={mac(2): NicRecord(name="data", role="dataplane")})
    assert pinned(marks("[interfaces]\n", record=record))[bare(2)] == (15, "data")


def test_the_asked_name_is_pinned():
    assert pinned(marks(f"[interface {mac(2)}]\nname = data\n"))[bare(2)] == (10, "data")
    assert pinned(marks(f"[interface {mac(8)}]\nname = data\n"))[bare(8)] == (10, "data")


@pytest.mark.parametrize(
    "text",
    [
        f"[interface {mac(2)}]\nname = eth1\n",
        f"[interface {mac(2)}]\nname = eth3\n",
        f"[interface {mac(2)}]\nname = eth3\n[interface {mac(3)}]\n",
        f"[interface {mac(8)}]\nname = eth1\n",
    ],
)
@pytest.mark.parametrize(
    "record", [Record(), remembers(nic1="management", nic2="dataplane", nic3="dataplane")]
)
def test_no_two_rules_give_the_same_name(text, record):
    """At the next boot one of both would get it, and that may be not the management NIC."""
    names = [name for _, name in pinned(marks(text, record=record)).values()]
    assert sorted(names) == sorted(set(names))


def test_a_released_nic_has_no_rule_and_loses_the_one_it_had():
    record = Record(nics={mac(2): NicRecord(released=True)})
    name = f"10-neuca-persistent-{bare(2)}.rules"
    assert rules(marks(TWO, record=record, present=[name]))[name] is None


def test_rule_files_of_ours_that_are_not_wanted_go_and_others_are_not_ours():
    old, foreign = (
        f"15-neuca-persistent-{bare(2)}.rules",
        ["70-persistent-net.rules", "10-neuca-persistent-xyz.rules", f"{bare(2)}.rules"],
    )
    found = rules(marks(TWO, present=[old, *foreign]))
    assert found[old] is None
    assert [name for name in foreign if name in found] == []


def test_directory_name_and_priorities_are_the_administrators():
    places = Places(Path("/a"), Path("/b"), Path("/c"), Path("/d"), "mine", 7, 99)
    found = marks(TWO, places=places)
    assert {path for path in found.files if path.startswith("/a/")} == {
        f"/a/99-mine-{bare(1)}.rules",
        f"/a/07-mine-{bare(2)}.rules",
        f"/a/99-mine-{bare(3)}.rules",
    }
    assert {
        "/b/neuca.conf",
        "/c/05-neuca-nics.network",
        "/c/05-neuca-vlans.network",
        "/d/neuca.conf",
    } <= set(found.files)


def test_without_dataplane_nics_the_lists_are_not_there():
    files = marks("[interfaces]\n").files
    assert [files[path] for path in (NM, NICS, VLANS, SYSCTL)] == [None] * 4


def test_without_a_document_the_lists_are_left_as_they_are():
    assert not {NM, NICS, VLANS, SYSCTL} & set(marks("").files)


def test_the_lists_hold_nics_by_mac_and_their_vlans_by_name():
    files = marks(f"{TWO}[vlan {mac(2)}.7]\n[vlan {mac(2)}.8]\nname = blue\n").files
    assert (
        b"unmanaged-devices+=mac:02:00:00:00:00:02;interface-name:blue;interface-name:eth2.*;interface-name:eth2.7\n"
        in files[NM]
    )
    assert b"PermanentMACAddress=02:00:00:00:00:02\n" in files[NICS]
    assert files[VLANS].decode().split("\n")[2:6] == [
        "Kind=vlan",
        "Name=blue",
        "Name=eth2.*",
        "Name=eth2.7",
    ]


def test_no_list_matches_the_management_nic():
    files = marks(f"[interface {mac(1)}]\n{TWO}[vlan {mac(1)}.7]\n").files
    for path in (NM, NICS, VLANS):
        assert mac(1).encode() not in files[path]
        assert b"eth1" not in files[path]


def test_the_sysctls_of_links_are_written_for_new_links_too():
    text = f"[interface {mac(2)}]\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
    text += f"[vlan {mac(2)}.7]\nsysctl.net.ipv6.conf.{{interface}}.accept_ra = 0\n"
    assert marks(text).files[SYSCTL].decode().split("\n")[1:-1] == [
        "-net/ipv4/conf/eth2/rp_filter = 2",
        "-net/ipv6/conf/eth2.7/accept_ra = 0",
    ]


def test_a_sysctl_that_goes_back_needs_no_file():
    agent = Agent(
        machine(nic(1), nic(2), mgmt=1),
        f"[interface {mac(2)}]\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n",
    )
    agent.run()
    assert agent.kernel.files[SYSCTL]
    agent.ask(TWO)
    agent.run(start=False)
    assert agent.kernel.files[SYSCTL] is None
    assert [one.text for one in agent.plan()] == []


@pytest.mark.parametrize(
    ("text", "record", "told"),
    [
        (TWO, Record(), True),
        (TWO, remembers(nic2="dataplane"), False),
        (TWO + f"{mac(3)} = up\n", remembers(nic2="dataplane"), True),
        ("[interfaces]\n", remembers(nic2="dataplane"), False),
        ("", Record(), False),
    ],
)
def test_a_manager_is_told_of_new_nics_alone(text, record, told):
    """Of one that goes it would hear too, and take it: entries are removed for the next boot."""
    assert marks(text, record=record).manager_by_file == (
        {NM: "networkmanager", NICS: "networkd", VLANS: "networkd"} if told else {}
    )


@pytest.mark.parametrize("text", [
    f"[vlan {mac(2)}.5]\nname = eth1\n",
    f"[interface {mac(2)}]\n[vlan {mac(1)}.100]\nname = eth1.100\n",
    f"[interface {mac(2)}]\n[interface {mac(8)}]\nname = eth1\n",
])  # fmt: skip
def test_no_list_ever_matches_the_management_nic_or_what_is_on_it(text):
    files = marks(text).files
    assert not any(b"eth1" in (files.get(path) or b"") for path in (NM, NICS, VLANS))
