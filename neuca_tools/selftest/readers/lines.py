"""The line grammar shared by the text output of iperf3 and iperf 2.

Amounts: "KBytes" are 1024 bytes, "Kbits" 1000 bits (units.c of both programs); `-f M` gives
"MBytes/sec".
"""

# SPDX-License-Identifier: MIT

import re
from typing import NamedTuple, Optional

from neuca_tools.selftest.evidence.run import Connection
from neuca_tools.selftest.readers.values import known_values, parse_number, parse_whole, scaled

MAX_LINES = 500_000
LONGEST_LINE = 1000  # characters
NO_RESULTS = "no results found"
SUM = "SUM"  # the row of all streams
PREFIXES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
# By unit: the base of its prefixes in a rate, and its bits.
BASES, BITS = {"bit": 1000, "byte": 1024}, {"bit": 1, "byte": 8}
_AMOUNT = r"([\d.]{1,20})\s*([KMGT]?)"
_ROW = re.compile(
    r"\[[\s*]*(?P<id>\d{1,9}|SUM)\](?:\[(?P<role>[TR]X-[CS])\])?"
    r"\s*(?P<start>[\d.]{1,12})\s*-\s*(?P<end>[\d.]{1,12})\s*sec,?"
    r"\s+(?P<size>[\d.]{1,20})\s*(?P<prefix>[KMGT]?)(?P<unit>Byte|bit)s?"
    r"\s+(?P<rate>[\d.]{1,20})\s*(?P<scale>[KMGT]?)(?P<per>Byte|bit)s?/s(?:ec)?(?P<rest>.*)",
    re.IGNORECASE,
)
_CONNECTED = re.compile(
    r"\[\s*(\d{1,9})\](?:\[[TR]X-[CS]\])?"
    r"\s+local (\S{1,80}) port (\d{1,5}) connected (?:to|with) (\S{1,80}) port (\d{1,5})"
)
# Behind the jitter, of which iperf3 3.1 prints 16 digits at very low rates (esnet/iperf#1158).
_LOSSES = re.compile(r"[\d.]{1,20} ms\s+(-?\d{1,18})/\s*(\d{1,18})")
LARGEST_COUNT = 2**31 - 1  # iperf3 prints no more datagrams, however many there were
# Up to a pipe or another command, to what it printed where a page lost the newline, or to markup.
_COMMAND = re.compile(
    r"(?:^|[\s/#$>'\"`(])iperf3?(?:[-.][\w.]{1,20})? +(-\S.*?)"
    r"(?: {0,5}\\?(?: \||-{4}| \[(?:[ \d]{1,5}| ID|SUM)\]|`|</|; {0,5}[a-z]| &&).*|\\?)$"
)
# The short spellings of options whose values count here, values attached as in "-P4", and flags
# that share a hyphen, of which the last may take a value.
_SHORT = {"--bandwidth": "-b", "--bitrate": "-b", "--parallel": "-P", "--time": "-t"}
_SHORT |= {"--window": "-w", "--length": "-l", "--len": "-l", "--udp": "-u", "--reverse": "-R"}
_SHORT |= {"--client": "-c", "--server": "-s", "--fq-rate": "--fq-rate"}
_SHORT |= {"--set-mss": "-M", "--mss": "-M"}
_ATTACHED = re.compile(r"(-[bPtwlM])(\d\S*)")
_TOGETHER = re.compile(r"-([uRVZdJN46es]{1,8})([cbPtwl]?)")
LONGEST_NAME = 80  # characters of a host, as in the lines of iperf itself
_SIZE = re.compile(r"([\d.]{1,20})([KMGT]?)B?", re.IGNORECASE)
# What terminals, web pages and forums put around a word of a line, and people behind it.
_MARKUP = re.compile(
    r"</?(?:b|br|code|font|pre|span|strong)\b[^<>]{0,200}>|\*\*|\x1b\[[\d;]{0,20}m", re.IGNORECASE
)
_REMARK = re.compile(r"\s[<#\u2190].*")
_QUOTES = " \t\r\",'"  # around a line that is a string in other documents
_RATE = re.compile(rf"{_AMOUNT}\s*(?:bits?(?:/s|ps)?|bps)?", re.IGNORECASE)


class Row(NamedTuple):
    """A result line; `rest` is the text after the rate, which depends on the program."""

    id: str
    role: Optional[str]  # with iperf3 --bidir: "TX-C", "RX-C", "TX-S" or "RX-S"
    start: float
    end: float
    bytes: float
    rate: float  # bit/s
    rest: str


class Rest(NamedTuple):
    """What the rest of a result line says; times in seconds, `cwnd` in bytes."""

    retransmits: Optional[int] = None
    cwnd: Optional[float] = None
    rtt: Optional[float] = None
    datagrams: Optional[int] = None
    lost: Optional[int] = None


class Words(NamedTuple):
    """What the command line asked for, if it is part of the text."""

    target: Optional[float] = None  # bit/s, all streams together
    duration: Optional[float] = None
    streams: Optional[int] = None
    buffer: Optional[float] = None
    datagram: Optional[int] = None
    udp: bool = False
    reverse: bool = False
    sctp: bool = False
    client: bool = False
    peer: Optional[str] = None
    mss: Optional[int] = None
    options: Optional[str] = None


