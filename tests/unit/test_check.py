"""`neuca check`: every format, lines, probable spellings, exit codes, and hostile files."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import LAWS

from neuca_tools.commands.neuca import main
from neuca_tools.documents.check import check, kind_of
from neuca_tools.documents.spelling import closest_word

ROOT = Path(__file__).parents[2]
INI = """[global]
hostname = x
[interfces]
020000000001 = up
[vlna 02:00:00:00:00:01.5]
[interface 02:00:00:00:00:01]
mut = 9000
MTU = 90
adresses = 10.0.0.1/24
[rule a]
tabel = 7
"""
NETPLAN = """# a comment
network:
  version: 2
  ethernets:
    eth1:
      match: {macaddress: "02:00:00:00:00:01"}
      adresses: [10.0.0.1/24]
      dhpc4: true
      routes:
        - to: 10.0.0.0/8
          via: nonsense
"""
VERSION_1 = """version: 1
config:
  - type: physical
    name: eth1
    mac_adress: "02:00:00:00:00:01"
    subnets:
      - type: static
        adress: 10.0.0.1/24
"""
NETWORK_DATA = """{
 "links": [
  {"id": "a", "type": "phy",
   "ethernet_mac_adress": "02:00:00:00:00:01"}
 ],
 "netwroks": []
}
"""


def found(text):
    """(line, severity, meant) of each finding."""
    checked = check(text.encode())
    return checked.kind, [(one.line, one.severity, one.meant) for one in checked.findings]


def test_a_vrf_without_a_section_is_named_with_the_one_that_is_meant():
    text = "[vrf blue]\ntable = 77\n[interface 02:00:00:00:00:02]\nvrf = bleu\n"
    assert found(text) == ("neuca", [(3, "error", "vrf blue")])


def test_a_gateway_of_a_netplan_link_is_not_taken_for_that_of_a_route():
    text = "version: 2\nethernets:\n  eth1:\n    addresses: [10.0.0.5/24]\n    gateway: 10.0.0.1\n"
    assert found(text) == ("network-config", [(5, "error", "gateway4")])


@pytest.mark.parametrize("link", ["", " interface 02:00:00:00:00:01"])
@pytest.mark.parametrize(
    ("way", "faults"), [("interface 02:00:00:00:00:01", 0), ("blackhole", 1), ("down", 1)]
)
def test_a_next_hop_may_be_where_a_route_without_one_leads(link, way, faults):
    """The link of that route is the one that a pass takes, whether or not the document names it."""
    text = f"""[interface 02:00:00:00:00:01]
