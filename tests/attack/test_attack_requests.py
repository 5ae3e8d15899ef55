"""A hostile document tries other spellings, other keys and other devices to reach what it may not."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, mac
from test_attack_document import IGNORED, NIC, host, reachable, ways  # noqa: F401 - the fixture

# Exit codes of a pass: done, problems, not everything done, a document that cannot be read (neuca-status(7)).
CODES = (0, 1, 4, 78)
FIXED = ("mtu", "txqlen", "flags", "address", "master", "altnames", "qdisc", "operstate")


def kept(host, names=("mgmt0", "kept")):  # noqa: F811
    """What the guest's management depends on: the protected links, ways, and sysctls."""
    links = {
        one["ifname"]: {key: one.get(key) for key in FIXED} | {"addresses": addresses(one)}
        for one in host.look("address")
        if one["ifname"] in names
    }
    keys = "cd /proc/sys/net; cat ipv4/conf/mgmt0/* ipv6/conf/mgmt0/* ipv4/conf/all/* ipv6/conf/all/* 2>/dev/null"
    return links, ways(host), host.run("sh", "-c", keys, check=False).out


def addresses(link):
    return sorted((one["local"], one["prefixlen"]) for one in link["addr_info"])


def assert_kept(host, text, names=("mgmt0", "kept")):  # noqa: F811
    before = kept(host, names)
    done = host.once(text)
    assert done.code in CODES, (text[:200], done)
    assert "Traceback" not in done.err
    assert kept(host, names) == before, text[:200]
    assert reachable(host), text[:200]


