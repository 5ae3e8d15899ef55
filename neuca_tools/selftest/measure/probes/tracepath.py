"""The routers on the way to a peer and the MTU up to each, as tracepath(8) finds them."""

# SPDX-License-Identifier: MIT

import re

from neuca_tools.model import Host as Address
from neuca_tools.selftest.evidence.route import Hop, Route
from neuca_tools.selftest.measure.program import Program, confine_process

# For all hops: tracepath waits for three seconds at each router that does not respond.
TRACE_SECONDS = 10.0
FIRST_PORT = 33434  # the first one of traceroute(8), which firewalls expect
NOT_FOUND = 127  # the exit code of stdbuf(1) if there is no tracepath
# " 3:  10.2.0.2   0.014ms pmtu 1400", " 4:  10.4.0.2  0.020ms reached"; not " 2:  no reply".
LINE = re.compile(
    r" *(?P<number>\d+)\??: +(?:\[LOCALHOST\]|(?P<address>[\da-f:]\S*))"
    r"(?: +(?P<milliseconds>[\d.]+)ms)?"
    r"(?:.* pmtu (?P<mtu>\d+))?(?P<reached>.* reached)?"
)


def trace_route(peer: Address) -> Route:
    """What is known of the route after TRACE_SECONDS seconds at most.

    Raises OSError, with the text that tracepath is not installed if that is so.
    """
    # Into a file, tracepath would write nothing before its end.
    command = ["stdbuf", "-oL", "tracepath", "-n", "-p", str(FIRST_PORT), str(peer)]
    result = Program(command, confine_process()).end(TRACE_SECONDS)
    if result.code == NOT_FOUND:
        raise FileNotFoundError(NOT_FOUND, "tracepath is not installed")
    return parse_route(result.out.decode("ascii", "replace"), peer)


def parse_route(output: str, peer: Address) -> Route:
    """The route that the output of tracepath -n shows, without silent hops at its end."""
    hops: dict[int, Hop] = {}
    mtu, is_reached = None, False
    for line in map(LINE.match, output.splitlines()):
        if line is None:
            continue
        if line["mtu"]:
            # A router that does not pass the packet on, or this host: the next one is smaller.
            mtu = int(line["mtu"])
            continue
        number = int(line["number"])
        if line["address"]:
            addresses = (*hops.get(number, Hop(number)).addresses, line["address"])
            rtt = round(float(line["milliseconds"]) / 1000, 6) if line["milliseconds"] else None
            hops[number] = Hop(number, tuple(dict.fromkeys(addresses)), rtt, mtu)
            # A firewall may answer as the peer does.
            is_reached |= line["reached"] is not None and line["address"] == str(peer)
    last = max(hops, default=0)
    return Route(tuple(hops.get(at, Hop(at)) for at in range(1, last + 1)), is_reached)
