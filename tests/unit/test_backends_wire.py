"""The compact readers of rtnetlink: they read what pyroute2 encodes, and never take an error for an empty answer."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import random
import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_interface, ip_network

import pytest
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from neuca_tools.backends import kernel_state, linkwatch, routing, wire
from neuca_tools.errors import ObserveError
from neuca_tools.model.routing import Rule, SeenRule
from neuca_tools.selftest.measure.host import kernel, tcp_info

HEADER = 16  # bytes of struct nlmsghdr
MANY = 1000
FAMILIES = {4: 2, 6: 10}
DUMP_INTERRUPTED, ERROR, DONE, OVERRUN = 0x10, 2, 3, 4


def body(kind, attributes, **fields):
    """The body of a message as pyroute2 encodes it."""
    message = kind()
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = [(name, value) for name, value in attributes.items() if value is not None]
    message.encode()
    return bytes(message.data)[HEADER:]


def mac(dice):
    return ":".join(f"{dice.randrange(256):02x}" for _ in range(6))


def host(dice, version):
    if version == 4:
        return IPv4Address(dice.randrange(1, 1 << 32))
    return IPv6Address(dice.randrange(1 << 96, 1 << 128))


def network(dice, version):
    length = dice.randrange(33 if version == 4 else 129)
    return ip_network((host(dice, version), length), strict=False)


def a_link(dice):
    """A link message, and what is to be read from it."""
    index, flags = dice.randrange(1, 1 << 20), dice.choice((0, 1, 0x10001, 0x10801))
    kind = dice.choice((None, "vlan", "veth", "macvlan", "vrf", "tun"))
    data = {"vlan": [("IFLA_VLAN_ID", dice.randrange(1, 4095))], "vrf": [("IFLA_VRF_TABLE", 9)]}
    info = kind and {
        "attrs": [("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", {"attrs": data.get(kind, [])})]
    }
    values = {
        "IFLA_IFNAME": f"n{index}",
        "IFLA_ADDRESS": mac(dice),
        "IFLA_MTU": dice.randrange(68, 65536),
        "IFLA_TXQLEN": dice.randrange(100000),
        "IFLA_QDISC": dice.choice(("fq", "noqueue", "mq")),
        "IFLA_MASTER": dice.choice((None, dice.randrange(1, 9))),
        "IFLA_LINK": dice.choice((None, dice.randrange(1, 9))),
        "IFLA_LINKINFO": info,
    }
    permanent = dice.choice(("", mac(dice)))
    lower = 0 if kind == "veth" else values["IFLA_LINK"] or 0
    wanted = (
        index,
        values["IFLA_IFNAME"],
        kind or "",
        values["IFLA_ADDRESS"],
        permanent,
        values["IFLA_MTU"],
        values["IFLA_TXQLEN"],
        values["IFLA_QDISC"],
        values["IFLA_MASTER"] or 0,
        lower,
        (bool(flags & 1), bool(flags & 0x10000), bool(flags & 0x800)),
        data["vlan"][0][1] if kind == "vlan" else None,
    )
    message = body(ifinfmsg, values, index=index, flags=flags)
    if permanent:  # which pyroute2 0.7.2 encodes as a text
        message += wire.encode_attribute(
            kernel_state.PERMANENT_MAC, bytes.fromhex(permanent.replace(":", ""))
        )
    return message, wanted


def seen_link(message):
    one = kernel_state.parse_device(message)
    return (one.index, one.name, one.kind, one.mac, one.permanent_mac, one.mtu, one.txqueuelen, one.qdisc,
            one.master, one.lower, (one.up, one.carrier, one.slave), one.vlan_id)  # fmt: skip


def an_address(dice):
    version, index = dice.choice((4, 6)), dice.randrange(1, 1 << 20)
    address = ip_interface((host(dice, version), dice.randrange(1, 33 if version == 4 else 129)))
    permanent = dice.choice((0, 0x80))
    values = {
        "IFA_ADDRESS": str(address.ip),
        "IFA_LOCAL": str(address.ip) if version == 4 else None,
        "IFA_FLAGS": permanent,
    }
    message = body(
        ifaddrmsg,
        values,
        family=FAMILIES[version],
        prefixlen=address.network.prefixlen,
        index=index,
        flags=permanent,
    )
    return message, (index, address, bool(permanent))


def seen_address(message):
    found = kernel_state._address_fields([message])
    ((index, (address,)),) = found["addresses"].items()
    return index, address, (index, address) not in found.get("leased_addresses", ())


def a_route(dice):
    version, index = dice.choice((4, 6)), dice.randrange(1, 1 << 20)
    to, via, metric = (
        network(dice, version),
        dice.choice((None, host(dice, version))),
        dice.randrange(1 << 31),
    )
    protocol = dice.randrange(256)
    values = {
        "RTA_TABLE": 254,
        "RTA_DST": str(to.network_address) if to.prefixlen else None,
        "RTA_OIF": index,
        "RTA_GATEWAY": via and str(via),
        "RTA_PRIORITY": metric,
    }
    message = body(
        rtmsg,
        values,
        family=FAMILIES[version],
        dst_len=to.prefixlen,
        table=254,
        type=1,
        proto=protocol,
    )
    return message, (to, index, via, metric, protocol)


def seen_route(message):
    (one,) = routing.parse_routes(message, {})
    return one.to, one.index, one.via, one.metric, one.protocol


def a_rule(dice):
    version = dice.choice((4, 6))
    ends = [dice.choice((None, network(dice, version))) for _ in range(2)]
    table, priority, mark = (
        dice.randrange(256, 1 << 31),
        dice.randrange(1 << 31),
        dice.randrange(1, 1 << 31),
    )
    suppress = dice.choice((None, 0, 5))
    values = {
        "FRA_SRC": ends[0] and str(ends[0].network_address),
        "FRA_DST": ends[1] and str(ends[1].network_address),
        "FRA_TABLE": table,
        "FRA_PRIORITY": priority,
        "FRA_FWMARK": mark,
        "FRA_FWMASK": 0xFF,
        "FRA_PROTOCOL": 99,
        "FRA_SUPPRESS_PREFIXLEN": suppress,
    }
    lengths = [one.prefixlen if one else 0 for one in ends]
    message = body(
        fibmsg,
        values,
        family=FAMILIES[version],
        src_len=lengths[0],
        dst_len=lengths[1],
        table=252,
        action=1,
    )
    texts = [str(one) if one else "" for one in ends]
    suppressed = -1 if suppress is None else suppress
    return message, SeenRule(Rule(version, priority, table, *texts, mark, 0xFF, 0, suppressed), 99)


def seen_rule(message):
    (rule,) = routing.parse_rules(message)
    return rule


def packed(kind, payload, flags=0, sequence=1):
    return struct.pack("=IHHII", HEADER + len(payload), kind, flags, sequence, 0) + payload


class Answers(wire.Socket):
    """A netlink socket whose kernel is the other end of a socket pair, and has sent these datagrams."""

    def __init__(self, datagrams):
        super().__init__(socket.NETLINK_ROUTE)
        self._socket.close()
        self._socket, self._kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(5.0)
        for one in datagrams:
            self._kernel.send(one)

    def __exit__(self, *reason):
        super().__exit__(*reason)
        self._kernel.close()


EACH = [(a_link, seen_link), (an_address, seen_address), (a_route, seen_route), (a_rule, seen_rule)]


@pytest.mark.parametrize(("make", "seen"), EACH)
def test_what_pyroute2_encodes_is_read(make, seen):
    dice = random.Random(17)
    for _ in range(MANY):
        message, wanted = make(dice)
        assert seen(message) == wanted


@pytest.mark.parametrize(("make", "seen"), EACH)
def test_a_message_that_is_cut_off_is_an_error_or_what_was_whole(make, seen):
    """A cut between two attributes cannot be seen; one within an attribute is an error."""
    message, _ = make(random.Random(18))
    for length in range(len(message)):
        rest = message[:length]
        if _is_whole(rest, 12 if make in (a_route, a_rule) else 8 if make is an_address else 16):
            continue
        with pytest.raises((OSError, ValueError, struct.error)):
            seen(rest)


def _is_whole(message, head):
    try:
        list(wire.parse_attributes(message[head:]))
    except OSError:
        return False
    return len(message) >= head


@pytest.mark.parametrize(("make", "seen"), EACH)
def test_garbage_raises_what_a_look_turns_into_its_error(make, seen):
    dice = random.Random(19)
    for _ in range(MANY):
        message = bytearray(make(dice)[0])
        for _ in range(dice.randrange(1, 9)):
            message[dice.randrange(len(message))] = dice.randrange(256)
        try:
            seen(bytes(message))
        except (OSError, ValueError, struct.error):
            pass  # what `kernel_state.read_world` catches
        except (KeyError, IndexError, TypeError) as error:
            raise AssertionError(bytes(message)) from error


def test_the_last_attribute_may_have_no_padding():
    assert wire.Attributes(wire.encode_attribute(1, b"123")[:7]) == {1: b"123"}


BAD = {
    "no header": b"\x10\0\0",
    "a length below that of a header": struct.pack("=IHHII", 8, 0, 0, 1, 0),
    "a length beyond the datagram": struct.pack("=IHHII", 64, 0, 0, 1, 0) + bytes(4),
    "no error number": packed(ERROR, b"\0"),
    "an error": packed(ERROR, struct.pack("=i", -12)),
    "an error at the end": packed(0, bytes(16)) + packed(DONE, struct.pack("=i", -12)),
    "an overrun": packed(OVERRUN, b""),
    "a datagram too large": packed(0, bytes(70000)) + packed(DONE, bytes(4)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_dump_that_fails_is_never_empty(name):
    with Answers([BAD[name]]) as kernel, pytest.raises(OSError, match=r"\w") as caught:
        kernel.dump(18, bytes(16))
    assert caught.value.errno


def test_an_interrupted_dump_is_repeated_and_its_answers_are_dropped():
    first = packed(16, b"half", DUMP_INTERRUPTED) + packed(DONE, bytes(4))
    second = packed(16, b"complete", sequence=2) + packed(DONE, bytes(4), sequence=2)
    with Answers([first, second]) as kernel:
        assert kernel.dump(18, bytes(16)) == [b"complete"]


def test_a_dump_that_is_always_interrupted_is_an_error():
    ends = [packed(DONE, bytes(4), DUMP_INTERRUPTED, number) for number in range(1, 6)]
    with Answers(ends) as kernel, pytest.raises(OSError, match="they changed 5 times meanwhile"):
        kernel.dump(18, bytes(16))


@pytest.mark.parametrize(
    "read", [kernel.read_devices, lambda: list(tcp_info._query_kernel(4, 0, 1, 0, 0))]
)
def test_an_interrupted_dump_of_the_self_test_is_repeated(read, monkeypatch):
    first = packed(16, b"half", DUMP_INTERRUPTED) + packed(DONE, bytes(4))
    second = packed(DONE, bytes(4), sequence=2)
    monkeypatch.setattr(wire, "Socket", lambda _: Answers([first, second]))
    assert not read()


def forged(receiver, message):
    """Send a message to a netlink socket, as the kernel lets root and nobody else do."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sender:
        sender.sendto(message, (receiver.getsockname()[0], 0))


