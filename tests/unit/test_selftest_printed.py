"""What iperf alone printed: each rule on a run with that cause, and on a healthy one like it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from selftest_runs import diagnose

from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.selftest.report.text import report_text

WAN = ("198.51.100.7", "203.0.113.20")
LAN = ("10.20.0.8", "10.20.0.9")


def text(
    rates,
    cwnds=None,
    retransmits=None,
    ends=LAN,
    command="",
    header=(),
    cpu=None,
    summary=True,
    total=None,
) -> str:
    """A run of iperf3: Mbit/s and KBytes of each second."""
    local, remote = ends
    lines = [f"$ iperf3 {command}"] if command else []
    lines += [
        *header,
        f"Connecting to host {remote}, port 5201",
        f"[  5] local {local} port 41000 connected to {remote} port 5201",
        "[ ID] Interval           Transfer     Bitrate         Retr  Cwnd",
    ]
    counts = retransmits or [0] * len(rates)
    for at, rate in enumerate(rates):
        window = f"{counts[at]:5}   {cwnds[at]} KBytes" if cwnds else ""
        lines.append(_row(at, at + 1, rate, window))
    mean = sum(rates) / len(rates)
    again = sum(counts) if total is None else total
    if summary:
        lines += ["- - - - - - - - - - - - - - -", "[ ID] Interval  Transfer  Bitrate  Retr"]
        count = again if cwnds or total is not None else ""
        lines.append(_row(0, len(rates), mean, f"{count}   sender"))
        lines.append(_row(0, len(rates), mean, "receiver"))
    if cpu:
        lines.append(
            f"CPU Utilization: local/sender {cpu[0]}% (1.0%u/1.0%s), "
            f"remote/receiver {cpu[1]}% (1.0%u/1.0%s)"
        )
    return "\n".join(lines) + "\n"


def _row(start, end, rate, rest) -> str:
    size = rate * 1e6 / 8 * (end - start) / 2**20
    return f"[  5] {start:6.2f}-{end:<6.2f} sec  {size:.2f} MBytes  {rate:.1f} Mbits/sec  {rest}"


def blocks(counts) -> str:
    """What iperf writes in each second, in blocks of 128 KiB."""
    row = "[  3] {:4.1f}-{:4.1f} sec  {} KBytes  {:.3f} Mbits/sec\n"
    head = f"[  3] local {WAN[0]} port 1052 connected with {WAN[1]} port 5001\n"
    return head + "".join(
        row.format(at, at + 1, 128 * count, 1.048576 * count) for at, count in enumerate(counts)
    )


def by_five_seconds(content: str) -> str:
    """The same text, its intervals five times as long."""
    for at in reversed(range(content.count(" sec "))):
        content = content.replace(f"{at}.00-{at + 1}.00 ", f"{5 * at}.00-{5 * at + 5}.00 ")
    return content


def document(rates, rtts, cwnd=6_000_000, snd_wnd=None, retransmits=None, cpu=(4.0, 3.0), **asked):
    """The same as JSON: Mbit/s and milliseconds of each second; `cwnd` in bytes, or of each."""
    counts = retransmits or [0] * len(rates)
    windows = cwnd if isinstance(cwnd, list) else [cwnd] * len(rates)
    intervals = []
    for at, (rate, rtt) in enumerate(zip(rates, rtts)):
        one = {
            "start": at,
            "end": at + 1,
            "seconds": 1,
            "bytes": rate * 1e6 / 8,
            "bits_per_second": rate * 1e6,
            "retransmits": counts[at],
            "sender": True,
        }
        stream = {**one, "snd_cwnd": windows[at], "snd_wnd": snd_wnd, "rtt": rtt * 1000}
        intervals.append({"streams": [stream], "sum": one})
    mean = sum(rates) / len(rates) * 1e6
    total = {"seconds": len(rates), "bytes": mean / 8 * len(rates), "bits_per_second": mean}
    ends = {"local_host": WAN[0], "local_port": 41000, "remote_host": WAN[1], "remote_port": 5201}
    return json.dumps(
        {
            "start": {
                "connected": [ends],
                "version": "iperf 3.12",
                "test_start": {"protocol": "TCP", "num_streams": 1, **asked},
            },
            "intervals": intervals,
            "end": {
                "sum_sent": {**total, "retransmits": sum(counts)},
                "sum_received": total,
                "cpu_utilization_percent": {"host_total": cpu[0], "remote_total": cpu[1]},
            },
        }
    )


def udp(arriving, offered, ends=LAN, size=1448) -> str:
    """A server's rows: Mbit/s that arrived and that were sent in each second."""
    lines = [
        f"Accepted connection from {ends[0]}, port 41000",
        "[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams",
    ]
    for at, (got, sent) in enumerate(zip(arriving, offered)):
        count = int(sent * 1e6 / 8 / size)
        lost = int(count * (1 - got / sent))
        lines.append(_row(at, at + 1, got, f"0.030 ms  {lost}/{count} ({lost / count:.1%})"))
    return "\n".join(lines) + "\n"


def udp_silence(start, end) -> str:
    """A server's rows without a datagram."""
    return "".join(_row(at, at + 1, 0, "0.030 ms  0/0 (0%)") + "\n" for at in range(start, end))


def told(content: str) -> Diagnosis:
    return diagnose(evidence_of(content.encode()))


def causes(content: str) -> list[str]:
    """Of findings and of what is merely possible."""
    diagnosis = told(content)
    claims = [one for one in diagnosis.findings if one.severity != "info"]
    return [one.id for one in (*claims, *diagnosis.possible)]


BOTH_SUMS = """$ iperf -c 10.20.0.9 -w 128K -d
[  5]  0.0-60.0 sec  1.02 GBytes   146 Mbits/sec
[  4]  0.0-60.0 sec  2.71 GBytes   388 Mbits/sec
"""
SMALL_DATAGRAMS = """$ iperf -c 10.20.0.9 -u -l 64 -b 1500m
Client connecting to 10.20.0.9, UDP port 5001
Sending 64 byte datagrams
[  5] local 10.20.0.8 port 41000 connected with 10.20.0.9 port 5001
[  5]  0.0-10.0 sec  75.9 MBytes  63.7 Mbits/sec
[  5] Sent 1244000 datagrams
[  5] Server Report:
[  5]  0.0-10.0 sec  15.9 MBytes  13.3 Mbits/sec  1.198 ms 983300/1243999 (79%)
"""
CPU_OF_STREAMS = """[SUM]   0.00-30.00  sec  80.4 GBytes  23.0 Gbits/sec    0             sender
[SUM]   0.00-30.04  sec  80.4 GBytes  23.0 Gbits/sec                  receiver
CPU Utilization: local/sender 99.7% (1.0%u/98.7%s), remote/receiver 84.9% (3.9%u/81.0%s)
"""
SAWTOOTH = [310, 330, 350, 180, 200, 220, 240, 130, 150, 170]
EVEN = [0.8, 1, 1.2, 1, 0.9, 1.1, 1, 1.2, 0.8, 1]
UNEVEN = [rate * 300 for rate in EVEN]
BLACK_HOLE = text([0.6, 0, 0, 0, 0], [1.41] * 5, [2, 1, 1, 0, 1], WAN)
SLOW_LINK = text([3.3, 0, 0, 0, 0], [33.9] * 5, [0, 1, 0, 0, 0], WAN)
UDP_SLOW = """$ iperf3 -c 203.0.113.20 -u -b 20M
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-5.00   sec  11.9 MBytes  20.0 Mbits/sec  0.000 ms  0/8620 (0%)  sender
[  5]   0.00-5.03   sec  8.33 MBytes  13.9 Mbits/sec  0.455 ms  2580/8620 (30%)  receiver
"""
IPERF2_WINDOW = """Client connecting to 203.0.113.20, TCP port 5001
TCP window size: 96.0 KByte (WARNING: requested 48.0 KByte)
[  3] local 198.51.100.7 port 41000 connected with 203.0.113.20 port 5001
[  3]  0.0-10.1 sec  14.8 MBytes  12.3 Mbits/sec
"""
BIDIR_ROWS = """Connecting to host 203.0.113.20, port 5201
[  5] local 198.51.100.7 port 41000 connected to 203.0.113.20 port 5201
[  7] local 198.51.100.7 port 41002 connected to 203.0.113.20 port 5201
[ ID][Role] Interval           Transfer     Bitrate         Retr  Cwnd
{}"""


def _role_row(at, rate) -> str:
    """The same rate in both directions of --bidir."""
    row = _row(at, at + 1, rate, "")
    return (
        row.replace("]", "][TX-C]") + "   0   3.17 MBytes\n" + row.replace("5]", "7][RX-C]") + "\n"
    )


TWO_LIMITERS = "$ iperf3 -c 203.0.113.20\n" + text(
    [43, 39.9, 40.1, 40.0, 39.8, 40.2, 40.1], [700 + 160 * at for at in range(7)], ends=WAN
)
TWO_LIMITERS += "$ iperf3 -c 203.0.113.20 -R\n" + text(
    [14.1, 7.35, 7.34, 7.36, 7.33, 7.35, 7.35], ends=WAN, total=640
).replace("port 41000", "port 41002")
BIDIR = """Connecting to host 10.20.0.9, port 5201
[  5] local 10.20.0.8 port 41000 connected to 10.20.0.9 port 5201
[  7] local 10.20.0.8 port 41002 connected to 10.20.0.9 port 5201
[ ID][Role] Interval           Transfer     Bitrate         Retr
[  5][TX-C]   0.00-10.00  sec  {there} MBytes   {there} Mbits/sec    9             sender
[  5][TX-C]   0.00-10.00  sec  {there} MBytes   {there} Mbits/sec                  receiver
[  7][RX-C]   0.00-10.00  sec  {back} MBytes   {back} Mbits/sec    4             sender
[  7][RX-C]   0.00-10.00  sec  {back} MBytes   {back} Mbits/sec                  receiver
"""

NO_CONGESTION = (
    "iperf3: error - unable to set TCP_CONGESTION: "
    "Supplied congestion control algorithm not supported on this host\n"
)
NO_BUFFERS = "iperf3: error - socket buffer size not set correctly\n"
IPERF2_FIRST_TRIP = """TCP window size: 15.3 MByte (WARNING: requested 7.63 MByte)
[  1] local 10.0.0.1 port 41000 connected with 10.0.0.2 port 5001 (icwnd/mss/irtt=14/1448/180400)
""" + "".join(
    f"[  1] {at}.0000-{at + 1}.0000 sec  {rate / 8.389:.1f} MBytes  {rate} Mbits/sec\n"
    for at, rate in enumerate([170, 640, 690, 710, 675, 700, 680])
)
ONE_THREAD = """$ iperf3 -c 10.20.0.9 -P 12 -t 30
[SUM]   0.00-30.00  sec   119 GBytes  34.1 Gbits/sec    0             sender
[SUM]   0.00-30.00  sec   119 GBytes  34.1 Gbits/sec                  receiver
"""
NO_REPORT = """Client connecting to 203.0.113.20, UDP port 5001
[  3] local 198.51.100.7 port 41000 connected with 203.0.113.20 port 5001
[  3]  0.0-10.0 sec  1.25 MBytes  1.05 Mbits/sec
[  3] Sent 893 datagrams
[  3] WARNING: did not receive ack of last datagram after 10 tries.
"""
# A server of iperf 2 that ran all the time, and three clients one after the other.
ONE_BY_ONE = "Server listening on TCP port 5001\n" + "".join(
    f"[  {at}] local 10.20.0.9 port 5001 connected with 10.20.0.8 port {41000 + at}\n"
    f"[  {at}]  0.0-10.0 sec  1.10 GBytes  {rate} Mbits/sec\n"
    for at, rate in ((4, 943), (5, 941), (6, 942))
)
THERE_AND_BACK = "".join(
    f"[  3] local {ends[0]} port 41000 connected with {ends[1]} port 5001\n"
    f"[  3]  0.0-10.0 sec  {rate * 1.192:.1f} MBytes  {rate} Mbits/sec\n\n"
    for ends, rate in ((LAN, 36.6), (LAN[::-1], 708))
)


def of_streams(rates, count=30, windows=0.33, retransmits=None) -> str:
    """A run of many streams without its header: Mbit/s of all of them, MBytes of each window."""
    counts, lines = retransmits or [0] * len(rates), []
    for at, rate in enumerate(rates):
        for name in range(count):
            again = counts[at] if name == 0 else 0
            row = _row(at, at + 1, rate / count, f"{again}   {windows + 0.01 * at:.2f} MBytes")
            lines.append(row.replace("[  5]", f"[{5 + 2 * name:3}]"))
        lines.append(_row(at, at + 1, rate, str(counts[at])).replace("[  5]", "[SUM]"))
    return "\n".join(lines) + "\n"


