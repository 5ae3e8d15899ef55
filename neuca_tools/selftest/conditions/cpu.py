"""D09, D10: CPUs and hosts that are as fast as they can, by samples or by iperf's figures."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.application import is_unbounded
from neuca_tools.selftest.conditions.base import HIGH, INFO, LOW, MEDIUM, Hit, fact
from neuca_tools.selftest.conditions.figures import (
    FAST,
    PACED,
    STEADY,
    as_asked,
    cap_of,
    is_constant,
    link_filled,
    loss_explains,
    tcp_printed,
)
from neuca_tools.selftest.conditions.session import ends
from neuca_tools.selftest.conditions.streams import is_mostly_idle
from neuca_tools.selftest.conditions.thresholds import TOGETHER, passed
from neuca_tools.selftest.conditions.udp import receiver_too_slow
from neuca_tools.selftest.evidence.load import Load
from neuca_tools.selftest.evidence.look import STEAL, Look
from neuca_tools.selftest.evidence.printed import THREADED, Printed, printed
from neuca_tools.selftest.evidence.run import EMBEDDED, known_rates, version_of

# bit/s of one TCP stream, above which a CPU core usually limits (fasterdata.es.net, "100G tuning").
CORE = 10e9
COPIED = 20e9  # bit/s that one core copies within a host
# bit/s of all streams that share a thread, and the most of the segments that were lost meanwhile.
THREAD, LOSSLESS = (2.5 * CORE, 6 * CORE), 1e-4
UNEVEN = 0.05  # coefficient of variation: a CPU that others use as well varies so much
RADIO = 0.01  # seconds that a radio keeps frames waiting, at least
LAN_RTT = 0.001  # seconds: more than a switched network has
# Bytes: without -w, Linux lets windows grow to about 3 MB, half of the maximum of tcp_rmem
# (tcp(7)). One that stopped far below that was not stopped by a buffer.
GROWN, ALLOWED = 2**20, 2**21
# Of a CPU: iperf3 prints the time of its own process (getrusage(2)). Of a core that sends to a NIC,
# interrupts and softirqs take the rest.
FULL, NEARLY_FULL = 0.98, 0.70
LOSSY = 0.02  # of the datagrams
LONG = 0.002  # seconds: below it, a CPU limits before any window of today
VARIED = 0.1  # coefficient of variation of the rate
ROOM = 0.85  # of the congestion window in flight: it is not what limits
# System calls in a second: a send() of some bytes takes 1 to 2 microseconds of today's CPUs, and
# iperf3 has another one, select(), for each (iperf_client_api.c).
CALLS = 250_000
# bit/s: in a local network nothing is shaped, and a slow host is as steady; but none is this slow.
SLOWEST_HOST = 30e6
# What to do about a full CPU, by what it spends most of its time on (D09).
RELIEVE = {
    "softirq": "spread the packets over CPUs: more queues of the NIC (ethtool -L), or rps_cpus; "
    "jumbo frames; offloads (ethtool -k)",
    "system": "jumbo frames and offloads (ethtool -k); more streams with iperf3 3.16 or later",
    "user": "more streams (-P) with iperf3 3.16 or later, which has a thread for each",
}


def cpu(look: Look) -> Optional[Hit]:
    """A CPU limits, by the samples of both hosts or, without them, by what iperf printed."""
    if look.phase.sender or look.phase.receiver:
        return _full_cpu(look) or receiver_too_slow(look)
    return (
        receiver_too_slow(look)
        or _small_writes(look)
        or _busy_process(look)
        or _slow_sender(look)
        or _fast_core(look)
    )


def _busy_process(look: Look) -> Optional[Hit]:
    """An iperf process used all of a CPU, as far as softirqs left it some."""
    one = printed(look)
    if one is None or as_asked(look):
        return None
    share, end = _busiest(look, one)
    if look.protocol == "tcp" and share < FULL and link_filled(one) is not None:
        return None
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

    With UDP the receiver's counts only if it loses datagrams, and the sender's only if none is lost
    and its rate varies: one that spins until the next datagram is due sends evenly. With --bidir
    each of them sends.
    """
    is_forward = look.phase.direction == "forward"
    sender, receiver = one.cpus if is_forward else one.cpus[::-1]
    if look.protocol == "tcp":
        return max((sender, "sender"), (receiver, "receiver"))
    if len(one.run.flows) < 2 and look.known_loss >= LOSSY:
        return receiver, "receiver"
    is_varied = len(one.run.flows) < 2 and look.loss == 0 and one.known_spread > PACED
    return (sender if is_varied else 0.0), "sender"


