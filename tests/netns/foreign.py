"""What the agent must leave alone: every link, address, route, rule and sysctl but those of the NICs that a test gives it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib

VOLATILE = ("/nf_conntrack_count:", "/nf_conntrack_tcp_", "/ipv4/tcp_fastopen_key:")
LINK = ("ifname", "address", "mtu", "txqlen", "master", "ifalias", "altnames", "qdisc")
ADDRESS = ("family", "local", "prefixlen", "scope", "label", "broadcast")
ROUTE = ("type", "dst", "gateway", "dev", "table", "protocol", "scope", "metric", "prefsrc")
AGENT = "110"  # the protocol of its routes and rules


class Foreign:
    """A picture of it, taken before the agent runs for the first time and after each change by hand."""

    def __init__(self, lab):
        self._lab = lab
        self._ours = set()
        self._made = set()
        self._sysctls = set()
        self._before = None

    def may_change(self, index):
        """This NIC, and VLANs on it, are the agent's business."""
        self._before = None
        self._ours.add(index)

    def may_make(self, *names):
        """Links of these names, and no others, are the agent's business, as soon as there are any; so is what is on them."""
        self._before = None
        self._made = set(names)

    def may_set(self, *paths):
        """These sysctls of the whole namespace are the agent's business."""
        self._sysctls |= {f"/proc/sys/{path}:" for path in paths}

    @contextlib.contextmanager
    def changing(self):
        """A change by hand: what went before is checked, and what comes after is compared to what is left by it."""
        taken = self._before is not None
        self.check()
        yield
        self._before = None
        if taken:
            self.remember()

    def remember(self):
        if self._before is None:
            self._lab.settle()
            self._before = self._picture()

    def check(self):
        if self._before is not None:
            now = self._picture()
            assert {"gone": sorted(self._before - now), "new": sorted(now - self._before)} == {
                "gone": [],
                "new": [],
            }

    def _picture(self):
        """Every fact as a line of text. The anycast routes of a router come and go with forwarding (net/ipv6/anycast.c)."""
        links = self._lab.look("link")
        ours = {
            one["ifname"]
            for one in links
            if one["ifindex"] in self._ours
            or one["ifname"] in self._made
            or self._is_our_vlan(one, links)
        }
        facts = [
            f"link {one['ifindex']} {_part(one, LINK)} {one['flags'].count('UP')} {one.get('linkinfo', {}).get('info_kind')}"
            for one in links
            if one["ifname"] not in ours
        ]
        for one in self._lab.look("address"):
            if one.get("ifname") not in ours:
                facts += [
                    f"address {one['ifname']} {_part(each, ADDRESS)}"
                    for each in one.get("addr_info", ())
                ]
        for family in (4, 6):
            facts += [
                f"route {_part(one, ROUTE)}"
                for one in self._lab.look(f"-{family} route show table all")
                if one.get("dev") not in ours
                and one.get("type") != "anycast"
                and not _is_agents(one)
            ]
            facts += [
                f"rule {one}"
                for one in self._lab.look(f"-{family} rule")
                if one.get("protocol") != AGENT
            ]
        return {*facts, *self._settings(ours)}

    def _is_our_vlan(self, link, links):
        lower = next(
            (one["ifindex"] for one in links if one["ifname"] == link.get("link")),
            link.get("link_index"),
        )
        on_ours = lower in self._ours or link.get("link") in self._made
        return link.get("linkinfo", {}).get("info_kind") == "vlan" and on_ours

    def _settings(self, ours):
        lines = self._lab.run("grep", "-rs", "", "/proc/sys/net", check=False).out.splitlines()
        skipped = (*VOLATILE, *self._sysctls, *(f"/{name}/" for name in ours))
        return [line for line in lines if not any(part in line for part in skipped)]


def _is_agents(route):
    """Whether it is a route of the agent's without a device, such as a blackhole, or with several."""
    return route.get("protocol") == AGENT and route.get("dev") in (None, "lo")


def _part(facts, keys):
    return " ".join(str(facts.get(key, "-")) for key in keys)