def with_congestion(name, content) -> str:
    run = json.loads(content)
    run["end"]["sender_tcp_congestion"] = name
    return json.dumps(run)


def scattered(losses, sent=2140) -> str:
    """A server's rows of 20 Mbit/s, and how many datagrams were lost in each second."""
    rows = [
        _row(at, at + 1, 20, f"0.05 ms  {lost}/{sent} (0.6%)") for at, lost in enumerate(losses)
    ]
    return "\n".join(["Accepted connection from 198.51.100.7, port 41000", *rows, ""])


def means(*rows) -> str:
    """The last lines alone: seconds, Mbit/s, retransmits or None, and which end counted."""
    lines = ["[ ID] Interval           Transfer     Bitrate         Retr"]
    for name, seconds, rate, again, end in rows:
        count = "" if again is None else again
        lines.append(_row(0, seconds, rate, f"{count}   {end}").replace("[  5]", f"[{name:>3}]"))
    return "\n".join(lines) + "\n"


PAIR = (("5", 10, 50.3, 14, "sender"), ("5", 10.05, 47.8, None, "receiver"))
# -w 8M: twice as much is written at once, and -b is reached until then.
FILLING = [140, 139, 141, 104, 94.2, 94.1, 94.2, 94.1, 94.2, 94.1]

VEGAS = [92.1, 88.1, 87.6, 90.2, 75.3, 93.8, 60.2, 93.3, 71.0, 93.8] * 4
# A virtual router without a licence: what was sent in 10 seconds takes 3 more to arrive.
UNLICENSED = text(
    [1.86, 1.1, 0.7, 1.4, 2.1, 1.5, 2.0, 2.6, 3.7, 0],
    [20, 25, 31, 44, 68, 103, 150, 205, 260, 312],
    [11, *[0] * 9],
    ends=WAN,
    summary=False,
) + means(("5", 10, 1.7, 11, "sender"), ("5", 12.9, 0.9, None, "receiver"))
SLIGHTLY_TOO_FAST = """$ iperf3 -c 203.0.113.20 -u -b 100M
[ ID] Interval           Transfer     Bitrate         Jitter    Lost/Total Datagrams
[  5]   0.00-60.00  sec   715 MBytes   100 Mbits/sec  0.000 ms  0/517950 (0%)  sender
[  5]   0.00-60.01  sec   683 MBytes  95.5 Mbits/sec  0.107 ms  23350/517950 (4.5%)  receiver
"""
# The condition that must come first, and a run.
VANISHED = "".join(_row(at, at + 1, 0, "2.111 ms  0/0 (0%)") + "\n" for at in (1, 2, 3))

