"""DHCP on dataplane NICs with NetworkManager as the client: the profile, and who is kept off which NIC."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import uuid

import pytest
from test_dhcp import TABLE, decided, netplan, seen
from worlds import key, mac

from neuca_tools.desired import dhcp_files
from neuca_tools.model import Automatic, NicRecord, OriginalValues, Record
from neuca_tools.plan.operations import Activate, ReloadManager, Unmanage

RUNS = {"networkmanager": {"eth1": "managed", "eth2": "unmanaged"}}
OURS = {"networkmanager": {"eth1": "managed", "eth2": "managed"}}
FILE = "/etc/NetworkManager/system-connections/neuca-dhcp-020000000002.nmconnection"
CONF = "/nm/neuca.conf"
KNOWN = Record(nics={mac(2): NicRecord("eth2", "dataplane")})


def look(managers=RUNS, **more):
    return seen(managers=managers, **more)


def files_of(decision):
    return {path: content for path, content in decision.desired.files.items() if content}


def calls(decision):
    """What NetworkManager is asked to do."""
    return [
        one.text for one in decision.plan() if isinstance(one, (Activate, ReloadManager, Unmanage))
    ]


def lines(mtu=None, **asked):
    return dhcp_files.networkmanager_profile(key(2), Automatic(**asked), mtu).decode().splitlines()


def test_the_profile():
    text = dhcp_files.networkmanager_profile(key(2), Automatic(dhcp4=True), None)
    assert text.decode() == (
        f"""# Written by neucad, which overwrites it. For DHCP on the NIC {mac(2)}; see neucad(8).
[connection]
id=neuca-dhcp-020000000002
uuid={dhcp_files.uuid_of(text)}
type=ethernet
autoconnect-priority=999
autoconnect-retries=0
lldp=0
llmnr=0
mdns=0

[ethernet]
mac-address={mac(2)}

[ipv4]
method=auto
may-fail=true
dhcp-timeout=2147483647
dhcp-client-id=mac
dhcp-send-release=1
link-local=2
dhcp-send-hostname=true
ignore-auto-dns=true
ignore-auto-routes=false
route-table={TABLE}

[ipv6]
method=link-local
may-fail=true
addr-gen-mode=0
ip6-privacy=0

