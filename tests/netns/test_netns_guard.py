"""What must be refused: whatever would cut off the management NIC, the metadata service or the default route."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import MANAGEMENT_MAC, mac

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
INSTEAD = "a prefix of length 0 or 1 would take the default route's place"
MANAGED, MANAGED6 = "192.0.2.0/24", "2001:db8:ffff::/64"


@pytest.fixture
def guarded(lab):
    lab.management()
    lab.veth("dp1", 1)
    return lab


def all_routes(lab):
    return lab.look("-4 route show table all") + lab.look("-6 route show table all")


def test_routes_that_would_cut_the_host_off_are_refused(guarded):
    taken, taken6 = (
        f"it would take over {host}, which is reached through the management NIC"
        for host in ("169.254.169.254", "fd00:ec2::254")
    )
    inside, inside6 = (
        f"it lies inside the management network {network}" for network in (MANAGED, MANAGED6)
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
        f"it lies inside the management network {network}" for network in (MANAGED, MANAGED6)
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
            f'sysctl {key.replace(".", "/")}: it would change "{key.split(".")[3]}", not this interface alone',
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
            "sysctl net/ipv4/ip_forward: it changes every interface; ask with router in [global]",
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