addresses = 10.0.0.5/24
[routes]
192.0.2.129/32 = {way}
10.20.0.0/16 = 192.0.2.129{link}
"""
    assert [line for line, *_ in found(text)[1]] == [5] * faults


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"network": {"version": 2}}', "network-config"),
        ('{"version": 1, "config": []}', "network-config"),
        ('{"ethernets": {}}', "network-config"),
        ('{"links": [], "networks": []}', "network_data.json"),
        ('{"network": ', "network_data.json"),
        ("{}", "network_data.json"),
    ],
)
def test_json_is_told_apart_by_its_keys(text, kind):
    assert kind_of(text.encode()) == kind


def errors(text):
    """The line and the suggestion of each error."""
    return [(line, meant) for line, severity, meant in found(text)[1] if severity == "error"]


def test_every_misspelled_section_and_option_of_neucas_format_has_its_line_and_its_spelling():
    assert found(INI)[0] == "neuca"
    spelt = [(line, meant) for line, meant in errors(INI) if meant]
    assert spelt == [
        (2, "host_name"),
        (3, "interfaces"),
        (5, "vlan 02:00:00:00:00:01.5"),
        (7, "mtu"),
        (9, "addresses"),
        (11, "table"),
    ]


def test_the_text_of_a_suggestion():
    texts = [one.text for one in check(INI.encode()).findings]
    assert '[interfces]: unknown section, ignoring it; did you mean "interfaces"?' in texts
    assert '[interface 02:00:00:00:00:01] "mut" = "9000": unknown key; did you mean "mtu"?' in texts


def test_a_virtual_link_that_lacks_what_it_needs_is_a_warning_on_the_line_of_its_section():
    nic = "02:00:00:00:00:01"
    text = (
        f"[vrf red]\nmembers = {nic}\n[bond  b0 ]\nmembers = {nic[:-1]}2\n"
        "[vrf blue]\ntable = 100\n[bond b1]\nmtu = 1400\n[ipoib i]\npkey = 0x8001\n"
    )
    checked = check(text.encode())
    assert [(one.line, one.severity, one.text) for one in checked.findings] == [
        (line, "warning", f"{said}, unless the platform's document provides it")
        for line, said in (
            (1, "[vrf red]: it requires table"),
            (3, "[bond b0]: it requires mode"),
            (9, "[ipoib i]: it requires parent"),
        )
    ]


def test_netplan_and_network_config_have_lines_too():
    assert found(NETPLAN)[0] == "network-config"
    assert errors(NETPLAN) == [(7, "addresses"), (8, "dhcp4"), (11, "")]
    assert [(line, meant) for line, meant in errors(VERSION_1) if meant] == [
        (5, "mac_address"),
        (8, "address"),
    ]


def test_network_data_has_lines_too():
    assert found(NETWORK_DATA)[0] == "network_data.json"
    assert [(line, meant) for line, meant in errors(NETWORK_DATA) if meant] == [
        (4, "ethernet_mac_address"),
        (6, "networks"),
    ]


def test_swapped_letters_are_an_error_in_the_shortest_key_too():
    routes = NETPLAN.replace("via: nonsense", "vai: 10.0.0.1").replace("adresses", "addresses")
    assert errors(routes.replace("dhpc4", "dhcp4")) == [(11, "via")]


MISSPELT_VALUES = """[interface 02:00:00:00:00:01]
state = dwon
dhcp4 = treu
[bond bond0]
mode = active-backpu
members = 02:00:00:00:00:01
[interfaces]
020000000002 = up:ipv5:10.0.0.1/24
"""


def test_a_misspelled_value_has_its_spelling_and_any_other_the_known_ones():
    assert errors(MISSPELT_VALUES) == [(2, "down"), (3, ""), (5, "active-backup"), (8, "")]
    texts = [one.text for one in check(MISSPELT_VALUES.encode()).findings]
    assert (
        '[bond bond0] "mode" = "active-backpu":'
        ' unknown value "active-backpu"; did you mean "active-backup"?'
    ) in texts
    assert '[interface 02:00:00:00:00:01] "dhcp4" = "treu": "treu" is not "yes" or "no"' in texts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "version: 2\ntunnels:\n  t:\n    id: 5\n    mode: vxaln\n",
            [(5, "vxlan")],
        ),
        (
            (
                "version: 1\nconfig:\n"
                "  - {type: physical, name: a, mac_address: '02:00:00:00:00:01',"
                " subnets: [{type: dhpc}]}\n"
                "  - {type: phsyical, name: b, mac_address: '02:00:00:00:00:02'}\n"
            ),
            [(3, "dhcp"), (4, "physical")],
        ),
        (
            (
                '{"links": [\n{"id": "a", "type": "vlna",'
                ' "ethernet_mac_address": "02:00:00:00:00:01"}\n],\n'
                '"networks": [{"id": "n", "link": "a", "type": "ipv4_dchp"}]}\n'
            ),
            [(2, "vlan"), (4, "ipv4_dhcp")],
        ),
        # Right, although only other programs can use it.
        ("version: 2\ntunnels:\n  t:\n    mode: wireguard\n", []),
    ],
)
def test_a_misspelled_kind_or_mode_is_an_error(text, expected):
    assert errors(text) == expected


def test_a_misspelled_key_is_one_finding_and_its_value_is_checked():
    text = (
        "version: 2\nethernet:\n  eth0:\n    match: {macaddress: '02:00:00:00:00:01'}\n"
        "    adresses: [10.0.0.1/24]\nvlans:\n  v5:\n    id: 5\n    lnik: eth0\n"
        "    adresses:\n      - 10.0.0.300/24\n"
    )
    assert found(text)[1] == [
        (2, "error", "ethernets"),
        (5, "error", "addresses"),
        (9, "error", "link"),
        (10, "error", "addresses"),
        (11, "error", ""),
    ]


def test_of_two_spellings_of_a_key_the_correct_one_counts():
    text = (
        "version: 2\nethernets:\n  eth0:\n    match: {macaddress: '02:00:00:00:00:01'}\n"
        "    adresses: [nonsense]\n    addresses: [10.0.0.1/24]\n"
    )
    assert found(text)[1] == [(5, "error", "addresses")]


UNKNOWN_LINKS = """version: 2
ethernets:
  eth0:
    match: {macaddress: "02:00:00:00:00:01"}
