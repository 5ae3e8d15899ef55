"""D01 to D05 and D36: windows, buffers, the application, and loss that the congestion window answers to."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import (
    FAULT,
    HIGH,
    INFO,
    LIMIT,
    MEDIUM,
    Hit,
    PhaseRule,
    fact,
    sysctl_max,
)
from neuca_tools.selftest.conditions.predict import aim, buffer_for, line_of, mathis, round_rate
from neuca_tools.selftest.evidence import Socket
from neuca_tools.selftest.evidence.look import Fact, Look, data_sockets, steady_sockets

RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"
RECEIVER_LIMITED = (
    0.4  # of the busy time: 0.54 to 0.81 measured on flows at their window (facts, D01)
)
SENDER_LIMITED = 0.2  # 0.26 to 0.32 measured (D03)
AT_WINDOW = 0.9  # of snd_wnd in flight
WRITABLE = (
    2 / 3
)  # of the send buffer: when no more is queued a writer that waits is woken (sk_stream_is_writeable)
MOSTLY = 0.5  # of the looks: a buffer that is full so often is what is waited for (D03)
SLOW_READER = 0.5  # of the receive buffer full (D02)
WAITS = 0.002  # seconds until data is read (D02): 0.1 to 0.2 ms measured with buffers of 16 to 256 KiB, 0.5 s with a slow reader
HOARDS = 0.1  # seconds: so much waits only for a reader that is slower than what comes, however large the buffer
EXPLAINED = 0.25  # of what the buffer lets through in a round trip: 0.4 to 0.7 measured with those, 0.02 with a slow reader
IDLE = 0.5  # of the time nothing on its way (D04)
LOSSY = 1e-5  # of the bytes: less costs no sender anything (D05)
NETWORK = 0.8  # of the time that neither window nor buffer explains (D05)
NO_ROUND_TRIP = 0.8  # the round trip that window and rate imply, against the one measured


def receiver_window(look: Look) -> Optional[Hit]:
    if look.protocol != "tcp" or slow_reader(look) is not None or not look.rate:
        return None
    if look.windows.rwnd_limited is not None:
        full = (
            look.windows.in_flight is None
            or look.windows.snd_wnd is None
            or look.windows.in_flight >= AT_WINDOW * look.windows.snd_wnd
        )
        if look.windows.rwnd_limited >= RECEIVER_LIMITED and full:
            return _window_hit(look, look.windows.rwnd_limited, "receiver", HIGH)
        return None
    if (
        look.windows.snd_wnd
        and look.rtt
        and not look.throughput.retransmits
        and not _at_line(look)
        and look.rate * look.rtt / 8 >= AT_WINDOW * look.windows.snd_wnd
    ):
        return _window_hit(look, 0.9, "receiver", HIGH)
    return None


def flat_window(look: Look) -> Optional[Hit]:
    """Without the kernel's clocks: a window that stays the same, no loss, and a rate that is window over round trip."""
    if (
        look.protocol != "tcp"
        or look.windows.rwnd_limited is not None
        or (look.windows.snd_wnd and look.rtt)
    ):
        return None
    if (
        look.throughput.retransmits
        or not look.rate
        or len(look.throughput.rates) < 2
        or _at_line(look)
    ):
        return None
    if (
        not look.windows.flat
        or not look.windows.cwnd
        or look.flow is None
        or look.flow.sent.retransmits
    ):
        return None
    if look.rtt and look.windows.cwnd * 8 / look.rate > look.rtt / NO_ROUND_TRIP:
        return None  # the window is larger than what is on its way: it is not what holds the flow
    return _window_hit(look, 0.8, "both", MEDIUM)


def _at_line(look: Look) -> bool:
    return bool(look.rate and line_of(look.rate))


