"""Set-ups in which nothing is wrong."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from random import Random

from catalogue import QUICK, Case, healthy, near, only
from causes_path import overlay
from causes_reach import APPLY, ASKED, tuned
from wires import ROUTED_FAR, Path, bare_switch, routed, switched

EVERYTHING = only(
    "latency",
    "path-mtu",
    "tcp",
    "tcp-reverse",
    "loaded",
    "tcp-parallel",
    "tcp-bidir",
    "udp",
    "connections",
)


def case(name: str, what: object, setup: str, words: tuple[str, ...], **more: object) -> Case:
    return Case(name, str(what), "", setup, words, **more)


@healthy
def local_network(random: Random) -> Case:
    path = Path(random.choice((60, 80, 100)), random.choice((0.2, 0.5, 1)))
    return case("local-network", path, switched(path), near(*QUICK, expect=path.expect))


@healthy
def town(random: Random) -> Case:
    path = Path(random.choice((15, 20, 30)), random.choice((3, 5, 8)))
    return case("town", path, switched(path), near(*QUICK, "--udp", expect=path.expect))


@healthy
def country(random: Random) -> Case:
    path = Path(random.choice((30, 40, 50)), random.choice((15, 25, 40)))
    return case("country", path, routed(path), near(*QUICK, expect=path.expect, peer=ROUTED_FAR))


@healthy
def ocean(random: Random) -> Case:
    path = Path(random.choice((15, 20, 25)), random.choice((80, 100, 120)))
    return case(
        "ocean",
        path,
        routed(path),
        near(*QUICK, "--time", "10", expect=path.expect, peer=ROUTED_FAR),
    )


@healthy
def slow_line(random: Random) -> Case:
    path = Path(random.choice((5, 8, 10)), random.choice((10, 20)))
    return case("slow-line", path, switched(path), near(*QUICK, expect=path.expect))


@healthy
def everything(random: Random) -> Case:
    path = Path(random.choice((10, 15, 20)), random.choice((2, 6, 10)))
    return case(
        "everything", path, switched(path), near(*EVERYTHING, "--parallel", "4", expect=path.expect)
    )


@healthy
def nobody_said_what_to_expect(random: Random) -> Case:
    path, rate = Path(random.choice((30, 60)), random.choice((4, 10))), random.choice((10, 20))
    return case(
        "nobody-said-what-to-expect",
        f"{path}, --rate {rate}M",
        switched(path),
        near(*QUICK, "--rate", f"{rate}M"),
    )


@healthy
def held_back(random: Random) -> Case:
    """A fast path, and a test that must not fill it."""
    rate = random.choice((20, 40))
    return case(
        "held-back",
        f"--rate {rate}M",
        switched(Path(0, 2)),
        near(*QUICK, "--rate", f"{rate}M", expect="400M"),
    )


@healthy
def without_a_helper(random: Random) -> Case:
    path = Path(random.choice((20, 40)), random.choice((2, 10)))
    setup = (
        switched(path)
        + """ip netns exec B iperf3 -s -p 45678 -D
until ip netns exec B ss -Hltn | grep -q :45678; do sleep 0.1; done
"""
    )
    return case(
        "without-a-helper",
        path,
        setup,
        near(*QUICK, expect=path.expect, secret=False),
        helper=(),
        after="ip netns pids B | xargs -r kill",
    )


@healthy
def sixth_version(random: Random) -> Case:
    path = Path(random.choice((20, 30)), random.choice((2, 10)))
    setup = (
        bare_switch(ipv6=True)
        + path.both()
        + (
            "ip -n A address add fd00::1/64 dev a0 nodad\n"
            "ip -n B address add fd00::2/64 dev b0 nodad\n"
        )
    )
    return case("sixth-version", path, setup, near(*QUICK, expect=path.expect, peer="fd00::2"))


@healthy
def jumbo_frames(random: Random) -> Case:
    path = Path(random.choice((40, 60)), random.choice((1, 5)), 8, 9014)  # 10 to 14 ms
    return case("jumbo-frames", path, switched(path, mtu=9000), near(*QUICK, expect=path.expect))


@healthy
def overlay_that_fits(random: Random) -> Case:
    path = Path(random.choice((20, 30)), random.choice((2, 6)))
    return case(
        "overlay-that-fits",
        path,
        overlay(1550, 1500) + path.both(),
        near(*QUICK, expect=f"{path.rate * 0.95:g}M", peer="10.7.0.2"),
    )


@healthy
def tuned_by_the_agent(random: Random) -> Case:
    path = Path(random.choice((30, 60)), random.choice((10, 40)))
    setup = (
        switched(path)
        + ASKED
        + tuned("bdp").replace("bdp/'", "bdp\\nrate = 100Mbit\\nrtt = 50ms/'")
        + APPLY
    )
    return case(
        "tuned-by-the-agent", path, setup, near(*QUICK, expect=path.expect, netns=False), inside="A"
    )