bonds:
  bond0:
    interfaces:
      - eth0
      - eth1
vlans:
  v5: {id: 5, link: bodn0}
  v6: {id: 6, link: a-name-that-no-nic-can-have}
"""


def test_a_link_that_is_not_described_has_to_be_a_nic_of_the_host():
    checked = check(UNKNOWN_LINKS.encode())
    reason = "the document describes no such link, so the host must have a NIC of this name"
    assert [(one.line, one.severity, one.text) for one in checked.findings] == [
        (9, "warning", f'"bonds.bond0.interfaces" = "eth1": {reason}'),
        (11, "error", f'"vlans.v5.link" = "bodn0": {reason}; did you mean "bond0"?'),
        (
            12,
            "error",
            (
                '"vlans.v6.link" = "a-name-that-no-nic-can-have": "a-name-that-no-nic-can-have" is'
                " longer than the 15 bytes of an interface name"
            ),
        ),
    ]


def test_links_of_version_1_are_looked_up_by_their_names():
    text = (
        "network:\n  version: 1\n  config:\n"
        "    - {type: physical, name: eth0, mac_address: '02:00:00:00:00:01'}\n"
        "    - {type: bond, name: bond0, bond_interfaces: [eth0]}\n"
        "    - {type: vlan, name: v, vlan_link: bond0, vlan_id: 5}\n"
        "    - {type: vlan, name: w, vlan_link: eth7, vlan_id: 5}\n"
    )
    assert found(text)[1] == [(7, "warning", "")]


@pytest.mark.parametrize(
    "text",
    [
        '{"droplet_id": 1, "dns": {"nameservers": []}, "interfaces": {}}',
        '{"uuid": "i-1", "devices": [], "public_keys": {}}',
        '{"instance-id": "i-1", "DNSServers": []}',
        '{"id": "X", "network": {"bonding": {"mode": 4}, "addresses": [{"management": true}]}}',
    ],
)
def test_another_document_of_a_cloud_gets_one_error(text):
    (finding,) = check(text.encode()).findings
    said = 'cannot read network_data.json: it has neither "links" nor "networks"'
    assert (finding.severity, finding.text) == ("error", said)


def test_a_port_of_a_platforms_bridge_with_addresses_is_named_once():
    text = "version: 2\nethernets: {a: {addresses: [10.1.0.1/24]}}\nbridges: {br0: {interfaces: [a]}}\n"
    (finding,) = check(text.encode()).findings
    assert finding.text == "a port of bridge br0 cannot have addresses: give them to that"


def test_an_id_of_network_data_is_the_name_of_no_nic():
    text = (
        '{"links": [{"id": "port0", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:01"},\n'
        '{"id": "v", "type": "vlan", "vlan_id": 5, "vlan_link": "prot0"},\n'
        '{"id": "w", "type": "vlan", "vlan_id": 6, "vlan_link": "other"}], "networks": []}\n'
    )
    assert found(text)[1] == [(2, "error", "port0"), (3, "error", "")]


def test_a_virtual_link_that_no_section_describes_is_left_to_the_platforms_document():
    nic = "02:00:00:00:00:01"
    text = (
        f"[bond bond0]\nmode = active-backup\nmembers = {nic}\n[vlan bond bond0.5]\n"
        "[vlan bond bodn0.5]\n[vlan bond bond4.5]\n[bridge br0]\nmembers = bond bond0.7\n"
        f"[vlan {nic}.7]\n"
    )
    tail = "unless the platform's document provides it"
    checked = check(text.encode())
    assert [(one.line, one.severity, one.text) for one in checked.findings] == [
        (
            5,
            "error",
            (
                f"[vlan bond bodn0.5]: it requires the section [bond bodn0], {tail};"
                ' did you mean "bond bond0"?'
            ),
        ),
        (6, "warning", f"[vlan bond bond4.5]: it requires the section [bond bond4], {tail}"),
        (7, "warning", f"[bridge br0]: it requires the section [vlan bond bond0.7], {tail}"),
    ]


def test_no_key_is_taken_for_the_one_that_it_is_in():
    text = "version: 2\nethernets:\n  eth1:\n    match: {mac: '02:00:00:00:00:01'}\n"
    assert errors(text) == []


def test_a_misspelled_word_of_a_route_has_its_spelling():
    assert errors("[routes]\n10.0.0.0/8 = 10.0.0.1 metrc 5\n") == [(2, "metric")]


def test_a_key_that_no_known_one_resembles_is_only_a_warning():
    text = "[global]\nsomething = x\n[otherwise]\na = b\n"
    assert found(text) == ("neuca", [(3, "warning", "")])
    other = "version: 2\nethernets:\n  eth1:\n    critical: true\n    openvswitch: {}\n"
    assert errors(other) == []


def test_the_metadata_of_vmware_beside_the_network_is_not_misspelled():
    text = (
        "instance-id: one\nlocal-hostname: dp\nnetwork: {version: 2, ethernets: {a: {mut: 1500}}}\n"
    )
    assert found(text)[1] == [(1, "warning", ""), (2, "warning", ""), (3, "error", "mtu")]


def test_names_that_users_choose_are_no_keys():
    text = "version: 2\nethernets:\n  adresses:\n    match: {macaddress: '02:00:00:00:00:01'}\n"
    assert errors(text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("version: 2\nethernets: [\n", 3),
        ('{"links": [\n  {]}\n', 2),
        ("version: 3\n", 1),
        ("a: &x [*x]\n", 0),
        ("#cloud-config\nusers: []\n", 0),
        ("", 0),
        ("\0", 0),
        ("no section\n", 0),
    ],
)
def test_what_cannot_be_read_at_all_is_one_error(text, line):
    checked = check(text.encode())
    assert [one.severity for one in checked.findings] == ["error"]
    assert checked.findings[0].line == line


def test_the_samples_have_no_faults():
    assert check((ROOT / "examples" / "user-data.ini").read_bytes()).findings == ()


@pytest.mark.parametrize(
    "name", sorted(ROOT.glob("tests/unit/corpus/*/*"))[::7], ids=lambda p: p.name
)
def test_inputs_that_broke_a_reader_are_checked(name):
    check(name.read_bytes())


@given(
    st.one_of(
        st.binary(max_size=300), st.text(alphabet="[]{}:-,\n \"'abemtu0\t&*?|>#=", max_size=200)
    )
)
@LAWS
def test_no_file_makes_the_check_raise(data):
    raw = data if isinstance(data, bytes) else data.encode()
    for kind in ("", "neuca", "network_data.json", "network-config"):
        assert check(raw, kind).kind == (kind or kind_of(raw))


def test_spelling_ignores_what_is_far_or_known():
    words = ("mut", "mtu", "xyz", "tm", "m" * 99)
    assert [closest_word(word, ("mtu", "mt", "state")) for word in words] == ["mtu", "", "", "", ""]


def run(capsys, *words):
    code = main(["check", *map(str, words)])
    return code, capsys.readouterr().out


def test_the_command_prints_lines_like_a_compiler(tmp_path, capsys):
    path = tmp_path / "doc"
    path.write_text("[interface 02:00:00:00:00:01]\nmut = 9000\n")
    code, out = run(capsys, path)
    reason = 'unknown key; did you mean "mtu"?'
    assert (code, out.splitlines()) == (
        78,
        [
            f'{path}:2: error: [interface 02:00:00:00:00:01] "mut" = "9000": {reason}',
            f"{path}: 1 error, 0 warnings; read as NEuca's format",
        ],
    )
    path.write_text("[interface 02:00:00:00:00:01]\nmtu = 9000\n")
    assert run(capsys, path) == (0, f"{path}: no faults; read as NEuca's format\n")


def test_strict_counts_warnings(tmp_path, capsys):
    path = tmp_path / "doc"
    path.write_text("[interfaces]\n[otherwise]\n")
    assert run(capsys, path)[0] == 0
    code, out = run(capsys, "--strict", "--json", path)
    data = json.loads(out)
    assert (code, data["version"], data["files"][0]["valid"]) == (78, 1, False)
    assert data["files"][0]["faults"] == [
        {
            "line": 2,
            "severity": "warning",
            "text": "[otherwise]: unknown section, ignoring it",
            "meant": None,
        }
    ]


def test_a_file_that_cannot_be_read(tmp_path, capsys):
    assert main(["check", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err == (
        f'neuca: read "{tmp_path}/none": No such file or directory\n'
    )


def test_no_secret_of_a_document_is_printed(tmp_path, capsys):
    path = tmp_path / "doc"
    path.write_text("[storage]\nd = iscsi:x:y:z:user:CANARY:no\n[users]\nroot = CANARY:CANARY\n")
    code, out = run(capsys, path)
    assert (code, "CANARY" in out) == (78, False)


def test_a_severity_is_colored_and_a_name_can_not_color_anything(tmp_path, capsys):
    bad, good = tmp_path / "bad\x1b[32m", tmp_path / "good"
    bad.write_text("[interface 02:00:00:00:00:01]\nmut = 1\n")
    good.write_text("[global]\nrouter = user\n")
    assert main(["check", "--color=always", str(bad), str(good)]) == 78
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{tmp_path}/bad\\x1b[32m:2: \x1b[31merror\x1b[0m: ")
    assert last == f"{good}: \x1b[32mno faults\x1b[0m; read as NEuca's format"
    assert main(["check", str(good)]) == 0
    assert "\x1b" not in capsys.readouterr().out


VALID = [
    # cloud-init's schema-network-config-v1.json: a nameserver may be that of one interface.
    """version: 1
