"""Tuning in a real guest: what `auto` does in a virtual machine, from the sandbox of the service, over a reboot, and back."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import mac
from steps import DOCUMENT, in_force, links, serve

# What `auto` sets, and what it leaves as the kernel of Debian 12 has it.
WANTED = {
    "net.core.rmem_max": "212992",
    "net.core.rmem_default": "16777216",
    "net.core.wmem_default": "212992",
    "net.ipv4.tcp_wmem": "4096 16384 16777216",
    "net.core.netdev_max_backlog": "1000",
    "net.ipv4.tcp_congestion_control": "cubic",
    "net.ipv4.tcp_mtu_probing": "0",
}
RMEM = "net.ipv4.tcp_rmem"


def sysctls(guest):
    said = guest.check(f"sysctl {' '.join([*WANTED, RMEM])}")
    return {
        key: " ".join(value.split())
        for key, _, value in (line.partition(" = ") for line in said.splitlines())
    }


def effects(guest):
    values = guest.run("neuca tune audit --json").json["values"]
    return {(one["interface"], one["setting"]): (one["effect"], one["reason"]) for one in values}


@pytest.mark.long
def test_auto_tunes_a_virtual_machine_at_each_boot_and_gives_it_back(guests):
    guest = guests("A")
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    before = guest.run("neuca status --json").json["tuning"]
    assert (before["environment"], before["profiles"]) == ("vm", ["auto"])
    found = sysctls(guest)
    assert {key: found[key] for key in WANTED} == WANTED
    least, default, most = map(int, found[RMEM].split())
    assert (least, default >= 87380, most) == (4096, True, 16777216)
    assert {effect for effect, _ in effects(guest).values()} == {"effective"}
    assert {one["mtu"] for one in links(guest).values()} == {1500}
    assert guest.run("neuca plan").output.strip() == "nothing to do"

    guest.check(
        "mkdir -p /etc/sysctl.d; echo 'net.core.rmem_default = 1048576' > /etc/sysctl.d/70-own.conf"
    )
    guest.reboot()
    in_force(guest, DOCUMENT)
    assert sysctls(guest) == {**found, "net.core.rmem_default": "1048576"}
    assert effects(guest)[None, "net.core.rmem_default"] == (
        "overridden",
        'by /etc/sysctl.d/70-own.conf, which sets it to "1048576"',
    )

    guest.check("neuca revert")
    back = sysctls(guest)
    assert back["net.ipv4.tcp_congestion_control"] == "cubic"
    assert int(back[RMEM].split()[2]) < most
    guest.check("neuca tune apply")
    assert sysctls(guest) == {**found, "net.core.rmem_default": "1048576"}


@pytest.mark.long
def test_a_profile_by_name_raises_the_mtu_of_no_virtual_machine(guests):
    guest = guests("A")
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    guest.check("neuca tune apply --profile exogeni")
    # The kernel loads htcp, for a service without CAP_SYS_MODULE.
    assert sysctls(guest)["net.ipv4.tcp_congestion_control"] == "htcp"
    nic = next(
        name for name, one in links(guest).items() if one.get("permaddr", one["address"]) == mac(1)
    )
    assert {one["mtu"] for one in links(guest).values()} == {1500}
    assert links(guest)[nic]["txqlen"] == 10000
    assert effects(guest)[nic, "mtu"][0] == "not applicable"
    serve(guest, DOCUMENT + f"[interface {mac(1)}]\nmtu = 9000\n")  # by name: as asked
    assert links(guest)[nic]["mtu"] == 9000
    guest.check("neuca tune revert")
    assert (links(guest)[nic]["mtu"], links(guest)[nic]["txqlen"]) == (9000, 1000)
