"""A mesh of hosts in groups with faults of the nine kinds, and noise: the rows that its tests would give.

A bad pair is drawn from those of the plan: of 1,000 hosts, 8 random rounds test one pair in 125, and nothing can be said of the
others. Rates vary by 8 % (lognormal), 5 % of the transfers have half the rate, and one test in 200 gets no connection. A fault makes
things 40 % slower.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from neuca_tools.selftest.mesh.localise import find_suspects
from neuca_tools.selftest.mesh.model import MeshHost, MeshPlan, Row
from neuca_tools.selftest.mesh.retest import with_retests
from neuca_tools.selftest.mesh.schedule import make_plan
from neuca_tools.selftest.mesh.verdict import judge_mesh

FAULTS = (
    "slow-egress",
    "slow-ingress",
    "wrong-nic",
    "group-boundary",
    "mtu-hole",
    "asymmetric-route",
    "duplicate-address",
    "bad-pair",
    "busy-host",
)
RATE, MTU, SLOWER = 1e9, 9000, 0.6
NOISE, FLAKY, LOST = 0.08, 0.05, 0.005


def mac_of(name):
    number = int(name.lstrip("n"))
    return f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"


@dataclass(frozen=True)
class Fault:
    """One fault and the names of what has it."""

    kind: str
    names: tuple[str, ...]


class Mesh:
    """Hosts n0000 … in `groups` groups, their plan, and the rows of it."""

    def __init__(self, count, groups, seed, kinds=(), rounds=0):
        self.seed, self.chance = seed, Random(f"mesh {seed}")
        self.hosts = [
            MeshHost(
                f"n{one:04}", f"10.0.{one // 250}.{one % 250 + 1}", {"rack": f"r{one % groups:02}"}
            )
            for one in range(count)
        ]
        self.plan = make_plan(MeshPlan(self.hosts, (), RATE, seed, rounds, group="rack"))
        self.group = {host.name: host.labels["rack"] for host in self.hosts}
        self.faults = self._drawn(kinds)

    def _drawn(self, kinds):
        """Faults of these kinds that have no host or group in common."""
        found, used = [], set()
        while len(found) < len(kinds):
            names = self._names(kinds[len(found)])
            around = {*names, *(self.group.get(name, name) for name in names)}
            if around.isdisjoint(used):
                used |= around
                found.append(Fault(kinds[len(found)], names))
        return found

    def _names(self, kind):
        groups = sorted(set(self.group.values()))
        if kind in ("group-boundary", "mtu-hole"):
            return (self.chance.choice(groups),)
        if kind == "asymmetric-route":
            return tuple(self.chance.sample(groups, 2))
        if kind == "bad-pair":
            slot = self.chance.choice(self.plan.slots)
            return tuple(sorted(self.hosts[one].name for one in self.chance.choice(slot)))
        return tuple(
            self.chance.sample(sorted(self.group), 2 if kind == "duplicate-address" else 1)
        )

    def rows(self, plan, first=0):
        """What the tests of the slots from `first` on report."""
        return [
            self._row(number, plan.hosts[client].name, plan.hosts[server].name)
            for number, slot in enumerate(plan.slots)
            if number >= first
            for client, server in slot
        ]

    def _row(self, slot, client, server):
        for fault in self.faults:
            if fault.kind == "duplicate-address" and {client, server} & set(fault.names):
                row = self._shared(fault, slot, client, server)
                if row is not None:
                    return row
        if self.chance.random() < LOST:
            return Row(slot, client, server, error="timeout")
        return Row(
            slot,
            client,
            server,
            rate_out=self._rate(client, server),
            rate_back=self._rate(server, client),
            mtu_out=self._mtu(client, server),
            mtu_back=self._mtu(server, client),
            rtt=1e-4,
            macs=(mac_of(server),),
            busy_client=self._busy(client),
            busy_server=self._busy(server),
        )

    def _busy(self, name):
        return float(
            any(fault.kind == "busy-host" and name in fault.names for fault in self.faults)
        )

    def _shared(self, fault, slot, client, server):
        """The second host has the address of the first one instead of its own; half of the answers go to the wrong one."""
        first, second = fault.names
        if second in (client, server):
            return Row(slot, client, server, error="refused")
        macs = (mac_of(first), mac_of(second))
        if server != first:
            return (
                Row(slot, client, server, error="timeout") if self.chance.random() < 0.5 else None
            )
        heard = macs if self.chance.random() < 0.9 else macs[:1]
        if self.chance.random() < 0.5:
            return Row(slot, client, server, error="refused", macs=heard)
        return Row(slot, client, server, RATE, RATE, MTU, MTU, 1e-4, heard)

    def _rate(self, sender, receiver):
        rate = RATE * self.chance.lognormvariate(0.0, NOISE)
        if self.chance.random() < FLAKY:
            rate *= 0.5
        for fault in self.faults:
            if self._slows(fault, sender, receiver):
                rate *= SLOWER
        return rate

    def _slows(self, fault, sender, receiver):
        groups = (self.group[sender], self.group[receiver])
        return {
            "slow-egress": sender in fault.names,
            "slow-ingress": receiver in fault.names,
            "wrong-nic": bool({sender, receiver} & set(fault.names)),
            "busy-host": bool({sender, receiver} & set(fault.names)),
            "group-boundary": groups[0] != groups[1] and bool(set(groups) & set(fault.names)),
            "asymmetric-route": groups == fault.names,
            "bad-pair": {sender, receiver} == set(fault.names),
        }.get(fault.kind, False)

    def _mtu(self, sender, receiver):
        groups = {self.group[sender], self.group[receiver]}
        holes = [one for one in self.faults if one.kind == "mtu-hole"]
        if any(groups & set(one.names) for one in holes):
            return 1500
        return MTU

    def verdict(self):
        """The verdict after the rounds and the retests of what they showed."""
        rows = self.rows(self.plan)
        plan = with_retests(self.plan, rows, find_suspects(self.plan, rows))
        return judge_mesh(plan, rows + self.rows(plan, len(self.plan.slots)))


def is_of(finding, fault):
    """Whether a finding names the fault and nothing else. Of two hosts with one address, either may be named."""
    if fault.kind == "duplicate-address":
        return finding.kind == fault.kind and set(finding.names) <= set(fault.names)
    return finding.kind == fault.kind and set(finding.names) == set(fault.names)


def is_true(finding, faults):
    """Whether a finding is of one of these, or a consequence: who has lost its address to another host cannot be reached."""
    lost = [fault.names[1:] for fault in faults if fault.kind == "duplicate-address"]
    if finding.kind == "unreachable" and finding.names in lost:
        return True
    return any(is_of(finding, fault) for fault in faults)


def is_named_first(fault, mesh, findings):
    """Whether a fault is named, and nothing false before it."""
    for finding in findings:
        if is_of(finding, fault):
            return True
        if not is_true(finding, mesh.faults):
            return False
    return False
