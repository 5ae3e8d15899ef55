"""What is asked of NetworkManager, networkd and resolved, and what their answers and errors become."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import pytest

from neuca_tools.backends import networkmanagers
from neuca_tools.backends.bus import RefusedError
from neuca_tools.backends.networkmanagers import Networkd, NetworkManager
from neuca_tools.backends.resolved import ABSENT, Resolved
from neuca_tools.errors import ApplyError, ManagerError
from neuca_tools.model.device_settings import DeviceSettings, missing_groups

NM, NM_PATH = "org.freedesktop.NetworkManager", "/org/freedesktop/NetworkManager"
DEVICES = f"{NM_PATH}/Devices"
RESOLVED = "org.freedesktop.resolve1.Manager /org/freedesktop/resolve1"
PLACE = Path("/run/NetworkManager/system-connections")
REFUSED = RefusedError("no", "org.freedesktop.DBus.Error.AccessDenied")


# Of each method: its interface, the path of its object, and its signature.
METHODS = {
    "GetManagedObjects": "org.freedesktop.DBus.ObjectManager /org/freedesktop ",
    "Set": rf"org.freedesktop.DBus.Properties {DEVICES}/\d ssv",
    "Reload": rf"{NM} {NM_PATH} u|org.freedesktop.network1.Manager /org/freedesktop/network1 ",
    "LoadConnections": f"{NM}.Settings {NM_PATH}/Settings as",
    "GetConnectionByUuid": f"{NM}.Settings {NM_PATH}/Settings s",
    "ActivateConnection": f"{NM} {NM_PATH} ooo",
    "Describe": "org.freedesktop.network1.Manager /org/freedesktop/network1 ",
    "Get": "org.freedesktop.DBus.Properties (/org/freedesktop/resolve1|/l) ss",
    "GetLink": f"{RESOLVED} i",
    "RevertLink": f"{RESOLVED} i",
    "SetLinkDefaultRoute": f"{RESOLVED} ib",
    "SetLinkDNS": rf"{RESOLVED} ia\(iay\)",
    "SetLinkDomains": rf"{RESOLVED} ia\(sb\)",
}


class FakeBus:
    """Answers by the name of the method or property; `calls` are those that change something."""

    def __init__(self, is_missing=False, has_owner=True, **answers):
        self.is_missing, self.has_owner, self.answers = is_missing, has_owner, answers
        self.calls = []

    def owner(self, _):
        return ":1.7" if self.has_owner else None

    def call(self, what, owner, path, method, signature="", *arguments, work=False):
        interface, _, member = method.rpartition(".")
        assert (bool(what), owner) == (True, ":1.7")
        assert re.fullmatch(METHODS[member], f"{interface} {path} {signature}")
        member = arguments[1] if member == "Get" else member
        if member.startswith(("Set", "Re", "Load", "Activate")):
            self.calls.append((member, *arguments, *(["work"] if work else [])))
        answer = self.answers.get(member)
        if isinstance(answer, Exception):
            raise answer
        return answer


def device(name, **properties):
    return {f"{NM}.Device": {"Interface": name, **properties}}


OBJECTS = {
    f"{DEVICES}/1": device("eth1", State=100, Managed=True, ActiveConnection="/active/1"),
    f"{DEVICES}/2": device("eth2", State=10),
    f"{DEVICES}/3": device("eth3", State=20, Managed=False),
    f"{DEVICES}/4": device("eth4"),
    f"{DEVICES}/5": device("eth5", Real=False),
    "/active/1": {f"{NM}.Connection.Active": {"Uuid": "u-1"}},
    "/settings/1": {f"{NM}.Settings.Connection": {"Filename": f"{PLACE}/04-old.nmconnection"}},
    "/settings/2": {f"{NM}.Settings.Connection": {"Filename": f"{PLACE}/other.nmconnection"}},
    "/settings/3": {f"{NM}.Settings.Connection": {"Filename": "/etc/04-etc.nmconnection"}},
}


def network_manager(**answers):
    bus = FakeBus(GetManagedObjects=OBJECTS, **answers)
    return NetworkManager(bus), bus.calls


def test_which_devices_networkmanager_manages_and_with_which_profile():
    manager, _ = network_manager()
    assert manager.states() == {
        **dict.fromkeys(("eth1", "eth4"), "managed"),
        **dict.fromkeys(("eth2", "eth3"), "unmanaged"),
    }
    assert manager.profiles == {"eth1": "u-1"}


@pytest.mark.parametrize(
    ("bus", "is_starting", "state", "reason"),
    [
        (FakeBus(has_owner=False), False, "absent", ""),
        (FakeBus(has_owner=False, is_missing=True), True, "absent", ""),
        (FakeBus(has_owner=False), True, "unknown",
         "systemd-networkd runs, but is not on the system bus yet"),
        (FakeBus(Describe=ManagerError("no response")), True, "unknown", "no response"),
        (FakeBus(Describe="{}"), True, "unknown",
         "asked systemd-networkd for its links: the response is malformed"),
    ],
)  # fmt: skip
def test_the_state_of_an_interface_without_an_answer(
    bus, is_starting, state, reason, tmp_path, monkeypatch
):
    monkeypatch.setattr(networkmanagers, "CGROUPS", (tmp_path / "v1", tmp_path / "v2"))
    if is_starting:
        (tmp_path / "v2/system.slice/systemd-networkd.service").mkdir(parents=True)
    assert Networkd(bus).words(["eth1"]) == ({"eth1": state}, reason)


def test_the_states_of_networkd_and_its_reload():
    words = ["unmanaged", "configuring", "configured", "failed", "pending"]
    links = [{"Name": word, "AdministrativeState": word} for word in words]
    bus = FakeBus(Describe=json.dumps({"Interfaces": links}))
    expected = ["unmanaged", "managed", "managed", "managed", "unknown"]
    assert Networkd(bus).states() == dict(zip(words, expected))
    Networkd(bus).reload()
    assert bus.calls == [("Reload", "work")]


def test_only_managed_devices_of_these_are_unmanaged():
    manager, calls = network_manager()
    manager.unmanage(["eth1", "eth2", "eth9"])
    manager.reload_configuration()
    assert calls == [("Set", f"{NM}.Device", "Managed", False), ("Reload", 1, "work")]
    manager, calls = network_manager(Set=REFUSED)
    with pytest.raises(ManagerError, match=r"^no; no$"):
        manager.unmanage(["eth1", "eth4"])


def test_only_our_profiles_are_loaded():
    manager, calls = network_manager(LoadConnections=(True, [f"{PLACE}/04-old.nmconnection"]))
    manager.load_profiles(PLACE, [], lambda _: False)
    assert calls == []
    manager.load_profiles(PLACE, ["04-new.nmconnection"], lambda name: name.startswith("04-"))
    files = [f"{PLACE}/04-{name}.nmconnection" for name in ("new", "old")]
    assert calls == [("LoadConnections", files, "work")]
    with pytest.raises(ManagerError, match=f"^NetworkManager does not load {files[1]}$"):
        manager.load_profiles(PLACE, ["04-old.nmconnection"], lambda _: False)


@pytest.mark.parametrize(("interface", "is_managed"), [("eth1", True), ("eth3", False)])
def test_a_profile_is_activated_on_its_device_which_may_do_it_later(interface, is_managed):
    start = [("ActivateConnection", "/c", f"{DEVICES}/{interface[-1]}", "/", "work")]  # fmt: skip
    manage = [] if is_managed else [("Set", f"{NM}.Device", "Managed", True)]
    manager, calls = network_manager(GetConnectionByUuid="/c")
    manager.activate(interface, "u")
    assert calls == manage + start
    manager, calls = network_manager(GetConnectionByUuid="/c", ActivateConnection=REFUSED)
    if is_managed:
        with pytest.raises(RefusedError):
            manager.activate(interface, "u")
    else:
        manager.activate(interface, "u")


SERVERS = [(2, 2, bytes([10, 0, 0, 1])), (3, 2, bytes([10, 0, 0, 3]))]
DOMAINS = [(2, "a.example", False), (2, "b.example", True), (3, "c.example", False), (0, "host.example", False)]  # fmt: skip
GROUPS = ["nameservers", "search"]


def resolved(is_default=False, **answers):
    bus = FakeBus(**{"DNS": SERVERS, "Domains": DOMAINS, "GetLink": "/l", "DefaultRoute": is_default, **answers})  # fmt: skip
    return Resolved(bus), bus.calls


def test_the_servers_and_domains_of_a_link():
    for is_default, more in ((False, ""), (True, " default-route")):
        service, _ = resolved(is_default)
        assert service.read([2, 9], GROUPS) == {
            2: DeviceSettings({"nameservers": f"10.0.0.1{more}", "search": "a.example ~b.example"}),
            9: DeviceSettings(dict.fromkeys(GROUPS, "none")),
        }
    absent = DeviceSettings(dict.fromkeys(GROUPS, "none"), missing=dict.fromkeys(GROUPS, ABSENT))
    assert Resolved(FakeBus(has_owner=False)).read([2], GROUPS) == {2: absent}
    service, _ = resolved(DNS=ManagerError("no response"))
    assert service.read([2], GROUPS) == {2: missing_groups(GROUPS, "no response")}


@pytest.mark.parametrize(
    ("index", "group", "value", "calls"),
    [
        (2, "nameservers", "10.0.0.9 fd00::9", [
            ("SetLinkDefaultRoute", 2, False),
            ("SetLinkDNS", 2, [(2, [10, 0, 0, 9]), (10, [0xFD, *[0] * 14, 9])]),
        ]),
        (2, "nameservers", "10.0.0.9 default-route", [
            ("SetLinkDefaultRoute", 2, True), ("SetLinkDNS", 2, [(2, [10, 0, 0, 9])]),
        ]),
        (2, "search", "x.example ~y.example", [
            ("SetLinkDomains", 2, [("x.example", False), ("y.example", True)]),
        ]),
        (2, "search", "sub.c.example", [("SetLinkDomains", 2, [("sub.c.example", False)])]),
        (2, "search", "none", [("SetLinkDomains", 2, [])]),  # it has servers
        (4, "search", "none", [("RevertLink", 4)]),
        (0, "nameservers", "none", [("SetLinkDefaultRoute", 0, False), ("SetLinkDNS", 0, [])]),
    ],
)  # fmt: skip
def test_what_is_set_of_a_link(index, group, value, calls):
    service, made = resolved()
    service.write(index, group, value)
    assert made == calls


@pytest.mark.parametrize(
    ("service", "value", "number", "text"),
    [
        (resolved(is_default=True)[0], "sub.c.example", errno.EPERM,
         'the domain "sub.c.example" overlaps "c.example" of another link'),
        (resolved()[0], "~HOST.example", errno.EPERM,
         'the domain "~HOST.example" overlaps "host.example" of the host'),
        (resolved(SetLinkDomains=REFUSED)[0], "x.example", errno.EPERM, "no"),
        (resolved(SetLinkDomains=ManagerError("no response"))[0], "x.example", 0, "no response"),
        (Resolved(FakeBus(has_owner=False)), "x.example", errno.ENOENT,
         "systemd-resolved is not running"),
    ],
)  # fmt: skip
def test_why_a_domain_is_not_set(service, value, number, text):
    with pytest.raises(ApplyError) as caught:
        service.write(2, "search", value)
    assert (caught.value.text, caught.value.errno) == (text, number)
