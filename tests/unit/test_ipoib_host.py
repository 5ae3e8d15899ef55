"""InfiniBand ports outside of a pass: files for udev and the managers, names at boot, sysfs, netlink requests, the CLI.

No InfiniBand hardware is here: sysfs is laid out as Linux 5.10 has it (ipoib_main.c, net-sysfs.c), and requests are
decoded by pyroute2, whose description of IFLA_IPOIB_* is independent of ours.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fnmatch
import re
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

import pytest
from test_backends_kinds import encoded
from test_ipoib import GUID, PREFIX, SECOND, SHORT, TWIN, agent, child, done, port
from test_tuning_layer import Tuned, own, tuning_texts
from worlds import mac, nic, world

from neuca_tools.backends import kinds, udev
from neuca_tools.commands.links import find_link
from neuca_tools.desired import bindings, dhcp_clients, marks
from neuca_tools.desired.management import Policy
from neuca_tools.desired.names import boot_names
from neuca_tools.desired.outlets import is_overruled
from neuca_tools.desired.roles import assign_roles
from neuca_tools.documents import parse
from neuca_tools.documents.neuca import values
from neuca_tools.documents.stacking import merge_layers
from neuca_tools.model import LinkKey, NicRecord, Record
from neuca_tools.model.machine import Machine, MetadataService, foreign_reason

CONDITIONS = f'DRIVERS=="?*", ATTR{{type}}=="32", ATTR{{address}}=="*:{GUID}", ENV{{DEVTYPE}}!="?*", TEST!="master"'
MARKS = 'ENV{NM_UNMANAGED}="1", ENV{ID_NET_MANAGED_BY}="neucad"'
RULE = marks.udev_rule(GUID, "fabric0", True).decode()


# --- udev -----------------------------------------------------------------------------------------


def test_the_rule_of_a_port_compares_the_guid_only():
    assert RULE.splitlines()[1:] == [
        f'SUBSYSTEM=="net", ACTION=="add|change|move", {CONDITIONS}, {MARKS}',
        f'SUBSYSTEM=="net", ACTION=="add", {CONDITIONS}, NAME:="fabric0"',
    ]


def matches(rule, properties):
    """Whether the device meets all conditions of the rule's last line, as udev(7) describes them."""
    for key, operator, value in re.findall(
        r'([A-Z]+(?:\{\w+\})?)(==|!=)"([^"]*)"', rule.splitlines()[-1]
    ):
        found = properties.get(key, "")
        if any(fnmatch.fnmatchcase(found, one) for one in value.split("|")) != (operator == "=="):
            return False
    return True


def udev_data(guid, kind="32", driver="mlx5_core", prefix=PREFIX):
    return {
        "SUBSYSTEM": "net",
        "ACTION": "add",
        "DRIVERS": driver,
        "ATTR{type}": kind,
        "ATTR{address}": f"{prefix}:{guid}",
    }


@pytest.mark.parametrize(("data", "so"), [
    (udev_data(GUID), True),
    (udev_data(GUID, prefix="a0:00:1f:20:fe:c0:00:00:00:00:00:07"), True),
    (udev_data(SECOND), False),
    (udev_data(TWIN), False),
    (udev_data(GUID, driver=""), False),  # a child has no parent device
    (udev_data(GUID, kind="1"), False),
    ({**udev_data(GUID), "TEST": "master"}, False),
])  # fmt: skip
def test_the_rule_names_this_port_and_no_child_of_it(data, so):
    assert matches(RULE, data) is so


def test_the_name_of_a_rule_file_has_the_whole_guid():
    name = marks.udev_rule_name(GUID, True, "neuca-persistent", 10, 15)
    assert name == "10-neuca-persistent-ec0d9a030015e2c1.rules"
    assert marks.rule_mac(name, "neuca-persistent") == GUID


@pytest.mark.parametrize("digits", ["ec0d9a030015e2", "ec0d9a030015e2c1aa", "ec0d9a030015e2c"])
def test_a_file_with_another_number_of_digits_is_not_ours(digits):
    assert marks.rule_mac(f"10-neuca-persistent-{digits}.rules", "neuca-persistent") is None


@pytest.mark.parametrize("address", [f"?*{GUID}", f"*:{GUID}", f"{PREFIX}:{GUID}", GUID])
def test_foreign_rules_for_ports_are_recognized(address):
    rule = f'ACTION=="add", SUBSYSTEM=="net", ATTR{{type}}=="32", ATTR{{address}}=="{address}", NAME="ibx"\n'
    assert marks.name_by_mac(rule) == {GUID: "ibx"}


