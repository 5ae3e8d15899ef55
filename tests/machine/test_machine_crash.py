"""Power cuts, kills at any moment of a pass, and an upgrade while it runs: nothing half written, nothing lost."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import random
import select

import images
import pytest
from guest import BOOT_PATIENCE, mac, nics
from steps import (
    ADDRESSES,
    DOCUMENT,
    LEAN,
    addresses,
    assert_nothing_odd,
    dataplane,
    in_force,
    links,
    names,
)

ANOTHER = (
    DOCUMENT.replace("172.16.0.1", "172.16.0.2")
    + f"""
[interface {mac(1)}]
mtu = 4000
[vlan {mac(1)}.1445]
addresses = 10.14.45.1/24, fd00:1445::1/64
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
"""
)
CUTS = int(os.environ.get("NEUCA_CUTS", "2"))  # a campaign: 100, more than a minute each
SEED = os.environ.get("NEUCA_SEED", "1")
LONGEST_BOOT, LONGEST_PASS = 40.0, 8.0  # seconds, of an emulated guest
ONE = {DOCUMENT: "172.16.0.1/24", ANOTHER: "172.16.0.2/24"}
# Every file of ours: JSON that can be read, no temporary file, text with a line's end.
WHOLE = """cd /; python3 - <<'EOF'
import json, pathlib
places = "/var/lib/neuca /etc/udev/rules.d /etc/NetworkManager/conf.d /etc/systemd/network /etc/sysctl.d".split()
for path in (path for place in places for path in pathlib.Path(place).rglob("*")):
    if path.is_file() and "neuca" in str(path) and path.suffix != ".lock":
        data = path.read_bytes()
        print(path, len(data))
        assert data and (b"\\0" not in data), path
        if path.suffix == ".json": json.loads(data)
        elif "/etc/" in str(path): assert data.endswith(b"\\n"), path
        assert not path.name.endswith(("-new", ".tmp")), path
EOF"""

# Waits for a pass (its journal) or for the daemon's process alone, then so many seconds more, and kills daemon and child.
# Prints whether a pass was under way.
KILL = """
import pathlib, select, subprocess, sys, time
journal, service, deadline = pathlib.Path("/var/lib/neuca/journal.json"), "neuca-guest-tools.service", time.monotonic() + 60
def pid():
    return subprocess.check_output(["systemctl", "show", "--property=MainPID", "--value", service], text=True).strip()
def begun():
    return journal.exists() if sys.argv[1] == "pass" else pid() != "0"
while not begun() and time.monotonic() < deadline:
    select.select([], [], [], 0.005)
select.select([], [], [], float(sys.argv[2]))
killed = pid()
subprocess.run(["systemctl", "kill", "--kill-who=all", "--signal=KILL", service], check=True)
print("in a pass" if journal.exists() else "between two")
while pid() == killed and time.monotonic() < deadline:
    select.select([], [], [], 0.05)
