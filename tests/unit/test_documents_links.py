"""What a document asks of NICs and VLANs: the lines of [interfaces], the sections of one link, and both together."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_interface

import pytest

from neuca_tools.documents import parse
from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.link_settings import SETTINGS
from neuca_tools.documents.neuca.links import MAX_SETTINGS
from neuca_tools.documents.stacking import combine_requests, merge_requests
from neuca_tools.model import LinkKey, LinkRequest, Origin

MAC = "fe:16:3e:00:6d:af"
NO_SETTINGS = (
    "accept-ra addresses dhcp4 dhcp6 dns duplicate-address-detection gateway name policy-routing state"
    " table vrf"
).split()
KNOWN = f"unknown key; known are {', '.join(sorted([*NO_SETTINGS, *SETTINGS]))} and sysctl.KEY"
KEY = LinkKey(MAC)


def line(text):
    """The only link of a line of [interfaces], and its faults."""
    document = parse(f"[interfaces]\nfe163e006daf = {text}\n")
    return next(iter(document.links), None), [fault.reason for fault in document.faults]


def section(*lines, header="interface fe163e006daf", before=""):
    document = parse("\n".join([before, f"[{header}]", *lines]))
    return document.links[-1] if document.links else None, [
        fault.reason for fault in document.faults
    ]


def setting(text):
    """What one key of [interface MAC] asks, faults where it cannot be used."""
    link, faults = section(text)
    return faults or {o.setting: o.value for o in link.origins if o.setting != "state"}


@pytest.mark.parametrize(
    ("text", "state", "addresses", "name"),
    [
        ("up", "up", [], None),
        ("UP", "up", [], None),
        ("down", "down", [], None),
        ("user", "user", [], None),
        ("up:", "up", [], None),
        ("up:ipv4", "up", [], None),
        ("up:ipv4:", "up", [], None),
        ("up:ipv4:Not Specified", "up", [], None),
        ("up:ipv4::3", "up", [], "eth3"),
        ("up:ipv6::3", "up", [], "eth3"),
        ("up:::3", "up", [], "eth3"),
        ("up:ipv4:172.16.0.1/24", "up", ["172.16.0.1/24"], None),
        ("up:ipv4:172.16.0.1/24:", "up", ["172.16.0.1/24"], None),
        ("up : IPv4 : 172.16.0.1/24 : 3", "up", ["172.16.0.1/24"], "eth3"),
        ("up::172.16.0.1/24:03", "up", ["172.16.0.1/24"], "eth3"),
        ("up:ipv6:fd00:16::1/64", "up", ["fd00:16::1/64"], None),
        ("up:ipv6:fd00:16::1/64:3", "up", ["fd00:16::1/64"], "eth3"),
        ("up:ipv6:fd00::/64:0", "up", ["fd00::/64"], "eth0"),
        ("up:ipv6:::5:1/96:12", "up", ["::5:1/96"], "eth12"),
        ("up::fd00:16::1/64:3", "up", ["fd00:16::1/64"], "eth3"),
        ("down:ipv4:172.16.0.1/24:3", "down", ["172.16.0.1/24"], "eth3"),
        ("user:::3", "user", [], "eth3"),
    ],
)
def test_a_line_of_interfaces(text, state, addresses, name):
    link, faults = line(text)
    assert (link.key, link.state, [str(a) for a in link.addresses], link.name) == (
        KEY,
        state,
        addresses,
        name,
    )
    assert faults == []


@pytest.mark.parametrize(
    ("text", "address", "name"),
    [
        ("up:ipv4:172.16.0.1", "172.16.0.1/32", None),
        ("up:ipv4:172.16.0.1:3", "172.16.0.1/32", "eth3"),
        ("up:ipv6:fd00:16::1", "fd00:16::1/128", None),
        ("up:ipv6:fd00:16::1:3", "fd00:16::1:3/128", None),
    ],
)
def test_a_bare_address_is_a_host_address_and_a_warning(text, address, name):
    link, faults = line(text)
    assert (link.addresses, link.name) == ((ip_interface(address),), name)
    assert faults == [f'"{address.partition("/")[0]}" has no prefix length, treated as "{address}"']


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("upp", '"upp" is not "up", "down" or "user"'),
        (":ipv4", '"" is not "up", "down" or "user"'),
        ("up:10.0.0.1/24", '"10.0.0.1/24" is not "ipv4" or "ipv6"'),
        ("up:ipv4:fd00::1/64", '"fd00::1/64" is not an address of the family ipv4'),
        ("up:ipv6:10.0.0.1/24", '"10.0.0.1/24" is not an address of the family ipv6'),
        ("up:ipv4:10.0.0/24", '"10.0.0" is not an IP address'),
        ("up:ipv4:010.0.0.1/24", '"010.0.0.1" is not an IP address'),
        ("up:ipv4:10.0.0.1/", 'the prefix length "" is not a number from 0 to 32'),
        ("up:ipv4:10.0.0.1/-1", 'the prefix length "-1" is not a number from 0 to 32'),
        (
            "up:ipv4:10.0.0.1/0",
            'the prefix length of "10.0.0.1/0" would cover half of all addresses',
        ),
        ("up:ipv6:fd00::1/1", 'the prefix length of "fd00::1/1" would cover half of all addresses'),
        ("up:ipv6:fd00::1/129", 'the prefix length "129" is not a number from 0 to 128'),
        ("up:ipv6:::1/128", '"::1" cannot be the address of a NIC'),
        ("up:ipv6:::/64", '"::" cannot be the address of a NIC'),
        ("up:ipv6:ff02::1/64", '"ff02::1" cannot be the address of a NIC'),
        ("up:ipv4:255.255.255.255/32", '"255.255.255.255" cannot be the address of a NIC'),
        ("up:ipv4:10.0.0.1/24:100000", 'the order "100000" is not a number from 0 to 99999'),
        ("up:ipv6:fd00::1/64:3:4", 'the order "3:4" is not a number from 0 to 99999'),
    ],
)
def test_a_bad_line_costs_its_link_and_nothing_else(text, reason):
    document = parse(f"[interfaces]\nfe163e006daf = {text}\nfe163e006db0 = up\n")
    assert [fault.text for fault in document.faults] == [
        f'line 2: [interfaces] "fe163e006daf" = "{text}": {reason}'
    ]
    assert [str(link.key) for link in document.links] == ["fe:16:3e:00:6d:b0"]
    assert not document.is_complete


@pytest.mark.parametrize(
    "written",
    [
        "fe163e006daf",
        "FE163E006DAF",
        "fe:16:3e:00:6d:af",
        "FE-16-3E-00-6D-AF",
        "fe16.3e00.6daf",
        "fe.16.3e.00.6d.af",
    ],
)
def test_a_mac_address_in_any_notation(written):
    document = parse(
        f"[interfaces]\n{written} = up\n[interface {written}]\nmtu = 9000\n[vlan {written}.7]\n"
    )
    assert [link.key for link in document.links] == [KEY, LinkKey(MAC, 7)]
    assert document.faults == ()


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("eth0", '"eth0" is not a MAC address'),
        ("fe:163e006daf", '"fe:163e006daf" is not a MAC address'),
        ("fe-16:3e:00:6d:af", '"fe-16:3e:00:6d:af" is not a MAC address'),
        ("fe163e006daf00", '"fe163e006daf00" is not a MAC address'),
        ("000000000000", "the all-zero MAC address names no NIC"),
        ("FFFFFFFFFFFF", "the broadcast MAC address names no NIC"),
        ("33:33:00:00:00:01", "the multicast MAC address names no NIC"),
    ],
)
def test_what_is_no_mac_address_of_a_nic(written, reason):
    document = parse(f"[interfaces]\n{written} = up\n[interface {written}]\n[vlan {written}.7]\n")
    assert document.links == ()
    assert [fault.reason for fault in document.faults] == [
        reason,
        *[f"{reason}, ignoring the section"] * 2,
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mtu = 68", {"mtu": "68"}),
        ("MTU = 65535 ; jumbo", {"mtu": "65535"}),
        ("txqueuelen = 1000000", {"txqueuelen": "1000000"}),
        ("name = p2p1", {"name": "p2p1"}),
        ("name = data-0.1_x", {"name": "data-0.1_x"}),
        ("name = Not Specified", {}),
        ("addresses = 10.0.0.1/24,fd00::1/64,", {"addresses": "10.0.0.1/24, fd00::1/64"}),
        (
            "sysctl.net.ipv4.conf.{interface}.rp_filter = 2",
            {"sysctl.net/ipv4/conf/{interface}/rp_filter": "2"},
        ),
        (
            "sysctl.net/ipv4/conf/{interface}/rp_filter = 2",
            {"sysctl.net/ipv4/conf/{interface}/rp_filter": "2"},
        ),
        (
            "sysctl.net.ipv4.conf.p2p1/1445.rp_filter = 2",
            {"sysctl.net/ipv4/conf/p2p1.1445/rp_filter": "2"},
        ),
        (
            "sysctl.net/ipv4/conf/p2p1.1445/rp_filter = 2",
            {"sysctl.net/ipv4/conf/p2p1.1445/rp_filter": "2"},
        ),
        ("SYSCTL.Net.IPv4.Conf.Data0.RP_filter = 2", {"sysctl.net/ipv4/conf/Data0/rp_filter": "2"}),
        (
            "sysctl.net.ipv4.neigh.{INTERFACE}.ucast_solicit=1",
            {"sysctl.net/ipv4/neigh/{interface}/ucast_solicit": "1"},
        ),
        (
            "sysctl.net.ipv4.tcp_rmem = 4096\t131072  6291456",
            {"sysctl.net/ipv4/tcp_rmem": "4096 131072 6291456"},
        ),
        (
            "sysctl.net.ipv4.tcp_rmem = 4096\n   131072\n   6291456",
            {"sysctl.net/ipv4/tcp_rmem": "4096 131072 6291456"},
        ),
        ("mtu = 67", ['the MTU "67" is not a number from 68 to 65535']),
        ("mtu = 65536", ['the MTU "65536" is not a number from 68 to 65535']),
        ("mtu = 9k", ['the MTU "9k" is not a number from 68 to 65535']),
        ("mtu = ٩٠٠٠", ['the MTU "٩٠٠٠" is not a number from 68 to 65535']),
        ("txqueuelen = 0", ['the txqueuelen "0" is not a number from 1 to 1000000']),
        (
            "txqueuelen = 4294967295",
            ['the txqueuelen "4294967295" is not a number from 1 to 1000000'],
        ),
        (
            "name = sixteen-byteslong",
            ['"sixteen-byteslong" is longer than the 15 bytes of an interface name'],
        ),
        ("name = a b", ['"a b" is not an interface name: letters, digits, ".", "_" and "-" only']),
        ("name = a/b", ['"a/b" is not an interface name: letters, digits, ".", "_" and "-" only']),
        ("name = a:b", ['"a:b" is not an interface name: letters, digits, ".", "_" and "-" only']),
        (
            "name = eth%d",
            ['"eth%d" is not an interface name: letters, digits, ".", "_" and "-" only'],
        ),
        ("name = ..", ['".." is not an interface name: letters, digits, ".", "_" and "-" only']),
        ("name = .", ['"." is not an interface name: letters, digits, ".", "_" and "-" only']),
        ('name = a"b', ['"a"b" is not an interface name: letters, digits, ".", "_" and "-" only']),
        ("name = lo", ['"lo" is not a name that an interface can have']),
        ("name = all", ['"all" is not a name that an interface can have']),
        ("name = default", ['"default" is not a name that an interface can have']),
        ("name = 123", ['"123" is not a name that an interface can have']),
        ("state = sideways", ['"sideways" is not "up", "down" or "user"']),
        ("speed = 9", [KNOWN]),
        ("sysctl = 9", ['unknown key; did you mean "sysctl.KEY"?']),
        ("mut = 9000", ['unknown key; did you mean "mtu"?']),
        ("sysctl. = 9", ['"" is not a sysctl key']),
        ("sysctl.net = 9", ['the sysctl key "net" is not below "net."']),
        ("sysctl.kernel.hostname = 9", ['the sysctl key "kernel.hostname" is not below "net."']),
        (
            "sysctl./proc/sys/net/core/x = 9",
            ['the sysctl key "/proc/sys/net/core/x" has a part that is empty, "." or ".."'],
        ),
        (
            "sysctl.net.ipv4..x = 9",
            ['the sysctl key "net.ipv4..x" has a part that is empty, "." or ".."'],
        ),
        (
            "sysctl.net/../kernel/x = 9",
            ['the sysctl key "net/../kernel/x" has a part that is empty, "." or ".."'],
        ),
        (
            "sysctl.net.//.kernel = 9",
            ['the sysctl key "net.//.kernel" has a part that is empty, "." or ".."'],
        ),
        ("sysctl.net.ipv4.conf.*.x = 9", ['"net.ipv4.conf.*.x" is not a sysctl key']),
        ("sysctl.net.ipv4.conf.{if}.x = 9", ['"net.ipv4.conf.{if}.x" is not a sysctl key']),
        ("sysctl.-net.core.x = 9", ['the sysctl key "-net.core.x" is not below "net."']),
        ("sysctl.net.core.x = 9\x1b", ["the value has control characters"]),
        ('sysctl.net.core.x = "9"', ['the value has a """, which no sysctl has']),
        ("sysctl.net.core.x = \u201c9\u201d", ['the value has a "\u201c", which no sysctl has']),
        (
            "sysctl.net.core.x = 9 # as measured",
            [f'the value has a "#", which no sysctl has{values.hash_hint(" #")}'],
        ),
        (f"sysctl.net.core.x = {'9' * 4097}", ["the value is longer than 4096 bytes"]),
    ],
    ids=lambda text: str(text)[:40],
)
def test_a_key_of_a_link(text, expected):
    assert setting(text) == expected


