"""D34, D35, D47: what iperf said when it could not test."""

# SPDX-License-Identifier: MIT

import re
from itertools import takewhile
from typing import NamedTuple, Optional

from neuca_tools.selftest.conditions.base import Hit, Session, single_fact
from neuca_tools.selftest.evidence.look import Look

# iperf3 goes on after a connect() that failed, and reports the next call.
REFUSED = re.compile(r"connection refused", re.IGNORECASE)
BUSY = re.compile(r"server is busy", re.IGNORECASE)
OTHER_PROGRAM = re.compile(
    r"make sure other side|protocol(?! not |/)|unknown control message|is not iperf3"
    r"|unable to receive (parameters|cookie)",
    re.IGNORECASE,
)


CLOSED = re.compile(
    r"control socket has closed unexpectedly|control message.{0,100}: connection reset",
    re.IGNORECASE,
)
# Of iperf3; seconds that a test takes at least.
IPERF3_PORT, SHORTEST_TEST = 5201, 0.1
LOST = "connection lost"  # the other title of D47


class _Message(NamedTuple):
    """Part of a message of iperf for which no packet is to blame, what it means, and advice."""

    text: str
    meaning: str
    advice: str
    title: Optional[str] = None


# In the words of iperf_strerror() of iperf3, iperf 2, strerror(3), Windows, and getopt_long(3) of
# several systems. iperf3 writes what it sends to a temporary file, so that a stream fails where
# there is none (iperf_new_stream()).
_MESSAGES = (
    _Message(
        r"authori[sz]ation failed"
        r"|must specify (?:a )?(?:username|path to a valid (?:private rsa|rsa private))",
        "the server requires a user name, a password and its public key, and one of them is wrong "
        "or missing",
        "give --username, --rsa-public-key-path and IPERF3_PASSWORD; the clocks of both hosts may "
        "differ by 10 s (--time-skew-threshold of the server)",
    ),
    _Message(
        r"unable to create a new stream: (?:read-only|no such file|no space|permission)",
        "iperf3 cannot create its temporary file",
        "set TMPDIR to a directory that it can write to",
    ),
    _Message(
        r"can(?:not|'t) assign requested address|requested address is not valid in its context",
        "this host does not have the address that iperf needs: that of -B, or any of the server's "
        "family",
        "use an address of this host, or leave out -B; -4 or -6 chooses the family",
    ),
    _Message(
        r"address already in use|only one usage of each socket address",
        "another program already uses the port",
        "stop it, or choose another port (-p)",
    ),
    _Message(
        r"error -(?: \||$)",
        "the server reports an error for which this version of iperf3 has no words",
        "see what the server printed; test without options, such as a large -w",
    ),
    _Message(
        r"start listener for connections: (?:operation not permitted|permission denied)",
        "this host does not let iperf listen on that port",
        "ports below 1024 require root; look for a security policy (ESXi, SELinux, a container)",
    ),
    _Message(
        r"(?:^|\| |(?:connect|send|stream socket)[^|]{0,120}: )"
        r"(?:operation not permitted|permission denied)",
        "this host does not let iperf send: a firewall of its own, or a security policy",
        "look at the rules for outgoing packets (nft list ruleset), and at those of a container",
    ),
    _Message(
        r"stream socket: no buffer space",
        "more is offered than the NIC sends: its queue is full (ENOBUFS of send(2) on BSD, macOS)",
        "offer less (-b)",
    ),
    _Message(
        r"protocol not supported|no sctp support"
        r"|(?:connect|listener|sctp)[^|]{0,120}: protocol not available",
        "this system, or this build of iperf3, lacks the protocol, such as SCTP",
        "load its module (modprobe sctp) on both hosts, or test with another protocol",
    ),
    _Message(
        r"too many open files|cannot allocate memory|unable to create thread",
        "this host lacks descriptors, memory or threads for so many streams",
        "fewer streams (-P); ulimit -a shows the limits",
    ),
    _Message(
        r"message too long|block size (?:invalid|too large)",
        "iperf cannot send blocks of this size (-l)",
        "leave out -l, or use at most 65507 bytes with UDP, 1 MiB with TCP",
    ),
    _Message(
        r"parameter error|(?:unrecognized|invalid|illegal|unknown) option"
        r"|option .{0,80}requires an argument",
        "iperf rejected its arguments",
        "correct them: iperf3 --help of this version lists them",
    ),
    _Message(
        r"socket has closed|connection (?:reset|aborted)|connection abort|forcibly closed"
        r"|broken pipe|select failed: bad file|unable to (?:send|receive) results"
        r"|server has terminated",
        "the other iperf ended, the path failed, or a firewall, NAT or proxy closed the connection",
        "see what the other end printed; --cntl-ka of iperf3 3.17 or later keeps an idle control "
        "connection open",
        LOST,
    ),
)