CAUSES = {
    "five blocks in each second of a client that has no -b": (
        "D18",
        text([5.24] * 6, [14.1] * 6, [248, 0, 0, 0, 0, 0], ends=WAN, command="-c x -t 6"),
    ),
    "a constant rate that is near a round one, and of no whole blocks": (
        "D18",
        text([5.13] * 6, [80, 93, 72, 79, 80, 86], [9, 0, 4, 0, 0, 0], ends=WAN),
    ),
    "a path of 1 Mbit/s, in whose queue a client's data waits for seconds": ("D18", UNLICENSED),
    "datagrams at the speed of the link, which has no room for their headers": (
        "D18",
        SLIGHTLY_TOO_FAST,
    ),
    "a deep queue of a slow uplink that overflows in the end": (
        "D14",
        document(
            [1.05, 1.05, 1.05, 1.05, 2.1, 1.05, 2.1, 3.1, 2.1, 0.9],
            [331, 388, 251, 492, 418, 720, 800, 1071, 1367, 1516],
            [36_000, 41_000, 50_000, 57_000, 80_000, 112_000, 160_000, 217_000, 282_000, 272_000],
            retransmits=[0] * 9 + [19],
        ),
    ),
    "more loss than the queue of a radio needs to be full": (
        "D05",
        document(
            [2.0, 4.9, 2.3, 2.4, 5.3, 4.3, 3.6, 2.9],
            [56, 462, 33, 187, 575, 412, 340, 120],
            [24_000, 178_000, 12_000, 45_000, 188_000, 346_000, 284_000, 60_000],
            retransmits=[7, 4, 18, 5, 3, 4, 8, 6],
        ),
    ),
    "a limiter that keeps a window smaller than any receiver's": (
        "D18",
        text([15.1, 14.0, 13.8, 14.0, 13.8, 14.1, 13.8, 14.0], [46.1] * 8, ends=WAN),
    ),
    "half a percent of the segments between two containers, and nothing else": (
        "D05",
        document(
            [23_700, 22_200, 15_800, 24_900, 16_200, 27_800, 33_200, 23_100],
            [0.11] * 8,
            [14_000, 20_000, 191_000, 154_000, 8_000, 69_000, 327_000, 252_000],
            retransmits=[11_074, 10_911, 6_788, 9_311, 6_611, 12_499, 13_338, 9_768],
        ),
    ),
    "1 Gbit/s of a cloud, which is more than Ethernet carries": (
        "D18",
        text([972, 1010, 1010, 1010, 1010, 999, 988, 1000, 998, 1000], ends=WAN),
    ),
    "the same with jumbo frames, and some losses": (
        "D18",
        text(
            [1032, 1003, 1012, 1004, 1001, 999, 993, 1002],
            [446, 454, 498, 489, 533, 559, 603, 590],
            [16, 13, 16, 14, 14, 12, 17, 11],
            ends=WAN,
            header=["      TCP MSS: 8949 (default)"],
        ),
    ),
    "a limit of 5 Gbit/s, whose queue holds all that a window allows": (
        "D18",
        document([4960, 4969, 4961, 4959, 4970, 4959, 4969, 4961], [4.94] * 8, 3_311_000),
    ),
    "the usual receive window at 100 ms, with BBR": (
        "D01",
        with_congestion("bbr", document([283, 283, 272, 283, 283, 283], [100] * 6, 10_469_000)),
    ),
    "a network that a program of the host provides to a virtual machine": (
        "D09",
        text([1920, 2130, 2120, 2140, 2050, 2040, 2050, 1930, 2160, 2080], [532] * 10),
    ),
    "a shaper of 50 Mbit/s between two namespaces": (
        "D18",
        text([51.2] + [47.8] * 9, [150 + 90 * at for at in range(10)]),
    ),
    "streams through a relay on the same host": (
        "D09",
        of_streams([11_200, 12_900, 10_100, 14_000, 12_400, 11_000, 13_100, 10_400]),
    ),
    "loss that the window follows": (
        "D05",
        text(SAWTOOTH, SAWTOOTH, [0, 0, 0, 40, 0, 0, 0, 31, 0, 0], WAN),
    ),
    "heavy loss, without windows": ("D05", text(UNEVEN, ends=WAN, total=4200)),
    "a loss rate that keeps the window at some segments": (
        "D05",
        text([7.2, 9.1, 8.0, 8.8, 7.5, 8.3], [14, 10, 14, 11, 14, 10], [39, 22, 33, 25, 36, 27]),
    ),
    "a receive buffer of 4 MiB at 180 ms": (
        "D01",
        document([88, 98, 88, 93, 98, 88], [180, 181, 180, 180, 182, 180]),
    ),
    "-w 512K on a long path, round trip known": (
        "D01",
        document([40, 42, 41, 40, 42], [100] * 5, 900_000, sock_bufsize=0),
    ),
    "-w 2M on a long path": (
        "D01",
        text([160] + [54] * 8, [610] * 9, ends=WAN, command="-w 2M -c x"),
    ),
    "the small window of iperf 2 on a long path": ("D01", IPERF2_WINDOW),
    "a full CPU that iperf counts": ("D09", text(UNEVEN, cpu=(99.6, 12.0))),
    "a receiver whose softirqs leave iperf 80 %": ("D09", text(UNEVEN, cpu=(10.0, 81.0))),
    "a router that sends as fast as it can": ("D09", text([412] * 8, [160] * 8)),
    "a MIPS router, of which nothing but the windows is known": (
        "D09",
        text([412] * 8, [160] * 8, ends=WAN, header=["Linux box 5.15.1 #0 SMP mips"]),
    ),
    "one stream through a relay on the same host": (
        "D09",
        text(
            [r * 15_000 for r in EVEN], [2000 + 90 * at for at in range(10)], [3, 0] * 5, ("a", "b")
        ),
    ),
    "a shaper of 20 Mbit/s with a bucket": (
        "D18",
        text([950, 21, 17, 24, 19, 18, 22], [400 + 60 * at for at in range(7)], ends=WAN),
    ),
    "a cloud's limit of 2 Gbit/s": (
        "D18",
        text([1961, 1957, 1966, 1960, 1963, 1958], [900, 1400, 700, 1100, 800, 1000], [9] * 6, WAN),
    ),
    "a rate that nothing varies": (
        "D18",
        text([33.5, 33.4, 33.5, 33.6, 33.5, 33.5, 33.4], ends=WAN),
    ),
    "many streams that lose above what 1 Gbit/s Ethernet carries": (
        "D18",
        text([963], total=300),
    ),
    "UDP of which the same amount arrives all the time": ("D18", udp([44.1] * 6, [90] * 6)),
    "-b below one block for each tick": (
        "D04",
        text([10.5] * 6, ends=WAN, command="-c x -b 64K"),
    ),
    "as few blocks as an unknown -b below that gives": (
        "D04",
        text([10.486] * 6, [61, 126, 132, 97, 106, 115], [0, 0, 0, 1, 0, 0], ends=WAN),
    ),
    "few unfragmented datagrams, of which only the receiver's rows are known": (
        "D18",
        udp([20.2, 21.3, 12.3, 20.1, 15.9], [90] * 5),
    ),
    "datagrams that a slow path drops": ("D18", UDP_SLOW),
    "large datagrams of which none arrives after the first second": (
        "D15",
        "$ iperf3 -s\n" + udp([0.5], [1.2], size=8192) + VANISHED,
    ),
    "large datagrams of which as many are lost": (
        "D07",
        UDP_SLOW.replace("2580/8620", "450/1500").replace("0/8620", "0/1500"),
    ),
    "an MTU black hole": ("D21", BLACK_HOLE),
    "credits that run out at the end": (
        "D18",
        text(
            [1020, 1010, 1000, 1005, 1010, 1000, 280],
            [500, 460, 470, 520, 480, 500, 90],
            [40, 9, 0, 12, 8, 10, 60],
            ends=WAN,
        ),
    ),
    "a limit of 5 Gbit/s, which jumbo frames over 5 Gbit/s Ethernet could not reach": (
        "D18",
        text([4961] * 6, [3300] * 6, [0, 1] * 3, WAN, header=["      TCP MSS: 8949 (default)"]),
    ),
    "an MTU black hole of jumbo frames, whose window stays": (
        "D21",
        text([0.7, 0, 0, 0, 0, 0, 0], [24.5] * 7, [2, 1, 0, 1, 0, 0, 1]),
    ),
    "few datagrams, of which a slow path drops a twentieth, although most arrived": (
        "D18",
        UDP_SLOW.replace("13.9 Mbits", "18.3 Mbits").replace("2580/8620 (30%)", "500/8620 (5.8%)"),
    ),
    "an unknown congestion control": ("D38", NO_CONGESTION),
    "buffers that were not granted": ("D36", NO_BUFFERS),
    "-w 8M on a path whose first round trip is 180 ms": ("D01", IPERF2_FIRST_TRIP),
    "-w 8K in a local network": ("D01", text([61, 60, 62, 61, 60], command="-w 8K -c x")),
    "a limit of 10 Gbit/s for each flow, which drops the rest": (
        "D18",
        text(
            [17_400, 11_000, 10_100, 10_100, 10_100, 10_100, 10_100],
            [1100, 240, 800, 230, 310, 500, 270],
            [0, 6900, 5100, 5600, 6300, 7200, 6700],
            ends=WAN,
        ),
    ),
    "the streams of an iperf3 that has one thread": ("D09", ONE_THREAD),
    "one direction of --bidir": ("D27", BIDIR.format(there=410, back=190)),
    "a third of the segments lost, as the summaries of several tests show": (
        "D05",
        "".join(
            text([rate], total=lost).split("Retr\n")[1] for rate, lost in ((268, 390), (2, 540))
        ),
    ),
    "one of several attempts, all of which failed": (
        "D36",
        "iperf3: error - unable to set TCP/SCTP MSS: Invalid argument\n\n" + NO_BUFFERS,
    ),
    "a window that stays while the other direction takes most": (
        "D27",
        "Connecting to host 10.20.0.9, port 5201\n"
        + "\n".join(
            f"[{at}][{role}] {start}.00-{start + 1}.00 sec  {rate / 8:.1f} MBytes  {rate} Mbits/sec"
            f"{'    0   1.29 MBytes' if role == 'TX-C' else ''}"
            for start in range(4)
            for at, role, rate in ((5, "TX-C", 3110), (7, "RX-C", 1280 - 40 * start))
        ),
    ),
    "a test of each direction, each by its own client": ("D27", THERE_AND_BACK),
    "a shaper at a rate of the slowest Ethernet": ("D18", text([9.46] * 8, ends=WAN)),
    "UDP to an iperf 2 that never answers": ("D33", NO_REPORT),
    "a window that sets the rate, and losses in every second": (
        "D05",
        text(
            [22.7, 25, 23.7, 17.7, 17, 21.7, 20.7, 15.3, 15.7, 20.7],
            [110, 137, 100, 73.3, 96.7, 117, 86.7, 66.7, 90, 113],
            [9, 4, 14, 17, 3, 6, 12, 16, 5, 4],
            WAN,
        ),
    ),
    "a limiter that drops as regularly as its queue fills, in a short test": (
        "D18",
        text([39.1, 37.9, 38.2, 37.7, 38.1], [21, 15, 20, 17, 18], [19, 21, 20, 20, 21], WAN),
    ),
    "a queue that slow start overflows and the window then fills": (
        "D18",
        text([66, 31, 39.8, 39.8, 39.8], [130, 150, 177, 199, 221], [310, 0, 0, 0, 0], WAN),
    ),
    "nothing but timeouts: a window of one segment": (
        "D05",
        text(
            [8.4, 6.3, 0, 7.3, 9.4, 0, 5.2, 8.4],
            [1.41] * 8,
            [2, 31, 1, 18, 12, 1, 9, 14],
        ),
    ),
    "small datagrams of which a small host drops a third": (
        "D07",
        "$ iperf3 -s\n" + udp([52.8] * 6, [80] * 6, size=220),
    ),
    "both ends of a test of small datagrams, each of which counted": (
        "D07",
        "$ iperf3 -c 10.20.0.9 -u -l 132 -b 60M\n"
        + _row(0, 8, 57, "0.050 ms  120300/431700 (28%)")
        + "\n$ iperf3 -s\n"
        + udp([41.1] * 8, [57] * 8, size=132),
    ),
    "a shaper whose queue slow start overflows, in a short test": (
        "D18",
        text([37.7, 26.2, 28.3, 28.3, 28.3], [19.8] * 5, [211, 0, 0, 0, 0], WAN),
    ),
    "a bucket of which only the receiver's rows and the sender's retransmits are known": (
        "D18",
        text([158, 78.8, 77.1, 80.0, 78.2, 78.9, 77.6], total=6100, ends=WAN),
    ),
    "a limiter in each direction, of different rates": ("D18", TWO_LIMITERS),
    "the same limit of 5 Gbit/s both ways": (
        "D18",
        BIDIR_ROWS.format(
            "".join(
                _role_row(at, rate)
                for at, rate in enumerate([4960, 4950, 4960, 4970, 4960, 4950, 4960])
            )
        ),
    ),
    "a window that losses do not lower": (
        "D01",
        document(
            [150, 178, 168, 178, 178, 168, 168, 178, 168, 178],
            [138] * 10,
            6_590_000,
            retransmits=[0] * 8 + [166, 0],
        ),
    ),
    "a window that every round trip fills, and that loss in slow start did not end": (
        "D01",
        document([90, 304, 304, 304, 294, 331], [79] * 6, 3_050_000, retransmits=[24] + [0] * 5),
    ),
    "a deep queue that took TCP ten seconds to reach": (
        "D18",
        text(
            [2, 3.1, 4.4, 5.6, 6.6, 10.4, 15.2, 23.1, 33, 43] + [48.4, 47.7, 48.2, 47.2] * 4,
            [21, 31, 42, 52, 75, 122, 187, 276, 382, 530] + [700 + 60 * at for at in range(16)],
            [1] + [0] * 25,
        ),
    ),
    "a full CPU, at a mean that would fit a link": ("D09", CPU_OF_STREAMS),
    "a slow sender, of which only what arrives is known": (
        "D20",
        "$ iperf3 -c 10.20.0.9 -u -b 100M\n" + udp([11.2] * 6, [11.2] * 6),
    ),
    "few of the datagrams that were sent arrive, and fewer were sent than asked for": (
        "D07",
        SMALL_DATAGRAMS,
    ),
    "-w that slow start could not fill without a loss": (
        "D01",
        text(
            [0.3, *[0.41] * 7], [9.2] * 8, [3] + [0] * 7, ends=WAN, command="-c 203.0.113.20 -w 4K"
        ),
    ),
    "a tiny -w in a local network": (
        "D01",
        "$ iperf -c 10.20.0.9 -w 1K\n[  3] local 10.20.0.8 port 1 connected with 10.20.0.9 port 2\n"
        + "".join(
            f"[  3] {at:4.1f}-{at + 1:4.1f} sec  2.50 MBytes  21.0 Mbits/sec\n" for at in range(6)
        ),
    ),
    "a policer: windows that so many losses by chance would not leave": (
        "D17",
        text(
            [31, 14.2, 17.1, 13.6, 15.9, 14.8, 16.6, 13.9],
            [14.1, 22.6, 24.0, 21.2, 28.3, 19.8, 25.5, 24.0],
            [190, 121, 149, 118, 139, 130, 144, 122],
        ),
    ),
    "few datagrams of which most are lost, as the receiver's total shows": (
        "D18",
        means(("5", 10.2, 9.1, "0.8 ms  31000/39000 (79%)", "receiver")),
    ),
    "a few losses in every second, and a window far larger than by chance": (
        "D17",
        text(
            [29.3, 23.2, 27.2, 30.2, 24.3, 28.1], [61, 44, 70, 48, 66, 52], [31, 24, 29, 33, 27, 25]
        )
        .replace(LAN[0], WAN[0])
        .replace(LAN[1], WAN[1]),
    ),
    "a window that grows long after it filled a slow path": (
        "D18",
        text(
            [2, 3, 4.4, 5.6, 6.4, 10.5, 15.5, 19.8] + [20.4, 20.1, 20.3, 20.2] * 3,
            [21, 31, 42, 52, 75, 122, 187, 276, 382, 530, 707, 916, 979, 1080, 1250] + [1660] * 5,
            [1] + [0] * 19,
            ends=("x", "y"),
        ),
    ),
    "datagrams that took longer to arrive than to send": (
        "D18",
        UDP_SLOW.replace("0-10.0 sec  16.6", "0-12.1 sec  16.6"),
    ),
    "datagrams that are lost only where more is sent": (
        "D18",
        "".join(
            _row(at, at + 1, got, f"0.3 ms  {lost}/{sent} (1%)") + "\n"
            for at, (got, lost, sent) in enumerate(
                [
                    *[(2.7, 0, 246), (2.6, 0, 238), (2.8, 0, 255), (4.3, 31, 422)],
                    *[(4.2, 40, 423), (4.4, 22, 421), (4.3, 33, 422)],
                ]
            )
        ),
    ),
    "nothing delivered, in a text that begins later": (
        "D21",
        "".join(_row(at, at + 1, 0, f"{1 + at % 2}   1.41 KBytes") + "\n" for at in range(4, 9)),
    ),
    "a small -w over a long path that looks like one network": (
        "D01",
        text(
            [2.9, 2.8, 2.9, 2.7, 2.9, 2.8], [96, 90, 90, 87, 87, 87], command="-c 10.20.0.9 -w 32K"
        ),
    ),
    "both directions of iperf 2, of which only the sums are known": (
        "D27",
        BOTH_SUMS,
    ),
    "a window that waits for seconds before a slow shaper": (
        "D18",
        text([3.3, 0, 1.04] + [0] * 6, [33.9] * 9),
    ),
    "datagrams that arrive at one rate until the sender stops": (
        "D18",
        udp([21.5] * 5, [530] * 5) + _row(5, 5.61, 13.5, "0.05 ms  18951/19728 (96%)") + "\n",
    ),
    "datagrams that arrive just below a rate that is sold": (
        "D18",
        means(
            ("5", 10, 300, None, "0.000 ms  0/268222 (0%)  sender"),
            ("5", 10, 96.6, None, "0.142 ms  181195/268219 (68%)  receiver"),
        ),
    ),
    "all of a bucket at once, and nothing for seconds": (
        "D18",
        text([201, 0, 0, 0, 9.4, 0, 0, 0], [2, 610, 620, 630, 640, 640, 640, 640], ends=WAN),
    ),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_comes_first(name):
    wanted, content = CAUSES[name]
    assert causes(content)[:1] == [wanted], told(content).findings
    ends = {finding.end for finding in told(content).findings}
    assert ends <= {"sender", "receiver", "local", "peer", "both", "path", "tool"}


BOTH_ENDS = "Accepted connection from 10.20.0.8, port 41001\n" + text(
    [2480] * 4, [760] * 4, summary=False
).replace(
    "[ ID]",
    "[  5] local 10.20.0.9 port 5201 connected to 10.20.0.8 port 41000\n[ ID]",
)
BOTH_ENDS += "".join(f"{_row(at, at + 1, 2470, '')}\n" for at in range(4))
HEALTHY = {
    "blocks as -b 1M sends them, of which an interval has none": blocks(
        [2, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    ),
    "one block in each interval, as -b 1M sends them": blocks([1] * 10),
    "a radio that gets slower while its window grows back from a lost segment": text(
        [105, 101, 89.5, 96.6, 92.6, 102, 88.9, 77.9, 62.5, 94.2],
        [799, 622, 653, 675, 713, 756, 768, 788, 809, 858],
        [0, 1] + [0] * 8,
    ),
    "a radio that is faster with the window that losses left": text(
        [75.4, 70.2, 69.5, 71.2, 82.6, 66.3, 78.9, 77.9, 81.2, 80.3],
        [799, 840, 890, 930, 970, 620, 640, 655, 661, 670],
        [0, 0, 0, 0, 0, 6] + [0] * 4,
    ),
    "a slow radio, of which each interval counts some blocks": blocks(
        [1, 2, 0, 0, 3, 1, 0, 0, 1, 3, 0, 0, 1, 2, 0]
    ),
    "a radio that is as slow after two losses as at other times": text(
        [97.2, 103, 98.4, 97.1, 107, 105, 98.1, 102, 102, 103, 98.5, 101],
        [303, 337, 356, 366, 392, 416, 337, 373, 399, 413, 419, 431],
        [44, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0],
    ),
    "100 Mbit/s behind a send buffer that -w made large": text(
        FILLING, [900 + 400 * at for at in range(10)], command="-c 10.20.0.9 -w 8M"
    ),
    "a radio that takes some seconds to find its rate, with a large -w": text(
        [88, 97, 121, 149, 201, 204, 199, 203, 206, 202], command="-c x -w 64M", ends=("x", "y")
    ),
    "100 Mbit/s, of which the receiver's time is the sender's": means(
        ("4", 10, 95.3, 0, "sender"), ("4", 10, 95.2, None, "receiver")
    ),
    "a radio, as its receiver saw it": text(
        [24.1, 23.8, 23.3, 24.6, 24.4, 24.0, 23.9, 24.5, 24.7, 24.2], total=0
    ).replace(LAN[0], "x"),
    "2.5 Gbit/s with jumbo frames in a local network": text([2474] * 6, [760] * 6),
    "the log of both ends of 2.5 Gbit/s with jumbo frames": BOTH_ENDS,
    "a radio that is fast twice, as its receiver saw it": text(
        [90, 40, 42, 88, 41, 40, 42, 40], total=0, ends=WAN
    ),
    "a radio that ends as fast as it began, as its receiver saw it": text(
        [158, 78, 77, 80, 78, 79, 77, 125], total=0, ends=WAN
    ),
    "a receiver that the client left after two seconds": text([94, 93, 0, 0, 0], summary=False),
    "a rate in a local network that nothing varies, but its window": text(
        [581, 601, 586, 591, 607, 599, 589, 586, 591, 596],
        [386, 389, 471, 574, 665, 742, 813, 877, 936, 993],
        [15] + [0] * 9,
    ),
    "losses at 19 Gbit/s, of which two seconds are known": text(
        [19_200, 19_100], [442, 350], [2767, 2312], ends=WAN
    ),
    "a radio that gets slower and slower": text(
        [284, 265, 251, 237, 224], [771, 865, 963, 963, 963], ends=("a", "b")
    ),
    "a radio at its full rate, which keeps a window waiting": text(
        [584, 566, 566, 555, 556, 566, 556, 577, 566, 556], [976] * 10
    ),
    "thirty retransmits from which the window recovers at once": text(
        [205, 190, 206, 201, 215, 195, 221, 200, 197, 194],
        [215] * 7 + [167, 211, 211],
        [0] * 7 + [30, 0, 0],
    ),
    "100 Mbit/s, of which two seconds made up for others": text(
        [107] + [93.9] * 30 + [113] + [93.9] * 8 + [112] + [93.9] * 10,
        [369] * 51,
        ends=WAN,
    ),
    "two retransmits that no window falls after": text(
        [2430, 2410, 2440, 2450, 2460, 1880, 1860, 1780, 1720, 1520],
        [981, 1208, 1208, 1823, 1823, 1823, 1823, 1823, 1823, 1915],
        [0, 0, 0, 0, 0, 0, 2, 0, 0, 0],
    ),
    "one loss in a long run, and a window that is smaller than it would leave": text(
        VEGAS, [24, 22, 21, 24, 17, 25, 13, 25, 17, 25] * 4, [0] * 6 + [1] + [0] * 33, ends=WAN
    ),
    "what the buffers of thirty streams and of a relay take at first": of_streams(
        [2520, 480, 340, 390, 310, 420, 350, 380]
    ),
    "a radio in a local network, as slow as no host": text(
        [7.2, 7.3, 7.2, 7.3, 7.2] * 2, [22.6] * 10
    ),
    "loopback that loses segments": text(
        [r * 2_000 for r in EVEN],
        [3000, 4000, 900, 4100, 2100, 3900, 1900, 4000, 3000, 3600],
        [57, 42, 80, 0, 60, 51, 40, 0, 31, 70],
        ends=("127.0.0.1", "127.0.0.1"),
        header=["      TCP MSS: 32768 (default)"],
    ),
    "1 Gbit/s that loses some segments": text(
        [941, 939, 935, 941, 940, 937], [410, 290, 380, 270, 350, 300], [0, 12, 0, 9, 0, 11]
    ),
    "1 Gbit/s with a window that nothing makes grow": text([941] * 6, [480] * 6),
    "the same with -w": text([941] * 6, [480] * 6, command="-c 10.20.0.9 -w 1M"),
    "100 Mbit/s whose first second fills the send buffer": text(
        [118, 94.1, 94.2, 94.1, 94.1, 94.2], [380] * 6
    ),
    "1 Gbit/s over IPv6": text([928] * 6, [500] * 6, ends=("2001:db8::1", "2001:db8::2")),
    "10 Gbit/s with jumbo frames": text([9900] * 6, [3010] * 6),
    "25 Gbit/s, a busy sender": text([23_500] * 6, [3010] * 6, cpu=(96.0, 70.0)),
    "10 Gbit/s of a cloud with jumbo frames": text(
        [9532, 9531, 9479, 9532, 9531, 9532],
        [3340] * 5 + [3310],
        [9, 0, 3, 0, 0, 1],
        header=["      TCP MSS: 8949 (default)"],
    ),
    "a tunnel over 1 Gbit/s that drops a few, with a queue": text(
        [797, 808, 807, 849, 818, 839, 807, 818],
        [317, 496, 510, 648, 547, 675, 601, 716],
        [5, 0, 8, 0, 1, 0, 5, 0],
        ends=WAN,
    ),
    "a radio: the window is flat, but its round trip is not": text(
        [117, 99, 118, 106, 87, 78, 92], [539] * 7
    ),
    "means of five seconds, which vary little": by_five_seconds(
        text(
            [289, 281, 276, 292, 299, 284], [343, 369, 329, 458, 435, 402], [7, 6, 5, 6, 5, 6], WAN
        )
    ),
    "datagrams that were lost before anything else arrived": scattered([300, 0, 0, 0, 0]),
    "datagrams that a shaper drops as regularly as they come": scattered([14] * 8),
    "four datagrams of some hundred": scattered([0, 2, 0, 1, 1, 0], sent=91),
    "2.5 Gbit/s without timestamps": text([2380] * 5, [210] * 5),
    "losses that a queue on the path makes up for": text(
        [865, 910, 825, 885, 800, 850, 895, 860, 880, 845],
        [560, 640, 350, 400, 340, 410, 440, 350, 410, 330],
        [2, 0, 6, 0, 4, 0, 0, 7, 0, 2],
    ),
    "a radio in a local network, with a flat window": text(
        [157, 139, 149, 118, 108, 133, 152, 141], [475] * 8
    ),
    "as fast as --fq-rate allows": text([19.2] * 6, ends=WAN, command="-c x --fq-rate 20M"),
    "six datagrams of a thousand": UDP_SLOW.replace("20M", "2M")
    .replace("20.0 Mbits", "2.00 Mbits")
    .replace("13.9 Mbits", "1.99 Mbits")
    .replace("2580/8620 (30%)", "6/862 (0.7%)")
    .replace("0/8620", "0/862"),
    "rows of an old server that counted no bytes in total": scattered([5] * 9 + [0], sent=20_000)
    + "[  5]   0.00-10.00  sec  0.00 Bytes  0.00 bits/sec  0.05 ms  45/200000 (0.023%)\n",
    "several threads that fill 40 Gbit/s": ONE_THREAD.replace("34.1", "37.6"),
    "an end of a local network that takes 2 Gbit/s, and no queue": text(
        [1960, 1970, 2040, 2000, 2020, 1990, 1970, 1950, 1980, 2030], [47.1] * 10, [1] + [0] * 9
    ),
    "two retransmits in 5 GB": text(
        [r * 400 for r in EVEN], [900] * 4 + [901] * 6, [0, 2] + [0] * 8, ("a", "b")
    ),
    "a short loss that costs nothing": text(
        UNEVEN, [900 + 9 * at for at in range(10)], [0, 4, 0, 0, 2, 0, 0, 0, 1, 0], ("a", "b")
    ),
    "a slow host or a shaper in a local network: nothing tells them apart": text([81.0] * 8),
    "the same through WireGuard": text([901] * 6, [500] * 6),
    "a link so slow that one block takes seconds": SLOW_LINK,
    "a queue that keeps a radio link busy whatever the window does": text(
        [580, 650, 640, 560, 530, 600, 640, 540],
        [900, 1300, 850, 1200, 1400, 800, 1100, 1300],
        [0, 0, 12, 0, 0, 9, 0, 0],
        ends=("a", "b"),
    ),
    "loopback": text(
        [r * 30_000 for r in EVEN], [1300] * 10, ends=("127.0.0.1", "127.0.0.1"), cpu=(97.0, 60.0)
    ),
    "a large MSS, between namespaces": text(
        [r * 30_000 for r in EVEN],
        [1300 + 80 * at for at in range(10)],
        ends=("fd00::1:0", "fd00::2:0"),
        header=["      TCP MSS: 32741 (default)"],
    ),
    "as fast as -b allows": text([50.0] * 6, [200] * 6, ends=WAN, command="-c x -b 50M"),
    "a short round trip: nothing to wait for": document([700, 820, 760, 690, 800], [0.3] * 5),
    "both directions, nearly alike": BIDIR.format(there=850, back=730),
    "both directions, a third apart by chance": BIDIR.format(there=600, back=450),
    "both directions of a loopback": BIDIR.format(there=9000, back=4000).replace(
        "10.20.0.", "127.0.0."
    ),
    "a mean alone that a rare Ethernet would carry": text([4620], total=300),
    "a rate of nothing after the first seconds": text(
        [0.6, 0.2, 0, 0, 0, 0], [90.0] * 6, [2, 1] + [0] * 4
    ),
    "UDP of which nothing arrives any more": udp([301, 0, 0, 0], [460, 460, 460, 460]),
    "UDP that loses one datagram of a thousand": udp([99.9] * 6, [100] * 6),
    "two virtual machines of a host, uneven by 2 %": text(
        [r * 1000 for r in (28.6, 27.9, 28.8, 27.7, 28.4, 28.9, 27.8)], [3100] * 7, ends=WAN
    ),
    "a window of 6 MiB at 15 Gbit/s, whatever -w asked for": text(
        [15_400, 15_300, 15_450, 15_400, 15_350, 15_400], [6154] * 6, command="-c x -w 1M"
    ),
    "datagrams that a host drops at 900 Mbit/s": udp([893] * 2, [900] * 2),
    "tests of one server one after the other": ONE_BY_ONE,
    "two streams in a local network, whose windows stay at 1.3 MiB": text(
        [1850, 1910, 1890, 1870], [1290, 1370, 1370, 1370]
    ),
    "a failed attempt before a test": "iperf3: error - unable to connect to server: Connection "
    "refused\n" + text([941] * 6, [480] * 6),
    "loopback, of which the command alone tells": "$ iperf3 --client 127.0.0.1\n"
    "[ ID] Interval           Transfer     Bitrate         Retr  Cwnd\n"
    + "".join(_row(at, at + 1, r * 30_000, "0   1.2 MBytes") for at, r in enumerate(EVEN)),
    "a window that stays in a local network, with a radio": text(
        [60, 71, 69, 73, 63, 73, 73, 63, 73, 73], [330, 700, 980] + [1580] * 7
    ),
    "both directions of a loopback, by threads of their own": BIDIR.format(there=61000, back=7000)
    .replace("10.20.0.", "127.0.0.")
    .replace("Connecting", "iperf 3.17\nConnecting"),
    "many streams that lose what exceeds 25 Gbit/s": ONE_THREAD.replace("34.1", "23.1").replace(
        "    0  ", "41000  "
    ),
    "a host in a local network, just below a rate that is sold": text(
        [487, 491, 486, 487, 485, 479, 486, 484, 481, 483]
    ),
    "two tests between the same hosts, as fast with -w": "$ iperf3 -c 10.20.0.9\n"
    + text([691, 712, 702])
    + "$ iperf3 -c 10.20.0.9 -w 1M\n"
    + text([690, 705, 680]),
    "a radio whose window fell once, at first, and that loses now and then": text(
        [11.5, 9.9, 11.0, 8.8, 8.8, 11.0],
        [97, 60, 56, 49, 63, 59],
        [0, 7, 5, 4, 0, 6],
        WAN,
    ),
    "a sender of datagrams that spins until the next is due": document(
        [500.1, 500, 499.9, 500, 500], [0.3] * 5, None, cpu=(99.8, 4.6), protocol="UDP"
    ),
    "several threads with a CPU each": document([4100, 3700, 4300, 3900], [0.4] * 4, cpu=(180, 90)),
    "50 Gbit/s within one host": text([49_300, 48_900, 49_500, 49_700, 49_600, 50_100], [600] * 6),
    "a radio whose window grows, and whose rate goes up and down": text(
        [26, 22, 18, 14, 11, 15, 9.6, 13, 17, 12],
        [300, 500, 660, 740, 840, 950, 1000, 1040, 1070, 1070],
        ends=("x", "y"),
    ),
    "a fast radio that loses, and is even": text(
        [850, 820, 735, 690, 660, 615, 630, 640, 620, 615],
        [3200, 520, 390, 310, 570, 540, 500, 480, 450, 420],
        [540, 800, 210, 130, 0, 45, 30, 80, 110, 120],
        ends=("x", "y"),
    ),
    "datagrams of a group that a receiver joins late": (
        "[ ID] Interval  Transfer  Bandwidth  Jitter  Lost/Total Datagrams\n"
        + "".join(
            f"[  3] {at:4.1f}-{at + 1:4.1f} sec  129 KBytes  1.06 Mbits/sec  0.03 ms  {lost}\n"
            for at, lost in enumerate(["98/ 188 (52%)", *["0/ 90 (0%)"] * 4])
        )
    ),
    "a radio behind a router, whose window is constant and whose rate is not": text(
        [610, 690, 640, 570, 680, 690, 680, 680, 680, 660], [2050] * 10, ends=WAN
    ),
    "two late intervals with the same window": text([410, 171, 170], [2100, 3060, 3060], ends=WAN),
    "several links of a bond": text([1890, 1895, 1890, 1892], [510, 490, 520, 505], [9, 6, 8, 7]),
    "a container and its host, as fast as one core copies": text(
        [24_100, 27_300, 22_500, 28_200, 25_900], [3300] * 5, [0, 1, 0, 2, 0], ends=WAN
    ),
    "twenty streams of datagrams that ask for all there is": "$ iperf3 -u -c x -P20 -b5G\n"
    "[SUM]   0.00-10.00  sec  19.3 GBytes  16.6 Gbits/sec  0.01 ms  0/14800000 (0%)  sender\n",
    "a round rate that -b asked for, of which the command is missing": text(
        [20.0, 21.0, 19.9, 19.9, 19.9, 20.9], [340] * 6, total=0
    ).replace(_row(0, 6, 121.6 / 6, "receiver"), _row(0, 6, 20.0, "receiver")),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_raised_for_a_healthy_run(name):
    content = (
        HEALTHY[name]
        .replace('"iperf 3.12"', '"iperf 3.17"')
        .replace(
            '"num_streams": 1', '"num_streams": 4' if "threads" in name else '"num_streams": 1'
        )
    )
    assert causes(content) == [], told(content).findings


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ([941] * 6, "941 Mbit/s is all that TCP can carry over 1.00 Gbit/s Ethernet"),
    ],
)
def test_a_full_link_is_information(rates, words):
    (found,) = told(text(rates, [480] * 6)).findings
    assert (found.id, found.severity, found.text) == ("D18", "info", words)


def test_what_no_host_counted_is_never_of_high_confidence():
    found = told(scattered([810, 830, 790, 820, 805], sent=1000)).findings
    assert found
    assert "high" not in [one.confidence for one in found]


def test_a_mathis_limit_far_below_the_rate_is_no_cause_and_not_shown():
    """Five retransmits in 360 MB at 80 ms, and a window that stays: TCP paid nothing for them."""
    content = document([280, 300, 310, 290, 300], [80] * 5, 9_000_000, retransmits=[0, 5, 0, 0, 0])
    found = told(content).findings
    assert "D05" not in [one.id for one in found]
    assert not any("Mathis" in fact.field for one in found for fact in one.evidence)


def test_the_send_buffer_is_named_where_the_receivers_window_has_room():
    content = document([88, 98, 88, 93, 98, 88], [180] * 6, snd_wnd=12_000_000)
    first = told(content).findings[0]
    assert (first.id, first.end) == ("D01", "sender")
    assert "a buffer of the sender limits" in first.text
    assert "net.ipv4.tcp_wmem to twice" in first.advice, "and nothing that the receiver has"


def test_no_host_has_buffers_as_small_as_what_waits_for_a_slow_shaper():
    """A token bucket of 5 Mbit/s on the sender itself, where TCP keeps a few packets queued."""
    rates, rtts = [5.0, 4.2, 5.0, 5.0, 4.2, 5.0, 5.0], [43.5] * 7
    for retransmits in (None, [6, *[0] * 6]):
        run = document(rates, rtts, cwnd=27_512, snd_wnd=3_000_000, retransmits=retransmits)
        assert "D01" not in causes(run)
    wide = document([1.5 * rate for rate in rates], rtts, cwnd=41_000, snd_wnd=3_000_000)
    assert causes(wide)[0] == "D01"


def test_a_queue_that_nothing_but_the_kernels_round_trips_show_is_of_medium_confidence():
    content = document([94] * 8, [12, 90, 160, 240, 250, 250, 255, 250], 3_000_000)
    found = {one.id: one.confidence for one in told(content).findings}
    assert found["D14"] == "medium"


def test_so_few_packets_fill_no_cpu():
    """A receiver takes 1,500 datagrams of three fragments each second."""
    content = UDP_SLOW.replace("2580/8620 (30%)", "4730/8620 (55%)").replace("11.9 MB", "33.7 MB")
    assert "D09" not in [one.id for one in told(content).findings]


def test_a_window_below_the_first_one_is_what_loss_left_of_it():
    """Four segments all the time, a third of them sent again; TCP starts with ten (RFC 6928)."""
    content = text([6.2, 7.9, 6.8, 7.1, 8.3, 6.6], [5.6] * 6, [180, 260, 240, 250, 290, 230])
    assert causes(content)[0] == "D05"


def test_one_loss_that_the_window_recovers_from_does_not_limit():
    content = text(
        [251, 190, 262, 236, 231, 233, 252, 234, 240, 238],
        [1400, 1.4, 1690, 2000, 2120, 2120, 2120, 2120, 2120, 2120],
        [0, 1] + [0] * 8,
    )
    assert causes(content) == []


@pytest.mark.parametrize("window", [2100, 3190])
def test_a_window_over_a_switch_does_not_stay_while_the_rate_varies(window):
    """Of a radio, or of a host: a switched network's round trip is constant."""
    rates = [150, 168, 190, 171, 189, 166, 175, 196, 181, 160]
    assert causes(text(rates, [window] * 10)) == []
    assert causes(text([170] * 10, [window] * 10, ends=WAN)) == ["D01"]


def test_what_loss_leaves_after_a_fast_start_is_no_token_bucket():
    rates = [13.4, 8.6, 3.1, 4.2, 3.0, 4.4, 3.9, 3.2, 5.4, 4.1, 2.2, 5.1, 4.3, 3.3]
    received = text(rates, ends=WAN, command="-c 203.0.113.20 -R", total=75)
    assert causes(received)[0] == "D05"


def test_what_timeouts_leave_of_most_intervals_is_no_token_bucket():
    """So little is sent meanwhile that the retransmits are few of all segments."""
    rates = [940, 10, 0, 0, 10, 0, 0, 10, 0, 0]
    lost = text(rates, [400] + [1.41] * 9, [5, 1, 1, 0, 0, 1, 1, 0, 0, 1])
    assert causes(lost) == []


def test_totals_alone_are_no_blocks_that_somebody_asked_for():
    totals = """[SUM]   0.00-60.00  sec  6.70 GBytes   960 Mbits/sec  7769             sender
[SUM]   0.00-60.01  sec  6.70 GBytes   958 Mbits/sec                  receiver
"""
    assert causes(totals) == ["D18"]


def test_a_window_of_one_segment_is_what_a_timeout_leaves_and_no_policer():
    """Even rate, and windows that so many losses by chance would not leave."""
    rates, counts = [31, 14.2, 15.1, 14.6, 15.9, 14.8, 15.6, 14.9], [190, *[125] * 7]
    policed = text(rates, [14.1, 22.6, 24.0, 21.2, 28.3, 19.8, 25.5, 24.0], counts)
    lossy = text(rates, [14.1, 22.6, 24.0, 1.41, 28.3, 19.8, 1.41, 24.0], counts)
    assert (causes(policed)[0], causes(lossy)[0]) == ("D17", "D05")


def test_a_bucket_has_tokens_again_and_a_dead_path_carries_nothing():
    """Of a client with -R: megabits in each second."""
    alive, dead = [412.0] * 6 + [0.4, 0, 0.9, 0, 0.8, 0], [412.0] * 6 + [0.4, 0, 0, 0, 0, 0]
    received = [
        text(rates, ends=WAN, command="-c 203.0.113.20 -R", summary=False)
        for rates in (alive, dead)
    ]
    assert [causes(each) for each in received] == [["D18"], []]


def test_a_bucket_is_emptied_once():
    """Of two tests that become slow, one becomes fast again."""
    rates = [950.0] * 3 + [24.0, 10.4, 10.6, 21.0, 10.5, 10.4, 10.5, 20.9]
    again = [*rates[:8], 400.0, *rates[9:]]
    emptied, refilled = (text(each, [400] * 11, ends=WAN, summary=False) for each in (rates, again))
    assert causes(emptied)[0] == "D18"
    assert "D18" not in causes(refilled)


def test_a_bounce_back_test_of_iperf_2_is_as_fast_as_requested():
    row = (
        "[  1] {}.00-{}.00 sec  1.95 KBytes  16.0 Kbits/sec  10=0.3/0.2/0.7/0.1 ms  0  14K/202 us\n"
    )
    head = "Client connecting to 192.0.2.7, TCP port 5001\n"
    bursts = "Bursting:  100 Byte writes 10 times every 1.00 second(s)\n"
    rows = "".join(row.format(at, at + 1) for at in range(10))
    assert causes(head + bursts + rows) == []
    assert causes(head + rows) == ["D18"]


def test_exactly_a_round_rate_is_one_that_was_asked_for():
    """A limiter of 20 Mbit/s lets 19.1 of TCP's pass; the command is not in the text."""
    rows = [f"[  3] {at:4.1f}-{at + 1:4.1f} sec  2.38 MBytes  20.0 Mbits/sec" for at in range(10)]
    assert causes("\n".join(rows) + "\n") == []
    limited = [row.replace("2.38", "2.28").replace("20.0 Mb", "19.1 Mb") for row in rows]
    assert causes("\n".join(limited) + "\n") == ["D18"]


def test_a_protocol_that_a_host_lacks_is_no_other_program():
    said = "iperf3: error - unable to start stream listener: Protocol not supported\n"
    assert causes(said) == ["D47"]
    for why in ("", ": Cannot allocate memory."):
        said = f"iperf3: error - unable to receive parameters from client{why}\n"
        assert causes(said) == ["D35"]


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("test authorization failed", "public key"),
        (
            (
                "parameter error - you must specify username (max 20 chars), password (max 20 chars) "
                "and a path to a valid public rsa client to be used"
            ),
            "public key",
        ),
        (
            (
                "parameter error - you must specify a username, password, and path to a valid RSA "
                "public key"
            ),
            "public key",
        ),
        (
            (
                "parameter error - you must specify a path to a valid RSA private key and a user "
                "credential file"
            ),
            "public key",
        ),
        ("unable to create a new stream: No space left on device", "temporary file"),
        ("", "the reason that it gives"),
        (
            "unable to start listener for connections: Operation not permitted",
            "the reason that it gives",
        ),
        ("unable to connect to server: Cannot assign requested address", "-B"),
        ("unable to start listener for connections: Can't assign requested address", "-B"),
        ("unable to connect to server: Can't assign requested address", "-B"),
        ("unable to start listener for connections: Address already in use", "port"),
        ("unable to connect to server: Address already in use", "port"),
        ("unable to write to stream socket: Message too long", "the reason that it gives"),
        (
            "parameter error - block size too large (maximum = 1048576 bytes)",
            "the reason that it gives",
        ),
        ("parameter error - cannot be both server and client", "the reason that it gives"),
        ("unable to connect to server: Permission denied", "the reason that it gives"),
        ("unable to write to stream socket: No buffer space available", "the reason that it gives"),
        ("unable to create a new stream: Too many open files", "the reason that it gives"),
    ],
)
def test_what_iperf_itself_says_is_wrong_is_the_cause(said, meaning):
    diagnosis = told(f"iperf3: error - {said}\n")
    assert [finding.id for finding in diagnosis.findings] == ["D47"]
    assert meaning in diagnosis.findings[0].text
    assert diagnosis.exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    "said",
    [
        "iperf3: unrecognized option '--time-skew'",  # glibc
        "iperf3: unrecognized option: time-skew",  # musl
        "iperf3: illegal option -- y",  # FreeBSD and macOS
        "iperf3: unknown option -- y",  # OpenBSD, and Cygwin for Windows
        "iperf3: option requires an argument -- 'c'",
        "bind failed: Address already in use",
        (
            "bind failed: Only one usage of each socket address (protocol/network address/port) is "
            "normally permitted."
        ),
        "bind failed: The requested address is not valid in its context.",
    ],
)
def test_each_system_has_its_own_words_for_what_iperf_cannot_use(said):
    is_iperf3 = said.startswith("iperf3: ")
    head = "$ iperf3 -s\n" if is_iperf3 else "$ iperf -s\nServer listening on TCP port 5001\n"
    assert causes(f"{head}{said}\n") == ["D47"]