def test_settings_and_addresses_of_one_link_are_bounded():
    sysctls = [f"sysctl.net.core.x{number} = 1" for number in range(MAX_SETTINGS + 5)]
    link, faults = section(*sysctls)
    assert len(link.sysctls) == MAX_SETTINGS
    assert faults == ["more than 1024 settings of one link, ignoring the rest"]
    link, faults = section("addresses = " + "x," * (MAX_SETTINGS + 1))
    assert (link.addresses, faults) == ((), ["more than 1024 addresses"])


def test_a_long_value_is_shown_in_part():
    (fault,) = parse(f"[interface fe163e006daf]\nmtu = {'9' * 1000}").faults
    assert fault.value == "9" * 79 + "…"


def test_one_bad_address_costs_only_itself():
    link, faults = section("addresses = 10.0.0.1/24, 10.0.0.300/24, 10.0.0.1/24, fd00::1/64")
    assert [str(address) for address in link.addresses] == ["10.0.0.1/24", "fd00::1/64"]
    assert faults == ['"10.0.0.300" is not an IP address', '"10.0.0.1/24" is listed twice']


def test_a_typing_error_costs_only_itself():
    link, faults = section("mtuu = 9000", "mtu = 9000")
    assert link.mtu == 9000
    assert len(faults) == 1


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("interface", '"" is not a MAC address'),
        ("interface eth0", '"eth0" is not a MAC address'),
        ("interface fe163e006daf.7", '"fe163e006daf.7" is not a MAC address'),
        ("vlan", '"" is not a MAC address, a "." and a VLAN ID'),
        ("vlan fe163e006daf", '"fe163e006daf" is not a MAC address, a "." and a VLAN ID'),
        ("vlan fe163e006daf.", 'the VLAN ID "" is not a number from 1 to 4094'),
        ("vlan fe163e006daf.0", 'the VLAN ID "0" is not a number from 1 to 4094'),
        ("vlan fe163e006daf.4095", 'the VLAN ID "4095" is not a number from 1 to 4094'),
        ("vlan fe163e006daf.1a", 'the VLAN ID "1a" is not a number from 1 to 4094'),
    ],
)
def test_a_header_that_names_no_link_is_one_fault(header, reason):
    document = parse(f"[{header}]\nmtu = 9000\n[interfaces]\nfe163e006db0 = up")
    assert [fault.text for fault in document.faults] == [
        f"line 1: [{header}]: {reason}, ignoring the section"
    ]
    assert len(document.links) == 1


