"""Evidence for the tests of the self-test: published runs in iperf's form, and small series of samples with a known cause.

The figures of the published runs are those of ExoGENI's article "Lies, damn lies, and iperf" (2017) on tuning guests: rates in
Gbit/s, windows in MiB, retransmits, datagrams lost and sent. The forms are those of the programs.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

from neuca_tools.selftest.conditions.base import sysctl_command
from neuca_tools.selftest.diagnosis import diagnose as product
from neuca_tools.selftest.evidence import Cpu, Evidence, Phase, Sample, Socket
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.evidence.run import Flow, Interval, Run, Total

MIB = 2**20
ENDS = {"sender", "receiver", "local", "peer", "both", "path", "tool"}


def diagnose(evidence: Evidence) -> product.Diagnosis:
    """The diagnosis, of which each finding is whole."""
    diagnosis = product.diagnose(evidence)
    for finding in (*diagnosis.findings, *diagnosis.possible):
        is_info = finding.severity == "info"
        assert 0 <= finding.share <= 1
        assert finding.end in ENDS
        assert finding.severity in ("fault", "limit", "info")
        assert finding.confidence in ("high", "medium", "low")
        assert finding.direction in (None, "forward", "reverse", "both")
        assert finding.text
        assert "{" not in finding.text + finding.advice
        assert finding.evidence, finding
        assert all(fact.field and fact.after is not None for fact in finding.evidence)
        assert finding.advice or is_info, finding
        assert finding.advice.startswith(sysctl_command(finding.sysctls))
        assert "sysctls" not in encode(finding), "the report has the command in its advice"
    return diagnosis


def tcp_text(rates, windows, retransmits=(0,) * 6) -> bytes:
    """iperf3 -t 60 -i 10, of CentOS 6."""
    lines = [
        "$ iperf3 -t 60 -i 10 -c 172.16.0.1",
        "Connecting to host 172.16.0.1, port 5201",
        "[  4] local 172.16.0.2 port 50279 connected to 172.16.0.1 port 5201",
        "[ ID] Interval           Transfer     Bandwidth       Retr  Cwnd",
    ]
    each = enumerate(zip(rates, windows, retransmits))
    lines += [
        f"[  4] {at * 10:5.2f}-{at * 10 + 10:.2f} sec  {rate * 10e9 / 8 / 2**30:.2f} GBytes  {rate} Gbits/sec  {retr}  "
        f"{window} MBytes"
        for at, (rate, window, retr) in each
    ]
    mean = sum(rates) / 6
    for end in (f"{sum(retransmits)}  sender", "receiver"):
        lines.append(
            f"[  4]  0.00-60.00 sec  {mean * 60e9 / 8 / 2**30:.1f} GBytes  {mean:.2f} Gbits/sec  {end}"
        )
    return ("\n".join(lines) + "\n").encode()


def udp_text(asked: str, rate: float, lost: int, sent: int) -> bytes:
    """iperf3 -u, of CentOS 6: datagrams of 8 KiB, one line for both ends."""
    amount = rate * 10e9 / 8 / 2**30
    lines = [
        f"$ iperf3 -t 60 -i 10 -c 172.16.0.1 -u -b {asked}",
        "Connecting to host 172.16.0.1, port 5201",
        "[  4] local 172.16.0.2 port 37348 connected to 172.16.0.1 port 5201",
        "[ ID] Interval           Transfer     Bandwidth       Total Datagrams",
    ]
    lines += [
        f"[  4] {at:5.2f}-{at + 10:.2f} sec  {amount:.3f} GBytes  {rate} Gbits/sec  {sent // 6}"
        for at in range(0, 60, 10)
    ]
    share = f"{lost}/{sent} ({lost / sent:.2%})"
    lines.append(
        "[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams"
    )
    lines.append(
        f"[  4]  0.00-60.00 sec  {sent * 8192 / 2**30:.3f} GBytes  {rate} Gbits/sec  0.004 ms  {share}"
    )
    lines.append(f"[  4] Sent {sent} datagrams")
    return ("\n".join(lines) + "\n").encode()


PUBLISHED = {
    "vm-untuned-tcp": tcp_text((1.46, 1.63, 1.50, 1.47, 1.65, 1.53), (3.05,) * 6),
    "vm-tuned-tcp": tcp_text(
        (2.79, 4.21, 4.21, 4.10, 4.52, 4.84),
        (8.97, 12.0, 7.02, 12.0, 7.73, 6.20),
        (0, 0, 434, 0, 1717, 2247),
    ),
    "metal-untuned-tcp": tcp_text((1.54, 1.65, 1.65, 1.65, 1.65, 1.65), (2.56,) * 6),
    "metal-tuned-tcp": tcp_text((7.21, 7.40, 7.40, 7.41, 7.40, 7.39), (12.0,) * 6),
    "vm-untuned-udp-100M": udp_text("100M", 0.105, 25208, 95844),
    "vm-tuned-udp-100M": udp_text("100M", 0.105, 0, 95844),
    "vm-untuned-udp-4000M": udp_text("4000M", 4.06, 2354862, 3720471),
    "vm-tuned-udp-4000M": udp_text("4000M", 4.16, 2549105, 3812619),
    "metal-untuned-udp-4000M": udp_text("4000M", 4.19, 983521, 3837222),
    "metal-tuned-udp-4000M": udp_text("4000M", 4.19, 1, 3836174),
    "metal-tuned-udp-7000M": udp_text("7000M", 7.34, 1, 6716055),
}


def series(last: Socket, seconds: int, counters=None, cpus=()) -> tuple[Sample, ...]:
    """A look each second; what counts grows evenly up to `last`, everything else stays."""
    growing = "busy_time rwnd_limited sndbuf_limited bytes_sent bytes_retrans bytes_acked".split()
    found = []
    for second in range(seconds + 1):
        part = second / seconds
        grown = {
            name: int(part * getattr(last, name))
            for name in growing
            if getattr(last, name) is not None
        }
        counted = {
            name: int(before + part * (after - before))
            for name, (before, after) in (counters or {}).items()
        }
        busy = tuple(
            Cpu(
                user=0.1 * second * share,
                system=0.3 * second * share,
                softirq=0.6 * second * share,
                idle=second * (1 - share),
            )
            for share in cpus
        )
        sockets = () if last == Socket() else (replace(last, **grown),)
        found.append(Sample(float(second), sockets, busy, counted))
    return tuple(found)


SECONDS = 10
BUSY = SECONDS * 1_000_000


def flow_of(
    rate: float, rwnd=0.0, sndbuf_limited=0.0, idle=0.0, retrans=0.0, **socket
) -> tuple[Sample, ...]:
    """The sender's samples of a TCP flow at `rate` bit/s: shares of the time, share of the bytes that went twice."""
    counters = socket.pop("counters", None)
    cpus = socket.pop("cpus", (0.2, 0.1))
    sent = int(rate / 8 * SECONDS)
    busy = BUSY * (1 - idle)
    last = Socket(
        mss=1448,
        busy_time=int(busy),
        rwnd_limited=int(busy * rwnd),
        sndbuf_limited=int(busy * sndbuf_limited),
        bytes_sent=sent,
        bytes_retrans=int(sent * retrans),
        bytes_acked=sent,
        **socket,
    )
    return series(last, SECONDS, counters, cpus)


