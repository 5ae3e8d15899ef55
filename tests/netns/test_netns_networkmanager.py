"""DHCP on a dataplane NIC with NetworkManager itself as the client, and what it leaves alone."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import pytest
from lab import GATEWAY, mac
from networkd import PROGRAM as NETWORKD
from networkd import Networkd
from networkmanager import NetworkManager
from test_netns_dhcp import (
    FAR,
    HOSTILE,
    LEASE,
    RA,
    REACHED_BY_MANAGEMENT,
    ROUTER,
    TABLE,
    advertise_hostile,
    ask,
    inbox,
    serve,
    through,
    write,
)

from neuca_tools.desired import dhcp_files
from neuca_tools.model import LinkKey

PROFILE = dhcp_files.file_name("networkmanager", LinkKey(mac(1)))
CALLED = PROFILE.partition(".")[0]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not NETWORKD.exists(),
    reason="it requires root, and systemd-networkd as the server",
)


@pytest.fixture
def cloud(daemons, lab, tmp_path):
    """A guest with NetworkManager, whose second NIC leads to a DHCP server."""
    lab.management()
    lab.veth("dp1", 1)
    lab.run("ip", "address", "add", f"{FAR}/32", "dev", "lo", where=lab.outside)
    lab.server = Networkd(lab.outside, tmp_path / "server")
    daemons.append(lab.server)
    drive = lab.folder / "drive" / "openstack" / "latest"
    drive.mkdir(parents=True)
    (drive / "meta_data.json").write_text('{"uuid": "i"}')
    lab.configure(sources=f"configdrive={lab.folder / 'drive'}")
    lab.manager = NetworkManager(lab, tmp_path / "manager")
    daemons.append(lab.manager)
    lab.manager.start()
    lab.once = lab.manager.once
    return lab


def settled(lab, address=f"{LEASE}/24"):
    """There is a lease, and a pass has used it."""
    lab.wait("the lease", lambda: address in lab.addresses("dp1") and inbox(lab))
    assert lab.once().code == 0


def active(lab):
    return lab.manager.devices()["dp1"]


def test_networkmanager_gets_the_lease_and_the_agent_the_routes(cloud):
    before = cloud.look("route show table main"), cloud.addresses("mgmt0")
    assert active(cloud) == ("unmanaged", "")
    serve(cloud)
    ask(cloud, "ipv4_dhcp", static="172.16.0.5")
    assert oct((cloud.manager.profiles / PROFILE).stat().st_mode) == "0o100600"
    settled(cloud)
    assert active(cloud) == ("connected", CALLED)
    assert cloud.addresses("dp1") == {f"{LEASE}/24", "172.16.0.5/24"}
    assert cloud.link("dp1")["mtu"] == 1400
    assert inbox(cloud) >= {"default", "10.9.0.0/24", "192.168.77.0/24"}
    assert through(cloud) == {("10.9.0.0/24", None), ("192.168.77.0/24", ROUTER)}
    assert [one["dev"] for one in cloud.look("route show default")] == ["mgmt0"]
    rules = {one["src"] for one in cloud.look("rule show") if one.get("protocol") == "110"}
    assert LEASE in rules
    main = [one for one in cloud.look("route show table main") if one["dev"] == "mgmt0"]
    assert (main, cloud.addresses("mgmt0")) == before
    assert cloud.manager.devices()["mgmt0"] == ("unmanaged", "")


def test_status_has_the_lease_and_a_second_pass_does_nothing(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp")
    settled(cloud)
    found = cloud.manager.status()
    assert f"dp1: {LEASE}/24 from DHCP or a router advertisement" in found["notes"]
    assert found["state"] == "ok"
    with cloud.monitored() as monitor:
        assert cloud.once().code == 0
        assert monitor.lines() == []


def test_a_profile_that_networkmanager_uses_by_default_gives_way_with_its_default_route(cloud):
    serve(cloud)
    words = "connection add type ethernet ifname dp1 con-name mine ipv6.method ignore"
    ask(cloud, static="172.16.0.5")
    cloud.manager.say(*words.split(), check=True)
    cloud.manager.say("device", "set", "dp1", "managed", "yes", check=True)
    cloud.manager.say("connection", "up", "mine", check=True)  # NetworkManager 1.52 would not
    cloud.wait("their lease", lambda: len(cloud.look("route show default")) == 2)
    ask(cloud, "ipv4_dhcp")
    cloud.wait("our profile", lambda: active(cloud) == ("connected", CALLED))
    settled(cloud)
    assert [one["dev"] for one in cloud.look("route show default")] == ["mgmt0"]


def test_a_request_that_is_withdrawn_releases_lease_profile_and_nic(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp", static="172.16.0.5")
    settled(cloud)
    # In this laboratory NetworkManager releases the NIC when it is asked to, which the next pass does.
    ask(cloud, static="172.16.0.5", codes=(0, 4))
    assert list(cloud.manager.profiles.iterdir()) == []
    assert cloud.addresses("dp1") == {"172.16.0.5/24"}
    assert cloud.once().code == 0
    assert active(cloud) == ("unmanaged", "")
    assert CALLED not in cloud.manager.say("-f", "NAME", "connection")
    assert (through(cloud), inbox(cloud)) == (set(), set())
    assert cloud.addresses("dp1") == {"172.16.0.5/24"}


def test_a_released_nic_gets_its_link_local_address_again_after_it_was_down(cloud):
    """NetworkManager sets these addresses itself, and has the kernel set none (addr_gen_mode)."""
    words = "connection add type ethernet ifname dp1 con-name mine ipv4.method disabled ipv6.method link-local"
    cloud.manager.say(*words.split(), check=True)
    cloud.manager.say("device", "set", "dp1", "managed", "yes", check=True)
    cloud.manager.say("connection", "up", "mine", check=True)
    ask(cloud, static="172.16.0.5")
    assert active(cloud) == ("unmanaged", "")
    for word in ("down", "up"):
        cloud.run("ip", "link", "set", "dp1", word)
    cloud.wait(
        "the address", lambda: "fe80:" in cloud.run("ip", "-6", "address", "show", "dp1").out
    )


def test_release_says_that_a_running_networkmanager_was_not_notified(cloud):
    ask(cloud, static="172.16.0.5")
    words = ("release", "dp1", "--config", cloud.config_file)
    assert (
        "The running NetworkManager was not notified"
        in cloud.manager.agent(*words, module="neuca").out
    )


def test_the_lease_survives_restarts_of_both(cloud):
    serve(cloud)
    ask(cloud, "ipv4_dhcp")
    settled(cloud)
    routes = through(cloud)
    cloud.manager.stop()
    assert cloud.addresses("dp1") == {f"{LEASE}/24"}
    assert cloud.once().code == 0
    assert (cloud.manager.profiles / PROFILE).exists()
    cloud.manager.start()
    cloud.wait("our profile", lambda: active(cloud) == ("connected", CALLED))
    settled(cloud)
    assert (cloud.addresses("dp1"), through(cloud)) == ({f"{LEASE}/24"}, routes)


def test_a_hostile_server_gets_no_route_into_the_main_table(cloud):
    before = cloud.look("route show table main")
    serve(cloud, HOSTILE)
    ask(cloud, "ipv4_dhcp")
    settled(cloud)
    assert through(cloud) == {("10.9.0.0/24", None)}
    now = cloud.look("route show table main")
    assert [one for one in now if one["dev"] != "dp1"] == before
    assert cloud.look(f"route get {GATEWAY}")[0]["dev"] == "mgmt0"


def test_router_advertisements_without_their_default_route_in_the_main_table(cloud):
    serve(cloud, more=RA)
    ask(cloud, "ipv6_slaac")

    def own():
        return [one for one in cloud.addresses("dp1") if one.startswith("fd00:9:")]

    cloud.wait("an address", lambda: own() and "fd00:9::/64" in inbox(cloud, "::"))
    before = own()
    assert cloud.once().code == 0
    assert own() == before == ["fd00:9::ff:fe00:101/64"]
    assert [one["dev"] for one in cloud.look("-6 route show default")] == ["mgmt0"]
    assert "default" in {one["dst"] for one in cloud.look(f"-6 route show table {TABLE}")}
    cloud.server.kill()


def test_a_hostile_router_gets_no_route_into_the_main_table(cloud):
    before = cloud.look("-6 route show table main")
    serve(cloud, more=RA)
    ask(cloud, "ipv6_slaac")
    cloud.wait("an address", lambda: any("fd00:9:" in one for one in cloud.addresses("dp1")))
    with cloud.foreign.changing():  # both routers are next hops of one route
        advertise_hostile(cloud)
        cloud.wait("the advertisement", lambda: "fd00:ec2::/64" in inbox(cloud, "::"))
    cloud.once()
    now = cloud.look("-6 route show table main")
    assert [one for one in now if one["dev"] != "dp1"] == before
    assert {one["dst"] for one in now if one["dev"] == "dp1"} == {"fd00:9::/64"}
    routes = [cloud.look(f"route get {host}")[0] for host in REACHED_BY_MANAGEMENT]
    assert {route["dev"] for route in routes} == {"mgmt0"}
    cloud.server.kill()


# It has the name of systemd-networkd on the bus, and answers nobody.
SILENT = """import os, sys, dbus.bus
bus = dbus.bus.BusConnection(os.environ["DBUS_SYSTEM_BUS_ADDRESS"])
bus.request_name("org.freedesktop.network1")
print("ready", flush=True)
sys.stdin.read()"""


def test_after_a_manager_gave_no_answer_the_daemon_comes_back_to_it_by_itself(cloud):
    """Nothing changes meanwhile."""
    words = [sys.executable, "-c", SILENT]
    silent = subprocess.Popen(words, env=cloud.environment, stdin=PIPE, stdout=PIPE)
    assert silent.stdout.readline() == b"ready\n"
    ask(cloud, static="172.16.0.5", codes=(1,))
    daemon = cloud.manager.daemon()
    try:
        cloud.wait("the first pass", lambda: "pass: " in daemon.log())
        silent.communicate()
        cloud.wait("all is well", lambda: cloud.manager.status()["state"] == "ok")
    finally:
        daemon.close()
        silent.kill()
        silent.communicate()


def test_a_networkmanager_that_answered_late_uses_our_profile_and_no_default_route(cloud):
    """As on a first boot: it has begun DHCP with a profile of its own, and is too busy to answer."""
    serve(cloud)
    ask(cloud, static="172.16.0.5")
    words = "connection add type ethernet ifname dp1 con-name mine ipv6.method ignore"
    cloud.manager.say(*words.split(), check=True)
    cloud.manager.say("device", "set", "dp1", "managed", "yes", check=True)
    cloud.manager.say("connection", "up", "mine", check=True)
    cloud.wait("their lease", lambda: len(cloud.look("route show default")) == 2)
    cloud.manager.freeze()
    write(cloud, "ipv4_dhcp", static="172.16.0.5")
    daemon = cloud.manager.daemon()
    try:
        cloud.wait("the first pass", lambda: "pass: " in daemon.log())
        cloud.manager.freeze(False)
        cloud.wait("our profile", lambda: active(cloud) == ("connected", CALLED))
        cloud.wait("all is well", lambda: cloud.manager.status()["state"] == "ok")
        # NetworkManager is connected before it has a lease, and all is well: a pass of its own copies the lease's routes.
        cloud.wait("the lease's routes", lambda: through(cloud) and cloud.plan() == [])
        # Status looks for itself: the pass may still be making sure.
        journal = cloud.folder / "state" / "journal.json"
        cloud.wait("the pass is over", lambda: not journal.exists())
    finally:
        daemon.close()
    assert [one["dev"] for one in cloud.look("route show default")] == ["mgmt0"]


def test_networkmanager_releases_the_nic_again_after_a_trial_that_nobody_confirms(cloud):
    """The trial waits longer than a pass may wait for its managers."""
    serve(cloud)
    ask(cloud, static="172.16.0.5")
    write(cloud, "ipv4_dhcp", static="172.16.0.5")
    words = ["apply", "--config", cloud.config_file, "--try", "8"]
    done = cloud.manager.agent(*words, module="neuca")
    assert "not confirmed: rolled back" in done.out, done.out
    assert cloud.addresses("dp1") == {"172.16.0.5/24"}, done.out
    assert list(cloud.manager.profiles.iterdir()) == []
    ask(cloud, static="172.16.0.5")
