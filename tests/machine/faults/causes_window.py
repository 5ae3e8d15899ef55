"""Causes at an end of a connection: buffers, applications, processors."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from random import Random

from catalogue import Case, cause, long_path, near, only, short_path, sysctl, wrapped
from wires import Path, switched

TCP = only("latency", "path-mtu", "tcp", "loaded")
DISK = "/usr/local/lib/lab/disk"
UNTUNED = Path(
    180, 200
)  # 4.5 MB on their way: more than the kernel's own limits, which give 126 and 152 Mbit/s


def window(path: Path, part: float) -> int:
    """Bytes: a part of what the path holds."""
    return int(path.rate * 1e6 * path.rtt / 1e3 / 8 * part)


@cause
def small_receive_buffer(random: Random) -> Case:
    path, part = long_path(random), random.choice((0.2, 0.3, 0.4, 0.5))
    room = 2 * window(path, part)  # Linux advertises half of it
    setup = switched(path) + sysctl("B", tcp_rmem=f"4096 {min(room, 65536)} {room}")
    return Case(
        "small-receive-buffer",
        f"{path}, tcp_rmem {room}",
        "D01",
        setup,
        near(*TCP, expect=path.expect),
    )


@cause
def small_send_buffer(random: Random) -> Case:
    path, part = long_path(random), random.choice((0.2, 0.3, 0.4, 0.5))
    room = window(path, part)
    setup = switched(path) + sysctl("A", tcp_wmem=f"4096 16384 {room}")
    return Case(
        "small-send-buffer",
        f"{path}, tcp_wmem {room}",
        "D03",
        setup,
        near(*TCP, expect=path.expect),
    )


@cause
def only_the_sender_is_tuned(random: Random) -> Case:
    path = UNTUNED._replace(rtt=random.choice((200, 220)))
    setup = switched(path) + sysctl(
        "A", tcp_wmem="4096 16384 33554432", tcp_rmem="4096 131072 33554432"
    )
    return Case(
        "only-the-sender-is-tuned",
        f"{path}",
        "D01",
        setup,
        near(*only("tcp", seconds=8), expect=path.expect),
    )


@cause
def only_the_receiver_is_tuned(random: Random) -> Case:
    path = UNTUNED._replace(rtt=random.choice((220, 240)))
    setup = switched(path) + sysctl(
        "B", tcp_wmem="4096 16384 33554432", tcp_rmem="4096 131072 33554432"
    )
    return Case(
        "only-the-receiver-is-tuned",
        f"{path}",
        "D03",
        setup,
        near(*only("tcp", seconds=8), expect=path.expect),
    )


def fifo(name: str) -> str:
    """For iperf3, which is nobody, and does not see /run (selftest/measure/program.py)."""
    return f"mkdir -p {DISK}; rm -f {DISK}/{name}; mkfifo -m 666 {DISK}/{name}\n"


@cause
def slow_reader(random: Random) -> Case:
    path, part = short_path(random), random.choice((0.2, 0.3, 0.4))
    rate = path.rate * 1e6 / 8 * part
    return Case(
        "slow-reader",
        f"{path}, a disk of {rate / 1e6:.1f} MB/s",
        "D02",
        switched(path) + fifo("sink"),
        near(*TCP, expect=path.expect),
        far_first=wrapped(f"-F {DISK}/sink"),
        beside=f"exec python3 /run/trickle.py read {DISK}/sink {rate}",
    )


@cause
def slow_source(random: Random) -> Case:
    path, part = short_path(random), random.choice((0.1, 0.2, 0.3))
    rate = path.rate * 1e6 / 8 * part
    return Case(
        "slow-source",
        f"{path}, a disk of {rate / 1e6:.1f} MB/s",
        "D04",
        switched(path) + fifo("source"),
        near(*TCP, expect=path.expect),
        near_first=wrapped(f"-F {DISK}/source -l 4096", '*"-c "*'),
        beside=f"exec python3 /run/trickle.py write {DISK}/source {rate}",
    )


@cause
def busy_sender(random: Random) -> Case:
    """Something else computes there, and is preferred."""
    path, nice = Path(0, random.randrange(0, 5)), random.choice((4, 5, 6))
    return Case(
        "busy-sender",
        f"{path}, nice -{nice}",
        "D09",
        switched(path),
        near(*TCP, expect="400M"),
        beside=f"exec nice -n -{nice} sh -c 'while :; do :; done'",
    )


@cause
def many_packets_for_the_receiver(random: Random) -> Case:
    """Every packet goes through a long list of rules."""
    path, rules = (
        Path(100, random.randrange(0, 5)),
        random.choice((1500, 1750, 2000)),
    )  # u32 takes 2048
    setup = (
        switched(path)
        + f"""tc -n B qdisc add dev b0 clsact