"""


def long(*seconds):
    return [pytest.param(one, marks=pytest.mark.long) for one in seconds]


@pytest.mark.parametrize("after", [0.5, *long(0.0, 0.25, 1.0, 1.5, 2.0, 3.0, 5.0)])
def test_a_power_cut_in_the_midst_of_a_pass_is_made_good(guests, prepared, after):
    before = prepared("A")
    guest = guests("A", nics(3), after=before)
    guest.serve(ANOTHER)
    guest.power_on()
    guest.cloud.wait_for(1, BOOT_PATIENCE)  # the answer to this begins the pass
    select.select([], [], [], after)
    guest.power_cut()
    converges(guest, before.names)


@pytest.mark.parametrize("after", [*long(12, 2, 4, 6, 8, 10, 15, 20, 25, 30)])
def test_a_power_cut_in_the_midst_of_a_boot_is_made_good(guests, prepared, after):
    before = prepared("A")
    guest = guests("A", nics(3), after=before)
    guest.permute((0x11, 0x12, 0x13, 0x10))
    guest.serve(ANOTHER)
    guest.power_on()
    select.select([], [], [], after)
    guest.power_cut()
    converges(guest, before.names)


def _moments():
    """Random ones, as (what the seconds are counted from, seconds), in pairs: a campaign has a hundred."""
    chance = random.Random(SEED)
    for _ in range(CUTS // 2):
        yield "pass", round(chance.uniform(0, LONGEST_PASS), 2)
        yield "power", round(chance.uniform(0, LONGEST_BOOT), 2)


@pytest.mark.parametrize("image", ["C"])
def test_power_cuts_at_random_moments_are_made_good(guests, prepared, image):
    """One disk, cut after cut, in a pass and in a boot by turns; after each of them a boot makes all of it good.

    Every moment is told, and every other document asks for a VLAN more.
    """
    before = prepared(image)
    guest = guests(image, nics(3), after=before, arguments=LEAN)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    for number, (since, seconds) in enumerate(_moments(), 1):
        document = (DOCUMENT, ANOTHER)[number % 2]
        guest.serve(document)
        if since == "pass":
            guest.run("neuca apply > /dev/null 2>&1 &")
        else:
            guest.power_cut()
            guest.power_on()
        select.select([], [], [], seconds)
        guest.power_cut()
        print(f"{number}: {since} {seconds}", flush=True)
        made_good(guest, document, before.names)


def made_good(guest, document, known):
    """Boot: this document is in force, all files are whole, the management NIC is as before, and a second pass does nothing."""
    guest.boot()
    in_force(guest, document)
    guest.check(WHOLE)
    assert names(guest) == known
    found = addresses(guest).get(f"{known[mac(1)]}.1445", set())
    assert found == ({"10.14.45.1/24", "fd00:1445::1/64"} if document == ANOTHER else set())
    assert dataplane(guest) == {**ADDRESSES, mac(1): {ONE[document]}}
    assert guest.reachable()
    assert json.loads(guest.run("neuca plan --json").output)["operations"] == []


def converges(guest, known):
    """Boot it after a power cut: all of ANOTHER is in force, whole files, the names of then."""
    guest.boot()
    in_force(guest, ANOTHER)
    guest.check(WHOLE)
    assert names(guest) == known
    vlan = f"{known[mac(1)]}.1445"
    assert addresses(guest)[vlan] == {"10.14.45.1/24", "fd00:1445::1/64"}
    assert guest.reachable()


@pytest.mark.parametrize(
    "moments", [*long([0.0, 0.05, 0.1, 0.2, 0.3, 0.5], [step / 50 for step in range(40)])], ids=len
)
def test_a_killed_agent_that_systemd_starts_again_gets_everything_in_force(
    guests, prepared, moments
):
    before = prepared("A")
    guest = guests("A", nics(3), after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    assert_nothing_odd(guest)
    guest.put(
        "/run/systemd/system/neuca-guest-tools.service.d/test.conf", "[Service]\nRestartSec=100ms\n"
    )
    guest.put("/root/kill.py", KILL)
    guest.check("systemctl daemon-reload")
    said = []
    for number, moment in enumerate(moments):
        guest.serve((ANOTHER, DOCUMENT)[number % 2])
        said.append(
            guest.check(
                f"python3 /root/kill.py {('pass', 'process')[number % 3 == 2]} {moment}", 120
            ).strip()
        )
        assert names(guest) == before.names
    print(said)
    assert said.count("in a pass") >= len(moments) // 3
    guest.serve(ANOTHER)
    _all_in_force(guest, before)
    guest.serve(DOCUMENT)
    in_force(guest, DOCUMENT)
    assert dataplane(guest) == ADDRESSES
    assert links(guest)[before.names[mac(1)]]["mtu"] == 1500
    assert f"{before.names[mac(1)]}.1445" not in links(guest)
    guest.check(WHOLE)


def _all_in_force(guest, before):
    """ANOTHER, once each; no journal, and a record of just that."""
    in_force(guest, ANOTHER)
    guest.check(WHOLE)
    vlan = f"{before.names[mac(1)]}.1445"
    assert dataplane(guest) == ADDRESSES | {mac(1): {"172.16.0.2/24"}}
    assert addresses(guest)[vlan] == {"10.14.45.1/24", "fd00:1445::1/64"}
    counted = [
        one["local"]
        for name, link in links(guest).items()
        for one in link["addr_info"]
        if name != vlan
    ]
    assert len(counted) == len(set(counted))
    assert guest.run("ls /var/lib/neuca/journal.json").code != 0
    record = json.loads(guest.check("cat /var/lib/neuca/record.json"))
    assert sorted(map(tuple, record["owned"]["addresses"])) == sorted(
        [
            (mac(1), "172.16.0.2/24"),
            (mac(2), "fd00:16::1/64"),
            (mac(3), "172.18.0.1/24"),
            (f"{mac(1)}.1445", "10.14.45.1/24"),
            (f"{mac(1)}.1445", "fd00:1445::1/64"),
        ]
    )
    assert record["owned"]["vlans"] == [f"{mac(1)}.1445"]
    assert record["originals"][mac(1)]["mtu"] == 1500


@pytest.mark.parametrize("image", ["A", *long("D")])
def test_an_upgrade_keeps_every_name_and_address(guests, prepared, image, tmp_path):
    before = prepared(image)
    guest = guests(image, nics(3), after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    guest.put("/root/newer.deb", images.newer(images.package(), tmp_path).read_bytes())
    guest.check("nohup ip monitor link address route > /root/monitor 2>&1 & sleep 1")
    guest.check("DEBIAN_FRONTEND=noninteractive dpkg --install /root/newer.deb", 1800)
    installed = guest.check(
        "dpkg-query --show --showformat '${Version} ${Status}' neuca-guest-tools"
    )
    assert installed.endswith("+lab1 install ok installed")
    guest.cloud.wait_for(2)
    in_force(guest, DOCUMENT)
    assert [
        line
        for line in guest.check("cat /root/monitor").splitlines()
        if "eth" in line and "Deleted" in line
    ] == []
    assert names(guest) == before.names
    assert dataplane(guest) == ADDRESSES