def test_a_test_that_ran_in_one_direction_only_is_inconclusive():
    """The client's port for the way back (-r) is that of a server on the same host."""
    head = "$ iperf -c 192.0.2.1 -r\nbind failed: Address already in use\n"
    row = "[  4]  0.0-10.1 sec  76.3 MBytes  63.6 Mbits/sec\n"
    diagnosis = told(head + row)
    assert [finding.id for finding in diagnosis.findings] == ["D47"]
    assert diagnosis.exit_code is ExitCode.INCONCLUSIVE


@pytest.mark.parametrize(
    "said",
    [
        "unable to create a new stream: Connection refused",
        "control socket has closed unexpectedly",
        "unable to receive results: ",
    ],
)
def test_what_iperf_says_of_the_connection_is_no_fault_of_its_arguments(said):
    assert "D47" not in causes(f"iperf3: error - {said}\n")


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("unable to set TCP_CONGESTION: Operation not permitted", ["D38"]),
        ("Unable to bind-to-device (check perror, maybe permissions?): Permission denied", []),
        ("unable to set socket pacing: Protocol not available", []),
        ("unable to connect to server: Protocol not available", ["D47"]),
    ],
)
def test_an_option_that_iperf_may_not_set_is_no_firewall_nor_protocol(said, cause):
    assert causes(f"iperf3: error - {said}\n") == cause


