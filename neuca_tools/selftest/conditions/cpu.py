"""D09, D10: CPUs and hosts that are as fast as they can, by samples or by iperf's figures."""

# SPDX-License-Identifier: MIT

from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions import figures
from neuca_tools.selftest.conditions.application import is_unbounded
from neuca_tools.selftest.conditions.base import Confidence, Hit, single_fact
from neuca_tools.selftest.conditions.thresholds import BIDIRECTIONAL, has_passed, is_mostly_idle
from neuca_tools.selftest.evidence.load import Load
from neuca_tools.selftest.evidence.look import HARMFUL_STEAL, Fact, Look
from neuca_tools.selftest.evidence.run import known_rates

# bit/s of one TCP stream, above which a CPU core usually limits (fasterdata.es.net, "100G tuning").
CORE_RATE = 10e9
COPY_RATE = 20e9  # bit/s that one core copies within a host
# bit/s of all streams that share a thread, and the most of the segments that were lost meanwhile.
THREAD_RATES, LOSSLESS_SHARE = (2.5 * CORE_RATE, 6 * CORE_RATE), 1e-4
SHARED_CPU_SPREAD = 0.05  # coefficient of variation: a CPU that others use as well varies so much
RADIO_SECONDS = 0.01  # seconds that a radio keeps frames waiting, at least
LAN_RTT = 0.001  # seconds: more than a switched network has
# Bytes: without -w, Linux lets windows grow to about 3 MB, half of the maximum of tcp_rmem
# (tcp(7)). One that stopped far below that was not stopped by a buffer.
GROWN_WINDOW, ALLOWED_WINDOW = 2**20, 2**21
# Of a CPU: iperf3 prints the time of its own process (getrusage(2)). Of a core that sends to a NIC,
# interrupts and softirqs take the rest.
FULL_CPU, NEARLY_FULL_CPU = 0.98, 0.70
LONG_RTT = 0.002  # seconds: below it, a CPU limits before any window of today
FALLEN_SHARE = 0.1  # of the rate
FILLED_WINDOW = 0.85  # of the congestion window in flight: it is not what limits
# bit/s: in a local network nothing is shaped, and a slow host is as steady; but none is this slow.
SLOWEST_HOST = 30e6
# What to do about a full CPU, by what it spends most of its time on (D09).
RELIEVE = {
    "softirq": "spread the packets over CPUs: more queues of the NIC (ethtool -L), or rps_cpus; "
    "jumbo frames; offloads (ethtool -k)",
    "system": "jumbo frames and offloads (ethtool -k); more streams with iperf3 3.16 or later",
    "user": "more streams (-P) with iperf3 3.16 or later, which has a thread for each",
}


def limited_by_cpu(look: Look) -> Optional[Hit]:
    """A CPU limits, by the samples of both hosts or, without them, by what iperf printed."""
    if look.is_sampled:
        return _full_cpu(look)
    if not look.is_unsampled_tcp or figures.is_as_requested(look):
        return None
    return _busy_process(look) or _slow_sender(look) or _fast_core(look)


def _busy_process(look: Look) -> Optional[Hit]:
    """An iperf process used all of a CPU, as far as softirqs left it some.

    Of UDP this says nothing: a sender may spin until the next datagram is due.
    """
    is_forward = look.phase.direction == "forward"
    sender, receiver = look.run.cpus if is_forward else look.run.cpus[::-1]
    share, end = max((sender, "sender"), (receiver, "receiver"))
    if share < FULL_CPU and figures.filled_link_speed(look) is not None:
        return None
    # In a loopback, the softirqs are part of what the sender's process does.
    if share < (FULL_CPU if look.run.is_loopback else NEARLY_FULL_CPU):
        return None
    used = f"{amounts.percent(min(share, 1))} of a CPU for {amounts.rate(look.known_rate)}"
    hit = Hit(
        0.95,
        f"iperf on the {end} used {used}",
        (single_fact(f"CPU of iperf on the {end}", round(min(share, 1), 3)),),
        "more streams (-P) with iperf3 3.16 or later, jumbo frames, and offloads (ethtool -k)",
        end,
        confidence="high",
    )
    if share >= FULL_CPU:
        return hit
    text = f"{hit.text}; interrupts and softirqs take the rest"
    return hit._replace(share=0.85, text=text, confidence="medium")


