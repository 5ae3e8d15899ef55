"""What must be refused: whatever would cut off the management NIC, the metadata service or the default route."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from lab import MANAGEMENT_MAC, mac

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
INSTEAD = "a prefix of length 0 or 1 would replace the default route"
MANAGED, MANAGED6 = "192.0.2.0/24", "2001:db8:ffff::/64"


@pytest.fixture
def guarded(lab):
    lab.management()
    lab.veth("dp1", 1)
    return lab


def all_routes(lab):
    lab.settle()  # the kernel adds routes of its own while a NIC comes up
    return lab.look("-4 route show table all") + lab.look("-6 route show table all")


def test_routes_that_would_cut_the_host_off_are_refused(guarded):
    taken, taken6 = (
        f"it would take over {host}, which is reached through the management NIC"
        for host in ("169.254.169.254", "fd00:ec2::254")
    )
    inside, inside6 = (
        f"it is inside the management network {network}" for network in (MANAGED, MANAGED6)
    )
    reasons = {
        "0.0.0.0/0": INSTEAD,
        "0.0.0.0/1": INSTEAD,
        "128.0.0.0/1": INSTEAD,
        "::/0": INSTEAD,
        "::/1": INSTEAD,
        "8000::/1": INSTEAD,
        MANAGED: f"it is the management network {MANAGED}",
        "192.0.2.128/25": inside,
        "192.0.2.77/32": inside,
        "192.0.2.1/32": inside,
        MANAGED6: f"it is the management network {MANAGED6}",
        "2001:db8:ffff::1/128": inside6,
        "169.254.169.254/32": taken,
        "169.254.0.0/16": taken,
        "168.0.0.0/5": taken,
        "fd00:ec2::254/128": taken6,
    }
    guarded.once(NIC)
    before = all_routes(guarded)
    routes = "".join(
        f"{prefix} = {'fd00:16::fe' if ':' in prefix else '172.16.0.254'}\n" for prefix in reasons
    )
    done = guarded.once(f"{NIC}[routes]\n{routes}")
    assert done.code == 4, done
    assert guarded.problems() == [
        ("refused", f"route to {prefix}: {reason}") for prefix, reason in reasons.items()
    ]
    assert all_routes(guarded) == before


def test_a_wider_route_than_the_management_network_is_none_of_its_business(guarded):
    assert guarded.once(f"{NIC}[routes]\n192.0.0.0/16 = 172.16.0.254\n").code == 0


def test_addresses_that_would_cut_the_host_off_are_refused_and_cost_only_themselves(guarded):
    taken = "it would take over 169.254.169.254, which is reached through the management NIC"
    inside, inside6 = (
        f"it is inside the management network {network}" for network in (MANAGED, MANAGED6)
    )
    reasons = {
        "192.0.2.20/24": inside,
        "192.0.2.20/32": inside,
        "192.0.2.21/16": inside,
        "2001:db8:ffff::20/64": inside6,
        "169.254.1.1/16": taken,
        "169.254.169.254/32": taken,
    }
    done = guarded.once(
        f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, {', '.join(reasons)}\nmtu = 9000\n"
    )
    assert done.code == 4, done
    assert guarded.problems("dp1") == [
        ("refused", f"address {address}: {reason}") for address, reason in reasons.items()
    ]
    assert (guarded.addresses("dp1"), guarded.link("dp1")["mtu"]) == ({"172.16.0.1/24"}, 9000)


def test_sysctls_that_would_change_other_interfaces_are_refused(guarded):
    keys = (
        "net.ipv4.conf.all.rp_filter",
        "net.ipv4.conf.default.rp_filter",
        "net.ipv6.conf.all.disable_ipv6",
        "net.ipv4.conf.mgmt0.rp_filter",
        "net.ipv4.neigh.mgmt0.gc_stale_time",
    )
    done = guarded.once(NIC + "".join(f"sysctl.{key} = 1\n" for key in keys))
    assert done.code == 4, done
    assert sorted(guarded.problems("dp1")) == sorted(
        (
            "refused",
            f'sysctl {key}: it would change "{key.split(".")[3]}", not this interface alone',
        )
        for key in keys
    )
    assert guarded.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64"}


def test_forwarding_is_not_a_setting_of_one_interface(guarded):
    done = guarded.once(f"{NIC}sysctl.net.ipv4.ip_forward = 1\n")
    assert done.code == 4
    assert guarded.problems("dp1") == [
        (
            "refused",
            "sysctl net.ipv4.ip_forward: it changes every interface; use router in [global]",
        )
    ]


def test_sysctls_that_are_not_of_the_network_are_not_written(guarded):
    keys = ("kernel/hostname", "vm/swappiness", "fs/file-max")
    before = [guarded.sysctl(key) for key in keys]
    guarded.document(NIC + "".join(f"sysctl.{key} = 1\n" for key in keys))
    assert guarded.once().code in (1, 4, 78)
    assert [guarded.sysctl(key) for key in keys] == before
    guarded.once(NIC)


def test_a_sysctl_path_that_leads_elsewhere_is_not_written(guarded):
    done = guarded.once(
        f"{NIC}sysctl.net.ipv4.conf.{{interface}}/../all.rp_filter = 1\n"
        f"sysctl.net/ipv4/conf/{{interface}}/../../../../kernel/hostname = x\n"
    )
    assert done.code in (1, 4, 78)
    guarded.once(NIC)


def test_a_document_that_names_the_management_nic_changes_nothing_of_it(guarded):
    done = guarded.once(
        f"{NIC}[interfaces]\n{MANAGEMENT_MAC} = down:ipv4:10.9.9.9/24\n[interface {MANAGEMENT_MAC}]\n"
        f"name = dp9\nmtu = 1400\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
        f"[vlan {MANAGEMENT_MAC}.5]\naddresses = 10.5.0.1/24\n"
    )
    assert done.code == 4
    assert guarded.problems("mgmt0") == [
        ("refused", "it is on the management NIC: it carries the default route")
    ]
    assert guarded.problems(None) == []
    assert guarded.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64"}


def test_a_document_that_takes_everything_away_leaves_the_management_nic(guarded):
    guarded.once(NIC)
    assert guarded.once("[global]\nhost_name = x\n").code == 0
    assert guarded.addresses("dp1") == set()


def test_with_permission_a_default_route_is_set_where_there_is_none(lab):
    lab.management(default_route=False)
    lab.configure(f"[network]\nmanagement-macs = {MANAGEMENT_MAC}\nallow-default-route = true")
    lab.veth("dp1", 1)
    assert lab.once(f"{NIC}[routes]\n0.0.0.0/0 = 172.16.0.254\n::/0 = fd00:16::fe\n").code == 0
    assert lab.routes("default") == [("172.16.0.254", "dp1", 20, "110")]
    assert lab.role(mac(1)) == "dataplane"


def test_with_permission_a_second_default_route_is_refused_all_the_same(guarded):
    guarded.configure("[network]\nallow-default-route = true")
    assert guarded.once(f"{NIC}[routes]\n0.0.0.0/0 = 172.16.0.254\n").code == 4
    assert guarded.problems() == [
        ("refused", "route to 0.0.0.0/0: this host has a default route already")
    ]


def test_with_permission_ours_gives_way_to_the_default_route_of_the_management_nic(lab, daemons):
    lab.management(default_route=False)
    lab.configure(f"[network]\nmanagement-macs = {MANAGEMENT_MAC}\nallow-default-route = true")
    lab.veth("dp1", 1)
    lab.document(f"{NIC}[routes]\n0.0.0.0/0 = 172.16.0.254\n10.9.0.0/16 = 172.16.0.254\n")
    daemons.append(lab.start())
    lab.wait("our default route", lambda: lab.routes("default"))
    lab.ip("route add default via 192.0.2.1 dev mgmt0 metric 100 proto static")
    lab.wait("ours to give way", lambda: len(lab.routes("default")) == 1)
    assert lab.routes("default")[0][:3] == ("192.0.2.1", "mgmt0", 100)
    assert lab.routes("10.9.0.0/16")
    refused = ("refused", "route to 0.0.0.0/0: this host has a default route already")
    lab.wait("the status", lambda: refused in lab.problems())


# --- more of the address space than a laboratory needs --------------------------------------------

MANY, MANY6 = (
    f"together, the requested routes and networks cover more public IPv{version} addresses than a"
    f" /{most}, which is the limit, so the widest of them are refused"
    for version, most in ((4, 4), (6, 13))
)
VIA = {4: "172.16.0.254", 6: "fd00:16::fe"}


def routes(*prefixes):
    lines = (f"{to} = {VIA[6 if ':' in to else 4]}" for to in prefixes)
    return "[routes]\n" + "\n".join(lines) + "\n"


def way(lab, host):
    """The device that packets to this host leave through."""
    return lab.look(f"route get {host}")[0]["dev"]


OUTSIDE = ("8.8.8.8", "20.1.1.1", "70.1.1.1", "130.1.1.1", "2001:4860::8888", "2a00:1450::1")
WIDE = [f"{number}.0.0.0/4" for number in range(16, 224, 16) if number not in (160, 192)]


@pytest.mark.parametrize(("prefixes", "reason"), [
    (["2000::/3"], MANY6),
    (["2400::/12", "2600::/12", "2a00::/12"], MANY6),
    (["0.0.0.0/2", "64.0.0.0/2"], MANY),
    (WIDE, MANY),
])  # fmt: skip
def test_routes_that_replace_the_default_route_together_are_refused(guarded, prefixes, reason):
    guarded.once(NIC)
    before = all_routes(guarded)
    assert guarded.once(NIC + routes("10.0.0.0/8", "198.18.0.0/15")).code == 0
    assert guarded.once(NIC + routes(*prefixes)).code == 4
    assert guarded.problems() == [("refused", f"route to {to}: {reason}") for to in prefixes]
    assert all_routes(guarded) == before
    assert {way(guarded, host) for host in OUTSIDE} == {"mgmt0"}


def test_an_address_whose_network_replaces_the_default_route_is_refused(guarded):
    guarded.once(f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, 2001::1/3, 64.0.0.1/2\n")
    assert guarded.problems("dp1") == [
        ("refused", f"address 2001::1/3: {MANY6}"),
        ("refused", f"address 64.0.0.1/2: {MANY}"),
    ]
    assert {way(guarded, host) for host in OUTSIDE} == {"mgmt0"}


def test_the_limit_cannot_be_exceeded_over_two_documents(guarded):
    assert guarded.once(NIC + routes("16.0.0.0/4")).code == 0
    fault = "[interface nonsense]\nmtu = 1\n"  # an incomplete document takes nothing away
    guarded.once(NIC + fault + routes("64.0.0.0/4"))
    assert ("refused", f"route to 64.0.0.0/4: {MANY}") in guarded.problems()
    assert (way(guarded, "20.1.1.1"), way(guarded, "70.1.1.1")) == ("dp1", "mgmt0")
    assert guarded.once(NIC + routes("64.0.0.0/4")).code == 0
    assert (way(guarded, "20.1.1.1"), way(guarded, "70.1.1.1")) == ("mgmt0", "dp1")


def test_a_route_through_the_management_gateway_is_not_overridden(guarded):
    guarded.ip("route add 10.20.0.0/16 via 192.0.2.1 dev mgmt0 proto dhcp metric 100")
    guarded.ip("route add 10.0.0.0/8 via 192.0.2.1 dev mgmt0 proto dhcp metric 100")
    there = "10.20.0.0/16, which is routed through the management NIC"
    assert guarded.once(NIC + routes("10.20.0.0/16", "10.20.30.0/24", "10.30.0.0/16")).code == 4
    assert guarded.problems() == [
        ("refused", f"route to 10.20.0.0/16: it is {there}"),
        ("refused", f"route to 10.20.30.0/24: it is inside {there}"),
    ]
    ways = [way(guarded, host) for host in ("10.20.1.1", "10.20.30.1", "10.30.0.1", "10.40.0.1")]
    assert ways == ["mgmt0", "mgmt0", "dp1", "mgmt0"]


# --- MAC addresses of other NICs ------------------------------------------------------------------

COPIES = {
    "br7": f"[bridge br7]\nmembers = {mac(1)}\n",
    "mv7": f"[macvlan mv7]\nparent = {mac(1)}\n",
    "vx7": f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"
    "[vxlan vx7]\nid = 7\nlocal = 172.16.0.1\nremote = 172.16.0.2\n",
}


@pytest.mark.parametrize("compatible", [1, 0])
def test_a_route_by_a_nexthop_object_is_guarded(lab, compatible):
    """As routing daemons set them; without the compatibility the kernel names the object only."""
    lab.management(default_route=False)
    lab.veth("dp1", 1)
    lab.sysctl("net/ipv4/nexthop_compat_mode", compatible)
    lab.ip("nexthop add id 7 via 192.0.2.1 dev mgmt0")
    lab.ip("nexthop add id 8 via 192.0.2.2 dev mgmt0")
    lab.ip("nexthop add id 9 group 7/8")
    for words in ("default nhid 7", "10.20.0.0/16 nhid 8", "10.21.0.0/16 nhid 9"):
        lab.ip(f"route add {words}")
    lines = ("192.0.2.1/32", "10.20.1.0/24", "10.21.1.0/24", "10.22.0.0/16")
    lab.once(f"{NIC}[routes]\n" + "".join(f"{to} = 172.16.0.254\n" for to in lines))
    assert lab.role(MANAGEMENT_MAC) == "management"
    refused = [text.split()[2].rstrip(":") for _, text in lab.problems()]
    assert refused == list(lines[:3])
    assert len(lab.routes("10.22.0.0/16")) == 1


def test_an_ipv4_route_through_an_ipv6_gateway_is_guarded_like_any_other(guarded):
    for prefix in ("10.20.0.0/16", "172.16.0.0/12"):
        guarded.ip(f"route add {prefix} via inet6 2001:db8:ffff::1 dev mgmt0")
    guarded.once(f"{NIC}[routes]\n10.20.1.0/24 = 172.16.0.254\n")
    place = "it is inside 10.20.0.0/16, which is routed through the management NIC"
    assert guarded.problems() == [("refused", f"route to 10.20.1.0/24: {place}")]
    assert "172.16.0.1/24" in guarded.addresses("dp1")


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize(("owner", "whose"), [
    (MANAGEMENT_MAC, 'the management NIC "mgmt0"'),
    (mac(3), 'an ignored NIC "dp3"'),
    (mac(2), '"dp2", which is not one of its lower devices'),
])  # fmt: skip
def test_a_link_with_the_mac_address_of_another_nic_is_refused(guarded, name, owner, whose):
    guarded.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(3)}")
    guarded.veth("dp2", 2)
    guarded.veth("dp3", 3, foreign=True)
    done = guarded.once(f"{COPIES[name]}mac = {owner}\naddresses = 10.66.0.1/24\n")
    assert (done.code, guarded.link(name)) == (4, None)
    assert guarded.problems(name) == [("refused", f"the MAC address {owner} is that of {whose}")]
    assert "10.66.0.0/24" not in (guarded.folder / "state" / "record.json").read_text()


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("asked", [True, False])
def test_such_a_link_of_an_earlier_version_is_deleted_and_its_network_is_free(guarded, name, asked):
    """It recorded that it made the link, and then the network of the link as management ground."""
    guarded.foreign.may_make(name)
    link = f"{COPIES[name]}mac = 02:00:00:00:aa:01\naddresses = 10.66.0.1/24\n"
    assert guarded.once(link).code == 0
    guarded.run("ip", "link", "set", "dev", name, "address", MANAGEMENT_MAC)
    file = guarded.folder / "state" / "record.json"
    record = json.loads(file.read_text())
    record["ground"].append("10.66.0.0/24")
    del record["crc32"]
    file.write_text(json.dumps(record))
    copied = link.replace("02:00:00:00:aa:01", MANAGEMENT_MAC)
    done = guarded.once(copied if asked else NIC)
    assert (done.code, guarded.link(name)) == (4 if asked else 0, None)
    assert "10.66.0.0/24" not in json.loads(file.read_text())["ground"]
    assert guarded.once(f"[interface {mac(1)}]\naddresses = 10.66.0.1/24\n").code == 0
    assert guarded.addresses("dp1") == {"10.66.0.1/24"}


# --- settings of the whole host -------------------------------------------------------------------


def test_settings_that_would_cut_the_guest_off_are_refused(guarded):
    settings = {
        "net/ipv4/ip_default_ttl": "1",
        "net/ipv4/tcp_rmem": "1 1 1",
        "net/ipv4/tcp_wmem": "1 1 1",
        "net/ipv6/neigh/default/gc_thresh3": "0",
        "net/netfilter/nf_conntrack_max": "1",
        "net/ipv4/icmp_echo_ignore_all": "1",
    }
    seen = ("net/ipv4/ip_default_ttl", "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem")
    before = [guarded.sysctl(path) for path in seen]
    lines = "".join(f"sysctl.{path} = {value}\n" for path, value in settings.items())
    assert guarded.once(NIC + lines).code == 4
    assert [guarded.sysctl(path) for path in seen] == before
    problems = [text for code, text in guarded.problems("dp1") if code == "refused"]
    names = [path.replace("/", ".") for path in settings]
    assert [text.split(":")[0] for text in problems] == [f"sysctl {name}" for name in names]
    whole = "it is a host-wide setting; a document may change it only if allow-sysctls lists it"
    assert problems[0] == f"sysctl net.ipv4.ip_default_ttl: {whole}"


def test_the_configuration_permits_a_setting_of_the_whole_host(guarded):
    path = "net/ipv4/ip_default_ttl"
    guarded.foreign.may_set(path)
    before = guarded.sysctl(path)
    guarded.configure("[linux]\nallow-sysctls = net.ipv4.ip_default_ttl")
    assert guarded.once(f"{NIC}sysctl.net.ipv4.ip_default_ttl = 65\n").code == 0
    assert guarded.sysctl(path) == "65"
    guarded.configure("")
    assert guarded.once().code == 4
    assert guarded.sysctl(path) == before