class Text(NamedTuple):
    """The lines of a document that could be parsed, each connection with the id of its stream."""

    rows: list[Row]
    connections: list[tuple[str, Connection]]
    words: Words

    @property
    def distinct_connections(self) -> tuple[Connection, ...]:
        return tuple(dict.fromkeys(connection for _, connection in self.connections))

    @property
    def ids(self) -> set[str]:
        """The streams that have rows."""
        return {row.id for row in self.rows} - {SUM}


def parse_document(document: str) -> Text:
    document = _MARKUP.sub("", document)
    lines = [line[:LONGEST_LINE] for line in document.split("\n")[:MAX_LINES]]
    commands = known_values(map(parse_command, lines))
    clients = [command for command in commands if command.client]
    words = next(iter(clients or commands), Words())
    # The same line again is a copy, such as the last one in a script's own summary.
    rows = list(dict.fromkeys(known_values(map(parse_row, lines))))
    return Text(rows, known_values(map(parse_connection, lines)), words)


def first_group(pattern: re.Pattern[str], document: str) -> Optional[str]:
    """The first group of the first match."""
    match = pattern.search(document)
    return match[1] if match else None


def parse_float(word: Optional[str]) -> Optional[float]:
    """None for words such as "1.2.3"."""
    try:
        return float(word or "")
    except ValueError:
        return None


def parse_amount(digits: Optional[str], prefix: Optional[str], base: int) -> Optional[float]:
    return parse_number(scaled(parse_float(digits), base ** PREFIXES[(prefix or "").casefold()]))


def parse_row(line: str) -> Optional[Row]:
    match = _ROW.search(line) if "sec" in line else None
    if match is None:
        return None
    start, end = parse_float(match["start"]), parse_float(match["end"])
    unit, per = match["unit"].casefold(), match["per"].casefold()
    size = parse_amount(match["size"], match["prefix"], 1024)
    rate = parse_amount(match["rate"], match["scale"], BASES[per])
    if start is None or end is None or size is None or rate is None:
        return None
    size, rate = size * BITS[unit] / 8, rate * BITS[per]
    is_rough = _significant_digits(match["rate"]) < _significant_digits(match["size"])
    if end > start and (is_rough or not rate):
        rate = size * 8 / (end - start)  # too low for the requested unit (-f g)
    rest = _REMARK.sub("", match["rest"]).strip(_QUOTES)
    return Row(match["id"].upper(), match["role"], start, end, size, rate, rest)


def _significant_digits(word: str) -> int:
    return len(word.replace(".", "").lstrip("0"))


def parse_losses(rest: str) -> Optional[Rest]:
    """Lost datagrams and all datagrams, as the receiver of a UDP test counted them.

    Neither, if the counts are not those of the test.
    """
    match = _LOSSES.match(rest)
    if match is None:
        return None
    # iperf subtracts datagrams that arrive late, and may print a negative number.
    lost, datagrams = max(0, int(match[1])), int(match[2])
    if lost > datagrams or datagrams == LARGEST_COUNT:
        return Rest()  # the text ends within the number, or it is the largest one
    return Rest(datagrams=datagrams, lost=lost)


def parse_connection(line: str) -> Optional[tuple[str, Connection]]:
    """The stream's id and its connection."""
    if " local " not in line:
        return None
    match = _CONNECTED.search(line)
    if match is None:
        return None
    return match[1], Connection(match[2], int(match[3]), match[4], int(match[5]))


def parse_size(word: str) -> Optional[float]:
    """Bytes, as given to `-w` and `-l`: K is 1024."""
    match = _SIZE.fullmatch(word)
    return parse_amount(match[1], match[2], 1024) if match else None


def parse_rate(word: str) -> Optional[float]:
    """bit/s, as given to `-b`: K is 1000. Also "5G", "100 Mbit/s" and "10gbit"."""
    match = _RATE.fullmatch(word.strip())
    return parse_amount(match[1], match[2], 1000) if match else None


def parse_command(line: str) -> Optional[Words]:
    """The iperf command in this line, if there is one."""
    match = _COMMAND.search(line)
    if match is None:
        return None
    words = _separate_options(match[1].split())
    pairs = zip(words, [*words[1:], ""])
    options = {word: value for word, value in pairs if not value.startswith("-")}
    streams: Optional[int] = None
    if options.get("-P", "").isdecimal() and len(options["-P"]) < 6:
        streams = int(options["-P"])
    # By iperf, or by the kernel's pacing.
    limit = options.get("-b", "").partition("/")[0] or options.get("--fq-rate", "")
    return Words(
        target=scaled(parse_rate(limit), streams or 1),
        duration=parse_number(parse_float(options.get("-t"))),
        streams=streams,
        buffer=parse_size(options.get("-w", "")),
        datagram=parse_whole(parse_size(options.get("-l", ""))),
        udp="-u" in words,
        reverse="-R" in words,
        sctp="--sctp" in words,
        client="-c" in words,
        peer=options.get("-c", "")[:LONGEST_NAME] or None,
        mss=parse_whole(parse_float(options.get("-M"))),
        options=match[1].strip(),
    )


def _separate_options(words: list[str]) -> list[str]:
    """Options in their short spelling, apart from their values."""
    separate: list[str] = []
    for word in words:
        name, _, value = word.partition("=")
        attached, together = _ATTACHED.fullmatch(word), _TOGETHER.fullmatch(word)
        if attached:
            separate += attached.groups()
        elif together:
            separate += [f"-{flag}" for flag in "".join(together.groups())]
        elif name in _SHORT:
            separate += filter(None, (_SHORT[name], value))
        else:
            separate.append(word)
    return separate