def _slow_sender(look: Look) -> Optional[Hit]:
    """The sender does not fill its window, nothing is lost, and the link has room."""
    if not look.is_unused or look.run.buffer or is_given(look):
        return None
    # A larger window is more than a local network needs.
    if (look.cwnd or 0) > GROWN_WINDOW * look.streams or not _is_as_constant_as_a_host(look):
        return None
    return Hit(
        0.85,
        f"the congestion window of {amounts.size(look.cwnd or 0)} never had to grow, nothing was "
        f"lost, and {amounts.rate(look.known_rate)} fills no link: the sending host is as fast "
        "as it can",
        (
            single_fact("cwnd", look.cwnd),
            single_fact("cwnd / rate, seconds", round(look.implied_rtt, 5)),
        ),
        "check its CPUs during a test (mpstat -P ALL 1); offloads (ethtool -k); more streams",
        "sender",
        confidence="medium",
    )


def _is_as_constant_as_a_host(look: Look) -> bool:
    """Whether it varies as little as a host's: radios vary more, and their frames wait longer."""
    if look.known_rate < SLOWEST_HOST or not LAN_RTT < look.implied_rtt <= RADIO_SECONDS:
        return False
    return figures.is_constant(look, SHARED_CPU_SPREAD)


def is_given(look: Look) -> bool:
    """Whether the rate is a known one: of a link, of -b, or shared by two directions."""
    if look.phase.name == BIDIRECTIONAL or look.run.is_loopback or figures.is_as_requested(look):
        return True
    return figures.filled_link_speed(look) is not None


def is_flat_for_another_reason(look: Look) -> bool:
    """Whether something else than a buffer keeps the congestion window from growing."""
    return is_given(look) or _is_too_slow_for_its_window(look) or limited_by_cpu(look) is not None


def _is_too_slow_for_its_window(look: Look) -> bool:
    """Whether the window would be worth more, at the round trip that the path can have.

    What a constant window allows is constant, unless the round trip varies: a queue, as of a radio.
    """
    if look.known_spread > SHARED_CPU_SPREAD or _is_falling(look):
        return True
    if look.rtt or not (look.run.is_local_network or look.known_rate >= figures.FAST_RATE):
        return False
    is_small = (look.cwnd or 0.0) < ALLOWED_WINDOW * look.streams
    return is_small or look.known_rate >= CORE_RATE


def _is_falling(look: Look) -> bool:
    """Whether each interval is slower than the one before, by a tenth in the end."""
    rates = known_rates(look.all_intervals[1:])
    is_sorted = len(rates) > 2 and rates == sorted(rates, reverse=True)
    return is_sorted and rates[-1] < (1 - FALLEN_SHARE) * rates[0]


def may_be_rate_of_host(look: Look) -> bool:
    """Whether a steady rate may be that of a host: in a local network nothing is shaped."""
    return look.run.is_local_network and look.known_rate > SLOWEST_HOST


def _fast_core(look: Look) -> Optional[Hit]:
    """Faster than most paths, uneven, and unimpressed by loss."""
    if is_given(look):
        return None
    if _is_one_thread(look):
        return Hit(
            0.8,
            f"{look.streams} streams carry {amounts.rate(look.known_rate)} together: all streams "
            "of an iperf3 before 3.16 share one thread, and this is what one thread can handle",
            (look.rate_fact, single_fact("streams", look.streams)),
            "iperf3 3.16 or later, several iperf3 on different ports, or iperf 2",
            "tool",
            confidence="medium",
        )
    if not _is_fast_and_uneven(look) or figures.loss_explains(look):
        return None
    return Hit(
        0.6,
        f"{amounts.rate(look.known_rate)} arrive unevenly, and no window follows any loss: at such "
        "rates a CPU core is usually the limit",
        (look.rate_fact,),
        "compare with several streams (-P); check the CPUs of both hosts and of any relay",
        "both",
        confidence="medium",
    )


def _is_one_thread(look: Look) -> bool:
    """Whether so many streams of an iperf3 that has one thread carry as much as one can."""
    if look.run.tool != "iperf3" or look.streams == 1 or look.run.is_threaded:
        return False
    lowest, highest = THREAD_RATES
    return lowest <= look.known_rate <= highest and look.known_loss < LOSSLESS_SHARE