def _slow_sender(look: Look) -> Optional[Hit]:
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
        "check its CPUs during a test (mpstat -P ALL 1); offloads (ethtool -k); more streams",
        "sender",
        confidence=MEDIUM,
    )


def _has_idle_window(look: Look, one: Printed) -> bool:
    """Whether the window had room to grow, and is more than a local network needs."""
    if not one.is_unused or one.run.buffer or is_given(look, one):
        return False
    return (one.cwnd or 0) <= GROWN * one.streams and _is_of_host(one)


def _is_of_host(one: Printed) -> bool:
    """Whether the rate is as constant as that of a host, at rates that few radios have.

    A radio's rate varies, that of a host hardly does; and its frames wait for longer.
    """
    if one.rate < SLOWEST_HOST or not LAN_RTT < one.implied_rtt <= RADIO:
        return False
    return is_constant(one, UNEVEN if one.rate >= FAST else STEADY)


def is_given(look: Look, one: Printed) -> bool:
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
    if not one.rtt and one.rate >= CORE:
        return True
    # A switched network's round trip is constant, and so is what a window allows.
    if not one.rtt and _is_nearby(one):
        return one.known_spread > UNEVEN or (one.cwnd or 0.0) < ALLOWED * one.streams
    # If the window is constant and the rate is not, the round trip varies: a queue, as of a radio.
    return one.known_spread > VARIED or _is_falling(one)


def _is_nearby(one: Printed) -> bool:
    """Whether both hosts are in one network; where the addresses are not known, by the rate."""
    return one.is_local_network or one.is_private or one.rate >= FAST


def _is_falling(one: Printed) -> bool:
    """Whether each interval is slower than the one before, by a tenth in the end."""
    rates = known_rates(one.every[1:])
    is_sorted = len(rates) > 2 and rates == sorted(rates, reverse=True)
    return is_sorted and rates[-1] < (1 - VARIED) * rates[0]


def is_of_a_host(one: Printed) -> bool:
    """Whether a steady rate may be that of a host: in a local network nothing is shaped."""
    is_lan_host = one.is_local_network and one.rate > SLOWEST_HOST
    return is_lan_host or one.run.system == EMBEDDED


def explained_by_a_host(look: Look) -> bool:
    """Whether a CPU explains the rate better than a window or the path does."""
    return cpu(look) is not None


