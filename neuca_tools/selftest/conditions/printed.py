"""D01, D03, D04, D09, D18, D21: what iperf's own figures prove, where no host was sampled.

Each rule excludes the others by physics: a full link is no window, a window that has room is not
what limits, and a rate that nothing varies is given by something on the path.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
import re
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import FAULT, HIGH, INFO, LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.predict import SPEEDS
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.thresholds import EXCEEDED, TOGETHER
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import ETHERNET, Printed, printed

# Of the speed of Ethernet at MTU 1500: 0.928 with IPv6 and timestamps, 0.936 with PPPoE, 0.949 with
# IPv4 and no timestamps, 0.957 for UDP (1472 of 1538 bytes); as printed, with three digits.
OF_LINE = (0.925, 0.951)
OF_LINE_UDP = (0.93, 0.96)
# The same with MTU 9000, or on a virtual link, which has no preamble and no gap between frames.
OF_FAST_LINE = (0.985, 1.005)
FAST_LINE = 10e9  # bit/s: below it, MTU 9000 is rare
NEARLY = 0.9  # of what a link carries
# Of a nominal rate that providers sell: below, headers explain too much; above, it was exceeded.
OF_CAP = (0.952, 1.005)
CAPS = (1, 2, 5, 10)  # leading digits
STEADY, VERY_STEADY = 0.03, 0.01  # coefficients of variation of the rate
SLOW = 1e9  # bit/s: every host of today can send and receive faster
# bit/s of one TCP stream, above which a CPU core usually limits (fasterdata.es.net, "100G tuning").
CORE = 10e9
LAN_RTT = 0.001  # seconds: more than a switched network has
# Bytes: without -w, Linux lets windows grow to about 3 MB, half of the maximum of tcp_rmem (tcp(7)).
# One that stopped far below that was not stopped by a buffer.
GROWN = 2**20
# The kernel's own default, tcp_wmem[2] (tcp(7)): what a sender may have written but not yet sent.
SEND_BUFFER = 4 * 2**20
BURST = 3  # times the rate after it
HEAVY = 0.005  # of the segments: loss that no full link needs (1 in 200)
LOSSY = 0.001
# 1.22 is sqrt(3/2) of Mathis et al. (1997) for a receiver that acknowledges each segment; CUBIC's
# average window is 1.054 * (RTT / p) ** 0.75 segments (RFC 9438, section 5.1).
RENO, CUBIC = 1.22, 1.054
WITHIN = 2  # a response function is that of an average
# Of a CPU: iperf3 prints the time of its own process (getrusage(2)). Of a core that sends to a NIC,
# interrupts and softirqs take the rest.
FULL, NEARLY_FULL = 0.98, 0.70
BLOCK = 128 * 1024  # bytes: what iperf3 counts at once (-l)
LONG = 0.002  # seconds: below it, a CPU limits before any window of today
ROOM = 0.85  # of the congestion window in flight: it is not what limits
QUANTUM = 0.15  # of the data in flight: iperf3 counts in blocks of 128 KiB
STRETCH = 1.25  # the longest round trip over the shortest: no queue forms
# Datagrams in a second: fewer than any host receives.
FEW = 100_000
EMBEDDED = re.compile(r"\b(mips\w*|armv[4-7]\w*|ppc)\b", re.IGNORECASE)


def link_filled(one: Printed) -> Optional[float]:
    """The speed in bit/s of the Ethernet that this run filled."""
    for speed in SPEEDS:
        if _fills(one.rate, speed, one.mss) and _is_even(one) and not _exceeds(one, speed):
            return speed
        best = max(one.rates, default=0.0)
        if one.rate >= NEARLY * OF_LINE[1] * speed and _fills(best, speed, one.mss):
            return speed
    return None


def _is_even(one: Printed) -> bool:
    """Whether the rate varies by no more than iperf's blocks do: a full link does not vary."""
    if one.spread is None:
        return True
    return one.spread < STEADY + BLOCK * 8 / (one.rate * one.late[0].seconds)