def test_another_process_cannot_answer_for_the_kernel():
    with wire.Socket(socket.NETLINK_ROUTE) as kernel:
        with pytest.raises(OSError, match=r"refused|not permitted"):
            forged(kernel._socket, packed(DONE, bytes(4)))
        assert kernel.dump(kernel_state.GET_LINK, kernel_state.LINK.pack(0, 0, 0, 0, 0))


@pytest.mark.parametrize("kind", [linkwatch.RTM_NEWLINK, linkwatch.RTM_DELROUTE])
def test_another_process_cannot_report_a_change_for_the_kernel(kind):
    with linkwatch.LinkWatch() as watch:
        with suppress(PermissionError):
            forged(watch._socket, packed(kind, b""))
        watch.drain()
        assert not watch.has_seen_change
    assert watch.fileno() == -1, "it is not closed"


def test_a_look_at_garbage_says_that_it_could_not_look(monkeypatch):
    monkeypatch.setattr(wire.Socket, "dump", lambda *_: [b"\1\2"])
    with pytest.raises(
        ObserveError, match=r"^ask the kernel for its links, addresses and routes: "
    ):
        kernel_state.read_world()


def test_a_route_of_ours_has_its_type_of_service():
    fields = {"dst_len": 16, "table": 254, "type": 1, "proto": routing.ROUTE_PROTOCOL, "tos": 8}
    message = body(rtmsg, {"RTA_DST": "10.2.0.0", "RTA_OIF": 3}, family=FAMILIES[4], **fields)
    assert [route.traits.tos for route in routing.parse_routes(message, {})] == [8]
