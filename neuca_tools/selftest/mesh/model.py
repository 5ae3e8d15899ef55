"""The plan of a mesh and the result of one test, read with bounds from what other hosts sent."""

# SPDX-License-Identifier: MIT

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from ipaddress import IPv4Address, ip_address
from typing import Optional, cast

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence.codec import decode, encode

VERSION = 1
# Hosts of one mesh; labels of a host; slots of a plan with its retests.
MAX_HOSTS, MAX_LABELS, MAX_SLOTS = 4096, 8, 20_000
LIMITED_BROADCAST = IPv4Address("255.255.255.255")  # RFC 919
# Seconds that a slot adds to its two guard intervals and its two transfers: iperf3 starts on a busy
# host, and lost probes of the path MTU time out (path_mtu.ANSWER_SECONDS).
SETTLE_SECONDS = 15.0
# Seconds that a full diagnosis takes in addition, on a busy host.
DIAGNOSIS_SECONDS = 60.0
# A name goes into command lines and file names of other programs. A DNS name has 253 characters.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
# What a host may say of itself: MACs of one address, characters of a text.
MAX_MACS, MAX_TEXT = 4, 200
# Texts of the diagnosis of a path; a line of a host has 4096 bytes (coordinate.LINE_BYTES).
MAX_DIAGNOSIS = 3
PLAN_BOUNDS = {
    "rate": (1.0, 1e13),
    "seconds": (1.0, 3600.0),
    "guard": (0.1, 60.0),
    "port": (1024, 65533),
    "per_uplink": (1, MAX_HOSTS),
    "expect": (1.0, 1e13),
}
# Rates in bit/s, sizes in bytes, times in seconds that a host may report.
MAX_VALUES = {
    "rate_out": 1e13,
    "rate_back": 1e13,
    "mtu_out": 65536.0,
    "mtu_back": 65536.0,
    "rtt": 3600.0,
    "jitter": 3600.0,
    "loss_out": 1.0,
    "loss_back": 1.0,
    "nic_mtu": 65536.0,
    "flaps": 1e6,
    "busy_client": 1.0,
    "busy_server": 1.0,
}
# Why a test has no rate.
ERRORS = (
    "refused",  # nothing listens there, or another host has the address
    "timeout",
    "some-lost",  # connections from some ports get no response, others do
    "no-route",
    "unreachable",
    "no-network",  # the client's own routing table has no route to it
    "wrong-peer",  # it does not know the secret
    "own-address",  # the client has the address of the server too: nothing was sent
    "wrong-interface",  # the route leaves through a device other than planned
    "reserved",  # the route leaves through a management NIC: nothing was sent
    "failed",  # the test broke off
    "late",  # it had not ended at the end of its slot
    "local",  # this host could not test at all
)
Pair = tuple[int, int]