# --- Managers -------------------------------------------------------------------------------------


def test_managers_are_kept_off_ports_and_children():
    text = f"[interface {GUID}]\nname = fabric0\n[ipoib part1]\nparent = {GUID}\npkey = 0x8001\n"
    one = agent(text + f"[interface {mac(3)}]\n", port(2), nic(3))
    done(one)
    files = one.kernel.files
    networkmanager = files["/nm/neuca.conf"].decode().splitlines()
    zeros = "00:" * 12
    assert networkmanager[2] == (
        f"unmanaged-devices+=mac:{mac(3)};mac:{zeros}{GUID};interface-name:eth3.*;"
        "interface-name:fabric0;interface-name:fabric0.*;interface-name:part1;interface-name:part1.*"
    )
    assert f"PermanentMACAddress={mac(3)}" in files["/networkd/05-neuca-nics.network"].decode()
    assert GUID not in files["/networkd/05-neuca-nics.network"].decode()
    assert files["/networkd/05-neuca-vlans.network"].decode().splitlines()[1:] == [
        "[Match]",
        "Kind=ipoib vlan",
        "Name=eth3.*",
        "Name=fabric0",
        "Name=fabric0.*",
        "Name=part1",
        "Name=part1.*",
        "",
        "[Link]",
        "Unmanaged=yes",
    ]


def test_dhcp_on_a_port_is_left_to_other_programs():
    one = agent(
        f"[interface {GUID}]\ndhcp4 = yes\n[interface {mac(3)}]\ndhcp4 = yes\n", port(2), nic(3)
    )
    resolution, seen = (
        one.survey().resolution,
        replace(one.kernel.world(), managers={"networkd": {}}),
    )
    found = dhcp_clients.assign_clients(resolution.requests, resolution.roles, seen, trusted=None)
    assert (found.dhcp.clients, found.dhcp.left_to_others) == (
        {LinkKey(mac(3)): "networkd"},
        {GUID},
    )
    (problem,) = dhcp_clients.unserved_links(resolution.requests, found, seen)
    assert (problem.link, problem.text) == (LinkKey(GUID), dhcp_clients.NOT_ON_INFINIBAND)
    lease = frozenset({(2, ip_interface("10.4.0.9/24"))})
    assert [
        *dhcp_clients.unserved_links(
            resolution.requests, found, replace(seen, leased_addresses=lease)
        )
    ] == []


# --- Names at boot --------------------------------------------------------------------------------


def boot(seen, record, text="[interfaces]\n"):
    requests = merge_layers(parse(text).links, ())
    links = bindings.bound_links(requests.values(), bindings.guid_by_short_form(seen, record))
    bound = {request.key: request for request in links}
    roles = assign_roles(seen, {key.mac for key in bound}, Policy(), record)
    return boot_names(seen, roles, bound, record)


RECORD = Record(nics={GUID: NicRecord("fabric0"), SECOND: NicRecord("fabric1")})


def test_ports_that_swapped_their_names_get_them_back():
    seen = world(port(2, SECOND, "fabric0"), port(3, GUID, "fabric1"), child(4, 2, SECOND))
    assert boot(seen, RECORD) == {2: "fabric1", 3: "fabric0"}


def test_a_port_gets_the_name_that_is_asked_for_its_six_bytes():
    assert boot(world(port(2)), Record(), f"[interface {SHORT}]\nname = data0\n") == {2: "data0"}


@pytest.mark.parametrize(("present", "text", "so"), [
    ([("fabric0", GUID), ("fabric1", SECOND)], "", True),
    ([("fabric1", GUID), ("fabric0", SECOND)], "", False),
    ([("fabric0", GUID)], f"[interface {SHORT}]\nname = fabric0\n", True),
    ([("fabric0", TWIN)], "", False),
])  # fmt: skip
def test_a_boot_with_nothing_to_rename_is_known(present, text, so):
    seen = world(*(port(index, guid, name) for index, (name, guid) in enumerate(present, 2)))
    names = {index: name for index, (name, _) in enumerate(present, 2)}
    assert (boot(seen, RECORD, text or "[interfaces]\n") == names) is so


# --- sysfs ----------------------------------------------------------------------------------------