BARE = MANAGEMENT_MAC.replace(":", "")
SPELLINGS = {
    "upper case": MANAGEMENT_MAC.upper(),
    "dashes": MANAGEMENT_MAC.replace(":", "-"),
    "bare": BARE,
    "dots": f"{BARE[:4]}.{BARE[4:8]}.{BARE[8:]}",
    "short": ":".join(str(int(part, 16)) if part != "99" else "99" for part in MANAGEMENT_MAC.split(":")),
    "blanks": f" {MANAGEMENT_MAC}\t",
    "wide digits": MANAGEMENT_MAC.translate({ord("0"): "\uff10"}),
    "a zero-width blank": f"\u200b{MANAGEMENT_MAC}",
    "its name": "mgmt0",
    "its alternative name": "oob",
    "its index": "2",
}  # fmt: skip
USES = {
    "down": "[interface %s]\nstate = down\n",
    "settings": "[interface %s]\nstate = up\nmtu = 1300\ntxqueuelen = 7\naddresses = 172.16.9.1/24\nsysctl.rp_filter = 1\n",
    "another name": "[interface %s]\nname = data0\n",
    "old form": "[interfaces]\n%s = down\n",
    "old form with an address": "[interfaces]\n%s = up:ipv4:172.16.9.1/24\n",
    "a VLAN": "[vlan %s.66]\naddresses = 172.16.9.1/24\n",
    "a port": f"[bridge evil0]\nmembers = {mac(1)}, %s\n",
    "a member": "[bond evil0]\nmode = balance-rr\nmembers = %s\n",
    "a parent": "[macvlan evil0]\nparent = %s\nmode = passthru\n",
    "a VRF": "[vrf evil0]\ntable = 100\nmembers = %s\n",
    "a route": f"{NIC}[routes]\n10.0.0.0/8 = interface %s\n",
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_no_spelling_of_the_management_nic_gets_past_the_guard(host, use):  # noqa: F811
    host.ip("link property add dev mgmt0 altname oob")
    for spelling in SPELLINGS.values():
        assert_kept(host, use % spelling)
    assert host.once(NIC).code == 0


NAMES = (
    "oob",
    "OOB",
    ".hidden",
    "-rf",
    "bonding_masters",
    "eth%d",
    "mgmt0 ",
    "m\u0261mt0",
    "eth0:1",
    "mgmt0.66",
    "0",
)


@pytest.mark.parametrize(
    "form",
    [f"[interface {mac(1)}]\nname = %s\n", f"[bridge %s]\nmembers = {mac(1)}\n"],
    ids=["NIC", "bridge"],
)
def test_no_name_breaks_a_pass_or_takes_one_of_the_management_nic(host, form):  # noqa: F811
    host.ip("link property add dev mgmt0 altname oob")
    for name in NAMES:
        host.foreign.may_make(name)
        assert_kept(host, form % name)
        assert [one["ifname"] for one in host.look("link show oob")] == ["mgmt0"]
    assert host.once(NIC).code == 0


WAYS = {
    "halves on the link": "0.0.0.0/1 = interface {nic}\n128.0.0.0/1 = interface {nic}\n",
    "halves that go nowhere": "0.0.0.0/1 = blackhole\n128.0.0.0/1 = unreachable\n",
    "half of the network": "192.0.2.0/25 = interface {nic}\n",
    "the gateway": f"{GATEWAY}/32 = interface {{nic}}\n",
    "the gateway by prohibition": f"{GATEWAY}/32 = prohibit\n",
    "the service in a pair": "169.254.169.254/31 = interface {nic}\n",
    "the service in a range": "169.254.168.0/23 = 172.16.0.254\n",
    "all that is link-local": "fe80::/10 = interface {nic}\n",
    "the gateway of IPv6": f"{GATEWAY6}/128 = fd00:16::fe\n",
    "halves of IPv6": "::/1 = interface {nic}\n8000::/1 = interface {nic}\n",
    "all that is global": "2000::/4 = fd00:16::fe\n3000::/4 = fd00:16::fe\n",
    "the default with another metric": "0.0.0.0/0 = 172.16.0.254 metric 0\n::/0 = fd00:16::fe metric 1\n",
    "mapped": "::ffff:0:0/96 = fd00:16::fe\n",
    "the local table": f"{GATEWAY}/32 = interface {{nic}} table 255\n",
    "table 0": f"{GATEWAY}/32 = interface {{nic}} table 0\n",
    "the default table": "0.0.0.0/0 = interface {nic} table 253\n",
    "through the management gateway": f"8.0.0.0/8 = {GATEWAY}\n",
    "itself": "192.0.2.10/32 = interface {nic}\n",
}


def test_no_form_of_a_route_takes_over_what_the_management_nic_reaches(host):  # noqa: F811
    for text in WAYS.values():
        assert_kept(host, f"{NIC}[routes]\n{text.format(nic=mac(1))}")
    assert host.once(NIC).code == 0


HELD = {
    "its own": "192.0.2.10/32",
    "its own of IPv6": "2001:db8:ffff::10/128",
    "half of its network": "192.0.2.200/25",
    "its neighbour": "192.0.2.1/31",
    "the pair of the service": "169.254.169.253/30",
    "all that is link-local": "169.254.1.1/16",
    "everything": "10.0.0.1/0",
    "half of everything": "10.0.0.1/1",
    "half of IPv6": "2600::1/1",
    "the gateway of IPv6": f"{GATEWAY6}/64",
    "the network of IPv6": "2001:db8:ffff::77/65",
    "mapped": "::ffff:192.0.2.1/128",
    "loopback": "127.0.0.2/8",
    "a group": "224.0.0.1/4",
    "broadcast": "255.255.255.255/32",
    "unspecified": "0.0.0.0/32",
    "loopback of IPv6": "::1/128",
}


@pytest.mark.parametrize(
    "more", ["", "policy-routing = yes\ntable = 254\n"], ids=["alone", "routed"]
)
def test_no_form_of_an_address_takes_over_what_the_management_nic_reaches(host, more):  # noqa: F811
    for address in HELD.values():
        assert_kept(host, f"[interface {mac(1)}]\naddresses = {address}\n{more}")
    assert host.once(NIC).code == 0


KEYS = (
    "../../../kernel/core_pattern", "net.ipv4.conf.../../../kernel/sysrq", "net.ipv4.conf.mgmt0.rp_filter",
    "net.ipv6.conf.mgmt0.disable_ipv6", "net/ipv4/conf/mgmt0/forwarding", "net.ipv6.conf.all.disable_ipv6",
    "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.arp_ignore", "net.ipv4.conf.default.forwarding",
    "net.ipv4.ip_forward", "net.ipv6.conf.*.disable_ipv6", "..", "", "conf/../../all/disable_ipv6", "mgmt0/disable_ipv6",
    "kernel.hostname", "net.ipv4.conf.all/rp_filter", "net.ipv6.conf.mgmt0/accept_ra", "all.disable_ipv6",
    "net.ipv4.tcp_rmem\0", "net.ipv4.neigh.mgmt0.gc_stale_time", "net.ipv6.neigh.mgmt0.mcast_solicit",
)  # fmt: skip


@pytest.mark.parametrize(
    "where",
    ["sysctl.%s = 1\n", "[global]\nsysctl.%s = 1\n", "[sysctl]\n%s = 1\n"],
    ids=["NIC", "global", "section"],
)
def test_no_sysctl_key_leaves_its_place(host, where):  # noqa: F811
    before = [host.sysctl(f"kernel/{name}") for name in ("core_pattern", "hostname")]
    for key in KEYS:
        assert_kept(host, NIC + where % key)
    assert [host.sysctl(f"kernel/{name}") for name in ("core_pattern", "hostname")] == before
    assert host.once(NIC).code == 0


VALUES = {
    "mtu": (
        "0",
        "1",
        "67",
        "68",
        "65536",
        "-1",
        "2147483648",
        "9" * 5000,
        "1e3",
        "0x500",
        "\uff11500",
    ),
    "txqueuelen": ("-1", "4294967296", "1.5", "9" * 5000),
    "table": ("0", "253", "254", "255", "-1", "4294967296", "main"),
    "qdisc": ("noop", "mq", "../x", "fq\nstate = down", "ingress"),
    "mac": (
        MANAGEMENT_MAC,
        IGNORED,
        "ff:ff:ff:ff:ff:ff",
        "00:00:00:00:00:00",
        "01:00:5e:00:00:01",
        MANAGEMENT_MAC.upper(),
    ),
    "vrf": ("mgmt0", "..", "lo"),
    "name": ("mgmt0", "kept", "lo"),
}


@pytest.mark.parametrize("key", VALUES)
def test_no_value_of_a_setting_costs_the_management_nic_anything(host, key):  # noqa: F811
    for value in VALUES[key]:
        assert_kept(host, f"{NIC}{key} = {value}\n")
    assert host.once(NIC).code == 0


STACKS = {
    "bridge": "link add oob0 address {mac} type bridge",
    "bond": "link add oob0 address {mac} type bond mode active-backup",
}
TO_STACK = (
    "link set mgmt0 down", "address flush dev mgmt0", "link set mgmt0 master oob0", "link set mgmt0 up", "link set oob0 up",
    "address add 192.0.2.10/24 dev oob0", "address add 2001:db8:ffff::10/64 dev oob0",
    f"route replace default via {GATEWAY} dev oob0", f"-6 route replace default via {GATEWAY6} dev oob0",
)  # fmt: skip
OF_STACK = (
    "[bridge oob0]\nmembers = {nic}\n", "[bond oob0]\nmode = balance-rr\nmembers = {nic}\n",
    "[bond oob0]\nmode = active-backup\nmembers = {nic}, {management}\n", "[vlan oob0.7]\naddresses = 10.7.0.1/24\n",
    "[interface {nic}]\nname = oob0\n", "[macvlan evil0]\nparent = oob0\n", "[macvlan evil0]\nparent = bridge oob0\n",
    "[vlan {management}.7]\naddresses = 10.7.0.1/24\n", "[vrf evil0]\ntable = 100\nmembers = oob0\n",
    "[interface {management}]\nmtu = 1300\nstate = down\n", "[vrf oob0]\ntable = 100\nmembers = {nic}\n",
)  # fmt: skip


@pytest.mark.parametrize("kind", STACKS)
def test_what_the_management_nic_is_a_port_of_is_protected_too(guest, kind):
    guest.management()
    guest.veth("dp1", 1)
    guest.foreign.may_make("oob0")
    if guest.ip(STACKS[kind].format(mac=MANAGEMENT_MAC), check=False).code:
        pytest.skip(f"this kernel has no {kind}")
    for words in TO_STACK:
        guest.ip(words)
    assert guest.once(NIC).code == 0
    names = ("mgmt0", "oob0")
    for text in OF_STACK:
        before = kept(guest, names)
        guest.once(text.format(nic=mac(1), management=MANAGEMENT_MAC))
        assert kept(guest, names) == before, text
        masters = {one["ifname"]: one.get("master") for one in guest.look("link")}
        assert (masters["mgmt0"], masters["dp1"]) == ("oob0", None), text
    assert guest.once(NIC).code == 0