def test_a_link_section_without_keys_asks_for_up():
    assert section()[0] == LinkRequest(KEY, state="up", origins=(Origin("state", "up", "default"),))


def test_the_parent_of_a_vlan_is_listed_and_nothing_is_asked_of_it():
    document = parse("[vlan fe163e006daf.7]\nmtu = 9000\n[vlan fe163e006daf.8]\n")
    assert [(link.key, link.state) for link in document.links] == [
        (KEY, None),
        (LinkKey(MAC, 7), "up"),
        (LinkKey(MAC, 8), "up"),
    ]


@pytest.mark.parametrize("line_state", ["up", "down", "user"])
def test_the_state_of_the_line_stands_where_the_section_gives_none(line_state):
    assert (
        section("name = x", before=f"[interfaces]\nfe163e006daf = {line_state}")[0].state
        == line_state
    )


def test_the_section_wins_over_the_line_setting_by_setting():
    link, faults = section(
        "state = down",
        "addresses = fd00::1/64",
        "name = wan",
        before="[interfaces]\nfe163e006daf = up:ipv4:10.0.0.1/24:3",
    )
    here = "[interface fe163e006daf]"
    assert faults == []
    assert link == LinkRequest(
        KEY,
        state="down",
        name="wan",
        addresses=(ip_interface("fd00::1/64"),),
        origins=(
            Origin("state", "down", f"line 4, {here}", "up from line 2, [interfaces]"),
            Origin(
                "addresses",
                "fd00::1/64",
                f"line 5, {here}",
                "10.0.0.1/24 from line 2, [interfaces]",
            ),
            Origin("name", "wan", f"line 6, {here}", "eth3 from line 2, [interfaces]"),
        ),
    )