@pytest.fixture
def sysfs(tmp_path, monkeypatch):
    """A port, a child of it, an Ethernet NIC, and a port whose driver has not read its GUID."""
    devices = {
        "ib0": ("32", f"{PREFIX}:{GUID}", 2, 2, True),
        "ib0.8001": ("32", f"{PREFIX}:{GUID}", 3, 2, False),
        "eth0": ("1", mac(1), 1, 1, True),
        "ib9": ("32", f"{PREFIX}:" + ":".join(["00"] * 8), 9, 9, True),
    }
    for name, (kind, address, index, lower, attached) in devices.items():
        node = tmp_path / name
        node.mkdir()
        for file, text in (
            ("type", kind),
            ("address", address),
            ("ifindex", index),
            ("iflink", lower),
        ):
            (node / file).write_text(f"{text}\n")
        if attached:
            (node / "device").mkdir()
    monkeypatch.setattr(udev, "_SYSFS", tmp_path)
    return tmp_path


def test_a_host_with_ports_only_is_the_machine_that_recorded_them():
    before, now = Machine(uuid="a"), Machine(uuid="b")
    assert foreign_reason(before, now, {GUID}, {GUID, mac(1)}) == ""
    assert foreign_reason(before, now, {GUID}, {SECOND}) != ""


# --- Requests to the kernel -----------------------------------------------------------------------


def test_the_options_of_a_child_are_read_back_as_pyroute2_encodes_them():
    options = {"pkey": "0x8001", "mode": "connected"}
    found = dict(kinds.link_options("ipoib", GUID, encoded("ipoib", options)))
    assert found == {**options, "mac": GUID}


@pytest.mark.parametrize("mode", values.IPOIB_MODES)
def test_a_mode_is_encoded_as_the_kernel_knows_it(mode):
    assert encoded("ipoib", {"mode": mode}).number(2) == values.IPOIB_MODES.index(mode)


# --- The rest of the agent ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", [GUID, SHORT, f"{PREFIX}:{GUID}", "fabric0", GUID.replace(":", "")]
)
def test_commands_find_a_port_by_name_guid_and_short_form(text):
    one = agent(f"[interface {GUID}]\nname = fabric0\n", port(2))
    done(one)
    assert find_link(text, one.survey()) == LinkKey(GUID)


@pytest.mark.parametrize(("policy", "configured", "void"), [
    (Policy(), (), False),
    (Policy(ignored=frozenset({SHORT})), (), True),
    (Policy(ignored=frozenset({GUID})), (), True),
    (Policy(management=frozenset({SHORT})), (), False),
    (Policy(management=frozenset({mac(1)})), (), True),
    (Policy(), (SHORT,), True),
    (Policy(management=frozenset({SHORT})), (GUID,), False),
])  # fmt: skip
def test_the_configuration_may_name_the_port_of_the_metadata_service_by_six_bytes(
    policy, configured, void
):
    assert (
        is_overruled(MetadataService("ec2", "http://169.254.169.254", GUID), policy, configured)
        is void
    )


def test_a_faulty_line_about_six_bytes_keeps_what_is_on_the_port():
    text = f"[interface {SHORT}]\naddresses = 10.4.0.7/24\n"
    one = agent(text, port(2))
    done(one)
    one.ask(f"[interface {SHORT}]\naddresses = 10.4.0.x/24\nmtu = 2000\n")
    one.run()
    assert "10.4.0.7/24" in [str(found) for found in one.kernel.addresses[2]]


def test_the_example_configures_both_ports_and_a_child():
    text = (Path(__file__).parents[2] / "examples" / "infiniband.ini").read_text()
    one = agent(text, port(2), port(3, SECOND))
    assert one.document.faults == ()
    lines = done(one)
    assert {f"rename ib{index} to fabric{index - 2}" for index in (2, 3)} <= {*lines}
    assert "create the IPoIB child storage0 (mode datagram, pkey 0x8002) on fabric0" in lines


def test_a_profile_leaves_the_mtu_of_a_port_in_datagram_mode():
    found = Tuned(agent("", port(2)).kernel, f"[interface {GUID}]\n", [own(mtu=9000)])
    assert tuning_texts(found.run()[0]) == []
    row = found.rows()["ib2", "mtu"]
    assert (row.effect, row.reason) == (
        "not applicable",
        '"ib2" is an InfiniBand port in datagram mode',
    )