def _fills(rate: float, speed: float, mss: int) -> bool:
    part = rate / speed
    is_fast = speed >= FAST_LINE or mss > 8000
    return OF_LINE[0] <= part <= OF_LINE[1] or (
        is_fast and OF_FAST_LINE[0] <= part <= OF_FAST_LINE[1]
    )


def _exceeds(one: Printed, speed: float) -> bool:
    """Whether an interval was faster than the link, and not only to fill the send buffer."""
    if any(rate > 1.05 * speed for rate in one.rates):
        return True
    return _burst(one, one.rate) > _send_buffer(one)


def _burst(one: Printed, rate: float) -> float:
    """Bytes of the first interval in excess of this rate."""
    if not one.every or one.every[0].start > 0 or one.every[0].bytes is None:
        return 0.0
    return one.every[0].bytes - rate * one.every[0].seconds / 8


def _send_buffer(one: Printed) -> float:
    """Bytes that the first interval may count as sent without any having left the host."""
    # The kernel doubles what -w asks for (SO_SNDBUF in socket(7)).
    return one.streams * max(SEND_BUFFER, 2 * (one.run.buffer or 0))


def cap_of(rate: float) -> Optional[float]:
    """The nominal rate in bit/s that a provider may have limited this rate to."""
    if rate <= 0:
        return None
    decade = 10.0 ** math.floor(math.log10(rate))
    nominal = (step * decade for step in CAPS)
    return next((cap for cap in nominal if OF_CAP[0] <= rate / cap <= OF_CAP[1]), None)


def loss_explains(one: Printed) -> bool:
    """Whether the loss that was counted holds the rate back."""
    if not one.retransmits:
        return False
    if one.share >= HEAVY and not one.is_flat:
        return True
    if link_filled(one) is not None:
        return False
    if not one.cwnds:
        return one.share >= LOSSY and not is_constant(one)
    is_answered = one.is_recovering or (one.spread or 0.0) >= STEADY
    return one.follows_loss and is_answered and (one.cwnd or 0) <= WITHIN * window_at_loss(one)


def window_at_loss(one: Printed) -> float:
    """Bytes: the average window that TCP keeps if it meets loss as often as this run did.

    Segments that are lost together are one event; an interval of iperf has one at least.
    """
    size = sum(interval.bytes or 0 for interval in one.every)
    chance = max(one.events, 1) * one.mss / max(size, one.mss)
    rtt = one.rtt or (one.cwnd or 0) * 8 / one.rate
    segments = max(RENO / math.sqrt(chance), CUBIC * (rtt / chance) ** 0.75)
    return one.streams * segments * one.mss


def is_constant(one: Printed) -> bool:
    return one.spread is not None and one.spread < STEADY


def _as_asked(look: Look) -> bool:
    """Whether the rate is the one that was requested (-b): that is no capacity."""
    return bool(look.asked and look.rate and look.rate >= NEARLY * look.asked)


def _tcp(look: Look) -> Optional[Printed]:
    return printed(look) if look.protocol == "tcp" else None


def busy_process(look: Look) -> Optional[Hit]:
    """An iperf process used all of a CPU, as far as softirqs left it some."""
    one = _tcp(look)
    if one is None or link_filled(one) is not None or _as_asked(look):
        return None
    share, where = one.cpu
    # In a loopback, the softirqs are part of what the sender's process does.
    if share < (FULL if one.is_loopback else NEARLY_FULL):
        return None
    sends = (where == "local") is (look.phase.direction == "forward")
    end = "sender" if sends else "receiver"
    return Hit(
        0.95 if share >= FULL else 0.85,
        f"iperf on the {end} used {amounts.percent(min(share, 1))} of a CPU for "
        f"{amounts.rate(one.rate)}; interrupts and softirqs take the rest",
        (fact(f"CPU of iperf, {where}", round(share, 3)),),
        "more streams (-P) with iperf3 3.16 or later, jumbo frames, and offloads (ethtool -k)",
        end,
        confidence=HIGH if share >= FULL else MEDIUM,
    )


