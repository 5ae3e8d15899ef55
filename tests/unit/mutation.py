"""Fast generators of fuzzed documents: pieces, lines and branches of the seeds, cut out, repeated and exchanged.

The same target, seed and number give the same bytes for as long as the corpus is the same.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from random import Random

from fuzzing import SEEDS, TREES

LONGEST = 16384  # bytes of a usual document; one of each thousand is made longer
GROWN = 131072
WORDS = sorted(
    {
        word
        for found in SEEDS.values()
        for data in found.values()
        if len(data) < 8192
        for word in re.findall(rb"[\w.:/-]+|[^\w\s]+", data)
    }
)
LINES = sorted(
    {
        line
        for target in ("neuca", "envelope", "yaml", "network-config", "meta-data")
        for data in SEEDS[target].values()
        for line in data[:8192].split(b"\n")
    }
)
MACS = [f"02:00:00:00:00:{number:02x}" for number in range(1, 7)]
ADDRESSES = [
    *(f"10.{number}.0.5/24" for number in range(4)),
    "192.0.2.10/24",
    "192.0.2.77/32",
    "198.51.100.7/24",
    "169.254.169.254/32",
    "fd00:1::5/64",
    "fd00:ec2::1/64",
    "fe80::1/64",
    "::1/128",
    "0.0.0.0/0",
    "2001::1/3",
]
HOSTS = ["10.1.0.254", "10.2.0.254", "192.0.2.1", "fd00:1::fe", "169.254.169.254", "127.0.0.1"]
PREFIXES = [
    "0.0.0.0/0",
    "::/0",
    "0.0.0.0/1",
    "192.0.2.0/24",
    "10.50.0.0/16",
    "169.254.0.0/16",
    "64.0.0.0/2",
    "2000::/3",
    "fd00:50::/48",
]
VALUES = [
    None,
    True,
    0,
    -1,
    4095,
    10**30,
    1.5,
    "",
    " ",
    "\0",
    "\ud800",
    "x" * 300,
    [],
    {},
    [[]],
    {"": None},
    "dhcp",
    "vlan",
    "phy",
    "static",
    "bond",
    *MACS,
    *ADDRESSES,
    *HOSTS,
    *PREFIXES,
]
SETTINGS = [
    "state = up",
    "state = down",
    "state = user",
    "mtu = 9000",
    "mtu = 600",
    "mtu = 9216",
    "txqueuelen = 500",
    "name = data",
    "name = eth1",
    "name = neuca-tmp0",
    "sysctl.net.ipv4.conf.{interface}.rp_filter = 2",
    "sysctl.net.ipv4.conf.all.rp_filter = 0",
    "sysctl.net.core.rmem_max = 1",
    "qdisc = fq",
    "rings = rx 512",
    "offloads = tso off",
    "rps = 0-3",
    "mode = 802.3ad",
    "mode = active-backup",
    "id = 5",
    "local = 10.1.0.5",
    "remote = fd00::1",
    "table = 100",
    "vrf = one",
    "vrf = two",
]
GLOBAL = ["host_name = a", "router = true", "router = user", "iscsi_initiator_iqn = iqn.x"]
KINDS = ["bond", "bridge", "vxlan", "macvlan", "vrf"]


def generate(target: str, seed: int, number: int) -> bytes:
    """Document `number` of a target in the campaign with this seed."""
    chance = Random(f"{seed}/{target}/{number}")
    if target in TREES and chance.random() < 0.5:
        data = _regrown(chance, target)
    elif target == "neuca" and chance.random() < 0.5:
        data = _written(chance).encode()
    else:
        data = chance.choice(list(SEEDS[target].values()))[:LONGEST]
    if chance.random() < 0.8:
        data = _spliced(chance, data)
    return _grown(chance, data) if number % 1000 == 999 else data


def _spliced(chance: Random, data: bytes) -> bytes:
    """Pieces of it cut out, repeated, or replaced by a word, a line or bytes; lines exchanged."""
    for _ in range(chance.randint(1, 6)):
        start = chance.randint(0, len(data))
        end = min(len(data), start + chance.randint(0, 60))
        piece = chance.choice(_PIECES)(chance, data[start:end])
        data = data[:start] + piece + data[end:]
    return data


_PIECES = (
    lambda chance, _: chance.choice(WORDS),
    lambda chance, _: chance.choice(WORDS),
    lambda chance, _: b"\n" + chance.choice(LINES) + b"\n",
    lambda chance, _: chance.randbytes(chance.randint(0, 4)),
    lambda chance, piece: piece * chance.choice((2, 2, 2, 50)),
    lambda _, __: b"",
    lambda chance, piece: bytes(one ^ (1 << chance.randint(0, 7)) for one in piece[:3]) + piece[3:],
)


def _grown(chance: Random, data: bytes) -> bytes:
    """A long document: one piece of it, or all of it, very often."""
    start = chance.randint(0, len(data))
    piece = data[start : start + chance.choice((1, 5, 60, 600, LONGEST))] or b"\n"
    times = chance.randint(1, GROWN) // len(piece) + 1
    return data[:start] + piece * times + data[start:]


def _regrown(chance: Random, target: str) -> bytes:
    """The tree of a seed with other values in it, or one branch in place of another; JSON is YAML too."""
    root = [json.loads(json.dumps(chance.choice(TREES[target])))]
    for _ in range(chance.randint(1, 5)):
        holders = _holders(root)
        holder, key = chance.choice(holders)
        other, at = chance.choice(holders)
        value = chance.choice((other[at], chance.choice(VALUES)))
        holder[key] = json.loads(json.dumps(value))  # a copy: no tree may hold itself
        if len(holders) > 2000:
            break
    return json.dumps(root[0]).encode()


def _holders(root):
    """Each place in a tree: the object or list that holds it, and the key."""
    found, waiting = [], [root]
    while waiting:
        item = waiting.pop()
        keys = list(item) if isinstance(item, dict) else range(len(item))
        found += [(item, key) for key in keys]
        waiting += [item[key] for key in keys if isinstance(item[key], (dict, list))]
    return found


def _written(chance: Random) -> str:
    """A document by the grammar of neuca-user-data(5), about NICs that are ours, not ours and absent."""
    lines = ["[global]", *_some(chance, GLOBAL, 2), "[interfaces]"]
    for address in _some(chance, MACS, 4):
        family = chance.choice(["", "", ":ipv4:", ":ipv6:"])
        more = family and family + chance.choice(ADDRESSES)
        lines.append(f"{address.replace(':', '')} = {chance.choice(('up', 'down', 'user'))}{more}")
    for _ in range(chance.randint(0, 4)):
        lines += [f"[{_link(chance)}]", *_some(chance, SETTINGS, 4)]
        lines += [f"addresses = {', '.join(_some(chance, ADDRESSES, 3))}"]
        lines += [f"{chance.choice(('members', 'parent', 'mac'))} = {_link(chance, plain=True)}"]
    lines.append("[routes]")
    for prefix in _some(chance, PREFIXES, 4):
        lines.append(f"{prefix} = {chance.choice((*HOSTS, 'down', 'user'))}")
    return "\n".join(lines) + "\n"


def _some(chance, choices, most):
    return chance.sample(choices, chance.randint(0, min(most, len(choices))))


def _link(chance, plain=False):
    """The header of a link's section or, with `plain`, the reference to one."""
    kind = chance.choice(["", "", "vlan", *KINDS])
    if kind in KINDS:
        return f"{kind} {chance.choice(('one', 'two', 'eth3', 'eth1'))}"
    address = chance.choice(MACS)
    number = f".{chance.randint(4, 7)}" if kind else ""
    prefix = "" if plain else "vlan " if kind else "interface "
    return f"{prefix}{address.replace(':', '')}{number}"