def test_it_does_not_matter_which_of_both_comes_first():
    before, after = (
        "[interfaces]\nfe163e006daf = down:ipv4:10.0.0.1/24\n",
        "[interface fe163e006daf]\nname = x\nmtu = 9000\n",
    )
    one, other = (parse(text).links[0] for text in (before + after, after + before))
    assert (one.state, one.addresses, one.name, one.mtu) == (
        other.state,
        other.addresses,
        other.name,
        other.mtu,
    )


def test_sections_of_one_link_are_merged_however_its_mac_is_written():
    link, faults = section("mtu = 9000", before=f"[interface {MAC}]\nmtu = 1500\ntxqueuelen = 5")
    assert (link.mtu, link.txqueuelen) == (9000, 5)
    assert faults == ["specified before on line 2, ignoring line 2"]


def test_two_spellings_of_one_sysctl_are_one_setting():
    link, faults = section("sysctl.net.core.x = 1", "sysctl.net/core/x = 2")
    assert link.sysctls == (("net/core/x", "2"),)
    assert faults == ["specified before on line 3, ignoring line 3"]


def test_a_bad_line_leaves_only_its_state_to_the_section():
    link, _ = section("mtu = 9000", before="[interfaces]\nfe163e006daf = down:ipv4:nonsense:3")
    assert (link.state, link.addresses, link.name, link.mtu) == ("down", (), None, 9000)


