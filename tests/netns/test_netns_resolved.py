"""DNS of single links through the real systemd-resolved: on request, never for the host, and taken back."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os

import pytest
from lab import mac
from resolved import Resolved

from neuca_tools.backends import resolved
from neuca_tools.backends.bus import Bus

NIC = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"
DNS = "nameservers = 172.16.0.53, fd00:16::53\nsearch = dp.example.net\n"
WANTED = {"nameservers": "172.16.0.53 fd00:16::53", "search": "dp.example.net"}
NONE = {"nameservers": "none", "search": "none"}
THEIRS = {"nameservers": "192.0.2.1 default-route", "search": "corp.example.org"}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="these tests do not run as root, and have no other user to become"
)


class Names:
    """What the daemon has for each link, by name."""

    def __init__(self, lab) -> None:
        self.lab = lab

    def _index(self, name):
        return self.lab.link(name)["ifindex"]

    def of(self, name):
        with Bus(30, 60) as bus:
            index = self._index(name)
            return dict(resolved.Resolved(bus).read([index], tuple(NONE))[index].values)

    def set(self, name, group, value):
        with Bus(30, 60) as bus:
            resolved.Resolved(bus).write(self._index(name), group, value)


@pytest.fixture
def daemon(lab, monkeypatch):
    lab.management()
    lab.veth("dp1", 1)
    daemon = Resolved(lab.guest, lab.folder / "resolved")
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", daemon.address)
    lab.warm = None
    lab.environment["DBUS_SYSTEM_BUS_ADDRESS"] = daemon.address
    yield daemon
    daemon.close()


@pytest.fixture
def names(lab, daemon):
    host = "[Resolve]\nDNS=192.0.2.2\nDomains=site.example.com\n"
    (daemon.folder / "host.conf").write_text(host)
    daemon.start()
    names = Names(lab)

    def answers():
        with Bus(30, 60) as bus:
            return bus.owner(resolved.NAME)

    lab.wait("resolved is on its bus", answers)
    for group, value in THEIRS.items():
        names.set("mgmt0", group, value)
    return names


def test_the_dns_of_a_link_is_set_for_this_link_only_and_taken_back(lab, names):
    assert lab.once(NIC + DNS).code == 0
    assert (names.of("dp1"), names.of("mgmt0")) == (WANTED, THEIRS)
    assert lab.plan() == []
    assert lab.once(NIC).code == 0
    assert (names.of("dp1"), names.of("mgmt0")) == (NONE, THEIRS)


def test_what_the_user_had_set_is_set_again(lab, names):
    before = {"nameservers": "198.51.100.1 default-route", "search": "~users.example"}
    for group, value in before.items():
        names.set("dp1", group, value)
    lab.once(NIC + DNS)
    assert names.of("dp1") == WANTED
    lab.once(NIC)
    assert names.of("dp1") == before


LONG = [
    pytest.param(name, marks=pytest.mark.long) for name in ("example.org", "a.corp.example.org")
]


@pytest.mark.parametrize("domain", ["corp.example.org", *LONG])
def test_the_domains_of_the_management_link_stay_its_own(lab, names, domain):
    assert lab.once(NIC + f"search = {domain}\n").code == 0
    assert (names.of("dp1"), names.of("mgmt0")) == (NONE, THEIRS)
    text = (
        f'"{domain}" was tried: the domain "{domain}" overlaps "corp.example.org" of another link'
    )
    assert text in str(lab.status())


def test_the_domains_of_the_host_stay_its_own(lab, names):
    assert lab.once(NIC + "search = site.example.com\n").code == 0
    assert (names.of("dp1"), names.of("mgmt0")) == (NONE, THEIRS)
    text = 'the domain "site.example.com" overlaps "site.example.com" of the host'
    assert text in str(lab.status())


@pytest.mark.usefixtures("daemon")
def test_without_resolved_the_status_says_so(lab):
    assert lab.once(NIC + DNS).code == 0
    text = "systemd-resolved is not running, and nothing else sets the DNS of a single link"
    assert text in str(lab.status())
