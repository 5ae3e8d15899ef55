"""D34, D35, D47: what iperf said when it could not test."""

# SPDX-License-Identifier: MIT

import re
from itertools import takewhile
from typing import NamedTuple, Optional

from neuca_tools.selftest.conditions.base import Confidence, Hit, Session, single_fact
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
IPERF3_PORT = 5201
LOST = "connection lost"  # the other title of D47
_LOST = re.compile(
    r"socket has closed|connection (?:reset|abort)|forcibly closed|broken pipe"
    r"|select failed: bad file|unable to (?:send|receive) results|server has terminated",
    re.IGNORECASE,
)


class _Message(NamedTuple):
    """Part of a message of iperf for which no packet is to blame, what it means, and advice."""

    text: str
    meaning: str
    advice: str


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
        r"parameter error|(?:unrecognized|invalid|illegal|unknown) option"
        r"|option .{0,80}requires an argument|message too long|block size (?:invalid|too large)"
        r"|protocol not supported|no sctp support|stream socket: no buffer space"
        r"|too many open files|cannot allocate memory|unable to create thread|error -(?: \||$)"
        r"|(?:^|\| |(?:connect|listener|send|stream socket)[^|]{0,120}: )"
        r"(?:operation not permitted|permission denied|protocol not available)",
        "iperf cannot test, for the reason that it gives",
        "correct its options (iperf3 --help), or what this host refuses or lacks",
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


def message_hit(
    session: Session,
    pattern: re.Pattern[str],
    meaning: str,
    advice: str,
    end: str,
    confidence: Confidence = "high",
) -> Optional[Hit]:
    """What a message of iperf means, if there is one that matches `pattern`."""
    said = error_text(session)
    if not pattern.search(said):
        return None
    return Hit(0.9, meaning, (single_fact("iperf", said),), advice, end, confidence)


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
    """Whether iperf 2 failed at the port of iperf3, whose server closes the connection at once."""
    ports = {connection.remote_port for connection in look.run.connections}
    return look.run.tool == "iperf" and look.run.error is not None and IPERF3_PORT in ports


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
    is_closed_at_once = bool(CLOSED.search(said)) and not _has_begun(session)
    is_other = bool(OTHER_PROGRAM.search(said)) or any(map(_is_to_iperf3, session.looks))
    if not is_closed_at_once and not is_other:
        return None
    text = (
        "the peer closed the control connection at once: it is no iperf3 server, or it ended"
        if is_closed_at_once
        else "client and server do not speak the same protocol: one of them is iperf 2 or another "
        "program, such as a port scan, or their versions are too far apart"
    )
    return Hit(
        0.9,
        text,
        (single_fact("iperf3", said),),
        "install the same iperf3 on both hosts; let nothing else listen on its port (ss -ltnp), or "
        "connect to it",
        "tool",
        confidence="medium" if is_closed_at_once else "high",
    )


def failed_run(session: Session) -> Optional[Hit]:
    """iperf says itself why it did not run, or not to its end.

    If the client is another program, the server may report a lack of memory, which is not meant.
    """
    said = "" if other_program(session) else error_text(session)
    for message in _MESSAGES:
        if re.search(message.text, said, re.IGNORECASE):
            facts = (single_fact("iperf", said),)
            return Hit(1.0, message.meaning, facts, message.advice, "tool")
    return _lost_connection(session, said)


def _lost_connection(session: Session, said: str) -> Optional[Hit]:
    """A test that was interrupted: what limited its rate until then counts for more."""
    if not _LOST.search(said) or not _has_begun(session):
        return None
    return Hit(
        0.5 if any(look.rate for look in session.looks) else 0.9,
        "the other iperf ended, the path failed, or a firewall, NAT or proxy closed the connection",
        (single_fact("iperf", said),),
        "see what the other end printed; --cntl-ka of iperf3 3.17 or later keeps an idle control "
        "connection open",
        "tool",
        confidence="medium",
        title=LOST,
    )