@pytest.mark.parametrize(
    "text",
    [
        "[interfaces]\nfe163e006daf = dwon\n[interface fe163e006daf]\nmtu = 9000",
        "[interface fe163e006daf]\nstate = dwon\nmtu = 9000",
    ],
)
def test_no_default_stands_in_for_a_state_that_cannot_be_read(text):
    document = parse(text)
    assert document.links == ()
    assert [fault.reason for fault in document.faults] == ['"dwon" is not "up", "down" or "user"']


def test_one_good_state_is_enough():
    assert section("state = down", before="[interfaces]\nfe163e006daf = upp")[0].state == "down"
    assert section("state = upp", before="[interfaces]\nfe163e006daf = down")[0].state == "down"


def test_state_user_pins_the_name_and_nothing_else():
    link, faults = section(
        "state = user", "name = x", "mtu = 9000", "addresses = fd00::1/64", "sysctl.net.core.x = 1"
    )
    assert (link.state, link.name, link.mtu, link.addresses, link.sysctls) == (
        "user",
        "x",
        None,
        (),
        (),
    )
    assert faults == [
        f'the state is "user", ignoring {name}'
        for name in ("mtu", "addresses", "sysctl.net/core/x")
    ]


def test_state_user_with_settings_is_a_warning_only():
    assert parse("[interfaces]\nfe163e006daf = user:ipv4:10.0.0.1/24").is_complete