@pytest.mark.parametrize(
    "said",
    [
        "control socket has closed unexpectedly",
        "unable to receive control message: Connection reset by peer",
        "select failed: Bad file descriptor",
        "unable to write to stream socket: Broken pipe",
    ],
)
def test_a_connection_that_breaks_during_the_test_is_named_after_what_limited_it(said):
    begun = "[  5] local 192.0.2.2 port 34 connected to 192.0.2.1 port 5201\n"
    cut = text([38, 25, 30, 36, 24, 31], [60, 20, 42, 58, 22, 40], [3, 40, 8, 2, 44, 9], WAN)
    for results, wanted in ((begun, ["D47"]), (cut.replace("iperf Done.\n", ""), ["D05", "D47"])):
        diagnosis = told(f"{results}iperf3: error - {said}\n")
        assert [one.id for one in diagnosis.findings] == wanted
        assert diagnosis.findings[-1].title == "connection lost"
        assert (diagnosis.exit_code, diagnosis.inconclusive) == (
            ExitCode.INCONCLUSIVE,
            f"iperf did not finish: {said}",
        )


def test_an_attempt_that_failed_counts_unless_a_later_one_did_not():
    worked = text([941.0] * 4, [600] * 4, command="-c 10.20.0.9")
    failed = "$ iperf3 -c 10.20.0.9 -R\niperf3: error - unable to connect to server: {}\n"
    assert causes(worked + failed.format("Connection timed out")) == ["D33"]
    assert causes(failed.format("Connection timed out") + worked) == []