def receiver(counters=None, cpus=(0.2, 0.1), **socket) -> tuple[Sample, ...]:
    return series(Socket(**socket), SECONDS, counters, cpus)


def tcp(sender, heard=(), name="tcp", direction="forward", **facts) -> Evidence:
    """Evidence of one TCP phase."""
    phase = Phase(
        name, None, direction, None, sender, heard or receiver(), path=facts.pop("path", None)
    )
    return Evidence(phases=(phase,), **facts)


def udp_phase(
    asked: float, sent: float, got: float, counters=None, out_of_order=0, datagram=1448, seen=True
) -> Phase:
    """A UDP phase of ten seconds at those rates, bit/s."""
    count, arrived = (int(rate * SECONDS / 8 / datagram) for rate in (sent, got))
    halves = (Interval(0, 5, rate=sent), Interval(5, 10, rate=sent))
    flow = Flow(
        "forward",
        halves,
        Total(10.0, sent * 10 / 8, sent, datagrams=count),
        Total(10.0, got * 10 / 8, got, None, count, count - arrived, out_of_order),
    )
    run = Run(
        "iperf3", "3.12", "udp", (flow,), streams=1, duration=10.0, target=asked, datagram=datagram
    )
    return Phase(
        "udp",
        run,
        target=asked,
        sender=receiver() if seen else (),
        receiver=receiver(counters) if seen else (),
    )