@pytest.mark.parametrize("before", ["", "[interfaces]\nfe163e006daf = up:ipv6:fd00::1/64"])
def test_an_mtu_too_small_for_ipv6_is_refused(before):
    link, faults = section(
        "mtu = 1279", "" if before else "addresses = 10.0.0.1/24, fd00::1/64", before=before
    )
    assert (link.mtu, link.addresses[-1]) == (None, ip_interface("fd00::1/64"))
    assert faults == ["an MTU below 1280 cannot carry the IPv6 addresses of this link"]


def test_a_small_mtu_without_ipv6_is_fine():
    assert section("mtu = 576", "addresses = 10.0.0.1/24")[0].mtu == 576
    assert section("mtu = 1280", "addresses = fd00::1/64")[0].mtu == 1280


def test_a_name_asked_for_two_links_stays_with_the_earlier_line():
    document = parse(
        "[vlan fe163e006daf.7]\nname = eth3\n[interface fe163e006db0]\nname = wan\n"
        "[interface fe163e006db1]\nname = wan\n[interfaces]\nfe163e006daf = up:::3\n"
    )
    assert {str(link.key): link.name for link in document.links} == {
        MAC: None,
        "fe:16:3e:00:6d:b0": "wan",
        "fe:16:3e:00:6d:b1": None,
        f"{MAC}.7": "eth3",
    }
    assert [fault.text for fault in document.faults] == [
        'line 6: [interface fe163e006db1] "name" = "wan": the name "wan" is requested for fe:16:3e:00:6d:b0 too',
        f'line 8: [interfaces] "fe163e006daf" = "up:::3": the name "eth3" is requested for {MAC}.7 too',
    ]


def test_an_order_that_a_section_overrides_takes_no_name():
    document = parse(
        "[interfaces]\nfe163e006daf = up:::3\nfe163e006db0 = up:::3\n[interface fe163e006daf]\nname = x"
    )
    assert [link.name for link in document.links] == ["x", "eth3"]
    assert document.is_complete


# --- A document's links with those of the configuration ---------------------------------------------------------------


def test_overlay_keeps_what_is_not_given_again():
    below = LinkRequest(
        KEY,
        "up",
        "a",
        (),
        1500,
        5,
        (("net/x", "1"), ("net/y", "1")),
        (Origin("mtu", "1500", "there"),),
    )
    above = LinkRequest(
        KEY, None, None, (), 9000, None, (("net/y", "2"),), (Origin("mtu", "9000", "here"),)
    )
    assert merge_requests(below, above) == LinkRequest(
        KEY,
        "up",
        "a",
        (),
        9000,
        5,
        (("net/x", "1"), ("net/y", "2")),
        (Origin("mtu", "9000", "here", "1500 from there"),),
    )


def test_a_default_state_does_not_win_over_one_that_was_given():
    given = LinkRequest(KEY, "user", origins=(Origin("state", "user", "line 2"),))
    assert combine_requests([given], section("name = x")[0:1])[0].state == "user"


def test_combine_gives_a_state_to_all_but_mere_parents():
    asked = [
        LinkRequest(KEY),
        LinkRequest(LinkKey(MAC, 7)),
        LinkRequest(LinkKey(MAC, 8), origins=(Origin("mtu", "9", "x"),)),
    ]
    assert [request.state for request in combine_requests([], asked)] == [None, "up", "up"]


def test_combine_keeps_its_hands_off_a_link_that_one_of_both_leaves_to_the_user():
    below, above = LinkRequest(KEY, "up", mtu=9000), LinkRequest(KEY, "user")
    assert combine_requests([below], [above]) == (LinkRequest(KEY, "user"),)


@pytest.mark.parametrize(("word", "value"), [("yes", "1"), ("no", "0")])
def test_duplicate_address_detection_is_a_sysctl_of_the_link(word, value):
    document = parse(f"[interface {MAC}]\nduplicate-address-detection = {word}\n")
    assert not document.faults
    (link,) = document.links
    assert link.sysctls == (("net/ipv6/conf/{interface}/accept_dad", value),)
    assert [one.value for one in link.origins if one.setting == "duplicate-address-detection"] == [
        word
    ]