def test_a_black_hole_explains_that_iperf_loses_its_connection():
    begun = text([0.7] + [0] * 9, [1.41] * 10, [2] + [1] * 9, WAN, summary=False)
    diagnosis = told(f"{begun}iperf3: error - control socket has closed unexpectedly\n")
    assert (diagnosis.findings[0].id, diagnosis.findings[0].severity) == ("D21", "fault")
    assert diagnosis.findings[-1].title == "connection lost"
    assert diagnosis.exit_code is ExitCode.BELOW


def test_a_peer_that_resets_the_connection_at_once_has_no_server_of_iperf3():
    said = "iperf3: error - unable to receive control message: Connection reset by peer\n"
    assert causes(f"Connecting to host 192.0.2.1, port 5201\n{said}") == ["D35"]


@pytest.mark.parametrize(("lost", "is_so"), [(1900, False), (2100, True), (93000, True)])
def test_datagrams_that_are_neither_few_nor_very_many_overload_the_path_or_the_receiver(
    lost, is_so
):
    sent = "[  5]   0.00-4.00   sec   143 MBytes   300 Mbits/sec  0.000 ms  0/100000 (0%)  sender\n"
    rate = 300 * (1 - lost / 1e5)
    row = _row(0, 4, rate, f"0.455 ms  {lost}/100000 (x%)  receiver")
    diagnosis = told(f"$ iperf3 -c 203.0.113.20 -u -b 300M\n{sent}{row}\n")
    titles = ["path or receiver overloaded"] if is_so else []
    assert [one.title for one in diagnosis.findings if one.severity != "info"] == titles


@pytest.mark.parametrize(
    ("command", "size", "rate", "said"),
    [
        ("$ iperf3 -c 203.0.113.20 -u -b 3M\n", 366, "3.00", "3.00 Mbit/s was requested"),
        ("", 128, "1.05", "without -b, iperf sends 1.05 Mbit/s over UDP"),
        ("", 134, "1.10", None),
    ],
)
def test_a_rate_that_was_requested_is_information(command, size, rate, said):
    row = "[  5] {}.00-{}.00 sec  {} KBytes  {} Mbits/sec  0.030 ms  0/94 (0%)\n"
    diagnosis = told(command + "".join(row.format(at, at + 1, size, rate) for at in range(4)))
    shown = [one.text.partition(":")[0] for one in diagnosis.findings]
    assert shown == ([said] if said else [])
    lines = report_text(diagnosis).split("\n")
    assert [line for line in lines if line.startswith("info")] == [
        f"info        {one.text} ({one.id})" for one in diagnosis.findings
    ]
    assert diagnosis.exit_code is ExitCode.PASS


@pytest.mark.parametrize(
    ("rate", "words"), [(10, ["for 4.00 s nothing was transferred"]), (0.1, [])]
)
def test_datagrams_wait_in_no_buffer(rate, words):
    """A slow test has a datagram in some intervals only."""
    assert list(told(udp([rate] * 3, [rate] * 3) + udp_silence(3, 7)).failures) == words


@pytest.mark.parametrize(
    ("rate", "count", "cause"), [("2.31", 10, ["D04"]), ("3.47", 15, []), ("1.39", 6, [])]
)
def test_one_large_datagram_is_sent_for_each_tick(rate, count, cause):
    size = float(rate) * 1e6 / 8 / 1024
    row = "[  4]   {}.00-{}.00   sec  {:.0f} KBytes  {} Mbits/sec  {}\n"
    rows = "".join(row.format(at, at + 1, size, rate, count) for at in range(5))
    assert causes(f"$ iperf3 -c 203.0.113.20 -u -b 1.35M -l 28.2K\n{rows}") == cause


def test_a_slow_test_beside_a_fast_one_is_no_policer_of_what_no_receiver_takes():
    row = "[  5]   0.00-10.00  sec  {}Bytes  {}bits/sec  0.004 ms  {}/{} (x%)  receiver\n"
    slow = "$ iperf3 -c 10.20.0.9 -u\n" + row.format("1.25 M", "1.05 M", 0, 906)
    fast = "$ iperf3 -c 10.20.0.9 -u -b {}\n" + row
    many = fast.replace("{}", "100G", 1).format("2.33 G", "2.00 G", 1800000, 3527000)
    few = fast.replace("{}", "100M", 1).format("59.6 M", "50.0 M", 43000, 86300)
    assert "D17" not in causes(slow + many)
    assert causes(slow + many)[0] == "D07"
    assert causes(slow + few)[0] == "D17"


def test_what_two_fast_tests_lose_is_no_random_loss():
    rows = [[96.6] * 4, [191.0] * 4]
    both = "".join(udp(each, [1.05 * rate for rate in each]) for each in rows)
    assert "D19" not in causes(both)


def test_a_full_link_in_one_direction_is_slower_than_the_other():
    there = text([941.0] * 6, [600] * 6, command="-c 10.20.0.9")
    back = text([94.1] * 6, command="-c 10.20.0.9 -R")
    (finding,) = [one for one in told(there + back).findings if one.severity != "info"]
    assert (finding.id, finding.direction) == ("D27", "reverse")


@pytest.mark.parametrize(
    ("port", "said", "cause"),
    [
        (
            5201,
            "write failed: Broken pipe\n[  3]  0.0- 0.0 sec   169 KBytes  7.53 Gbits/sec\n",
            "D35",
        ),
        (
            5201,
            "[  3]  0.0- 1.0 sec  18014398509481962 KBytes  18014398509481962 KBytes/sec\n",
            "D35",
        ),
        (
            5001,
            "write failed: Broken pipe\n[  3]  0.0- 0.0 sec   169 KBytes  7.53 Gbits/sec\n",
            "D47",
        ),
        (5201, "[  3]  0.0-10.0 sec  1.09 GBytes   941 Mbits/sec\n", None),
    ],
)
def test_iperf_2_gets_nothing_through_to_the_port_of_iperf3(port, said, cause):
    head = f"[  3] local 10.20.0.8 port 40000 connected with 10.20.0.9 port {port}\n"
    assert causes(f"Client connecting to a, TCP port {port}\n{head}{said}") == [cause] * bool(cause)


def test_a_requested_rate_hides_no_black_hole():
    content = text([0.7] + [0] * 9, [1.41] * 10, [2] + [1] * 9, WAN, "-c 203.0.113.20 -b 100M")
    assert causes(content)[0] == "D21"


@pytest.mark.parametrize(
    ("count", "again", "cause"),
    [(10, "9", ["D21"]), (1, "9", []), (10, "0", []), (10, "", ["D21"])],
)
def test_nothing_arrives_that_was_sent_again_and_again(count, again, cause):
    """Of a client with -R, to which only the small packets of the control connection get through."""
    rows = [_row(at, at + 1, 0, "") for at in range(count)]
    sent = f"[  5]   0.00-{count}.04 sec  84.8 KBytes  69.2 Kbits/sec  {again}  sender"
    head = "Connecting to host 203.0.113.20, port 5201\nReverse mode, remote host is sending"
    ids = causes("\n".join([head, *rows, sent, _row(0, count, 0, "receiver"), ""]))
    assert ids == cause


def test_datagrams_of_both_directions_at_once_are_not_compared():
    """A receiver that does not keep up with one; nothing says that the other is policed."""
    row = "[{}][{}-S]   {}.00-{}.00   sec   509 MBytes  {} Gbits/sec  {}"
    rows = [
        row.format(*one, at, at + 1, *rest)
        for at in range(4)
        for one, rest in (
            ((6, "TX"), ("2.62", "227543")),
            ((5, "RX"), ("4.27", "0.001 ms  62207/432494 (14%)")),
        )
    ]
    assert causes("\n".join(rows) + "\n") == ["D07"]


def test_what_one_of_two_directions_loses_at_once_is_not_at_random():
    """Both use the same radio, and the other one loses half of a higher rate."""
    rows = [
        ("[  5][TX-C]", 78.2, "0.000 ms  0/67547 (0%)  sender"),
        ("[  5][TX-C]", 35.8, "0.341 ms  34716/67486 (51%)  receiver"),
        ("[  7][RX-C]", 38.3, "0.000 ms  0/33047 (0%)  sender"),
        ("[  7][RX-C]", 37.8, "0.391 ms  218/33017 (0.66%)  receiver"),
    ]
    both = "".join(
        _row(0, 10, rate, rest).replace("[  5]", name) + "\n" for name, rate, rest in rows
    )
    assert "D19" not in causes(both)


def test_a_second_without_a_block_is_as_slow_as_requested():
    content = text([1.7, 1.05, 1.05, 1.05, 1.05, 0], [76] * 6, command="-c x -b 1m", summary=False)
    assert [phase.passed for phase in told(content).phases] == [True]


def test_a_flow_that_hangs_and_retransmits_emptied_no_bucket():
    assert causes(text([375, 1.05] + [0] * 6, [1.43] * 8, [2, 2, 1, 1, 0, 1, 0, 1])) == []


def test_a_server_that_reports_has_responded():
    report = "[  3] Server Report:\n[  3]  0.0-14.0 sec  {} KBytes  {} Kbits/sec  102 ms  {}/ 893 ({}%)\n"
    assert [one.id for one in told(NO_REPORT).findings] == ["D33"]
    assert [one.id for one in told(NO_REPORT.replace("1.05 M", "693 M")).possible] == ["D33"]
    assert causes(NO_REPORT + report.format(1067, 624, 150, 17)) == ["D18"]


def test_what_was_never_sent_comes_before_the_few_that_were_lost():
    command = "$ iperf3 -u -c server_ip -R -b 300M -l 130\n"
    total = _row(0, 300, 181, "0.007 ms  8506/52172059 (0.016%)")
    assert causes(f"{command}{total}\n[  4] Sent 52172059 datagrams\n") == ["D20", "D07"]


@pytest.mark.parametrize(("size", "wanted"), [(8192, ["D15"]), (1448, [])])
def test_what_was_offered_is_not_known_once_nothing_arrives(size, wanted):
    command = "$ iperf3 -u -b 100M -c 10.6.2.41\n"
    assert causes(command + udp([0.5], [1.2], size=size) + VANISHED) == wanted


def test_what_was_offered_is_not_known_while_nothing_arrives():
    """A reverse test of iperf3 3.18, whose sender stopped (esnet/iperf issue 1847)."""
    rows = [(314, "0/27106"), (314, "0/27114"), (265, "0/22900"), (0, "0/0"), (0, "0/0")]
    lines = [_row(at, at + 1, rate, f"0.05 ms  {lost}") for at, (rate, lost) in enumerate(rows)]
    found = told("\n".join(["$ iperf3 -c 10.9.99.125 -R -u -b 314M", *lines]))
    assert (found.findings, found.failures) == ((), ("for 2.00 s nothing was transferred",))


