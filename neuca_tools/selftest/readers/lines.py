"""The line grammar that iperf3's and iperf 2's texts share: bracketed ids, intervals, amounts with units.

Amounts: "KBytes" are 1024 bytes, "Kbits" 1000 bits (units.c of both programs); `-f M` gives "MBytes/sec".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from typing import NamedTuple, Optional

PREFIXES = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
LONGEST_LINE = 1000
_AMOUNT = r"([\d.]{1,20})\s*([KMGT]?)"
_ROW = re.compile(
    r"\[\s*(?P<id>\d{1,9}|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?\s+(?P<start>[\d.]{1,12})\s*-\s*(?P<end>[\d.]{1,12})\s+sec"
    rf"\s+{_AMOUNT}(?P<unit>Bytes|bits)\s+(?P<rate>[\d.]{{1,20}})\s*(?P<scale>[KMGT]?)(?P<per>bits|Bytes)/sec(?P<rest>.*)",
    re.IGNORECASE,
)
_CONNECTED = re.compile(
    r"\[\s*(\d{1,9})\](?:\[[TR]X-[CS]\])?\s+local (\S{1,80}) port (\d{1,5}) connected (?:to|with) (\S{1,80}) port (\d{1,5})"
)
_COMMAND = re.compile(r"(?:^|[\s/#$])(iperf3?) +(-.*)")
_SIZE = re.compile(r"([\d.]{1,20})([kmgtKMGT]?)")


class Row(NamedTuple):
    """One line of numbers; `rest` is what follows the rate, which each program fills in its own way."""

    id: str
    role: Optional[str]  # TX-C, RX-C with iperf3 --bidir
    start: float
    end: float
    bytes: float
    rate: float  # bit/s
    rest: str


class Words(NamedTuple):
    """What the command line asked for, where it was pasted along."""

    program: str
    target: Optional[float] = None  # bit/s
    duration: Optional[float] = None
    streams: Optional[int] = None
    buffer: Optional[float] = None
    datagram: Optional[int] = None
    udp: bool = False
    reverse: bool = False


def floating(word: str) -> Optional[float]:
    try:
        return float(word)
    except ValueError:  # "1.2.3"
        return None


def parse_row(line: str) -> Optional[Row]:
    found = _ROW.search(line[:LONGEST_LINE])
    if found is None:
        return None
    start, end = floating(found["start"]), floating(found["end"])
    amount, rate = floating(found[5]), floating(found["rate"])
    if start is None or end is None or amount is None or rate is None:
        return None
    size = (
        amount * 1024 ** PREFIXES[found[6].upper()] / (8 if found["unit"].lower() == "bits" else 1)
    )
    in_bytes = found["per"].lower() == "bytes"
    bits = rate * (
        8 * 1024 ** PREFIXES[found["scale"].upper()]
        if in_bytes
        else 1000 ** PREFIXES[found["scale"].upper()]
    )
    return Row(found["id"].upper(), found["role"], start, end, size, bits, found["rest"].strip())


def parse_connection(line: str) -> Optional[tuple[str, str, int, str, int]]:
    """Id, local address and port, remote address and port."""
    found = _CONNECTED.search(line[:LONGEST_LINE])
    return None if found is None else (found[1], found[2], int(found[3]), found[4], int(found[5]))


def parse_size(word: str) -> Optional[float]:
    """Bytes, as `-w` and `-l` have them: K is 1024."""
    found = _SIZE.fullmatch(word)
    amount = floating(found[1]) if found else None
    return None if found is None or amount is None else amount * 1024 ** PREFIXES[found[2].upper()]


def parse_rate(word: str) -> Optional[float]:
    """bit/s, as `-b` has it: K is 1000. Also "5G", "100 Mbit/s", "10gbit"."""
    found = re.fullmatch(rf"{_AMOUNT}\s*(?:bits?(?:/s|ps)?|bps)?", word.strip(), re.IGNORECASE)
    amount = floating(found[1]) if found else None
    return None if found is None or amount is None else amount * 1000 ** PREFIXES[found[2].upper()]


def parse_command(line: str) -> Optional[Words]:
    """The command, if this line is a shell's prompt with one."""
    found = _COMMAND.search(line[:LONGEST_LINE])
    if found is None:
        return None
    words = found[2].split()
    options = dict(zip(words, [*words[1:], ""]))
    streams = options.get("-P", "")
    count = int(streams) if streams.isdecimal() and len(streams) < 6 else None
    target, datagram = (
        parse_rate(options.get("-b", "").partition("/")[0]),
        parse_size(options.get("-l", "")),
    )
    return Words(
        found[1],
        None if target is None else target * (count or 1),
        floating(options.get("-t", "") or "x"),
        count,
        parse_size(options.get("-w", "")),
        None if datagram is None else int(datagram),
        "-u" in words,
        "-R" in words,
    )