def _window_hit(look: Look, share: float, end: str, confidence: str) -> Hit:
    rate = look.rate or 0.0
    window = (
        (look.windows.snd_wnd if end == "receiver" else None)
        or look.windows.cwnd
        or rate * (look.rtt or 0) / 8
    )
    rtt = look.rtt or window * 8 / rate
    wanted = max(aim(rate, look.evidence.expect), rate)
    room = buffer_for(wanted, rtt)
    facts = _window_facts(look)
    if end == "receiver":
        text = (
            f"the receiver's window of {amounts.size(window)} lets through {amounts.rate(window * 8 / rtt)} at a round trip "
            f"of {amounts.time(rtt)}"
        )
        return Hit(
            share,
            text,
            facts,
            end=end,
            confidence=confidence,
            fixed=room * 4 / rtt,
            sysctls={RMEM: f"4096 131072 {room}"},
        )
    text = (
        f"the window stays at {amounts.size(window)} without any loss: a buffer's cap, at a round trip of "
        f"{amounts.time(rtt)} if that is the path's; which end's is not known"
    )
    if rate > 5e9:
        text += (
            f"; the path's capacity is not proven: run again with buffers of {amounts.size(room)}, and only if the rate "
            "stays is it the link"
        )
    return Hit(
        share,
        text,
        facts,
        end="both",
        confidence=confidence,
        fixed=room * 4 / rtt,
        sysctls={RMEM: f"4096 131072 {room}", WMEM: f"4096 16384 {room}"},
    )


def _window_facts(look: Look) -> tuple[Fact, ...]:
    facts = [
        Fact("rwnd_limited / busy_time", after=look.windows.rwnd_limited),
        Fact("snd_wnd", after=look.windows.snd_wnd),
        Fact("snd_cwnd", after=look.windows.cwnd),
        Fact("unacked × mss", after=look.windows.in_flight),
        Fact("rtt", after=look.rtt),
    ]
    return _known(facts)


def _known(facts: list[Fact]) -> tuple[Fact, ...]:
    return tuple(one for one in facts if one.after is not None)


def slow_reader(look: Look) -> Optional[Hit]:
    """The window is small because the application does not empty the buffer."""
    if look.protocol != "tcp" or look.windows.rwnd_limited is None:
        return None
    sockets = _reading_sockets(look)
    fill = _middle([(one.recv_q or 0) / (one.rcvbuf or 1) for one in sockets])
    zero = look.receiver_fact("TcpExt.TCPToZeroWindowAdv")
    waits = 0.0
    if look.rate:
        waits = _middle([one.recv_q or 0 for one in sockets]) * 8 / look.rate
    if look.windows.rwnd_limited < RECEIVER_LIMITED and waits < HOARDS:
        return None
    waiting = waits >= HOARDS or (waits >= WAITS and fill > SLOW_READER)
    if not waiting and (zero is None or _explained(look, sockets)):
        return None
    facts = [fact("rwnd_limited / busy_time", look.windows.rwnd_limited), fact("Recv-Q / rb", fill)]
    text = (
        f"the receiving application is slow: {amounts.percent(fill)} of its buffer waits to be read"
    )
    severity = None
    if look.receiver_load.is_full:  # reading as fast as that host can is no fault
        text += f", and its CPU {look.receiver_load.cpu} is full"
        severity = LIMIT
    # A reader that never catches up is what everything waits for.
    share = look.windows.rwnd_limited if waits < HOARDS else 1.0
    return Hit(
        share,
        text,
        tuple([*facts, zero] if zero else facts),
        "look at what the receiver does with the data: its CPU, its disk; larger "
        "buffers do not help",
        "receiver",
        severity=severity,
    )


def _reading_sockets(look: Look) -> list[Socket]:
    """The receiver's data connections at every look after the first, as far as their queue is known."""
    every = (data_sockets(sample, look.phase) for sample in look.phase.receiver[1:])
    return [one for sockets in every for one in sockets if one.recv_q is not None and one.rcvbuf]