# A flow at 160 Mbit/s over 100 ms, as much as its congestion window of 2 MB permits.
HELD = {
    "rtt": 100_000,
    "min_rtt": 100_000,
    "snd_cwnd": 1400,
    "unacked": 1390,
    "snd_wnd": 30_000_000,
}


def between(before, after, part: float):
    """What counts is as far as that part of the way; everything else is as it was before."""
    if is_dataclass(before):
        names = [field.name for field in fields(before) if field.name in COUNTS]
        changes = {
            name: between(getattr(before, name), getattr(after, name), part) for name in names
        }
        return replace(before, **changes)
    if isinstance(before, tuple):
        return tuple(between(*pair, part) for pair in zip(before, after))
    return before if before is None else before + type(before)(part * (after - before))


COUNTS = {"sockets", "cpus", *(field.name for field in fields(Cpu))}
COUNTS |= set("busy_time rwnd_limited sndbuf_limited bytes_sent bytes_retrans bytes_acked".split())


def observed(
    evidence: Evidence, times, rtt=None, in_flight=None, retransmits=None, sent=None
) -> Evidence:
    """With samples of the sender at these times, which begin with the first one's.

    Columns are seconds, bytes, segments that were sent again and bit/s acknowledged since the time before.
    All else, and what is None, is as it was.
    """
    (phase,) = evidence.phases
    base, samples, again, acked = phase.sender, [], 0, 0.0
    for at, time in enumerate(times):
        last = max(0, sum(sample.time <= time for sample in base) - 1)
        after = base[min(last + 1, len(base) - 1)]
        part = min(1.0, time - base[last].time)
        sample = between(base[last], after, part)
        (socket,) = sample.sockets
        if rtt and rtt[at] is not None:
            socket = replace(socket, rtt=round(rtt[at] * 1e6))
        if in_flight and in_flight[at] is not None:
            socket = replace(socket, unacked=round(in_flight[at] / socket.mss))
        if retransmits:
            again += int(retransmits[at])
            socket = replace(socket, total_retrans=again)
        if sent:
            acked += sent[at] / 8 * (time - times[max(0, at - 1)])
            socket = replace(socket, bytes_acked=int(acked))
        samples.append(replace(sample, time=time, sockets=(socket,)))
    return replace(evidence, phases=(replace(phase, sender=tuple(samples)),))


def traced(evidence: Evidence, losses) -> Evidence:
    """With the sender's samples of HELD; {seconds: (round trip, bytes in flight, segments)} where something was lost."""
    times = tuple(at / 10 for at in range(101))
    return observed(evidence, times, *zip(*(losses.get(time, (None, None, 0)) for time in times)))


def bbr_flow(**socket) -> Evidence:
    """A flow of BBR; twice the path's content is its window."""
    window = {**HELD, "snd_cwnd": 2800, **socket}
    return tcp(flow_of(160e6, congestion="bbr", **window), expect=1e9)


def beside_others(evidence: Evidence, own: float) -> Evidence:
    """While other programs keep the sender's CPU full, and leave this share of it to iperf."""
    (phase,) = evidence.phases
    run = Run("iperf3", protocol="tcp", cpu_local=own * 100, cpu_remote=3.0)
    sender = tuple(replace(each, cpus=(Cpu(user=each.time),)) for each in phase.sender)
    return replace(evidence, phases=(replace(phase, run=run, sender=sender),))


def lossy_datagrams(losses, direction="forward") -> Phase:
    """A UDP phase at 10 Mbit/s of 863 datagrams a second, of which so many were lost in each."""
    phase = udp_phase(1e7, 1e7, 1e7)
    (flow,) = phase.run.flows
    seconds = tuple(
        Interval(at, at + 1, rate=1e7, lost=lost, datagrams=863) for at, lost in enumerate(losses)
    )
    flow = replace(
        flow,
        direction=direction,
        intervals=seconds,
        received=replace(flow.received, lost=sum(losses)),
    )
    return replace(phase, direction=direction, run=replace(phase.run, flows=(flow,)))