def slow_sender(look: Look) -> Optional[Hit]:
    """The sender does not fill its window, nothing is lost, and the link has room."""
    one = _tcp(look)
    if one is None or not _has_idle_window(look, one):
        return None
    return Hit(
        0.85,
        f"the congestion window of {amounts.size(one.cwnd or 0)} never had to grow, nothing was "
        f"lost, and {amounts.rate(one.rate)} fills no link: the sending host is as fast as it can",
        (
            fact("cwnd", one.cwnd),
            fact("cwnd / rate, seconds", round((one.cwnd or 0) * 8 / one.rate, 5)),
        ),
        "look at its CPUs during a test (mpstat -P ALL 1); offloads (ethtool -k); more streams",
        "sender",
        confidence=MEDIUM,
    )


def _has_idle_window(look: Look, one: Printed) -> bool:
    """Whether the window had room to grow, and is more than a local network needs."""
    if not one.is_flat or one.retransmits != 0 or look.phase.name == TOGETHER or _as_asked(look):
        return False
    if link_filled(one) is not None or one.is_loopback or cap_of(one.rate) is not None:
        return False
    if not (one.is_local_network or EMBEDDED.search(one.run.system or "")):
        return False
    if one.run.buffer or (one.cwnd or 0) > GROWN * one.streams:
        return False
    implied = (one.cwnd or 0) * 8 / one.rate
    return implied > (one.rtt / ROOM if one.rtt else LAN_RTT)


def is_flat_for_another_reason(look: Look) -> bool:
    """Whether something else than a buffer keeps the congestion window from growing."""
    one = _tcp(look)
    if one is None:
        return False
    if link_filled(one) is not None or (cap_of(one.rate) is not None and is_constant(one)):
        return True
    return one.is_loopback or _has_idle_window(look, one) or busy_process(look) is not None


def fast_core(look: Look) -> Optional[Hit]:
    """One stream that is faster than most paths, uneven, and unimpressed by loss."""
    one = _tcp(look)
    if one is None or one.streams > 1 or one.rate < CORE or one.is_loopback or one.is_flat:
        return None
    if link_filled(one) is not None or loss_explains(one) or _as_asked(look) or not one.cwnds:
        return None
    if one.spread is None or one.spread < VERY_STEADY or busy_process(look) is not None:
        return None
    return Hit(
        0.6,
        f"one stream carries {amounts.rate(one.rate)}, unevenly, and its window does not follow "
        "any loss: at such rates a CPU core usually limits",
        (fact("rate, bit/s", round(one.rate)),),
        "compare with several streams (-P); look at the CPUs of both ends and of what relays",
        "both",
        confidence=MEDIUM,
    )


def stated_window(look: Look) -> Optional[Hit]:
    """The buffer that was requested (-w) is what is in flight, or the window never grew past it."""
    one = _tcp(look)
    if one is None or not one.run.buffer or one.retransmits or _as_asked(look):
        return None
    asked = one.run.buffer
    if one.rtt:
        flight = one.rate * one.rtt / 8 / one.streams
        if link_filled(one) is not None or not 0.4 * asked <= flight <= 2.2 * asked:
            return None
    elif not one.is_flat or one.is_local_network or one.is_loopback:
        return None
    return Hit(
        0.95,
        f"-w fixed the buffers at {amounts.size(asked)} and switched off their growth: the window "
        f"stays at {amounts.size(one.cwnd or asked)}",
        (fact("-w", asked), fact("cwnd", one.cwnd), fact("rtt", one.rtt)),
        "test without -w: Linux then sizes the buffers itself, up to tcp_rmem and tcp_wmem",
        "both",
        confidence=MEDIUM,
    )


def window_by_round_trip(look: Look) -> Optional[Hit]:
    """The same amount is in flight in every round trip, whatever the congestion window allows."""
    one = _tcp(look)
    if one is None or not _has_constant_flight(one) or _as_asked(look):
        return None
    flight = one.rate * (one.rtt or 0) / 8
    room = look.windows.snd_wnd
    is_sender = room is not None and flight < ROOM * room
    end = "sender" if is_sender else "both"
    return Hit(
        0.92,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(one.rtt or 0)}, "
        f"of a congestion window of {amounts.size(one.cwnd or 0)}, without any loss: a buffer "
        + ("of the sender limits" if is_sender else "limits, usually the receiver's"),
        (
            fact("rate × rtt, bytes", round(flight)),
            fact("cwnd", one.cwnd),
            fact("snd_wnd", room),
            fact("rtt", one.rtt),
        ),
        "raise the maximum of net.ipv4.tcp_rmem on the receiver and of net.ipv4.tcp_wmem on the "
        "sender to twice the wanted rate times the round trip",
        end,
        confidence=MEDIUM,
    )