[hostname]
from-dhcp=0
from-dns-lookup=0
"""
    )


def test_the_uuid_is_valid_ours_and_another_one_for_each_nic_and_content():
    texts = [
        dhcp_files.networkmanager_profile(key(2), Automatic(dhcp4=True), None),
        dhcp_files.networkmanager_profile(key(3), Automatic(dhcp4=True), None),
        dhcp_files.networkmanager_profile(key(2), Automatic(dhcp4=True), 1400),
        dhcp_files.networkmanager_profile(key(2), Automatic(dhcp6=True), None),
    ]
    found = [dhcp_files.uuid_of(text) for text in texts]
    assert len(set(found)) == len(texts)
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in found} == {
        (5, uuid.RFC_4122)
    }
    assert all(map(dhcp_files.is_our_uuid, found))
    assert not dhcp_files.is_our_uuid("588e6120-1a2b-3229-b53c-c6b87511a501")


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"dhcp6": True}, "method=auto"),
        ({"dhcp6": True}, "method=disabled"),
        ({"dhcp6": True, "accept_ra": False}, "method=dhcp"),
        ({"accept_ra": True}, "method=auto"),
        ({"dhcp4": True, "link_local": ("ipv4",)}, "link-local=2"),
        ({"dhcp4": True, "mtu": 1400}, "mtu=1400"),
    ],
)
def test_what_a_document_asks_for_is_in_the_profile(asked, line):
    assert line in lines(**asked)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        ((("use-dns", "true"),), "ignore-auto-dns=false"),
        ((("use-hostname", "true"),), "from-dhcp=1"),
        ((("use-routes", "false"),), "ignore-auto-routes=true"),
        ((("route-metric", "300"),), "route-metric=300"),
        ((("send-hostname", "false"),), "dhcp-send-hostname=false"),
        ((("hostname", "node0"),), "dhcp-hostname=node0"),
    ],
)
def test_overrides_of_netplan_keep_their_meaning(overrides, line):
    assert line in lines(dhcp4=True, dhcp4_overrides=overrides)


def test_a_nic_with_dhcp_is_the_only_one_that_networkmanager_may_take():
    files = files_of(decided(look(), netplan(dhcp4=True)))
    assert files[FILE] == dhcp_files.networkmanager_profile(key(2), Automatic(dhcp4=True), None)
    assert f"mac:{mac(2)}".encode() not in files[CONF]
    assert f"PermanentMACAddress={mac(2)}".encode() in files["/networkd/05-neuca-nics.network"]
    rule = files["/udev/10-neuca-persistent-020000000002.rules"].decode()
    assert 'ENV{NM_UNMANAGED}="0", ENV{ID_NET_MANAGED_BY}="org.freedesktop.NetworkManager"' in rule
    static = files_of(decided(look(), netplan(addresses=["172.16.0.1/24"])))
    assert f"mac:{mac(2)}".encode() in static[CONF]
    assert FILE not in static


def test_the_nic_is_taken_once_and_a_second_pass_does_nothing():
    first = decided(look(), netplan(dhcp4=True), KNOWN)
    assert calls(first) == [
        "make networkmanager reload its configuration",
        "make networkmanager do DHCP on eth2",
    ]
    files = files_of(first)
    for profile in (dhcp_files.uuid_of(files[FILE]), ""):  # in use, or waiting for a carrier
        later = decided(
            look(OURS, files=files, profiles={"eth2": profile}), netplan(dhcp4=True), KNOWN
        )
        assert calls(later) == []


@pytest.mark.parametrize(
    "other", ["588e6120-1a2b-3229-b53c-c6b87511a501", "6e657563-0000-5000-8000-000000000000"]
)
def test_another_profile_and_an_older_one_of_ours_give_way(other):
    files = files_of(decided(look(), netplan(dhcp4=True), KNOWN))
    there = look(OURS, files=files, profiles={"eth2": other})
    assert calls(decided(there, netplan(dhcp4=True), KNOWN)) == [
        "make networkmanager do DHCP on eth2"
    ]


def test_a_withdrawn_request_removes_the_profile_and_networkmanager_releases_the_nic():
    files = files_of(decided(look(), netplan(dhcp4=True), KNOWN))
    profile = dhcp_files.uuid_of(files[FILE])
    gone = decided(
        look(OURS, files=files, profiles={"eth2": profile}),
        netplan(addresses=["172.16.0.1/24"]),
        KNOWN,
    )
    assert gone.desired.files[FILE] is None
    assert f"mac:{mac(2)}".encode() in gone.desired.files[CONF]
    assert calls(gone) == ["make networkmanager reload its configuration"]
    # Killed after the files were written: NetworkManager has not read them, and is told now.
    files = files_of(gone)
    again = look(OURS, files=files, profiles={"eth2": profile})
    assert calls(decided(again, netplan(addresses=["172.16.0.1/24"]), KNOWN)) == [
        "make networkmanager reload its configuration"
    ]
    # A profile of somebody else's is not ours to remove: the NIC is taken out of its hands.
    other = look(OURS, files=files, profiles={"eth2": "588e6120-1a2b-3229-b53c-c6b87511a501"})
    assert calls(decided(other, netplan(addresses=["172.16.0.1/24"]), KNOWN)) == [
        "make networkmanager release eth2"
    ]


def test_the_client_is_the_manager_that_has_the_management_nic():
    both = {**RUNS, "networkd": {"eth1": "unmanaged", "eth2": "unmanaged"}}
    assert decided(look(both), netplan(dhcp4=True)).resolution.roles.dhcp.clients == {
        key(2): "networkmanager"
    }
    both = {
        "networkd": {"eth1": "managed", "eth2": "unmanaged"},
        "networkmanager": {"eth1": "unmanaged", "eth2": "unmanaged"},
    }
    assert decided(look(both), netplan(dhcp4=True)).resolution.roles.dhcp.clients == {
        key(2): "networkd"
    }


def test_a_new_client_gets_its_file_and_the_old_one_loses_its_own():
    files = files_of(decided(look(), netplan(dhcp4=True), KNOWN))
    networkd = {"networkd": {"eth1": "managed", "eth2": "unmanaged"}}
    found = decided(look(networkd, files=files), netplan(dhcp4=True), KNOWN)
    assert found.desired.files[FILE] is None
    assert found.desired.files["/networkd/04-neuca-dhcp-020000000002.network"]


def test_before_networkmanager_runs_the_client_is_known_by_its_file():
    before = look({}, files={FILE: b"as before"})
    assert decided(before, netplan(dhcp4=True)).desired.files[FILE]


def test_without_a_document_the_profile_stays_and_nothing_is_activated():
    record = KNOWN
    found = decided(look(OURS, files={FILE: b"as before"}), None, record)
    assert FILE not in found.desired.files
    assert calls(found) == []


def test_a_management_nic_never_gets_a_profile():
    files = files_of(decided(look(), netplan(dhcp4=True)))
    assert [path for path in files if path.endswith(".nmconnection")] == [FILE]
    assert dhcp_files.owner_of_file("neuca-dhcp-020000000002.nmconnection") == (
        "networkmanager",
        key(2),
    )
    assert not dhcp_files.is_dhcp_file("neuca-dhcp-notes.nmconnection")


def test_an_mtu_that_is_restored_changes_the_profile_once():
    """The original value is restored by one pass; the next one must not touch the profile again."""
    record = KNOWN._replace(originals={key(2): OriginalValues(mtu=1500)})
    during = files_of(decided(look(), netplan(dhcp4=True), record))[FILE]
    assert files_of(decided(look(), netplan(dhcp4=True), KNOWN))[FILE] == during
    assert b"mtu=" not in during
    asked = files_of(decided(look(), netplan(dhcp4=True, mtu=1500), record))[FILE]
    assert b"\nmtu=1500\n" in asked