def test_what_no_one_responds_to_was_sent_fast_enough():
    unheard = NO_REPORT.replace("1.05 M", "406 M")
    assert causes("$ iperf -c 203.0.113.20 -u -b 1000M\n" + unheard) == ["D33"]


def test_a_text_of_intervals_without_data_says_how_long_nothing_was_transferred():
    rows = [_row(at, at + 1, 0, f"{at % 2}   1.41 KBytes") for at in range(3, 9)]
    rows += [_row(0, 9, 53, "9   sender"), _row(0, 9, 0, "receiver")]
    assert told("\n".join(rows)).failures == ("for 6.00 s nothing was transferred",)


def test_a_text_that_begins_after_the_first_window_shows_a_black_hole():
    row = "[  5] {:6.2f}-{:<6.2f} sec  {} KBytes  {} Kbits/sec  {}\n"
    later = "".join(row.format(at, at + 1, 0, 0, f"{3 - at % 2}   2.79 KBytes") for at in (7, 8, 9))
    assert causes(later)[0] == "D21"


@pytest.mark.parametrize("is_server", [True, False])
def test_what_a_client_of_a_local_network_sends_evenly_may_be_what_a_microcontroller_takes(
    is_server,
):
    ends = ("port 5001", "port 52100") if is_server else ("port 52100", "port 5001")
    rows = [f"[  3] local 10.20.0.8 {ends[0]} connected with 10.20.0.9 {ends[1]}"]
    rows += [_row(at, at + 1, 7.3, "") for at in range(6)]
    assert causes("\n".join([*rows, ""])) == (["D18"] if is_server else [])


def test_no_verdict_rests_on_less_than_a_second():
    """A quarter of a second at what 10 Mbit/s Ethernet would carry."""
    row = "[  5]   0.00-{} sec  {} KBytes  {} Mbits/sec  {}\n"
    short = "".join(row.format("0.25", 256, 9.41, end) for end in ("0  sender", "receiver"))
    head = f"[  5] local {WAN[0]} port 41000 connected to {WAN[1]} port 5201\n"
    assert causes(head + short) == []


@pytest.mark.parametrize(
    ("rates", "failures"),
    [
        ([95, 94, 0, 0, 0], ("for 3.00 s nothing was transferred",)),
        ([5, 0, 0, 0, 650, 630, 640], ("for 3.00 s nothing was transferred",)),
        ([95, 94, 0, 95, 94], ()),
        ([2.1, 0, 0, 2.1, 0, 2.1], ()),  # a sender's blocks on a slow link
    ],
)
def test_a_test_that_pauses_has_failed(rates, failures):
    diagnosis = told(text(rates, summary=False))
    assert diagnosis.failures == failures
    assert not failures or diagnosis.unexplained is None


def test_a_pause_that_a_finding_explains_is_not_told_apart():
    assert told(BLACK_HOLE).failures == ()


def test_a_rate_that_the_timer_of_iperf_does_not_give_is_not_explained_by_it():
    """Five streams send 52 Mbit/s in the least."""
    run = "$ iperf3 -c x -P 5 -b 35M -R\n" + _row(0, 10, 347, "receiver") + "\n"
    assert causes(run.replace("[  5]", "[SUM]")) == []


@pytest.mark.parametrize("other", [520, 330])
def test_a_full_link_explains_no_slower_run_beside_it(other):
    first, near, slow = (text([rate] * 4) for rate in (941, 936, other))
    assert told(first + near).unexplained is None
    diagnosis = told(first + slow)
    assert [one.id for one in diagnosis.findings] == ["D18"]
    assert diagnosis.unexplained


def test_a_buffer_does_not_limit_what_is_slower_than_with_it():
    command = "-c 203.0.113.20 -w 256K"
    slow = text([19.9, 20.4, 19.2, 20.1], ends=WAN, command=f"{command} -R")
    assert causes(slow) == ["D01"]
    fast = text([18000, 18500, 17900, 18100], ends=WAN, command=command)
    assert causes(fast + slow.replace("41000", "41002")) == ["D18"]


@pytest.mark.parametrize(("asked", "passed"), [("9G", True), ("20G", False), ("100G", None)])
def test_who_asks_for_all_that_is_possible_does_not_expect_it(asked, passed):
    row = _row(0, 10, 9500, "0.020 ms  0/8200000 (0%)  receiver")
    diagnosis = told(f"$ iperf3 -c 10.20.0.9 -u -b {asked}\n{row}\n")
    assert [phase.passed for phase in diagnosis.phases] == [passed]


def test_without_totals_the_rate_is_that_of_all_intervals():
    (phase,) = told(text([80, 40, 0, 0, 0], summary=False)).phases
    assert (round(phase.rate / 1e6), phase.steady) == (24, 0)


def of_bbr(content: str) -> str:
    """The same run of a sender that uses BBR, as iperf3 says in JSON, and in text with -V."""
    if content.startswith("{"):
        return with_congestion("bbr", content)
    return f"{content}snd_tcp_congestion bbr\nrcv_tcp_congestion cubic\n"


STEADY_RATES = [47.9, 47.2, 47.6, 48.1, 47.4, 47.8, 47.1, 47.7]
UNEVEN_RATES = [47.9, 44.2, 48.6, 46.1, 49.4, 45.8, 48.1, 46.7]
LOSSY = [280, 310, 290, 275, 300, 285, 295, 270]


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (document(STEADY_RATES, [36.6] * 8, cwnd=430_000, snd_wnd=3_000_000), "D01"),
        (text(STEADY_RATES, [420] * 8, ends=WAN), "D01"),
        (text(UNEVEN_RATES, [420] * 8, LOSSY, ends=WAN), "D17"),
        (text([5.1, 4.2, 6.3, 5.4, 4.1, 6.2], [38] * 6, [4] * 6, ends=WAN), "D05"),
    ],
)
def test_neither_the_window_of_bbr_nor_its_rate_follows_a_loss(run, cause):
    assert causes(run)[0] == cause
    assert cause not in [one.id for one in told(of_bbr(run)).findings]


def test_a_receivers_window_that_bbr_fills_is_the_limit():
    run = document(STEADY_RATES, [36.6] * 8, cwnd=430_000, snd_wnd=225_000)
    assert causes(of_bbr(run))[0] == "D01"


def test_the_loss_of_bbr_is_a_failure_of_its_own():
    assert told(of_bbr(text(UNEVEN_RATES, [420] * 8, LOSSY, ends=WAN))).failures


def totals_of_datagrams(lost: float, late: float) -> str:
    """Both ends' totals of 1 Mbit/s for 8 s: the share that was lost, and by how much the last came later."""
    received = _row(0, 8 + late, 1 - lost, f"2.1 ms  {690 * lost:.0f}/690 ({lost:.0%})  receiver")
    return "\n".join([_row(0, 8, 1, "0.000 ms  0/690 (0%)  sender"), received, ""])


def with_total(content: str) -> str:
    """A server's rows of 7.5 Mbit/s and their sum."""
    run = evidence_of(content.encode()).phases[0].run
    intervals = run.flows[0].intervals
    lost, sent = sum(each.lost for each in intervals), sum(each.datagrams for each in intervals)
    return content + _row(0, len(intervals), 7.5, f"0.030 ms  {lost}/{sent} (1%)  receiver") + "\n"


BY_CHANCE = [7.6, 7.4, 7.5, 7.3, 7.5, 7.6, 7.4, 7.5]


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (with_total(udp(BY_CHANCE, [8] * 8)), "D19"),
        (with_total(udp([7.5] * 8, [8] * 8)), "D18"),
        (totals_of_datagrams(lost=0.12, late=0.04), "D19"),
        (totals_of_datagrams(lost=0.12, late=0.41), "D18"),
        (totals_of_datagrams(lost=0.44, late=0.04), "D18"),
    ],
)
def test_a_slow_path_is_no_loss_at_random(run, cause):
    assert causes(run)[0] == cause


def test_a_single_slow_test_may_mean_either():
    assert "UDP at a tenth" in told(totals_of_datagrams(lost=0.12, late=0.04)).findings[0].tell


def test_what_waits_in_the_senders_buffer_is_not_what_the_path_carries():
    rates = [3.2, 3.9, 2.1, 2.7, 3.5, 4.5, 5.8, 0]
    slow = text(rates, summary=False) + _row(0, 8, 3.2, "0   sender") + "\n"
    slow += _row(0, 16, 1.2, "receiver")
    phase = diagnose(evidence_of(slow.encode(), expect=3e6)).phases[0]
    assert (phase.passed, phase.steady) == (False, phase.rate)


def test_a_text_that_has_only_the_first_interval_of_ten_is_inconclusive():
    text = """
iperf3 -c 192.0.2.9 -t 10 -u -b 100m -R
Reverse mode, remote host 192.0.2.9 is sending
[  5]   0.00-1.00   sec  12.1 MBytes   101 Mbits/sec  0.003 ms  15/593 (2.5%)
"""
    found = diagnose(evidence_of(text.encode()))
    assert found.inconclusive == "the test ended after 1.00 s of 10.0 s"


@pytest.mark.parametrize(
    ("peer", "size", "is_said"),
    [
        ("192.0.2.9", 1472, True),
        ("192.0.2.9", 1473, False),
        ("2001:db8::9", 1452, True),
        ("2001:db8::9", 1453, False),
    ],
)
def test_a_datagram_has_room_for_the_headers_of_its_ip_version(peer, size, is_said):
    rate, sent = 445e3, 903
    received = f"{(sent - 519) * size} Bytes  {rate:.0f} bits/sec  2.325 ms  519/{sent} (57%)"
    text = f"""
iperf3 -c {peer} -u -l {size}
[  5] local 2001:db8::1 port 33149 connected to {peer} port 5206
[  5]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.000 ms  0/906 (0%)  sender
[  5]   0.00-10.00  sec   {received}  receiver
"""
    (said,) = [found.text for found in diagnose(evidence_of(text.encode())).findings] or [""]
    assert ("few and unfragmented" in said) is is_said


def test_the_fragments_of_ipv6_have_a_header_more():
    text = """
iperf3 -c 2001:db8::9 -u -l 8192 -b 900M
[  5] local 2001:db8::1 port 33149 connected to 2001:db8::9 port 5206
[  5]   0.00-10.00  sec  1.05 GBytes   900 Mbits/sec  0.000 ms  0/137000 (0%)  sender
[  5]   0.00-10.00  sec   946 MBytes   790 Mbits/sec  0.010 ms  16400/137000 (12%)  receiver
"""
    found = diagnose(evidence_of(text.encode()))
    assert "takes 6 fragments" in (*found.findings, *found.possible)[0].text
    found = diagnose(evidence_of(text.replace("8192", "1460").encode()))
    assert "takes 2 fragments" in (*found.findings, *found.possible)[0].text


def test_a_black_hole_is_looked_for_with_packets_of_its_ip_version():
    text = """
[  4] local 2001:db8::1 port 60920 connected to 2001:db8::9 port 5201
[ ID] Interval           Transfer     Bandwidth       Retr  Cwnd
[  4]   0.00-1.00   sec  84.8 KBytes   694 Kbits/sec    2   1.41 KBytes
[  4]   1.00-2.00   sec  0.00 Bytes  0.00 bits/sec    1   1.41 KBytes
[  4]   2.00-3.00   sec  0.00 Bytes  0.00 bits/sec    1   1.41 KBytes
"""
    (found,) = diagnose(evidence_of(text.encode())).findings
    assert (found.id, "ping -M do -s 1452 tells" in found.advice) == ("D21", True)


UNHEARD = """Connecting to host 192.0.2.1, port 5201
[  5]   0.00-1.00   sec   134 KBytes  1.10 Mbits/sec  15
[  5]   1.00-2.00   sec   125 KBytes  1.02 Mbits/sec  14
- - - - - - - - - - - - - - - - - - - - - - - - -
"""
NEWER = """[  5]   0.00-2.00   sec  259 KBytes  1.06 Mbits/sec  0.000 ms  0/29 (0%)  sender
[  5]   0.00-2.11   sec  0.00 Bytes  0.00 bits/sec  0.000 ms  0/0 (0%)  receiver
"""
OLDER = """[  5]   0.00-2.00   sec  259 KBytes  1.06 Mbits/sec  0.000 ms  0/0 (-nan%)
[  5] Sent 0 datagrams
"""


