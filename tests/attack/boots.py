"""A guest at its first boot, with the attacker on a NIC that no document names, and what "held" means."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
from itertools import product

from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, SERVICE, mac
from metadata import Metadata, listener
from signs import NIC

FAMILIES = {"IPv4": (4,), "dual": (4, 6), "IPv6": (6,)}
SERVICES = ("well", "no user-data", "404", "500", "hang", "absent")
LEASE = {"leased": True, "no lease": False}
STATES = tuple(product(SERVICES, FAMILIES, LEASE))
ADDRESS = {4: SERVICE, 6: "fd00:ec2::254"}
OURS = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
LATER = f"""[interface {mac(1)}]
addresses = 172.16.1.1/24, 10.66.0.77/24, 2001:db8:66::77/64
[interface {mac(7)}]
addresses = 10.7.0.9/24, fd00:7::9/64
"""
MODE = {"well": "ok", "no user-data": "404", "404": "404", "500": "500", "hang": "hang"}
ACQUIRED = {
    4: ("address add 192.0.2.10/24 dev mgmt0 valid_lft 3600 preferred_lft 3600",
        f"route replace default via {GATEWAY} dev mgmt0 proto dhcp metric 100"),
    6: ("-6 address add 2001:db8:ffff::10/64 dev mgmt0 nodad valid_lft 3600 preferred_lft 3600",
        f"-6 route replace default via {GATEWAY6} dev mgmt0 proto ra metric 100"),
}  # fmt: skip


class Boot:
    """mgmt0, which is the first NIC, leads to the real service; eth7 to the attacker; dp1 is for the document."""

    def __init__(self, guest, attackers, stack, state):
        self.guest, self._stack = guest, stack
        self.service, self._families, lease = state[0], FAMILIES[state[1]], LEASE[state[2]]
        self.has_lease = False
        self.asked_without = 0  # requests while the management NIC has no lease: another NIC may be asked, not believed
        guest.veth("mgmt0", address=MANAGEMENT_MAC, up=True)
        addresses = {4: (f"{GATEWAY}/24", f"{SERVICE}/32"), 6: (f"{GATEWAY6}/64", "fd00:ec2::254/128")}  # fmt: skip
        for address in (each for family in self._families for each in addresses[family]):
            words = ("address", "add", address, "dev", "mgmt0")
            guest.run("ip", *words, *["nodad"] * (":" in address), where=guest.outside)
        self.evil = attackers().on_dataplane(NIC, 7, up=True)
        self.mark = guest.folder / "rooted"
        script = f"[scripts]\nbootscript = #!/bin/sh\n    echo yes > {self.mark}\n"
        evil = f"[interface {mac(1)}]\naddresses = 172.16.66.66/24\n{script}"
        stack_files = {"meta_data.json": '{"uuid": "i-evil"}', "user_data": evil}
        self.evil.own("10.66.0.1/24").impersonate(evil, tokens=False, openstack=stack_files)
        guest.veth("dp1", 1)
        guest.configure(sources="openstack, ec2", timeout=1)
        self.real = []
        if self.service != "absent":
            self._serve(MODE[self.service])
        if lease:
            self.acquire()

    def acquire(self):
        """The management NIC gets its addresses and routes, as leases and advertisements set them."""
        if not self.has_lease:
            for words in (each for family in self._families for each in ACQUIRED[family]):
                self.guest.ip(words)
            self.asked_without = len(self.evil.asked())
        self.has_lease = True

    def _serve(self, mode):
        for family in self._families:
            listening = listener(self.guest.outside.enter, ADDRESS[family], 80)
            service = self._stack.enter_context(contextlib.closing(Metadata(listening, OURS)))
            service.mode = mode
            if self.service == "no user-data":
                service.tree = {"/latest/meta-data/instance-id": "i-1"}
            self.real.append(service)

    def fall_ill(self, health):
        """The real service, which was well, is so from now on."""
        if health == "absent":
            for service in self.real:
                service.close()
            self.real = []
        for service in self.real:
            service.mode = MODE[health]

    def recover(self, document=OURS):
        """The real service is there and has this document."""
        self.acquire()
        if not self.real:
            self._serve("ok")
        for service in self.real:
            service.recover()
            service.document = document

    def passes(self, count):
        for _ in range(count):
            done = self.guest.once()
        return done

    def origin(self):
        place = self.guest.folder / "state" / "machine.json"
        return (json.loads(place.read_text()) if place.exists() else {}).get("origin")

    def check_not_believed(self):
        """Nothing that the attacker says is in force."""
        assert "172.16.66.66/24" not in self.guest.addresses("dp1")
        assert not self.mark.exists()
        assert (self.origin() or {}).get("mac") in (None, MANAGEMENT_MAC)
        if self.has_lease:
            assert self.evil.asked()[self.asked_without :] == []

    def check_roles(self):
        assert self.guest.role(mac(7)) != "management"
        if self.has_lease:
            assert self.guest.role(MANAGEMENT_MAC) in ("management", "unlisted")

    def check_held(self):
        """The definition: through a first boot, until the real service is there, and in a later document."""
        guest = self.guest
        self.passes(2)
        guest.command("neucad", "--guest", "--config", guest.config_file)
        self.check_not_believed()
        self.check_roles()
        self.recover()
        done = self.passes(2)
        assert guest.addresses("dp1") == {"172.16.1.1/24"}, done
        self.check_not_believed()
        assert self.origin()["mac"] == MANAGEMENT_MAC
        assert guest.role(MANAGEMENT_MAC) == "management"
        self.check_roles()
        self.recover(LATER)
        done = self.passes(2)
        self.check_not_believed()
        assert {"10.7.0.9/24", "fd00:7::9/64"} <= guest.addresses(NIC), done
        wanted = {"172.16.1.1/24", "10.66.0.77/24", "2001:db8:66::77/64"}
        assert guest.addresses("dp1") == wanted, done
        assert (guest.role(mac(7)), guest.role(MANAGEMENT_MAC)) == ("dataplane", "management")
        guest.finish()  # while the services are there
        guest.applied = False