for rule in $(seq {rules}); do echo "filter add dev b0 ingress protocol ip prio $rule u32 match ip dport $rule 0xffff action drop"
done > /run/lab/rules; tc -n B -b /run/lab/rules
"""
    )
    return Case(
        "many-packets-for-the-receiver",
        f"{path}, {rules} rules",
        "D09",
        setup,
        near(*TCP, expect=path.expect),
    )


@cause
def no_offloads(random: Random) -> Case:
    """A gigabit is too many packets for this processor."""
    expect = random.choice(("800M", "1G"))
    return Case("no-offloads", expect, "D09", switched(Path(0, 0)), near(*TCP, expect=expect))


@cause
def small_backlog(random: Random) -> Case:
    """A receiver that is held up, and gets what came meanwhile at once."""
    size, every = random.choice((10, 15, 20)), random.choice((8, 10))
    setup = (
        switched(Path(0, 4), f"slot {every}ms {every}ms")
        + f"sysctl -qw net.core.netdev_max_backlog={size}\n"
    )
    return Case(
        "small-backlog",
        f"{size} packets, bursts every {every} ms",
        "D13",
        setup,
        near(*TCP, expect="100M"),
        after="sysctl -qw net.core.netdev_max_backlog=1000",
    )


@cause
def udp_receive_buffer(random: Random) -> Case:
    """A receiver that is held up: what comes, comes in bursts."""
    rate, every = random.choice((30, 40)), random.choice((100, 120))
    setup = switched(Path(0, 2), f"slot {every}ms {every}ms")
    return Case(
        "udp-receive-buffer",
        f"{rate} Mbit/s, bursts every {every} ms",
        "D07",
        setup,
        near(*only("udp", seconds=3), expect=f"{rate}M"),
    )


@cause
def udp_memory(random: Random) -> Case:
    """Its bursts are larger than the megabyte that each processor may take ahead (SK_MEMORY_PCPU_RESERVE)."""
    rate, pages = random.choice((40, 50)), random.choice((48, 64))
    return Case(
        "udp-memory",
        f"{rate} Mbit/s, {pages} pages",
        "D07",
        switched(Path(0, 2), "slot 400ms 400ms")
        + f"sysctl -n net.ipv4.udp_mem > /run/udp_mem; sysctl -qw net.ipv4.udp_mem='{pages} {pages} {pages}' "
        "net.core.rmem_default=8388608\n",
        near(*only("udp", seconds=3), expect=f"{rate}M"),
        after='sysctl -qw net.ipv4.udp_mem="$(cat /run/udp_mem)" net.core.rmem_default=212992',
    )


@cause
def fragments(random: Random) -> Case:
    """Datagrams of 8 KiB, as before iperf3 3.1.5, whose parts overtake each other, and little room to put them together."""
    path, room = Path(0, 10), random.choice((24000, 30000))
    setup = switched(path, "delay 10ms 4ms") + sysctl(
        "B", ipfrag_low_thresh=room // 2, ipfrag_high_thresh=room
    )
    return Case(
        "fragments",
        f"{path}, {room} bytes",
        "D15",
        setup,
        near(*only("udp", seconds=3), expect="30M"),
        near_first=wrapped("-l 8192", '*" -u"*'),
    )