def _fast_core(look: Look) -> Optional[Hit]:
    """Faster than most paths, uneven, and unimpressed by loss."""
    one = tcp_printed(look)
    if one is not None and _is_one_thread(one) and not is_given(look, one):
        return _one_thread_hit(one)
    if one is None or not _is_fast_and_uneven(one):
        return None
    if is_given(look, one) or loss_explains(one) or (one.is_unused and one.implied_rtt >= LONG):
        return None
    return Hit(
        0.6,
        f"{amounts.rate(one.rate)} arrive unevenly, and no window follows any loss: at such rates "
        "a CPU core usually limits",
        (fact("rate, bit/s", round(one.rate)),),
        "compare with several streams (-P); check the CPUs of both hosts and of any relay",
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
    if one.rate < CORE or not one.cwnds:
        return False
    # Without loss, this is as fast as one core copies within a host: nothing is slow.
    if one.rate >= COPIED and one.share < LOSSLESS / 10:
        return False
    return one.spread is not None and one.spread >= UNEVEN


def _small_writes(look: Look) -> Optional[Hit]:
    """So many system calls that they take all of a CPU (-l)."""
    one = tcp_printed(look)
    if one is None or not one.run.datagram or (is_given(look, one) and not one.is_loopback):
        return None
    calls = one.rate / 8 / one.run.datagram / one.streams
    if calls < CALLS:
        return None
    return Hit(
        0.97,
        f"blocks of {one.run.datagram} bytes (-l) take {calls:.0f} system calls in a second for "
        "each stream: they cost more CPU time than the data",
        (fact("-l", one.run.datagram), fact("calls in a second", round(calls))),
        "larger blocks: iperf3 -l 128K is the default for TCP",
        "sender",
        confidence=MEDIUM,
    )


def _full_cpu(look: Look) -> Optional[Hit]:
    """A CPU of either host is full, and nothing else limits the flow."""
    receiver, sender = ends(look)
    end, _, load = max(sender, receiver, key=lambda one: _fullness(one.load))
    if _is_unknown(look, load):
        return None
    if load.has_full_cpu and load.is_of_others:
        return _waiting(look, end, load) or _other_load(end, load)
    if not load.is_full or not is_unbounded(look):
        return None
    full, suspect, confidence = load.full or 0, "", HIGH
    if load.what == "user":
        # iperf3 itself hardly computes.
        suspect, confidence = "; another program may be running there", MEDIUM
    return Hit(
        full * look.left,
        f"CPU {load.cpu} of the {end} is full {amounts.percent(full)} of the time, mostly with "
        f"{load.what}{suspect}",
        (
            fact(f"CPU {load.cpu} busy", load.busy),
            fact(f"CPU {load.cpu} user", load.user),
            fact(f"CPU {load.cpu} system", load.system),
            fact(f"CPU {load.cpu} softirq", load.softirq),
        ),
        RELIEVE[load.what],
        end,
        confidence=confidence,
    )


def _fullness(load: Load) -> tuple[bool, float, float]:
    return load.is_full, load.full or 0.0, load.busy or 0.0


def _waiting(look: Look, end: str, load: Load) -> Optional[Hit]:
    """The sender has little in flight: it waits for a CPU that others fill.

    By fair scheduling it would get half of it; a program of higher priority leaves it less.
    """
    if look.protocol != "tcp" or passed(look) is not False or not is_mostly_idle(look):
        return None
    if not is_unbounded(look):
        return None
    return Hit(
        look.left,
        f"other programs kept CPU {load.cpu} of the {end} busy, and left iperf "
        f"{amounts.percent(load.own or 0)} of it: much less was in flight than the windows had "
        "room for",
        (
            fact(f"CPU {load.cpu} busy", load.busy),
            fact("CPU of iperf", load.own),
            fact("in flight, bytes", look.windows.in_flight),
        ),
        "stop them, give them a lower priority (renice), or test on another CPU",
        end,
        confidence=MEDIUM,
    )


def _other_load(end: str, load: Load) -> Hit:
    """A note: the test did not need that CPU, but what it measured may have waited for it."""
    return Hit(
        0.0,
        f"other programs kept CPU {load.cpu} of the {end} busy; iperf used "
        f"{amounts.percent(load.own or 0)} of one: test again without them to be sure",
        (fact(f"CPU {load.cpu} busy", load.busy), fact("CPU of iperf", load.own)),
        end=end,
        confidence=LOW,
        severity=INFO,
    )


def _is_unknown(look: Look, load: Load) -> bool:
    """Whether a run failed without saying how much of the CPU was its own."""
    return bool(look.phase.run and look.phase.run.error) and load.own is None


def steal(look: Look) -> Optional[Hit]:
    for end, _, load in reversed(ends(look)):
        stolen = load.steal or 0
        if stolen <= STEAL:
            continue
        if not load.is_short_of_stolen:
            return _stolen_from_others(end, load, stolen)
        return Hit(
            min(1.0, stolen * 2),
            f"the hypervisor took {amounts.percent(stolen)} of a CPU of the {end}: this result is "
            "not reliable",
            (fact("steal", stolen),),
            "ask for dedicated CPUs, or test when the hypervisor is idle",
            end,
        )
    return None


def _stolen_from_others(end: str, load: Load, stolen: float) -> Hit:
    """A note: the test used so little of a CPU that it was not short of what was taken."""
    return Hit(
        0.0,
        f"the hypervisor took {amounts.percent(stolen)} of a CPU of the {end}, of which iperf used "
        f"{amounts.percent(load.own or 0)}: round trips may be longer than those of the path",
        (fact("steal", stolen), fact("CPU of iperf", load.own)),
        end=end,
        confidence=LOW,
        severity=INFO,
    )
