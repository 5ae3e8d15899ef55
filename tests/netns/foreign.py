"""What the agent must leave alone: every link, address, route, rule and sysctl but those of the NICs that a test gives it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib

VOLATILE = ("/nf_conntrack_count:", "/nf_conntrack_tcp_", "/ipv4/tcp_fastopen_key:")
LINK = ("ifname", "address", "mtu", "txqlen", "master", "ifalias", "altnames", "linkinfo", "qdisc")
ADDRESS = ("family", "local", "prefixlen", "scope", "label", "broadcast")


class Foreign:
    """A picture of it, taken before the agent runs for the first time and after each change by hand."""

    def __init__(self, lab):
        self._lab = lab
        self._ours = set()
        self._sysctls = set()
        self._before = None

    def may_change(self, index):
        """This NIC, and VLANs on it, are the agent's business."""
        self._before = None
        self._ours.add(index)

    def may_set(self, *paths):
        """These sysctls of the whole namespace are the agent's business."""
        self._sysctls |= {f"/proc/sys/{path}:" for path in paths}

    @contextlib.contextmanager
    def changing(self):
        """A change by hand: what went before is checked, and what comes after is compared to what is left by it."""
        taken = self._before is not None
        self.check()
        yield
        self._before = self._picture() if taken else None

    def remember(self):
        if self._before is None:
            self._before = self._picture()

    def check(self):
        if self._before is not None:
            assert self._picture() == self._before

    def _picture(self):
        links = self._lab.look("link")
        ours = {one["ifname"] for one in links if one["ifindex"] in self._ours or self._is_our_vlan(one, links)}
        routes = self._lab.look("-4 route show table all") + self._lab.look("-6 route show table all")
        return {
            "links": {one["ifindex"]: {**{key: one[key] for key in LINK if key in one}, "up": "UP" in one["flags"]}
                      for one in links if one["ifname"] not in ours},
            "addresses": {one["ifname"]: [{key: each.get(key) for key in ADDRESS} for each in one["addr_info"]]
                          for one in self._lab.look("address") if one.get("ifname") not in ours and one.get("addr_info")},
            "routes": sorted(str(sorted((key, str(value)) for key, value in one.items() if key not in ("flags", "cache")))
                             for one in routes if one.get("dev") not in ours),
            "rules": [self._lab.look("-4 rule"), self._lab.look("-6 rule")],
            "sysctls": self._settings(ours)}

    def _is_our_vlan(self, link, links):
        lower = next((one["ifindex"] for one in links if one["ifname"] == link.get("link")), link.get("link_index"))
        return link.get("linkinfo", {}).get("info_kind") == "vlan" and lower in self._ours

    def _settings(self, ours):
        lines = self._lab.run("grep", "-rs", "", "/proc/sys/net", check=False).out.splitlines()
        skipped = (*VOLATILE, *self._sysctls, *(f"/{name}/" for name in ours))
        return sorted(line for line in lines if not any(part in line for part in skipped))
