"""Damage to state files: whatever a disk, a crash, another version or a hand may make of one, drawn from a seeded generator."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import copy
import json

HUGE = "9" * 5000
ODD = (None, True, -1, 0, 10**15, 1e308, "", "\0", "\ud800", "../../x", "x" * 70000, [], {}, [[]])


def truncated(data, chance, _):
    return data[: chance.randrange(len(data) + 1)]


def flipped(data, chance, _):
    """One to eight bits."""
    damaged = bytearray(data or b"\0")
    for _each in range(chance.randint(1, 8)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def zeroed(data, chance, _):
    """All of it, or some blocks."""
    begin = chance.choice((0, chance.randrange(len(data) + 1)))
    length = chance.randint(1, len(data) + 1)
    return data[:begin] + b"\0" * len(data[begin : begin + length]) + data[begin + length :]


def of_a_newer_version(data, chance, _):
    return data.replace(b'"version": 1', b'"version": %d' % chance.choice((0, 2, 10**9)))


def swapped(_, chance, others):
    return chance.choice(others)


def nested(_, chance, __):
    depth = chance.choice((20, 500, 2000, 100000, 1000000))
    open_, close = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    inner = open_ * depth + b"1" + close * depth
    return chance.choice((inner, b'{"version": 1, "nics": ' + inner + b"}", open_ * depth))


def with_a_huge_number(data, chance, _):
    number = chance.choice((HUGE, "1e999", "NaN", "-Infinity", "0" * 40, "1" * 19))
    return data.replace(b": 1", b": " + number.encode(), 1)


def with_another_value(data, chance, _):
    """Well-formed, without a checksum: as a hand, or an earlier version, may have written it."""
    try:
        tree = json.loads(data)
    except ValueError:
        return data
    if not isinstance(tree, dict):
        return data
    tree.pop("crc32", None)
    for _each in range(chance.randint(1, 3)):
        at = tree
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            keys = [key for key in keys if key != "version"]
            if not keys:
                break
            key = chance.choice(keys)
            if not isinstance(at[key], (dict, list)) or not at[key] or chance.random() < 0.2:
                at[key] = copy.deepcopy(chance.choice((*ODD, _odd(at[key], chance))))
                break
            at = at[key]
    return json.dumps(tree).encode()


def _odd(value, chance):
    """Another value of the same type."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return value + chance.choice((-1, 1, 2**33))
    if isinstance(value, str) and value:
        at = chance.randrange(len(value))
        return value[:at] + chance.choice("0a./:%é \n") + value[at + 1 :]
    return value


KINDS = (
    truncated,
    flipped,
    zeroed,
    of_a_newer_version,
    swapped,
    nested,
    with_a_huge_number,
    with_another_value,
)


def damaged(data, chance, others):
    """The bytes after damage of a kind drawn at random, and its name."""
    kind = chance.choice(KINDS)
    return kind(data, chance, others), kind.__name__