def _middle(values: Sequence[float]) -> float:
    """The upper median; 0 of nothing."""
    return sorted(values)[len(values) // 2] if values else 0.0


def _explained(look: Look, sockets: Sequence[Socket]) -> bool:
    """Whether the receive buffer is so small that its reader need not be slow when the window closes: one burst fills it."""
    room = (
        max((one.rcvbuf or 0 for one in sockets), default=0) / 2
    )  # the other half is the kernel's own (tcp_adv_win_scale)
    return bool(room and look.rate and look.rtt and look.rate * look.rtt / 8 >= EXPLAINED * room)


def sender_buffer(look: Look) -> Optional[Hit]:
    """The kernel's clock runs only while nothing waits to be sent (tcp_cwnd_validate in net/ipv4/tcp_output.c): a writer in
    large pieces may never let it. What is queued at each look tells then."""
    if look.protocol != "tcp" or look.windows.sndbuf_limited is None or not look.rate:
        return None
    share = (
        look.windows.sndbuf_limited
        if look.windows.sndbuf_limited >= SENDER_LIMITED
        else _queued_full(look)
    )
    limit = sysctl_max(look.sender, WMEM)
    sizes = [
        one.sndbuf
        for sample in look.phase.sender
        for one in data_sockets(sample, look.phase)
        if one.sndbuf
    ]
    if not share or (limit and sizes and max(sizes) < AT_WINDOW * limit):
        return None
    rtt = look.rtt or look.round_trip.shortest
    room = buffer_for(max(aim(look.rate, look.evidence.expect), look.rate), rtt) if rtt else None
    facts = [
        fact("sndbuf_limited / busy_time", look.windows.sndbuf_limited),
        Fact("tb", after=max(sizes, default=None)),
        Fact(f"{WMEM} maximum", after=limit),
    ]
    text = (
        f"the sender's buffer{' of ' + amounts.size(max(sizes)) if sizes else ''} is full: it waits for acknowledgements "
        f"{amounts.percent(share)} of the time"
    )
    return Hit(
        share,
        text,
        _known(facts),
        end="sender",
        fixed=room * 4 / rtt if room and rtt else None,
        sysctls={WMEM: f"4096 16384 {room}"} if room else {},
    )


def _queued_full(look: Look) -> float:
    """The share of the looks at which the send buffer was full, where neither of the windows was."""
    window = min(look.windows.cwnd or 0.0, look.windows.snd_wnd or 0.0)
    known = [one for one in steady_sockets(look) if one.sndbuf and one.wmem_queued is not None]
    sent = known and all(
        one.app_limited for one in known
    )  # all that the buffer holds: it has filled the window by chance
    if not sent and (
        not window or look.windows.in_flight is None or look.windows.in_flight >= AT_WINDOW * window
    ):
        return 0.0
    full = sum((one.wmem_queued or 0) >= WRITABLE * (one.sndbuf or 0) for one in known)
    return look.left * full / len(known) if known and full >= MOSTLY * len(known) else 0.0


def application(look: Look) -> Optional[Hit]:
    if (
        look.protocol != "tcp"
        or look.windows.idle_share is None
        or look.sender_load.is_full
        or not look.rate
    ):
        return None
    if look.windows.idle_share < IDLE:
        return _starved(look)
    text = (
        f"nothing was on its way {amounts.percent(look.windows.idle_share)} of the time: "
        "the sending application had nothing to send"
    )
    severity = INFO if _as_asked(look) else None
    return Hit(
        look.windows.idle_share,
        text,
        (fact("1 - busy_time / time", look.windows.idle_share),),
        "look at what the sender reads from, and whether a rate was asked for (-b)",
        "sender",
        severity=severity,
    )


def _starved(look: Look) -> Optional[Hit]:
    """Something is always on its way, and it is little: whoever sends small pieces waits for more of them, not for an answer."""
    known = [
        one
        for one in steady_sockets(look)
        if one.app_limited is not None and one.sndbuf and one.wmem_queued is not None
    ]
    window = min(look.windows.cwnd or 0.0, look.windows.snd_wnd or 0.0)
    if (
        not known
        or look.windows.in_flight is None
        or look.windows.in_flight > IDLE * window
        or look.left < NETWORK
    ):
        return None
    if not all(
        one.app_limited and (one.wmem_queued or 0) < WRITABLE * (one.sndbuf or 0) for one in known
    ):
        return None
    text = f"{amounts.size(look.windows.in_flight)} of a window of {amounts.size(window)} were on their way, and nothing waited"
    return Hit(
        look.left,
        f"{text}: the sending application had nothing to send",
        (fact("app_limited", "at every look"),),
        "look at what the sender reads from, and whether a rate was asked for (-b)",
        "sender",
        MEDIUM,
        severity=INFO if _as_asked(look) else None,
    )


def _as_asked(look: Look) -> bool:
    asked = look.phase.target or (look.phase.run.target if look.phase.run else None)
    return bool(asked and look.rate and look.rate >= 0.95 * asked)


def loss_limited(look: Look) -> Optional[Hit]:
    """A symptom: the conditions of `loss` say where it is lost, and go before it."""
    if (
        look.protocol != "tcp"
        or look.left < NETWORK
        or not look.loss
        or look.loss <= LOSSY
        or not look.rate
    ):
        return None
    if look.is_full or sender_buffer(look) is not None:  # what is sent in bursts overflows queues
        return None
    facts = [
        fact("bytes_retrans / bytes_sent", look.loss),
        Fact("retransmits", after=look.throughput.retransmits),
    ]
    rtt = look.rtt or (look.windows.cwnd * 8 / look.rate if look.windows.cwnd else None)
    text = f"{amounts.percent(look.loss)} of what was sent was lost and sent again; the congestion window follows the loss"
    if rtt:
        ceiling = mathis(look.windows.mss or 1448, rtt, look.loss)
        if look.rate < ceiling / 2:
            return None  # so little loss cannot hold it back so much
        facts.append(fact("Mathis limit, bit/s", round(ceiling)))
    near = round_rate(max(look.throughput.rates, default=0.0))
    if near:
        text += f"; the best interval is just below {amounts.rate(near)}"
    advice = (
        "find where it is lost: nstat, tc -s qdisc and ethtool -S of both ends; pace below the path's rate: tc qdisc "
        "replace dev DEV root fq maxrate RATE"
    )
    return Hit(
        look.left, text, tuple(facts), advice, "path", MEDIUM if look.network is None else HIGH
    )


def buffers_not_applied(look: Look) -> Optional[Hit]:
    run = look.phase.run
    if run is None or not run.buffer:
        return None
    for name, got, setting, end in (
        ("sndbuf_actual", run.sndbuf, "net.core.wmem_max", "sender"),
        ("rcvbuf_actual", run.rcvbuf, "net.core.rmem_max", "receiver"),
    ):
        if (
            got is not None and got < 2 * run.buffer
        ):  # the kernel doubles what is asked for (socket(7))
            text = f"-w asked for {amounts.size(run.buffer)}, and the kernel gave {amounts.size(got / 2)}"
            return Hit(
                0.5,
                text,
                (fact("-w", run.buffer), fact(name, got)),
                end=end,
                sysctls={setting: str(int(run.buffer))},
            )
    return None


WINDOW = (
    PhaseRule("D01", "receive window too small", LIMIT, receiver_window),
    PhaseRule("D01", "receive or send buffer too small", LIMIT, flat_window),
    PhaseRule("D02", "receiving application too slow", FAULT, slow_reader),
    PhaseRule("D03", "send buffer too small", LIMIT, sender_buffer),
    PhaseRule("D04", "sending application has nothing to send", LIMIT, application),
    PhaseRule("D05", "limited by loss", LIMIT, loss_limited),
    PhaseRule("D36", "buffers not applied", FAULT, buffers_not_applied),
)