def is_refused(session: Session) -> bool:
    """Whether the peer has no server on the port; a helper starts one if its own port is open."""
    tcp = session.evidence.reach.tcp
    return tcp == "refused" or (tcp != "timeout" and bool(REFUSED.search(error_text(session))))


def error_text(session: Session) -> str:
    """What iperf said about all runs that failed.

    In a text, those before one that did not were attempts before something was put right.
    """
    errors = [phase.run.error or "" for phase in session.evidence.phases if phase.run]
    if any(look.is_unsampled for look in session.looks):
        errors = list(takewhile(bool, reversed(errors)))[::-1]
    return " | ".join(filter(None, errors))


def server_busy(session: Session) -> Optional[Hit]:
    said = error_text(session)
    if session.evidence.reach.tcp != "busy" and not BUSY.search(said):
        return None
    port = session.evidence.reach.port
    words = f" -p {port}" if port else ", with the -p of the client"
    return Hit(
        1.0,
        "the peer's server is busy with another test, or with one that never ended",
        (single_fact("server", said or "busy"),),
        f"try again later, or restart it; a server for a single test: iperf3 -s -1{words}",
        "receiver",
    )


def _has_begun(session: Session) -> bool:
    return any(look.run.connections or look.run.flows for look in session.looks)


def _is_to_iperf3(look: Look) -> bool:
    """Whether iperf 2 got nothing through to the port of iperf3, whose server closes at once."""
    ports = {connection.remote_port for connection in look.run.connections}
    seconds = max((interval.end for interval in look.flow.intervals), default=0.0)
    is_failed = look.run.tool == "iperf" and look.run.error is not None
    return is_failed and IPERF3_PORT in ports and seconds < SHORTEST_TEST


def other_program(session: Session) -> Optional[Hit]:
    if session.evidence.reach.wrong_peer:
        return Hit(
            1.0,
            "the peer has a different secret: one of them is mistyped, or another host has this "
            "address",
            (single_fact("secret", "differs"),),
            "compare the files of both hosts (sha256sum); else look for a second host that has the "
            "address (arping -D)",
        )
    said = error_text(session)
    is_mixed = any(map(_is_to_iperf3, session.looks))
    if CLOSED.search(said) and not _has_begun(session):
        return Hit(
            0.9,
            "the peer closed the control connection at once: a program other than an iperf3 server "
            "listens on that port, or the server ended",
            (single_fact("iperf3", said),),
            "check the port (-p), and what listens there (ss -ltnp)",
            "peer",
            confidence="medium",
        )
    if not OTHER_PROGRAM.search(said) and not is_mixed:
        return None
    return Hit(
        0.9,
        "client and server do not speak the same protocol: one of them is iperf 2 or another "
        "program, such as a port scan, or their versions are too far apart",
        (single_fact("iperf3", said),),
        "install the same iperf3 on both hosts; let nothing else connect to its port",
        "tool",
    )


def unusable_arguments(session: Session) -> Optional[Hit]:
    """iperf says itself why it did not run, or not to its end.

    If the client is another program, the server may report a lack of memory, which is not meant.
    """
    said = "" if other_program(session) else error_text(session)
    for message in _MESSAGES:
        if not re.search(message.text, said, re.IGNORECASE):
            continue
        hit = Hit(1.0, message.meaning, (single_fact("iperf", said),), message.advice, "tool")
        if message.title != LOST:
            return hit
        if _has_begun(session):
            # What limited the rate until then counts for more.
            share = 0.5 if any(look.rate for look in session.looks) else 0.9
            return hit._replace(share=share, confidence="medium", title=LOST)
    return None
