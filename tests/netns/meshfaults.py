"""The faults of a mesh, injected for real into a MeshLab; the seed decides which host, pair or groups have them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from random import Random
from typing import NamedTuple

from middlebox import Way

SLOW = "2mbit"  # of the 5 Mbit/s that each transfer of a plan may take
LOSS = 0.05  # the share of frames that a box drops


class Injected(NamedTuple):
    """A fault by the kind of its finding, and the names of what has it, of which `second` is the last."""

    kind: str
    names: frozenset[str]
    second: str

    def is_named_by(self, finding):
        """Two hosts have an address: either may be named. Everything else has to be exact."""
        names = frozenset(finding["names"])
        if self.kind == "duplicate-address":
            return finding["kind"] == self.kind and names <= self.names
        return (finding["kind"], names) == (self.kind, self.names)


def inject(lab, kind, seed, plan):
    """Inject a fault of this kind. Of a plan with fewer rounds than hosts, a bad pair is one that it tests."""
    names = FAULTS[kind](lab, Random(f"{kind} {seed}"), plan)
    return Injected(kind.partition(":")[0], frozenset(names), names[-1])


def _slow_egress(lab, chance, _plan):
    name = chance.choice(lab.names)
    lab.shape("dp1", lab.hosts[name], SLOW)
    return (name,)


def _slow_ingress(lab, chance, _plan):
    name = chance.choice(lab.names)
    lab.shape(name, lab.fabric, SLOW)
    return (name,)


def _wrong_nic(lab, chance, _plan):
    """A host's NIC is in another, slower network, which leads to the right one."""
    name = chance.choice(lab.names)
    words = [
        "link add other type bridge",
        "link set other up",
        "link add to-other type veth peer name from-other",
        f"link set to-other master {lab.group[name]} up",
        "link set from-other master other up",
        f"link set {name} master other",
    ]
    lab.run("ip", "-batch", "-", where=lab.fabric, text="\n".join(words))
    lab.shape("to-other", lab.fabric, SLOW)
    lab.shape("from-other", lab.fabric, SLOW)
    return (name,)


def _group_boundary(lab, chance, _plan):
    group = chance.choice(lab.groups)
    for end in ("up", "down"):
        lab.shape(f"{end}-{group}", lab.fabric, SLOW)
    return (group,)


def _mtu_hole(lab, chance, _plan):
    """The uplink of a group carries 1400 bytes, and nobody is told: the bridges drop what is larger."""
    group = chance.choice(lab.groups)
    for end in ("up", "down"):
        lab.run("ip", "link", "set", f"{end}-{group}", "mtu", "1400", where=lab.fabric)
    return (group,)


def _asymmetric_route(lab, chance, _plan):
    """What leaves a group for one other group takes a slow way; what comes back does not."""
    one, two = chance.sample(lab.groups, 2)
    lab.slow_way(f"up-{one}", lab.fabric, f"10.9.{two[1:]}.0/24", SLOW)
    return (one, two)


def _duplicate_address(lab, chance, _plan):
    """A host has the address of another one instead of its own."""
    first, second = chance.sample(lab.names, 2)
    words = [f"address {verb}/16 dev dp1" for verb in (f"del {lab.address[second]}", f"add {lab.address[first]}")]  # fmt: skip
    lab.run("ip", "-batch", "-", where=lab.hosts[second], text="\n".join(words))
    return (first, second)


def _bad_pair(lab, chance, plan):
    slots = json.loads(plan.read_text())["slots"]
    one, two = (lab.listed[place] for place in chance.choice([pair for slot in slots for pair in slot]))  # fmt: skip
    for name, other in ((one, two), (two, one)):
        lab.slow_way("dp1", lab.hosts[name], f"{lab.address[other]}/32", SLOW)
    return (one, two)


def _boxed(there, back):
    """A box between a host and its bridge."""

    def fault(lab, chance, _plan):
        name = chance.choice(lab.names)
        lab.box(name, there, back)
        return (name,)

    return fault


def _lossy_way(lab, chance, plan):
    """What one host sends to another one of the plan is lost in part, and nothing else."""
    slots = json.loads(plan.read_text())["slots"]
    one, two = (lab.listed[place] for place in chance.choice([pair for slot in slots for pair in slot]))  # fmt: skip
    lab.box(one, there=Way(loss=2 * LOSS, only=lab.address[two]))
    return (one, two)


def _small_mtu(lab, chance, _plan):
    name = chance.choice(lab.names)
    lab.run("ip", "link", "set", "dp1", "mtu", "1400", where=lab.hosts[name])
    return (name,)


# The kind of the finding, and after a colon what distinguishes faults that have the same.
FAULTS = {
    "loss:out": _boxed(Way(loss=LOSS), Way()),
    "loss:in": _boxed(Way(), Way(loss=LOSS)),
    "loss:both": _boxed(Way(loss=LOSS), Way(loss=LOSS)),
    "loss:pair": _lossy_way,
    "slow-ingress:policed": _boxed(Way(), Way(police=2e6)),
    "small-mtu": _small_mtu,
    "slow-egress": _slow_egress,
    "slow-ingress": _slow_ingress,
    "wrong-nic": _wrong_nic,
    "group-boundary": _group_boundary,
    "mtu-hole": _mtu_hole,
    "asymmetric-route": _asymmetric_route,
    "duplicate-address": _duplicate_address,
    "bad-pair": _bad_pair,
}
