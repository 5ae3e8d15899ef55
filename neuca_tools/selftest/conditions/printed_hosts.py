"""D01, D04, D09: windows, buffers and CPUs, where iperf's own figures are all that is known.

Each rule excludes the others by physics: a full link is no window, and a window that has room is
not what limits.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from statistics import mean, median, pstdev
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import HIGH, LIMIT, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.printed import (
    BLOCK,
    as_asked,
    cap_of,
    is_constant,
    link_filled,
    loss_explains,
    tcp_printed,
)
from neuca_tools.selftest.conditions.session import Rule
from neuca_tools.selftest.conditions.thresholds import EXCEEDED, TOGETHER
from neuca_tools.selftest.evidence.look import Look
from neuca_tools.selftest.evidence.printed import THREADED, Printed, printed, version_of

# bit/s of one TCP stream, above which a CPU core usually limits (fasterdata.es.net, "100G tuning").
CORE = 10e9
# bit/s of all streams that share a thread, and the most of the segments that were lost meanwhile.
THREAD, LOSSLESS = (2.5 * CORE, 6 * CORE), 1e-4
UNEVEN = 0.05  # coefficient of variation: a CPU that others use as well varies so much
LAN_RTT = 0.001  # seconds: more than a switched network has
# Bytes: without -w, Linux lets windows grow to about 3 MB, half of the maximum of tcp_rmem
# (tcp(7)). One that stopped far below that was not stopped by a buffer.
GROWN, ALLOWED = 2**20, 2**21
# Of a CPU: iperf3 prints the time of its own process (getrusage(2)). Of a core that sends to a NIC,
# interrupts and softirqs take the rest.
FULL, NEARLY_FULL = 0.98, 0.70
LOSSY = 0.02  # of the datagrams
LONGEST = 30.0  # seconds: no path is longer, even if -w asked for more than it got
# Bytes of -w that limit in a local network too, and seconds of its round trips.
SMALL, LOCAL_TRIPS = 64 * 1024, (0.0001, 0.01)
LONG = 0.002  # seconds: below it, a CPU limits before any window of today
VARIED = 0.1  # coefficient of variation of the rate
ROOM = 0.85  # of the congestion window in flight: it is not what limits
QUANTUM = 0.15  # of the data in flight: iperf3 counts in blocks of 128 KiB
STRETCH = 1.25  # the longest round trip over the shortest: no queue forms
# Of what -w asks for: the kernel doubles it, and uses up to half for its own structures (tcp(7)).
OF_STATED = (0.4, 2.2)
# System calls in a second: a send() of some bytes takes 1 to 2 microseconds of today's CPUs, and
# iperf3 has another one, select(), for each (iperf_client_api.c).
CALLS = 250_000
# iperf3 -b sends at least one block (-l) for each tick of 100 ms (esnet/iperf issues 439, 1052).
TICKS, MANY = 10, 4  # in a second; seconds
EMBEDDED = re.compile(r"\b(mips\w*|armv[4-7]\w*|ppc)\b", re.IGNORECASE)


def busy_process(look: Look) -> Optional[Hit]:
    """An iperf process used all of a CPU, as far as softirqs left it some."""
    one = printed(look)
    if one is None or as_asked(look) or (look.protocol == "tcp" and link_filled(one) is not None):
        return None
    share, end = _busiest(look, one)
    # In a loopback, the softirqs are part of what the sender's process does.
    if share < (FULL if one.is_loopback else NEARLY_FULL):
        return None
    is_full = share >= FULL
    return Hit(
        0.95 if is_full else 0.85,
        f"iperf on the {end} used {amounts.percent(min(share, 1))} of a CPU for "
        f"{amounts.rate(one.rate)}; interrupts and softirqs take the rest",
        (fact(f"CPU of iperf on the {end}", round(share, 3)),),
        "more streams (-P) with iperf3 3.16 or later, jumbo frames, and offloads (ethtool -k)",
        end,
        confidence=HIGH if is_full else MEDIUM,
    )


def _busiest(look: Look, one: Printed) -> tuple[float, str]:
    """How busy the busier process kept its CPU, and its end.

    With UDP only the receiver's counts, if it loses datagrams: a sender may spin without need.
    """
    is_forward = look.phase.direction == "forward"
    sender, receiver = one.cpus if is_forward else one.cpus[::-1]
    if look.protocol == "udp":
        return (receiver if (look.loss or 0) >= LOSSY else 0.0), "receiver"
    return max((sender, "sender"), (receiver, "receiver"))


def slow_sender(look: Look) -> Optional[Hit]:
    """The sender does not fill its window, nothing is lost, and the link has room."""
    one = tcp_printed(look)
    if one is None or not _has_idle_window(look, one):
        return None
    return Hit(
        0.85,
        f"the congestion window of {amounts.size(one.cwnd or 0)} never had to grow, nothing was "
        f"lost, and {amounts.rate(one.rate)} fills no link: the sending host is as fast as it can",
        (
            fact("cwnd", one.cwnd),
            fact("cwnd / rate, seconds", round(one.implied_rtt, 5)),
        ),
        "look at its CPUs during a test (mpstat -P ALL 1); offloads (ethtool -k); more streams",
        "sender",
        confidence=MEDIUM,
    )


def _has_idle_window(look: Look, one: Printed) -> bool:
    """Whether the window had room to grow, and is more than a local network needs."""
    # A radio's rate varies, that of a host hardly does.
    if not one.is_unused or one.run.buffer or not is_constant(one) or _is_given(look, one):
        return False
    is_near = one.is_local_network or EMBEDDED.search(one.run.system or "") is not None
    needed = (one.rtt or LAN_RTT * ROOM) / ROOM
    return is_near and (one.cwnd or 0) <= GROWN * one.streams and one.implied_rtt > needed


def _is_given(look: Look, one: Printed) -> bool:
    """Whether the rate is a known one: of a link, of a cap, of -b, or shared by two directions."""
    if look.phase.name == TOGETHER or one.is_loopback or as_asked(look):
        return True
    return link_filled(one) is not None or cap_of(one.rate) is not None


def is_flat_for_another_reason(look: Look) -> bool:
    """Whether something else than a buffer keeps the congestion window from growing."""
    one = tcp_printed(look)
    if one is None:
        return False
    # Two directions share what the hosts and the path can do.
    if look.phase.name == TOGETHER or _is_too_slow_for_its_window(one):
        return True
    if link_filled(one) is not None or (cap_of(one.rate) is not None and is_constant(one)):
        return True
    return one.is_loopback or as_asked(look) or explained_by_a_host(look)


def _is_too_slow_for_its_window(one: Printed) -> bool:
    """Whether the window would be worth more, at the round trip that the path can have."""
    # What one core can do is less than the window allows. Linux sets aside twice what -w asks for
    # (tcp(7)).
    if not one.rtt and one.rate >= CORE and (one.cwnd or 0) > 2 * (one.run.buffer or 0):
        return True
    if one.is_local_network and not one.rtt and not one.run.buffer:
        return (one.cwnd or 0) < ALLOWED * one.streams
    # If the window is constant and the rate is not, the round trip varies: a queue, as of a radio.
    return (one.spread or 0.0) > VARIED and not one.run.buffer


def explained_by_a_host(look: Look) -> bool:
    """Whether a CPU explains the rate better than a window or the path does."""
    return any(
        rule(look) is not None for rule in (busy_process, slow_sender, fast_core, small_writes)
    )


def fast_core(look: Look) -> Optional[Hit]:
    """One stream that is faster than most paths, uneven, and unimpressed by loss."""
    one = tcp_printed(look)
    if one is not None and _is_one_thread(one) and not _is_given(look, one):
        return _one_thread_hit(one)
    if one is None or not _is_fast_and_uneven(one):
        return None
    if _is_given(look, one) or loss_explains(one) or (one.is_unused and one.implied_rtt >= LONG):
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


def _is_one_thread(one: Printed) -> bool:
    """Whether so many streams of an iperf3 that has one thread carry as much as one can."""
    if one.run.tool != "iperf3" or one.streams == 1 or version_of(one.run) >= THREADED:
        return False
    lowest, highest = THREAD
    return lowest <= one.rate <= highest and one.share < LOSSLESS


def _one_thread_hit(one: Printed) -> Hit:
    return Hit(
        0.8,
        f"{one.streams} streams carry {amounts.rate(one.rate)} together: all streams of an iperf3 "
        "before 3.16 share one thread, and this is what one takes",
        (fact("rate, bit/s", round(one.rate)), fact("streams", one.streams)),
        "iperf3 3.16 or later, several iperf3 on different ports, or iperf 2",
        "tool",
        confidence=MEDIUM,
    )


def _is_fast_and_uneven(one: Printed) -> bool:
    if one.streams > 1 or one.rate < CORE or not one.cwnds:
        return False
    return one.spread is not None and one.spread >= UNEVEN


def small_writes(look: Look) -> Optional[Hit]:
    """So many system calls that they take all of a CPU (-l)."""
    one = tcp_printed(look)
    size = one.run.datagram if one else None
    if one is None or not size or _is_given(look, one) or loss_explains(one):
        return None
    calls = one.rate / 8 / size / one.streams
    if calls < CALLS:
        return None
    return Hit(
        0.9,
        f"blocks of {size} bytes (-l) take {calls:.0f} system calls in a second for each stream: "
        "they cost the CPU more than the data",
        (fact("-l", size), fact("calls in a second", round(calls))),
        "larger blocks: iperf3 -l 128K is the default for TCP",
        "sender",
        confidence=MEDIUM,
    )


def stated_window(look: Look) -> Optional[Hit]:
    """The buffer that was requested (-w) is what is in flight, or the window never grew past it."""
    one = tcp_printed(look)
    if one is None or not one.run.buffer or one.retransmits or as_asked(look):
        return None
    if not _is_stated(one, one.run.buffer):
        return None
    return Hit(
        0.95,
        f"-w fixed the buffers at {amounts.size(one.run.buffer)} and switched off their growth:"
        f" the window stays at {amounts.size(one.cwnd or one.run.buffer)}",
        (fact("-w", one.run.buffer), fact("cwnd", one.cwnd), fact("rtt", one.rtt)),
        "test without -w: Linux then sizes the buffers itself, up to tcp_rmem and tcp_wmem",
        "both",
        confidence=MEDIUM,
    )


def _is_stated(one: Printed, asked: float) -> bool:
    """Whether `asked` bytes are in flight; without a round trip, whether the window never grew."""
    if not one.rtt:
        trip = asked * 8 * one.streams / one.rate  # if the window is what limits
        lowest, highest = LAN_RTT, LONGEST
        if one.is_local_network:
            lowest, highest = LOCAL_TRIPS if asked <= SMALL else (1.0, 0.0)
        if one.is_loopback or one.rate >= CORE or link_filled(one) is not None:
            return False
        return lowest < trip < highest and (one.is_flat or not one.cwnds)
    lowest, highest = OF_STATED
    flight = one.rate * one.rtt / 8 / one.streams
    return link_filled(one) is None and lowest <= flight / asked <= highest


def window_by_round_trip(look: Look) -> Optional[Hit]:
    """The same amount is in flight in every round trip, whatever the congestion window allows."""
    one = tcp_printed(look)
    if one is None or not _has_constant_flight(one) or as_asked(look):
        return None
    flight = one.rate * (one.rtt or 0) / 8
    room = look.windows.snd_wnd
    end, whose = "both", "limits, usually the receiver's"
    if room is not None and flight < ROOM * room:
        end, whose = "sender", "of the sender limits"
    return Hit(
        0.92,
        f"{amounts.size(flight)} are in flight in each round trip of {amounts.time(one.rtt or 0)}, "
        f"of a congestion window of {amounts.size(one.cwnd or 0)}, without any loss: a buffer "
        f"{whose}",
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
    """Whether each round trip carries the same, without a queue, below the congestion window."""
    flights, trips = one.flights, one.trips
    if len(flights) < 3 or any(each.retransmits for each in one.late):
        return False
    if min(trips) < LONG or max(trips) > STRETCH * min(trips):
        return False
    if link_filled(one) is not None or max(one.cpus) >= NEARLY_FULL:
        return False
    is_even = pstdev(flights) <= QUANTUM * mean(flights)
    return is_even and median(flights) <= ROOM * (one.cwnd or 0)


def is_window(one: Printed) -> bool:
    """Whether a window explains a constant rate, or may explain it."""
    return one.is_unused or _has_constant_flight(one)


def whole_blocks(look: Look) -> Optional[Hit]:
    """iperf3 sends whole blocks: a lower rate than one block for each tick cannot be requested."""
    one = tcp_printed(look)
    if _is_one_block(look):
        return _one_block_hit(look)
    if one is not None and not look.asked and _is_one_block_a_tick(one):
        return _unstated_blocks(one)
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


def _is_one_block(look: Look) -> bool:
    """Whether one block is more than -b allows for the whole run, so that no other was sent."""
    flow = look.flow
    if look.protocol != "tcp" or not look.asked or flow is None or len(flow.intervals) < MANY:
        return False
    sizes, last = [one.bytes or 0.0 for one in flow.intervals], flow.intervals[-1]
    return 0 < sum(sizes) <= BLOCK and not any(sizes[1:]) and look.asked * last.end / 8 < BLOCK


def _one_block_hit(look: Look) -> Hit:
    return Hit(
        0.9,
        f"-b asked for {amounts.rate(look.asked or 0)}: the first block (128 KiB) is more than "
        "that for the whole run, so that iperf3 sent nothing else",
        (fact("-b", round(look.asked or 0)),),
        "smaller blocks (-l 1K), or a higher rate",
        "tool",
        confidence=MEDIUM,
    )


def _is_one_block_a_tick(one: Printed) -> bool:
    """Whether each second has just the blocks of an old iperf3's timer; links have no such rate."""
    sizes = {round(each.bytes / BLOCK, 1) for each in one.late if each.bytes and each.seconds > 0.9}
    return len(one.late) >= MANY and sizes == {TICKS} and (one.retransmits or 0) <= len(one.every)


def _unstated_blocks(one: Printed) -> Hit:
    return Hit(
        0.85,
        f"every second carries {TICKS} blocks of 128 KiB: iperf3 sends one for each tick of its "
        "timer if -b asks for less than that, and nothing limits",
        (fact("rate, bit/s", round(one.rate)),),
        "if -b was given: smaller blocks (-l 1K), or pacing by the kernel (--fq-rate)",
        "tool",
        confidence=MEDIUM,
    )


PRINTED_HOSTS = (
    Rule("D09", "CPU full", LIMIT, busy_process),
    Rule("D09", "CPU full", LIMIT, slow_sender),
    Rule("D09", "CPU full", LIMIT, fast_core),
    Rule("D09", "CPU full", LIMIT, small_writes),
    Rule("D01", "receive or send buffer too small", LIMIT, stated_window),
    Rule("D01", "receive or send buffer too small", LIMIT, window_by_round_trip),
    Rule("D04", "-b below what iperf3 can send", LIMIT, whole_blocks),
)