def _has_constant_flight(one: Printed) -> bool:
    flights = [each.rate * each.rtt / 8 for each in one.late if each.rate and each.rtt]
    trips = [each.rtt for each in one.late if each.rtt]
    if len(flights) < 3 or not one.cwnd or min(trips) < LONG:
        return False
    if any(each.retransmits for each in one.late) or link_filled(one) is not None:
        return False
    if max(trips) > STRETCH * min(trips) or one.cpu[0] >= NEARLY_FULL:
        return False
    return median(flights) <= ROOM * one.cwnd and pstdev(flights) <= QUANTUM * mean(flights)


def whole_blocks(look: Look) -> Optional[Hit]:
    """iperf3 sends whole blocks: a lower rate than one block for each tick cannot be requested."""
    one = _tcp(look)
    if one is None or not look.asked or one.rate < EXCEEDED * look.asked:
        return None
    return Hit(
        0.9,
        f"-b asked for {amounts.rate(look.asked)}, and iperf3 sent {amounts.rate(one.rate)}: it "
        "sends whole blocks, one for each tick of its timer at least",
        (fact("-b", round(look.asked)), fact("rate, bit/s", round(one.rate))),
        "smaller blocks (-l 1K), or pacing by the kernel (--fq-rate)",
        "tool",
        confidence=MEDIUM,
    )


def given_rate(look: Look) -> Optional[Hit]:
    """The path gives this rate: a full link, a token bucket, or a rate that nothing varies."""
    one = _tcp(look)
    if one is None or _as_asked(look) or one.is_loopback:
        return None
    speed = link_filled(one)
    if speed is not None:
        return _full_link(look, one, speed)
    if look.phase.name == TOGETHER:
        return None
    return _token_bucket(one) or _constant_rate(look, one)


def _full_link(look: Look, one: Printed, speed: float) -> Hit:
    return Hit(
        1.0,
        f"{amounts.rate(one.rate)} is all that TCP can carry over {amounts.rate(speed)} Ethernet",
        (fact("rate, bit/s", round(one.rate)),),
        severity=None if look.evidence.expect else INFO,
    )


def _token_bucket(one: Printed) -> Optional[Hit]:
    rest = [each.rate for each in one.every[1:] if each.rate is not None]
    if len(rest) < 3 or not one.every[0].rate or one.every[0].omitted:
        return None
    usual = median(rest)
    if usual <= 0 or one.every[0].rate < BURST * usual or rest[-1] > 2 * usual:
        return None
    burst = _burst(one, usual)
    if burst <= _send_buffer(one):
        return None
    return Hit(
        0.93,
        f"the first {amounts.size(burst)} went at {amounts.rate(one.every[0].rate)}, everything "
        f"after that at {amounts.rate(usual)}: a token bucket of that size and rate",
        (
            fact("first interval, bit/s", round(one.every[0].rate)),
            fact("median of the others, bit/s", round(usual)),
        ),
        "compare it with the rate that was ordered; no setting of the hosts makes it faster",
        confidence=MEDIUM,
    )


def _constant_rate(look: Look, one: Printed) -> Optional[Hit]:
    cap, share = cap_of(one.rate), 0.0
    if one.share >= HEAVY or busy_process(look) or _has_idle_window(look, one):
        return None
    if one.spread is None:
        share = 0.8 if cap and one.share >= LOSSY else 0.0
    elif cap and is_constant(one):
        share = 0.9
    elif not (one.is_flat and one.retransmits == 0) and not _has_constant_flight(one):
        share = _share_of_steadiness(one)
    if not share:
        return None
    near = f", just below {amounts.rate(cap)}" if cap else ""
    return Hit(
        share,
        f"the rate stays at {amounts.rate(one.rate)}{near}, which is that of no Ethernet, whatever "
        "the windows do: something on the path limits it to that",
        (fact("rate, bit/s", round(one.rate)), fact("variation", one.spread)),
        "compare it with the rate that was ordered, or that the cloud allows this guest; without a "
        "shaper, it is a window: iperf3 -J shows the round trip",
        confidence=MEDIUM,
    )


