"""One piece of evidence in the words of a network engineer, its figures with their units."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Mapping

from neuca_tools.selftest import amounts
from neuca_tools.selftest.evidence.look import Fact

Form = Callable[[float], str]


def _number(value: float) -> str:
    if value.is_integer() or value >= 1000:
        return f"{value:.0f}"
    return f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{value:.0f} bytes"


# The kernel's, iperf's and our own short names.
WORDS: Mapping[str, tuple[str, Form]] = {
    "rtt": ("round trip", amounts.time),
    "rtt when packets were lost": ("round trip when packets were lost", amounts.time),
    "rtt / min_rtt": ("round trip under load, times the shortest one", _number),
    "cwnd": ("congestion window", amounts.size),
    "snd_cwnd": ("congestion window", amounts.size),
    "cwnd at the end": ("congestion window at the end", amounts.size),
    "cwnd / rate, seconds": ("round trip that the congestion window implies", amounts.time),
    "snd_wnd": ("window that the receiver advertises", amounts.size),
    "unacked × mss": ("in flight", amounts.size),
    "tb": ("send buffer", amounts.size),
    "Recv-Q / rb": ("of the receive buffer, waiting to be read", amounts.percent),
    "rwnd_limited / busy_time": ("time limited by the receive window", amounts.percent),
    "sndbuf_limited / busy_time": ("time limited by the send buffer", amounts.percent),
    "1 - busy_time / time": ("time with nothing in flight", amounts.percent),
    "bytes_retrans / bytes_sent": ("sent again", amounts.percent),
    "bytes_retrans / bytes_sent, at first": ("sent again at first", amounts.percent),
    "variation": ("variation of the rate", amounts.percent),
    "steal": ("CPU time that the hypervisor took", amounts.percent),
    "loss": ("lost", amounts.percent),
    "-b": ("requested (-b)", amounts.rate),
    "-w": ("requested (-w)", amounts.size),
    "-l": ("block (-l)", amounts.size),
    "sndbuf_actual": ("send buffer granted", amounts.size),
    "rcvbuf_actual": ("receive buffer granted", amounts.size),
    "bytes": ("delivered", amounts.size),
    "bytes received": ("received", amounts.size),
    "sent": ("datagrams sent", _number),
    "path MTU": ("path MTU", _bytes),
    "path MTU, acknowledged": ("path MTU, acknowledged", _bytes),
    "MTU of the interfaces": ("MTU of the interfaces", _bytes),
    "sent bit/s": ("sent", amounts.rate),
}
# By the end of a name, which is left out, and by its begin.
ENDS: Mapping[str, Form] = {
    ", bit/s": amounts.rate,
    ", bytes": amounts.size,
    ", seconds": amounts.time,
    " / datagrams": amounts.percent,
}
SHARE_OF_CPU = ("CPU ",)


def fact_line(fact: Fact) -> str:
    """ "round trip: 40.0 ms", "eth1 mtu: 9000 bytes → 1500 bytes"."""
    name, form = _form(fact.field)
    before = "" if fact.before is None else f"{_value(fact.before, form)} → "
    return f"{name}: {before}{_value(fact.after, form)}"


def _form(field: str) -> tuple[str, Form]:
    if field in WORDS:
        return WORDS[field]
    for end, form in ENDS.items():
        if field.endswith(end):
            return field[: -len(end)], form
    if field.endswith(" mtu"):
        return field, _bytes
    return field, amounts.percent if field.startswith(SHARE_OF_CPU) else _number


def _value(value: object, form: Form) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return form(float(value))
    return "" if value is None else str(value)
