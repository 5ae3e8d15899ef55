"""Builders of worlds, requests and documents, an agent that makes passes over the model kernel, and strategies for them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from kernel import Kernel, default_route

from neuca_tools.agent.pass_report import Pass
from neuca_tools.apply.decide import Observation, Policies, decide_pass, what_to_read
from neuca_tools.apply.execute import apply
from neuca_tools.apply.transaction import Transaction
from neuca_tools.desired import manager_files
from neuca_tools.desired.resolve import Settings
from neuca_tools.desired.roles import Policy
from neuca_tools.documents import parse
from neuca_tools.errors import ApplyError
from neuca_tools.model import Device, LinkKey, Record, Route, World
from neuca_tools.model.links import KINDS
from neuca_tools.model.routing import ROUTE_PROTOCOL
from neuca_tools.state import updates
from neuca_tools.tuning.choice import Choice

PLACES = manager_files.Places(
    Path("/udev"), Path("/nm"), Path("/networkd"), Path("/sysctl.d"), "neuca-persistent", 10, 15
)
ANYONE = Policy()
EXAMPLES = int(os.environ.get("NEUCA_EXAMPLES", "80"))  # `make test`: fewer
LAWS = settings(max_examples=EXAMPLES, deadline=None)


def mac(number):
    return f"02:00:00:00:00:{number:02x}"


def bare(number):
    return mac(number).replace(":", "")


def nic(index, name="", **more):
    """A hardware NIC, down, with a queue of 1000 and the limits of virtio."""
    usual = {
        "mac": mac(index),
        "permanent_mac": mac(index),
        "hardware": True,
        "mtu": 1500,
        "min_mtu": 68,
        "max_mtu": 65535,
        "txqueuelen": 1000,
    }
    return Device(index, name or f"eth{index}", **{**usual, **more})


def vlan(index, lower, vlan_id, name="", **more):
    usual = {"mac": mac(lower), "mtu": 1500, "max_mtu": 65535, "txqueuelen": 1000}
    return Device(
        index,
        name or f"eth{lower}.{vlan_id}",
        "vlan",
        lower=lower,
        vlan_id=vlan_id,
        **{**usual, **more},
    )


def route(to, index, via=None, metric=0, protocol=4):
    return Route(ip_network(to), index, via and ip_address(via), metric, protocol)


def world(*devices, addresses=None, routes=(), metadata=0, **more):
    """A World; `addresses` maps an index to a string of addresses."""
    parsed = {
        index: tuple(map(ip_interface, text.split())) for index, text in (addresses or {}).items()
    }
    return World(
        {device.index: device for device in devices},
        parsed,
        tuple(routes),
        metadata,
        more.pop("boot_id", "boot-1"),
        **more,
    )


def key(number, vlan_id=None):
    return LinkKey(mac(number), vlan_id)


def document(text):
    return parse(text)


def machine(*devices, mgmt=None):
    """A model kernel with these devices; `mgmt` (an index) is up, has 192.0.2.10/24 and the default route."""
    kernel = Kernel(world(*devices))
    if mgmt:
        kernel.set_up(mgmt, True)
        kernel.add_address(mgmt, ip_interface("192.0.2.10/24"))
        default_route(kernel, mgmt, ip_address("192.0.2.1"))
    return kernel


class Agent:
    """A host for `Transaction` over the model kernel; nothing waits, and no manager runs."""

    def __init__(self, kernel, text="", policy=ANYONE, **more):
        self.kernel, self.record = kernel, Record()
        self.settings, self.choice = Settings(policy, **more), Choice()
        self.ask(text)

    def ask(self, text):
        self.document = parse(text) if text else None

    def survey(self, record=None):
        return self.decide(self.record if record is None else record)

    def decide(self, record, _=None):
        wanted = what_to_read(self.document, self.settings.links, record, choice=self.choice)
        policies = Policies(self.settings, PLACES, self.choice)
        return decide_pass(self.look(wanted), self.document, policies, record)

    def look(self, wanted):
        """What `look.observe_host` does: of settings and files only what is of interest."""
        seen = self.kernel.world()
        values = {path: self.kernel.read_sysctl(path) for path in wanted.sysctls_of(seen)}
        sysctls = {path: value for path, value in values.items() if value is not None}
        return Observation(replace(seen, sysctls=sysctls, files=dict(self.kernel.files)))

    def plan(self, scope=None):
        return self.survey().plan(scope)

    def run(self, start=True):
        """One pass; returns (operations, result, what it undid)."""
        decision = self.survey()
        decision = decision._replace(
            record=updates.remember_nics(decision.record, decision.resolution)
        )
        scope = None if start else decision.changed()
        operations = decision.plan(scope)
        try:
            outcome = Transaction(self, Pass(scope), decision).run()
        finally:
            self.kernel.allowed = None
        self.record = outcome.decision.record
        return (
            operations,
            outcome.result,
            outcome.rolled_back if outcome.result.nics_to_roll_back else None,
        )

    def writer(self, decision):
        links, roles = decision.observed.links, decision.resolution.roles
        self.kernel.allowed = {link.index for link in links.values()} - roles.guard.devices
        self.kernel.carriers = {
            link.index
            for key, link in links.items()
            if key == key.nic and key.mac in roles.guard.vlans
        }
        return self.kernel

    def watch(self):
        return nullcontext(self)

    def wait(self, seconds):
        pass

    def wait_for_udev(self, done):
        pass

    def processed_links(self, _):
        return []

    def save_record(self, record):
        pass

    def load_journal(self, boot_id):
        pass

    def save_journal(self, before, boot_id):
        pass

    def remove_journal(self):
        pass

    def unsaved_reason(self):
        return ""

    def carry_out(self, survey, operations):
        try:
            return apply(operations, self.writer(survey))
        finally:
            self.kernel.allowed = None

    def reboot(self):
        """NICs with their own settings again, and nothing on them; the management NIC comes up as DHCP has it."""
        default = [
            (one.index, one.via)
            for one in self.kernel.routes
            if one.to.prefixlen == 0 and one.protocol != ROUTE_PROTOCOL
        ]
        old = self.kernel
        plain = [
            device._replace(
                mtu=1500, txqueuelen=1000, up=False, carrier=False, master=0, slave=False
            )
            for device in old.devices.values()
            if not device.lower and device.kind not in KINDS
        ]
        self.kernel = Kernel(world(*plain, boot_id=old.boot_id + "+"))
        self.kernel.files = old.files
        for index, via in default:
            self.kernel.set_up(index, True)
            self.kernel.add_address(index, ip_interface("192.0.2.10/24"))
            default_route(self.kernel, index, via)


def texts(operations):
    return [operation.text for operation in operations if operation.kind != "write-file"]


# --- strategies -----------------------------------------------------------------------------------------------------

NICS = 4  # numbered from 2; 1 is the management NIC
ADDRESSES = (
    "10.0.0.1/24",
    "10.0.0.2/24",
    "10.0.1.1/24",
    "10.0.1.1/16",
    "10.2.0.1/32",
    "10.3.0.0/31",
    "fd00:1::1/64",
    "fd00:1::2/64",
    "fd00:2::1/64",
    "fd00:3::1/128",
    "192.0.2.77/24",
    "192.0.2.78/32",
    "169.254.0.5/16",
    "169.254.169.254/32",
    "2001:db8::1/32",
    "::ffff:10.9.9.9/120",
    "fe80::77/64",
    "fd00:ec2::1/64",
    "11.0.0.1/5",
    "2001::1/3",
)
PREFIXES = (
    "10.20.0.0/16",
    "10.20.0.0/24",
    "10.0.0.0/24",
    "0.0.0.0/0",
    "128.0.0.0/1",
    "192.0.2.0/25",
    "192.0.2.0/24",
    "169.254.0.0/16",
    "169.254.169.254/32",
    "2001:db8:20::/48",
    "::/0",
    "fd00:1::/64",
    "192.0.0.0/16",
    "10.0.0.1/32",
    "16.0.0.0/4",
    "32.0.0.0/4",
    "64.0.0.0/3",
    "2400::/12",
    "2600::/12",
    "2000::/3",
)
VIAS = (
    "10.0.0.254",
    "10.0.1.254",
    "10.0.0.1",
    "fd00:1::fe",
    "fd00:2::fe",
    "192.0.2.1",
    "fe80::1",
    "10.3.0.1",
    "10.9.9.9",
)
NAMES = (*(f"eth{number}" for number in range(1, 8)), "eth2.7", "data", "neuca-tmp0")
MTUS = (68, 1000, 1279, 1280, 1400, 1500, 8000, 9000, 9001, 65535)
SYSCTLS = (
    "net.ipv4.conf.{interface}.rp_filter",
    "net.ipv6.conf.{interface}.accept_ra",
    "net.ipv4.conf.all.rp_filter",
    "net.core.rmem_max",
    "net.ipv4.neigh.default.gc_thresh1",
)
DEVICE = (
    "qdisc = fq",
    "qdisc = pfifo",
    "qdisc = default",
    "qdisc = noqueue",
    "rings = rx 512",
    "rings = rx max tx 9999",
    "coalesce = rx-usecs 50",
    "pause = rx on",
    "offloads = tso off",
    "wake-on-lan = magic",
    "mac = 02:00:00:00:f1:01",
    "mac = 02:00:00:00:00:02",
    "path-cost = 7",
    "port-priority = 3",
    "bond-primary = yes",
)


@st.composite
def settings_lines(draw):
    """Lines for the section of one link."""
    lines = []
    if draw(st.booleans()):
        lines.append(
            "state = " + draw(st.sampled_from(("up", "up", "up", "down", "user", "bogus")))
        )
    if draw(st.booleans()):
        lines.append(
            "addresses = " + ", ".join(draw(st.lists(st.sampled_from(ADDRESSES), max_size=3)))
        )
    if draw(st.booleans()):
        lines.append(f"mtu = {draw(st.sampled_from(MTUS))}")
    if draw(st.integers(0, 3)) == 0:
        lines.append(f"txqueuelen = {draw(st.sampled_from((500, 1000, 10000)))}")
    if draw(st.integers(0, 3)) == 0:
        lines.append(
            f"sysctl.{draw(st.sampled_from(SYSCTLS))} = {draw(st.sampled_from((0, 1, 2, 65536)))}"
        )
    if draw(st.integers(0, 2)) == 0:
        lines.append(draw(st.sampled_from(DEVICE)))
    if draw(st.integers(0, 2)) == 0:
        lines.append(f"name = {draw(st.sampled_from(NAMES))}")
    return lines


MADE = (
    ("bond", "bond0"),
    ("bond", "bond1"),
    ("bridge", "br0"),
    ("vxlan", "vx0"),
    ("macvlan", "mv0"),
    ("macvlan", "eth3"),
    ("vrf", "red"),
    ("vrf", "blue"),
)


@st.composite
def made_lines(draw, kind):
    """What a bond or its like is made of, possible or not."""
    vlans = (f"{bare(2)}.5", f"{bare(3)}.6", "bond bond0.5")
    parts = (*map(bare, range(1, NICS + 3)), *vlans, *(f"{kind} {name}" for kind, name in MADE))
    if kind in ("bond", "bridge", "vrf"):
        lines = [
            f"members = {', '.join(draw(st.lists(st.sampled_from(parts), unique=True, max_size=3)))}"
        ]
        return lines + (
            [f"mode = {draw(st.sampled_from(('active-backup', '802.3ad')))}"]
            if kind == "bond"
            else [f"table = {draw(st.integers(100, 101))}"]
            if kind == "vrf"
            else []
        )
    lines = [f"parent = {draw(st.sampled_from(parts))}"] if draw(st.booleans()) else []
    ends = [
        f"id = {draw(st.integers(5, 6))}",
        f"local = {draw(st.sampled_from(('10.0.0.1', 'fd00:1::1')))}",
    ]
    return lines + (ends if kind == "vxlan" else [])


@st.composite
def document_texts(draw, faulty=True):
    """The text of a document about NICs 1 to 6, management and absent ones included."""
    lines = ["[global]", "host_name = Node0", "[interfaces]"]
    for number in draw(st.lists(st.integers(1, NICS + 2), unique=True)):
        family, cidr = draw(
            st.sampled_from(
                [("", ""), *(("ipv6" if ":" in one else "ipv4", one) for one in ADDRESSES)]
            )
        )
        lines.append(
            f"{bare(number)} = {draw(st.sampled_from(('up', 'up', 'down', 'user')))}"
            + (f":{family}:{cidr}" if cidr else "")
        )
    for number in draw(st.lists(st.integers(1, NICS + 2), unique=True, max_size=3)):
        lines += [f"[interface {bare(number)}]", *draw(settings_lines())]
    for number, vlan_id in draw(
        st.lists(st.tuples(st.integers(1, NICS + 2), st.integers(5, 7)), unique=True, max_size=4)
    ):
        own = draw(st.sampled_from(((), (), ("mac = 02:00:00:00:aa:01",), (f"mac = {mac(1)}",))))
        lines += [f"[vlan {bare(number)}.{vlan_id}]", *draw(settings_lines()), *own]
    for kind, name in draw(st.lists(st.sampled_from(MADE), unique=True, max_size=3)):
        lines += [f"[{kind} {name}]", *draw(made_lines(kind)), *draw(settings_lines())]
    lines.append("[routes]")
    for to in draw(st.lists(st.sampled_from(PREFIXES), unique=True, max_size=4)):
        lines.append(f"{to} = {draw(st.sampled_from((*VIAS, *VIAS, 'down', 'user')))}")
    if faulty and draw(st.integers(0, 3)) == 0:
        lines.append(
            draw(
                st.sampled_from(
                    ("nonsense = 1", f"[interface {bare(3)}]\nmtu = 12", "[vlan bogus.1]")
                )
            )
        )
    return "\n".join(lines) + "\n"


def _attempt(action, *arguments):
    """What the kernel refuses to an administrator, he does not have."""
    try:
        action(*arguments)
    except ApplyError:
        return


@st.composite
def kernels(draw, rename_while_up=None):
    """A host that administrators and other programs have been at: links, stacks, addresses and routes of theirs."""
    kernel = Kernel(
        World(rename_while_up=draw(st.booleans()) if rename_while_up is None else rename_while_up)
    )
    for number in range(1, NICS + 2):
        if number == 1 or draw(st.integers(0, 6)):
            kind = draw(st.sampled_from(("", "", "veth")))
            kernel.devices[number] = nic(
                number,
                kind=kind,
                hardware=not kind,
                permanent_mac="" if kind else mac(number),
                max_mtu=draw(st.sampled_from((65535, 9000, 1500))),
            )
    if draw(st.integers(0, 5)):
        kernel.set_up(1, True)
        kernel.add_address(1, ip_interface("192.0.2.10/24"))
        default_route(kernel, 1, ip_address("192.0.2.1"))
    for _ in range(draw(st.integers(0, 12))):
        meddle(draw, kernel)
    return kernel


def meddle(draw, kernel):
    """One thing that an administrator does to any device."""
    index = draw(st.sampled_from(sorted(kernel.devices)))
    what = draw(
        st.sampled_from(
            (
                "up",
                "up",
                "down",
                "address",
                "address",
                "route",
                "vlan",
                "mtu",
                "stack",
                "master",
                "twin",
            )
        )
    )
    if what in ("up", "down"):
        _attempt(kernel.set_up, index, what == "up")
    elif what == "address":
        _attempt(kernel.add_address, index, ip_interface(draw(st.sampled_from(ADDRESSES))))
    elif what == "route":
        to, via = (
            ip_network(draw(st.sampled_from(PREFIXES))),
            ip_address(draw(st.sampled_from(VIAS))),
        )
        if to.version == via.version:
            _attempt(
                kernel.replace_route,
                Route(
                    to,
                    index,
                    via,
                    draw(st.sampled_from((0, 20, 1024))),
                    draw(st.sampled_from((3, 4))),
                ),
            )
    elif what == "vlan":
        vlan_id = draw(st.integers(5, 7))
        _attempt(
            kernel.add_link,
            "vlan",
            draw(st.sampled_from((f"eth{index}.{vlan_id}", f"v{index}.{vlan_id}"))),
            index,
            {"id": str(vlan_id)},
            None,
        )
    elif what == "mtu":
        _attempt(kernel.set_mtu, index, draw(st.sampled_from(MTUS)))
    else:
        _stack(draw, kernel, what, index)


def _stack(draw, kernel, what, index):
    new, below = max(kernel.devices) + 1, kernel.devices[index]
    if what == "stack":
        kernel.devices[new] = Device(
            new, f"macv{new}", "macvlan", below.mac, lower=index, mtu=below.mtu, max_mtu=65535
        )
    elif what == "master":
        kernel.devices[new] = Device(new, f"br{new}", "bridge", below.mac, mtu=1500, max_mtu=65535)
        kernel.devices[index] = below._replace(master=new, slave=draw(st.booleans()))
    elif draw(st.integers(0, 3)) == 0:
        kernel.devices[new] = nic(new, permanent_mac=below.mac, mac=below.mac)


def policies():
    """The administrator's word on NICs 1 to 5."""
    macs = st.frozensets(st.integers(1, NICS + 1).map(mac), max_size=2)
    return st.builds(Policy, macs, st.one_of(st.just(frozenset()), macs))