def _is_fast_and_uneven(look: Look) -> bool:
    if look.known_rate < CORE_RATE or not look.cwnd:
        return False
    # Without loss, this is as fast as one core copies within a host: nothing is slow.
    if look.known_rate >= COPY_RATE and look.known_loss < LOSSLESS_SHARE / 10:
        return False
    return look.spread is not None and look.spread >= SHARED_CPU_SPREAD


def _full_cpu(look: Look) -> Optional[Hit]:
    """A CPU of either host is full, and nothing else limits the flow."""
    receiver, sender = look.ends
    end, _, load = max(sender, receiver, key=lambda end: _fullness(end.load))
    if look.run.error and load.own is None:
        return None  # it is not known how much of the CPU was its own
    if load.has_full_cpu and load.is_busy_with_others:
        return _waits_for_cpu(look, end, load) or _note_on_load(
            end,
            load,
            f"other programs kept CPU {load.cpu} of the {end} busy",
            single_fact(f"CPU {load.cpu} busy", load.busy),
        )
    if not load.is_full or not is_unbounded(look):
        return None
    full, suspect = load.full or 0, ""
    confidence: Confidence = "high"
    if load.dominant_use == "user":
        # iperf3 itself hardly computes.
        suspect, confidence = "; another program may be running there", "medium"
    return Hit(
        full * look.known_network_share,
        f"CPU {load.cpu} of the {end} is full {amounts.percent(full)} of the time, mostly with "
        f"{load.dominant_use}{suspect}",
        (
            single_fact(f"CPU {load.cpu} busy", load.busy),
            single_fact(f"CPU {load.cpu} user", load.user),
            single_fact(f"CPU {load.cpu} system", load.system),
            single_fact(f"CPU {load.cpu} softirq", load.softirq),
        ),
        RELIEVE[load.dominant_use],
        end,
        confidence=confidence,
    )


def _fullness(load: Load) -> tuple[bool, float, float]:
    return load.is_full, load.full or 0.0, load.busy or 0.0


def _waits_for_cpu(look: Look, end: str, load: Load) -> Optional[Hit]:
    """The sender has little in flight: it waits for a CPU that others fill.

    By fair scheduling it would get half of it; a program of higher priority leaves it less.
    """
    if look.protocol != "tcp" or has_passed(look) is not False:
        return None
    if not is_mostly_idle(look) or not is_unbounded(look):
        return None
    return Hit(
        look.known_network_share,
        f"other programs kept CPU {load.cpu} of the {end} busy, and left iperf "
        f"{amounts.percent(load.own or 0)} of it: much less was in flight than the windows had "
        "room for",
        (
            single_fact(f"CPU {load.cpu} busy", load.busy),
            single_fact("CPU of iperf", load.own),
            single_fact("in flight, bytes", look.windows.in_flight),
        ),
        "stop them, give them a lower priority (renice), or test on another CPU",
        end,
        confidence="medium",
    )


def _note_on_load(end: str, load: Load, what: str, fact: Fact) -> Hit:
    """The test did not need what others took of that CPU, but it may have waited for it."""
    return Hit(
        0.0,
        f"{what}; iperf used {amounts.percent(load.own or 0)} of one: test again without that load "
        "to be sure",
        (fact, single_fact("CPU of iperf", load.own)),
        end=end,
        confidence="low",
        severity="info",
    )


def stolen_time(look: Look) -> Optional[Hit]:
    for end, _, load in reversed(look.ends):
        stolen = load.steal or 0
        if stolen <= HARMFUL_STEAL:
            continue
        if not load.may_need_stolen_time:
            what = f"the hypervisor took {amounts.percent(stolen)} of a CPU of the {end}"
            return _note_on_load(end, load, what, single_fact("steal", stolen))
        return Hit(
            min(1.0, stolen * 2),
            f"the hypervisor took {amounts.percent(stolen)} of a CPU of the {end}: this result is "
            "not reliable",
            (single_fact("steal", stolen),),
            "ask for dedicated CPUs, or test when the hypervisor is idle",
            end,
        )
    return None
