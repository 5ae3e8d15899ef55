"""A case: one cause, injected, and the condition that neuca-selftest has to find first; or a healthy set-up. Pure."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import wires
from wires import Path

SERVE = (
    "--serve",
    "--config",
    "/run/lab/B/config",
    "--secret-file",
    "/run/lab/secret",
    "--for",
    "600",
    "--netns",
    "B",
)
NEAR = ("--config", "/run/lab/A/config", "--json")
SECRET = ("--secret-file", "/run/lab/secret")
QUICK = ("--plan", "quick")


@dataclass(frozen=True)
class Case:
    """`name` is of the cause, `what` of its parameters; `wanted` the condition that has to come first, "" for none.

    The rest is for inside/rehearse.py: scripts that make the set-up, run beside the test and put the kernel back; scripts for
    an end's own mount namespace; the words of both hosts (`helper` empty: nobody serves).
    """

    name: str
    what: str
    wanted: str
    setup: str
    words: tuple[str, ...]
    helper: tuple[str, ...] = SERVE
    beside: str = ""
    after: str = ""
    near_first: str = ""
    far_first: str = ""
    inside: str = ""  # the near end's namespace, where its agent is asked too; empty: by --netns
    patience: float = 240.0
    tally: str = ""  # a script whose output becomes part of the outcome, once the test is over


Maker = Callable[[random.Random], Case]
CAUSES: dict[str, Maker] = {}
HEALTHY: dict[str, Maker] = {}


def cause(maker: Maker) -> Maker:
    CAUSES[_name(maker)] = maker
    return maker


def healthy(maker: Maker) -> Maker:
    HEALTHY[_name(maker)] = maker
    return maker


def _name(maker: Maker) -> str:
    return maker.__name__.replace("_", "-")


def cases(seed: int, names: list[str] | None = None) -> list[Case]:
    """Every case once (or those named), with parameters that the seed decides: of each by its own, whatever the others are."""
    known = {**CAUSES, **HEALTHY}
    return [
        known[name](random.Random(f"{seed} {name}")) for name in (known if names is None else names)
    ]


# --- Words for the makers ----------------------------------------------------------------------------------------------------


def only(*steps: str, seconds: int = 5) -> tuple[str, ...]:
    """These steps, with tests as short as they can be: two seconds do not count, and the rate of three says whether it varies."""
    return ("--only", ",".join(steps), "--time", f"{seconds}")


def near(
    *words: str, expect: str = "", secret: bool = True, peer: str = wires.FAR, netns: bool = True
) -> tuple[str, ...]:
    """The near end's words."""
    where = ("--netns", "A") if netns else ()
    return (
        *NEAR,
        *(SECRET if secret else ()),
        *where,
        *words,
        *(("--expect", expect) if expect else ()),
        peer,
    )


def sysctl(namespace: str, **values: object) -> str:
    """Settings of the IPv4 of a namespace, such as tcp_rmem."""
    words = " ".join(f"net.ipv4.{name}='{value}'" for name, value in values.items())
    return f"ip netns exec {namespace} sysctl -qw {words}\n"


def wrapped(words: str, when: str = "*") -> str:
    """For an end's own mount namespace: an iperf3 that gets these words too, where its own words match a pattern of the shell."""
    return f"""mount -t tmpfs tmpfs /usr/local/sbin
printf '%s\\n' '#!/bin/sh' 'case "$*" in {when}) exec /usr/bin/iperf3 "$@" {words};; esac' 'exec /usr/bin/iperf3 "$@"' \\
    > /usr/local/sbin/iperf3
chmod 755 /usr/local/sbin/iperf3
"""


def long_path(random: random.Random) -> Path:
    return Path(random.randrange(20, 41, 5), random.randrange(40, 71, 5))


def short_path(random: random.Random) -> Path:
    return Path(random.randrange(12, 31, 2), random.randrange(4, 21, 2))


def dropping(namespace: str, port: str, way: str, match: str) -> str:
    """A filter that drops packets without a word."""
    return f"""tc -n {namespace} qdisc add dev {port} clsact
tc -n {namespace} filter add dev {port} {way} protocol ip flower {match} action drop
"""