@pytest.mark.parametrize("summary", [NEWER, OLDER])
def test_datagrams_of_which_the_receiver_counted_none_are_lost(summary):
    """A server that ended has counted nothing, so that its zeros mean nothing."""
    diagnosis = told(f"{UNHEARD}{summary}\niperf Done.\n")
    assert [(one.id, one.severity) for one in diagnosis.findings] == [("D33", "fault")]
    assert diagnosis.exit_code is ExitCode.BELOW
    assert "none of 29 datagrams arrived" in diagnosis.findings[0].text
    ended = f"{UNHEARD}{summary}iperf3: error - the server has terminated\n"
    assert told(ended).exit_code is ExitCode.INCONCLUSIVE


def test_a_peer_that_closes_the_connection_at_once_is_another_program():
    closed = "iperf3: error - control socket has closed unexpectedly\n"
    assert causes(f"Connecting to host 192.0.2.1, port 2049\n{closed}") == ["D35"]
    connected = "[  5] local 192.0.2.2 port 34 connected to 192.0.2.1 port 5201\n"
    for begun in (connected, _row(0, 1, 10, "") + "\n"):
        assert "D35" not in causes(f"Connecting to host 192.0.2.1, port 5201\n{begun}{closed}")


@pytest.mark.parametrize(
    ("losses", "cause"), [((60, 61, 60, 60), "D18"), ((20, 90, 40, 86), "D07")]
)
def test_a_path_that_is_full_lets_the_same_through_whatever_is_lost(losses, cause):
    rows = [
        _row(at, at + 1, (2000 - lost) / 20, f"0.020 ms  {lost}/2000 (3%)")
        for at, lost in enumerate(losses)
    ]
    assert causes("Reverse mode\n" + "\n".join(rows) + "\n")[0] == cause


def test_segments_that_tcp_sends_again_are_no_fragments():
    total = {"seconds": 8, "bytes": 49_000, "bits_per_second": 49_000, "retransmits": 5}
    stuck = [{"sum": {**total, "start": at, "end": at + 1, "bytes": 0}} for at in range(8)]
    asked = {"test_start": {"protocol": "TCP", "num_streams": 1, "blksize": 131072}}
    end = {"sum_sent": total, "sum_received": {**total, "bytes": 0, "bits_per_second": 0}}
    assert "D15" not in causes(json.dumps({"start": asked, "intervals": stuck, "end": end}))


def test_a_receiver_does_not_see_whether_anything_was_sent():
    """A black hole is possible then, and nothing arrived; of a client's text it is certain."""
    rows = [_row(at, at + 1, 0, "") for at in range(8)]
    for ports, findings in (((5201, 41000), []), ((41000, 5201), ["D21"])):
        ends = "[  5] local 192.0.2.1 port {} connected to 203.0.113.2 port {}".format(*ports)
        diagnosis = told("\n".join(["$ iperf3", ends, *rows, ""]))
        assert [finding.id for finding in diagnosis.findings] == findings
        if not findings:
            assert [finding.id for finding in diagnosis.possible] == ["D21"]
            assert diagnosis.failures == ("for 8.00 s nothing was transferred",)


@pytest.mark.parametrize(("window", "is_said"), [(1.41, True), (42, False)])
def test_a_pause_with_one_segment_in_the_window_waits_in_no_buffer(window, is_said):
    """Loss limited the rate before it; a limit of the rate does not end all transfer."""
    rates, windows = [7.9, 6.1, 7.7, 4.8, 0, 0, 0], [62, 20, 61, 24, *[window] * 3]
    diagnosis = told(text(rates, windows, [3, 40, 2, 60, 1, 1, 0], WAN))
    assert [finding.id for finding in diagnosis.findings] == ["D05"]
    assert diagnosis.failures == ("for 3.00 s nothing was transferred",) * is_said


def test_an_interval_that_iperf3_prints_twice_counts_once():
    cut = json.loads(document([8.1, 7.9, 7.4], [33, 33, 46], [72_000] * 3))
    cut = {**cut, "intervals": [*cut["intervals"], cut["intervals"][-1]], "end": {}}
    assert len(evidence_of(json.dumps(cut).encode()).phases[0].run.flows[0].intervals) == 3


@pytest.mark.parametrize(("size", "cause"), [("4K", "D07"), ("400K", "D18")])
def test_a_small_socket_drops_what_arrives_while_its_reader_waits_for_a_cpu(size, cause):
    sent = "[  5]   0.00-8.00   sec  15.3 MBytes  16.0 Mbits/sec  0.000 ms  0/11049 (0%)  sender\n"
    rows = udp([12.2] * 8, [16] * 8, WAN)
    received = _row(0, 8, 12.2, "0.4 ms  2652/11049 (24%)  receiver\n")
    assert causes(f"$ iperf3 -c x -u -b 16M -w {size}\n{rows}{sent}{received}") == [cause]


def test_a_buffer_is_not_what_limits_a_flow_that_loses_much():
    lossy = {"retransmits": [9] * 8, "cwnd": 80_000}
    assert "D01" not in causes(document([7.8] * 8, [40] * 8, **lossy))
    assert causes(document([7.8] * 8, [40] * 8, cwnd=80_000)) == ["D01"]


def test_what_is_not_finished_is_no_lost_connection_nor_a_test_that_could_not_begin():
    rows = text([38, 25, 30], command="-c 10.20.0.9 -u", summary=False)
    said = "iperf3: error - unable to write to stream socket: No buffer space available\n"
    assert [one.title for one in told(rows + said).findings if one.id == "D47"] == ["iperf failed"]


def test_a_short_test_that_ended_found_iperf_2_at_the_port_of_iperf3():
    head = "[  3] local 10.20.0.8 port 40000 connected with 10.20.0.9 port 5201\n"
    row = "[  3]  0.0-0.05 sec   128 KBytes  21.0 Mbits/sec\n"
    assert causes(f"Client connecting to a, TCP port 5201\n{head}{row}") == []


@pytest.mark.parametrize(("seconds", "cause"), [(0.4, []), (4, ["D27"])])
def test_tests_of_less_than_a_second_are_not_compared(seconds, cause):
    both = ""
    for option, rate in (("", 317), ("-R", 203)):
        ends = (_row(0, seconds, rate, end) for end in ("0   sender", "receiver"))
        both += "\n".join([f"$ iperf3 -c 203.0.113.20 {option}", *ends, ""])
    assert [name for name in causes(both) if name == "D27"] == cause


def test_what_a_client_sent_says_nothing_about_what_arrived_in_another_test():
    """A client and a server of different tests, in one document."""
    sent = "[  5] {}.00-{}.00 sec  114 MBytes  956 Mbits/sec  82570\n"
    client = "$ iperf3 -c 192.0.2.2 -u -b 0 -l 1448\n[ ID] Interval  Total Datagrams\n"
    client += "".join(sent.format(at, at + 1) for at in range(4))
    assert "D18" in causes(client + "$ iperf3 -s\n" + udp([371] * 8, [956] * 8))


def test_the_rows_of_a_server_that_has_no_totals_say_what_was_lost():
    ends = "[  5] local {} connected to {}\n"
    near, far = "192.0.2.1 port 47641", "192.0.2.2 port 5002"
    sent = "[  5] {}.00-{}.00 sec  17.9 MBytes  150 Mbits/sec  4578\n"
    client = "$ iperf3 -c 192.0.2.2 -u -b 150M -l 4096\n[ ID] Interval  Total Datagrams\n"
    client += ends.format(near, far) + "".join(sent.format(at, at + 1) for at in range(8))
    header, rows = udp([132, 133, 131, 130] * 2, [150] * 8, size=4096).split("\n", 1)
    (phase,) = told(f"{header}\n{ends.format(far, near)}{rows}{client}").phases
    assert phase.loss == pytest.approx(0.123, abs=0.001)


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("unable to create a new stream: No space left on device", "D47"),
        ("unable to connect to server: Connection refused", "D33"),
        ("connect failed: Operation now in progress", "D33"),
    ],
)
def test_a_message_that_stands_alone_is_understood(said, cause):
    assert causes(said + "\n") == [cause]


def test_datagrams_that_streams_of_iperf3_received_late_may_have_been_overtaken():
    """Or arrived twice; before 3.1.2, iperf3 printed the losses in this line."""
    rows = _row(0, 10, 302, "0.023 ms  1563/377500 (0.41%)") + "\n[  5] Sent 377500 datagrams\n"
    late = "".join(
        f"[SUM]  0.0-10.0 sec  {each} datagrams received out-of-order\n" for each in (900, 663)
    )
    (finding,) = told("$ iperf3 -u -c x\n" + rows + late).possible
    assert finding.id == "D39"
    assert finding.text.startswith("0.41%")


@pytest.mark.parametrize(("block", "cause"), [("64", ["D04"]), ("64K", ["D01"])])
def test_a_cpu_may_be_what_limits_many_small_writes(block, cause):
    head = "[  1] local 198.51.100.7 port 39728 connected with 203.0.113.20 port 5001\n"
    rows = "".join(_row(at, at + 1, 312, "") + "\n" for at in range(8))
    assert causes(f"$ iperf -c 203.0.113.20 -w 416K -i 1 -l {block}\n{head}{rows}") == cause


def test_datagrams_that_arrived_twice_may_be_counted_as_overtaken():
    """By a server alone; with the sender's count it is known that these are copies."""
    received = _row(0, 8, 4.39, "0.119 ms  0/2762 (0%)  receiver\n")
    late = "[SUM]  0.0-8.0 sec  276 datagrams received out-of-order\n"
    (finding,) = told(f"$ iperf3 -s\n{received}{late}").possible
    assert (finding.id, finding.confidence) == ("D39", "low")
    assert "or arrived twice" in finding.text
    sent = _row(0, 8, 4.0, "0.000 ms  0/2763 (0%)  sender\n")
    assert causes(f"$ iperf3 -c x -u -b 4M\n{sent}{received}{late}") == []


@pytest.mark.parametrize(
    ("options", "rate", "is_limit"),
    [
        ("-l 64", 311, True),
        ("-l 64 -P 4", 311, False),  # a stream writes 152,000 times a second
        ("-l 64 -b 311M", 311, False),
        ("-l 1K", 2500, False),
        ("-l 128", 941, False),  # a full link
        ("-u -b 0 -l 64", 796, True),
    ],
)
def test_many_writes_of_a_few_bytes_are_the_limit(options, rate, is_limit):
    rows = "".join(_row(at, at + 1, rate * (1 - at % 3 / 300), "") + "\n" for at in range(6))
    streams = "[SUM]   0.00-6.00   sec  233 MBytes   311 Mbits/sec\n" * ("-P" in options)
    diagnosis = told(f"$ iperf3 -c 192.0.2.7 {options}\n{rows}{streams}")
    titles = {finding.title for finding in diagnosis.findings if finding.id == "D04"}
    assert ("writes too small" in titles) is is_limit


@pytest.mark.parametrize("remark", ["<<<<<<<", "<-- look", "\u2190 here", "# why?"])
def test_what_people_write_behind_a_row_hides_no_retransmit(remark):
    rows = [_row(0, 10, 905, f"{end} {remark}") for end in ("14533   sender", "receiver")]
    diagnosis = told("$ iperf3 -c 192.0.2.7\n" + "\n".join(rows))
    assert diagnosis.phases[0].retransmits == 14533
    assert [finding.id for finding in diagnosis.findings if finding.severity == "limit"] == ["D05"]


@pytest.mark.parametrize(("kilobytes", "cause"), [(447, ["D18"]), (320, [])])
def test_a_window_that_grows_shows_the_queue_of_a_slow_link_by_its_last_size(kilobytes, cause):
    windows = [120, 133, 144, 167, 212, 273, 300, kilobytes]
    sent = text([2.6, 2.1, 2.6, 3.1, 3.7, 4.7, 5.2, 6.8], windows, ends=WAN, summary=False)
    ends = means(("5", 8, 3.85, 0, "sender"), ("5", 8, 2.28, None, "receiver"))
    assert causes(sent + ends) == cause


DEBUGGING = """$ iperf3 -c localhost -w40G -d
send_parameters:
{
    "tcp": true
}
SNDBUF is 425984, expecting 2147483648
"""
NO_ALGORITHM = "unable to set TCP_CONGESTION: Supplied congestion control algorithm not supported\n"


@pytest.mark.parametrize(("content", "cause"), [(NO_ALGORITHM, "D38"), (DEBUGGING, "D36")])
def test_a_message_is_read_without_the_name_of_the_program_and_beside_its_debugging(content, cause):
    assert causes(content) == [cause]