def _share_of_steadiness(one: Printed) -> float:
    """How likely a limiter is, by how little the rate varies; hosts vary more."""
    spread, count = one.spread or 0.0, len(one.rates)
    if spread < VERY_STEADY and count >= 4 and one.rate < CORE:
        return 0.75
    if spread < STEADY and count >= 5 and one.rate < SLOW:
        return 0.7
    return 0.0


def constant_arrival(look: Look) -> Optional[Hit]:
    """UDP: the same rate arrives all the time, however much is lost."""
    one = printed(look) if look.protocol == "udp" else None
    if one is None or (look.loss or 0) < 0.02 or look.flow is None:
        return None
    rates = [each.rate for each in one.late if each.lost is not None and each.rate]
    is_level = len(rates) >= 3 and pstdev(rates) < STEADY * mean(rates)
    arrived = mean(rates) if rates else look.flow.received.rate or 0.0
    if not _are_few(one, arrived) or not (is_level or _udp_line(arrived)):
        return None
    return Hit(
        0.8,
        f"{amounts.rate(arrived)} arrive all the time, although {amounts.percent(look.loss or 0)} "
        "more is sent: something on the path limits the rate, and the rest is dropped there",
        (fact("received, bit/s", round(arrived)), fact("lost / datagrams", look.loss)),
        "offer less than that (-b); compare it with the rate that was ordered or scheduled",
        confidence=MEDIUM,
    )


def _udp_line(rate: float) -> Optional[float]:
    lowest, highest = OF_LINE_UDP
    return next((speed for speed in SPEEDS if lowest <= rate / speed <= highest), None)


def _are_few(one: Printed, arrived: float) -> bool:
    """Whether any host could have received these datagrams, so that the path lost the others."""
    return arrived / 8 / (one.run.datagram or MSS_OF_UDP) < FEW


MSS_OF_UDP = 1448  # bytes: iperf3's datagrams, where their size is not known


def stalled(look: Look) -> Optional[Hit]:
    """The first window went out, and nothing after it."""
    flow = look.flow
    if look.protocol != "tcp" or flow is None or look.phase.sender or look.phase.receiver:
        return None
    first, *others = [one for one in flow.intervals if one.bytes is not None] or [None]
    if first is None or len(others) < 2 or any(one.bytes for one in others):
        return None
    again = any(one.retransmits for one in flow.intervals)
    small = (others[-1].cwnd or math.inf) <= ETHERNET
    if not again and not small:
        return None
    return Hit(
        1.0,
        f"after the first {amounts.size(first.bytes or 0)} nothing was delivered, and the window "
        "fell to one segment: full-size packets vanish on the path (MTU), or all of them do",
        (fact("cwnd at the end", others[-1].cwnd), fact("bytes", first.bytes)),
        'then set the MTU of the path, or let ICMP "fragmentation needed" through; ping -M do -s '
        "1472 tells",
        confidence=MEDIUM,
        sysctls={"net.ipv4.tcp_mtu_probing": "1"},
    )


PRINTED = (
    Rule("D09", "CPU full", LIMIT, busy_process),
    Rule("D09", "sending host too slow", LIMIT, slow_sender),
    Rule("D09", "CPU core full", LIMIT, fast_core),
    Rule("D01", "buffer fixed by -w", LIMIT, stated_window),
    Rule("D01", "window constant", LIMIT, window_by_round_trip),
    Rule("D04", "rate of whole blocks", LIMIT, whole_blocks),
    Rule("D18", "rate given by the path", LIMIT, given_rate),
    Rule("D18", "rate given by the path", LIMIT, constant_arrival),
    Rule("D21", "nothing after the first window", FAULT, stalled),
)
