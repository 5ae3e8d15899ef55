"""Draws documents: NICs, VLANs, bonds, bridges, VXLANs, macvlans, VRFs, stacks of them, and routes.

A drawn document can be carried out: what a document alone makes impossible is not drawn, so that a failure is one of the
agent or of what was before. It is a list of sections, so that a sequence that fails can be cut down.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

NICS = (1, 2, 3, 4)
KINDS = ("bridge", "vxlan", "macvlan", "vlan", "bond", "vrf")
MODES = ("balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb")  # fmt: skip
SYSCTLS = ("ipv4.conf.{interface}.rp_filter", "ipv4.conf.{interface}.arp_announce", "ipv6.conf.{interface}.hop_limit")  # fmt: skip
LARGE, SMALL = (1500, 2000, 9000), (1300, 1400)
ACTIVE_BACKUP = "active-backup"


def mac(number: int) -> str:
    """The MAC address of a NIC, as in a document."""
    return f"02:00:00:00:01:{number:02x}"


@dataclass
class Section:
    """A header and its lines."""

    header: str
    lines: list[str]


@dataclass
class Link:
    """A link of the document that is being drawn."""

    token: str
    kind: str
    below: list[Link] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    mtu: int = 0  # what is requested, 0 for nothing
    has_master: bool = False
    vrf: str = ""
    networks: list[int] = field(default_factory=list)

    @property
    def is_port(self) -> bool:
        return self.has_master and not self.vrf


def text_of(sections: list[Section]) -> str:
    """The document as text; never empty, which would be no document."""
    return "\n".join("\n".join([one.header, *one.lines]) for one in sections) + "\n[global]\n"


class Drawing:
    """One document. `kinds` are those of the kernel."""

    def __init__(self, chance: Random, kinds: tuple[str, ...]):
        self.chance, self.kinds = chance, kinds
        self.nics = [Link(mac(number), "nic") for number in NICS if chance.random() < 0.75]
        self.links = list(self.nics)
        self.sections: list[Section] = []
        self.networks = chance.sample(range(1, 60), 40)

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def wants(self, kind: str, share: float) -> bool:
        return kind in self.kinds and self.often(share)

    def free(self, *kinds: str) -> list[Link]:
        """Links of these kinds without a master and without an upper device."""
        lower = {id(each) for link in self.links for each in link.below}
        return [
            link
            for link in self.links
            if link.kind in kinds and not link.has_master and id(link) not in lower
        ]

    def some(self, links: list[Link], most: int) -> list[Link]:
        return self.chance.sample(links, self.chance.randint(1, min(most, len(links))))

    # --- links ---

    def add(self, link: Link) -> Link:
        self.links.append(link)
        return link

    def bond(self) -> None:
        free = self.free("nic")
        if not free or not self.wants("bond", 0.45):
            return
        members = self.some(free, 3)
        mode = self.chance.choice(MODES)
        name = self.chance.choice(("bond0", "bond1"))
        link = self.add(Link(f"bond {name}", "bond", members))
        link.lines += [f"mode = {mode}", f"members = {', '.join(one.token for one in members)}"]
        if self.often(0.3):
            link.lines.append("updelay = 200")
        if mode == "802.3ad" and self.often(0.5):
            link.lines.append("lacp-rate = fast")
        if mode in ("802.3ad", "balance-xor") and self.often(0.5):
            link.lines.append("xmit-hash-policy = layer3+4")
        if mode == ACTIVE_BACKUP and self.often(0.3):
            link.lines.append(f"fail-over-mac = {self.chance.choice(('active', 'follow'))}")
        if self.often(0.2):
            link.lines.append("min-links = 1")
        if mode in (ACTIVE_BACKUP, "balance-tlb", "balance-alb") and self.often(0.3):
            members[0].lines.append("bond-primary = yes")
        for one in members:
            one.has_master = True

    def vlans(self) -> None:
        """On NICs and bonds; several on one lower device."""
        for lower in self.free("nic", "bond"):
            if not self.wants("vlan", 0.3):
                continue
            for number in self.some(list(range(2, 12)), 2):  # type: ignore[arg-type]
                link = self.add(Link(f"{lower.token}.{number}", "vlan", [lower]))
                if self.often(0.2):
                    link.lines.append(f"name = data{number}")

    def bridge(self) -> None:
        free = self.free("nic", "bond", "vlan")
        if not free or not self.wants("bridge", 0.45):
            return
        ports = self.some(free, 3)
        link = self.add(Link(f"bridge {self.chance.choice(('br0', 'br1'))}", "bridge", ports))
        link.lines.append(f"members = {', '.join(one.token for one in ports)}")
        has_stp = self.often(0.3)
        if has_stp:
            link.lines.append("stp = yes")
        for key, least, most in (("forward-delay", 4, 20), ("ageing-time", 10, 400), ("priority", 1, 60000)):  # fmt: skip
            if self.often(0.2):
                link.lines.append(f"{key} = {self.chance.randint(least, most)}")
        for one in ports:
            one.has_master = True
            if self.often(0.2):
                one.lines.append(f"path-cost = {self.chance.randint(1, 200)}")

    def macvlan(self) -> None:
        free = self.free("nic", "bond", "vlan")
        if free and self.wants("macvlan", 0.35):
            link = self.add(Link(f"macvlan {self.chance.choice(('mv0', 'mv1'))}", "macvlan", [self.chance.choice(free)]))  # fmt: skip
            link.lines.append(f"parent = {link.below[0].token}")
            if self.often(0.4):
                link.lines.append(f"mode = {self.chance.choice(('private', 'vepa', 'bridge'))}")

    def vxlan(self) -> None:
        free = self.free("nic", "bond", "vlan")
        if not free or not self.wants("vxlan", 0.35):
            return
        lower = self.chance.choice(free)
        link = self.add(Link(f"vxlan {self.chance.choice(('vx0', 'vx1'))}", "vxlan", [lower]))
        link.lines += [f"id = {self.chance.randint(1, 9)}", f"parent = {lower.token}"]
        if self.often(0.6):
            link.lines.append(f"remote = 10.250.0.{self.chance.randint(1, 9)}")
        if self.often(0.3):
            link.lines.append("port = 4790")

    def vrf(self) -> None:
        candidates = [link for link in self.links if not link.has_master]
        if not candidates or not self.wants("vrf", 0.3):
            return
        name = self.chance.choice(("blue", "red"))
        members = self.some(candidates, 2)
        link = self.add(Link(f"vrf {name}", "vrf", members))
        link.lines += [f"members = {', '.join(one.token for one in members)}", f"table = {self.chance.randint(100, 103)}"]  # fmt: skip
        for one in members:
            one.has_master, one.vrf = True, name

    # --- what links have ---

    def mtus(self) -> None:
        """From below: no link may have a larger MTU than what it is on, and IPv6 needs 1280."""
        for link in self.links:
            if link.kind == "vrf" or not self.often(0.35):
                continue
            lower = [self.mtu_of(one) for one in link.below]
            room = min(lower) - (50 if link.kind == "vxlan" else 0) if lower else 9000
            choices = [one for one in (*SMALL, *LARGE) if one <= room]
            if choices and not (link.is_port and link.kind == "nic"):
                link.mtu = self.chance.choice(choices)
                link.lines.append(f"mtu = {link.mtu}")

    def mtu_of(self, link: Link) -> int:
        if link.mtu or not link.below:
            return link.mtu or 1500
        lower = min(self.mtu_of(one) for one in link.below)
        return lower - 70 if link.kind == "vxlan" else lower

    def settings(self) -> None:
        for link in self.links:
            if self.often(0.2) and link.kind != "vrf":
                link.lines.append(f"txqueuelen = {self.chance.randint(100, 5000)}")
            for key in self.chance.sample(SYSCTLS, 2):
                if self.often(0.15) and link.kind != "vrf":
                    link.lines.append(f"sysctl.net.{key} = {self.chance.randint(1, 2)}")
            if link.kind == "nic" and self.often(0.2):
                link.lines.append(f"name = {self.chance.choice(('lan', 'wan', 'net'))}{link.token[-1]}")  # fmt: skip
            if not link.is_port and link.kind != "vrf":
                self.addresses(link)

    def addresses(self, link: Link) -> None:
        chosen = []
        for _ in range(self.chance.choice((0, 1, 1, 1, 2))):
            number = self.networks.pop()
            link.networks.append(number)
            host = self.chance.randint(1, 3)
            forms = self.chance.choice(("4", "4", "6", "46"))
            chosen += (
                [f"10.{number}.0.{host}/{self.chance.choice((16, 24))}"] if "4" in forms else []
            )
            chosen += [f"fd00:{number}::{host}/64"] if "6" in forms else []
            link.networks[-1] = number if "4" in forms else -number
        if chosen:
            link.lines.append(f"addresses = {', '.join(chosen)}")
        if link.networks and not link.vrf and link.networks[0] > 0 and self.often(0.25):
            link.lines.append(f"gateway = 10.{link.networks[0]}.0.254")
        if self.often(0.06) and not self.is_lower(link):
            link.lines.append("state = down")
            link.networks = []

    def is_lower(self, link: Link) -> bool:
        return any(each is link for one in self.links for each in one.below)

    # --- routes ---

    def routes(self) -> None:
        hops = [(link, one) for link in self.links for one in link.networks if not link.vrf]
        numbers = self.chance.sample(range(1, 30), self.chance.randint(0, 5))
        lines = [self.route(number, hops) for number in numbers]
        if lines:
            self.sections.append(Section("[routes]", lines))

    def route(self, number: int, hops: list[tuple[Link, int]]) -> str:
        form = self.chance.choice(
            ("hop", "hop", "hop", "several", "direct", "drop", "down", "table")
        )
        prefix = f"172.{16 + number % 8}.{number}.0/24"
        metric = f" metric {self.chance.randint(30, 33)}" if self.often(0.2) else ""
        if form == "down":
            return f"{prefix} = down"
        if form == "drop" or not hops:
            return (
                f"{prefix} = {self.chance.choice(('blackhole', 'unreachable', 'prohibit'))}{metric}"
            )
        link, network = self.chance.choice(hops)
        if form == "direct":
            return f"{prefix} = interface {link.token}{metric}"
        if network < 0:
            return f"2001:db8:{number}::/48 = fd00:{-network}::fe{metric}"
        hop = f"10.{network}.0.{self.chance.randint(10, 12)}"
        if form == "several":
            hop += f", 10.{network}.0.13"
        if form == "table":
            metric += f" table {self.chance.randint(70, 72)}"
        if self.often(0.2):
            metric += " mtu 1290"
        return f"{prefix} = {hop}{metric}"

    def draw(self) -> list[Section]:
        steps = [self.bond, self.vlans, self.bridge, self.macvlan, self.vxlan, self.vrf]
        for step in (*steps, self.mtus, self.settings):
            step()
        for link in self.links:
            header = f"interface {link.token}" if link.kind == "nic" else link.token
            header = f"vlan {link.token}" if link.kind == "vlan" else header
            self.sections.append(Section(f"[{header}]", list(link.lines)))
        self.routes()
        return self.sections


def draw(chance: Random, kinds: tuple[str, ...]) -> list[Section]:
    """A document; one in twelve is empty."""
    return Drawing(chance, kinds).draw() if chance.random() > 1 / 12 else []