@dataclass(frozen=True)
class MeshHost:
    """A host, the address of its dataplane, and its labels, such as rack=r1."""

    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MeshPlan:
    """Which hosts test each other in which slot.

    A pair is (client, server), by their indexes in `hosts`; no host is in two pairs of a slot.
    `rate` limits each transfer, in bit/s. `rounds` is 0 until they are chosen. `seconds` is the
    duration of a transfer, and `guard` the time by which clocks may differ. `expect` is the rate
    that every path should achieve. `group` is the label that defines the groups, and `per_uplink`
    the largest number of concurrent tests across the border of one. `retests` is the first
    slot of the retests or None; from `diagnoses` on, paths get a full diagnosis. `origin` is the
    identity of the plan that the run began with, of which this is a later state.
    """

    hosts: tuple[MeshHost, ...]
    slots: tuple[tuple[tuple[int, ...], ...], ...]
    rate: float
    seed: int = 0
    rounds: int = 0
    seconds: float = 2.0
    guard: float = 3.0
    port: int = 45678
    expect: Optional[float] = None
    group: Optional[str] = None
    per_uplink: int = 4
    retests: Optional[int] = None
    diagnoses: Optional[int] = None
    origin: Optional[str] = None
    version: int = VERSION

    @property
    def slot_seconds(self) -> float:
        """The longest time that a slot of tests takes."""
        return 2 * self.guard + 2 * self.seconds + SETTLE_SECONDS

    @property
    def tests(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The slots without those of full diagnoses."""
        return self.slots[: self.diagnoses]

    def group_of(self, host: int) -> str:
        """The group of a host; empty if it has none."""
        return self.hosts[host].labels.get(self.group or "", "")

    @property
    def group_by_host(self) -> dict[str, str]:
        """The group of each host, by name, in the order of the plan."""
        return {host.name: self.group_of(index) for index, host in enumerate(self.hosts)}


@dataclass(frozen=True)
class Row:
    """The result of one test, as its client reports it: `out` is from the client to the server.

    Rates are those at which data arrived, in bit/s; losses are the share of bytes that TCP sent
    again. MTUs in bytes: `nic_mtu` is that of the client's own device, which has `own_mac`, and
    whose link went up or down `flaps` times meanwhile. `rtt`, the shortest round trip, and
    `jitter`, how far the slowest exceed the median, in seconds. `macs` answer for the server.
    `disturbed`: other programs or guests kept a processor of either host busy. `busy_client` and
    `busy_server` are the share of the time in which a processor was full. `error` is one of ERRORS.
    A value that is not known is None. A full diagnosis has texts, and the rate.
    """

    slot: int
    client: str
    server: str
    rate_out: Optional[float] = None
    rate_back: Optional[float] = None
    mtu_out: Optional[int] = None
    mtu_back: Optional[int] = None
    rtt: Optional[float] = None
    macs: tuple[str, ...] = ()
    disturbed: Optional[bool] = None
    error: Optional[str] = None
    text: Optional[str] = None
    diagnosis: tuple[str, ...] = ()
    jitter: Optional[float] = None
    loss_out: Optional[float] = None
    loss_back: Optional[float] = None
    nic_mtu: Optional[int] = None
    flaps: Optional[int] = None
    busy_client: Optional[float] = None
    busy_server: Optional[float] = None
    own_mac: Optional[str] = None


def tests_of(plan: MeshPlan, rows: Sequence[Row]) -> list[Row]:
    """The rows except full diagnoses."""
    return [row for row in rows if row.slot < len(plan.tests)]


def plan_record(plan: MeshPlan) -> dict[str, object]:
    """Plain JSON."""
    return cast("dict[str, object]", encode(plan))


def plan_identity(plan: MeshPlan) -> str:
    """An identifier of this plan and its later states: 16 hexadecimal digits."""
    if plan.origin is not None:
        return plan.origin
    return sha256(repr(plan_record(plan)).encode()).hexdigest()[:16]


def read_plan(data: object) -> MeshPlan:
    """The plan in this JSON. Raises SelftestError with what is wrong."""
    if not isinstance(data, dict):
        raise SelftestError("read the plan: it is not a JSON object")
    plan = decode(MeshPlan, data, "plan")
    check_hosts(plan.hosts)
    for name, (low, high) in PLAN_BOUNDS.items():
        value = getattr(plan, name)
        if value is not None and not low <= value <= high:
            raise _plan_error(f'"{name}" is not from {low:g} to {high:g}')
    if len(plan.slots) > MAX_SLOTS:
        raise _plan_error(f"it has more than {MAX_SLOTS} slots")
    for number, slot in enumerate(plan.slots):
        check_slot(slot, len(plan.hosts), number)
    return plan


def check_hosts(hosts: Sequence[MeshHost]) -> None:
    """Raise SelftestError unless these hosts can be those of a mesh."""
    if not 2 <= len(hosts) <= MAX_HOSTS:
        raise _plan_error(f"it requires 2 to {MAX_HOSTS} hosts, and has {len(hosts)}")
    for host in hosts:
        check_host(host)
    addresses = [ip_address(host.address) for host in hosts]
    if len({address.version for address in addresses}) > 1:
        raise _plan_error("hosts with IPv4 and with IPv6 addresses cannot test each other")
    for values in ([host.name for host in hosts], map(str, addresses)):
        ((value, count),) = Counter(values).most_common(1)
        if count > 1:
            raise _plan_error(f'two hosts have the name or address "{value}"')


def check_host(host: MeshHost) -> None:
    """Raise SelftestError unless the name, the address and the labels are well-formed."""
    if not NAME.fullmatch(host.name):
        raise _plan_error(
            f"a host is named {host.name[:70]!r}: letters, digits and ._- are accepted"
        )
    _check_address(host)
    words = [*host.labels, *host.labels.values()]
    if len(host.labels) > MAX_LABELS or not all(NAME.fullmatch(word) for word in words):
        raise _plan_error(f'"{host.name}": its labels are not up to {MAX_LABELS} of NAME=VALUE')


def _check_address(host: MeshHost) -> None:
    try:
        address = ip_address(host.address)
    except ValueError:
        text = f'"{host.name}": {host.address[:50]!r} is not an IP address'
        raise _plan_error(text) from None
    others = (address.is_multicast, address.is_unspecified, address.is_loopback)
    if any(others) or address == LIMITED_BROADCAST:
        raise _plan_error(f'"{host.name}": {address} is not the address of a host')
    if address.version == 6 and address.is_link_local:
        raise _plan_error(f'"{host.name}": {address} is link-local, which is not supported')
    if address.version == 6 and address.ipv4_mapped:
        raise _plan_error(f'"{host.name}": {host.address} is IPv4: write {address.ipv4_mapped}')
    if "%" in host.address:
        raise _plan_error(f'"{host.name}": {address} has a zone, which is not supported')


def check_slot(slot: Sequence[Sequence[int]], host_count: int, number: int) -> None:
    """Raise SelftestError unless the pairs of a slot are pairs, of known hosts, and disjoint."""
    busy: set[int] = set()
    for pair in slot:
        if len(pair) != 2 or not all(0 <= host < host_count for host in pair):
            raise _plan_error(
                f"slot {number} has {list(pair)[:4]}, which is not a pair of its hosts"
            )
        if pair[0] == pair[1] or busy & set(pair):
            raise _plan_error(f"slot {number} has a host twice")
        busy |= set(pair)


def _plan_error(reason: str) -> SelftestError:
    return SelftestError(f"read the plan: {reason}")


# --- Results ---------------------------------------------------------------------------------


def row_record(row: Row) -> dict[str, object]:
    """Plain JSON, without unknown values."""
    return {"mesh": VERSION, **cast("dict[str, object]", encode(row))}


def read_row(data: object, plan: MeshPlan) -> Optional[Row]:
    """The result in this JSON; None unless the plan has the test and all values are within bounds.

    The JSON is from another host, and may be anything.
    """
    if not isinstance(data, dict) or data.get("mesh") != VERSION:
        return None
    try:
        row = decode(Row, data, "result")
    except SelftestError:
        return None
    if not _is_planned(row, plan) or not _is_within_bounds(row):
        return None
    return replace(row, macs=tuple(sorted(set(row.macs))))


def _is_planned(row: Row, plan: MeshPlan) -> bool:
    """Whether the plan has this test in this slot, client first."""
    if not 0 <= row.slot < len(plan.slots):
        return False
    pairs = ([plan.hosts[index].name for index in pair] for pair in plan.slots[row.slot])
    return [row.client, row.server] in pairs


def _is_within_bounds(row: Row) -> bool:
    # NaN is in no range.
    if not all(0 <= (getattr(row, name) or 0) <= most for name, most in MAX_VALUES.items()):
        return False
    macs = row.macs if row.own_mac is None else (row.own_mac, *row.macs)
    if len(row.macs) > MAX_MACS or not all(map(MAC.fullmatch, macs)):
        return False
    texts = (row.text or "", *row.diagnosis)
    if len(row.diagnosis) > MAX_DIAGNOSIS or max(map(len, texts)) > MAX_TEXT:
        return False
    return row.error in (None, *ERRORS)