config:
  - {type: physical, name: ens3, subnets: [{type: dhcp}]}
  - {type: nameserver, interface: ens3, address: [1.1.1.1], search: [example.org]}
""",
    # netplan-yaml(5).
    """network:
  version: 2
  virtual-ethernets:
    veth0: {peer: veth1, addresses: [10.91.0.1/24]}
    veth1: {peer: veth0}
  ethernets:
    ens3:
      dhcp6: true
      ra-overrides: {use-dns: false, use-domains: false}
    ens4: {}
  tunnels:
    vx: {mode: vxlan, id: 5, remote: 10.0.0.2, local: 10.91.0.1, ageing: 100}
  bridges:
    br0:
      interfaces: [ens4]
      parameters:
        port-mac-learning: {ens4: false}
        hairpin: {ens4: true}
""",
    "network: {config: disabled}\n",
]


@pytest.mark.parametrize("text", VALID, ids=("nameserver", "netplan", "disabled"))
def test_a_valid_document_has_no_error(text):
    assert errors(text) == []


def test_the_line_of_a_text_that_is_no_yaml_is_that_of_the_mistake():
    lines = [
        (4, "version: 2\nethernets:\n  a:\n    mtu 1400\n    dhcp4: true\n"),
        (4, "version: 2\nethernets:\n  a:\n    addresses: [10.0.0.1/24\n    dhcp4: true\n"),
        (3, "version: 2\nethernets:\n  'a:\n    dhcp4: true\n"),
        (4, "version: 2\nethernets:\n  a: b\n    dhcp4: true\n"),
        (3, "version: 2\nethernets:\n\ta: {}\n"),
    ]
    assert [found(text)[1][0][0] for _, text in lines] == [line for line, _ in lines]
