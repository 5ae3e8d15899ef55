"""D34 to D36, D38: what iperf was asked for and said, when it could not test."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from typing import Optional

from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.base import Hit, single_fact
from neuca_tools.selftest.conditions.host import missing_congestion_control
from neuca_tools.selftest.conditions.session import Session, first_hit
from neuca_tools.selftest.evidence.look import Look

# iperf3 goes on after a connect() that failed, and reports the next call.
REFUSED = re.compile(r"connection refused|send control message: Bad file descriptor", re.IGNORECASE)
BUSY = re.compile(r"server is busy", re.IGNORECASE)
NO_CONGESTION = re.compile(r"set TCP_CONGESTION", re.IGNORECASE)
NO_BUFFERS = re.compile(r"socket buffer size not set correctly", re.IGNORECASE)
OTHER_PROGRAM = re.compile(
    r"make sure other side|protocol(?! not )|unknown control message|is not iperf3"
    r"|unable to receive (parameters|cookie)",
    re.IGNORECASE,
)


def _buffers_not_applied(look: Look) -> Optional[Hit]:
    """iperf3 asked for a socket buffer (-w), and the kernel gave less."""
    run = look.phase.run
    if run is None or not run.buffer:
        return None
    buffers = (
        ("sndbuf_actual", run.sndbuf, "net.core.wmem_max", "sender"),
        ("rcvbuf_actual", run.rcvbuf, "net.core.rmem_max", "receiver"),
    )
    for name, got, setting, end in buffers:
        # The kernel doubles what is asked for (SO_SNDBUF in socket(7)).
        if got is None or got >= 2 * run.buffer:
            continue
        return Hit(
            0.5,
            f"-w requested {amounts.size(run.buffer)}, the kernel granted {amounts.size(got / 2)}",
            (single_fact("-w", run.buffer), single_fact(name, got)),
            end=end,
            sysctls={setting: str(int(run.buffer))},
        )
    return None


def is_refused(session: Session) -> bool:
    """Whether the peer has no server on the port."""
    return session.evidence.reach.tcp == "refused" or bool(REFUSED.search(error_text(session)))


def error_text(session: Session) -> str:
    """What iperf said about all runs that failed.

    In a text with others that did not, these were attempts before something was put right.
    """
    runs = [phase.run for phase in session.evidence.phases if phase.run]
    if any(look.is_unsampled for look in session.looks) and not all(run.error for run in runs):
        return ""
    return " | ".join(run.error for run in runs if run.error)


def server_busy(session: Session) -> Optional[Hit]:
    said = error_text(session)
    if session.evidence.reach.tcp != "busy" and not BUSY.search(said):
        return None
    return Hit(
        1.0,
        "the peer's iperf3 is busy with another test, or with one that never ended",
        (single_fact("iperf3", said or "busy"),),
        "try again later; a server for a single test: iperf3 -s -1 --idle-timeout 20",
        "receiver",
    )


def other_program(session: Session) -> Optional[Hit]:
    if session.evidence.reach.wrong_peer:
        return Hit(
            1.0,
            "the peer has another secret: one of them is mistyped, or another host has this "
            "address",
            (single_fact("secret", "differs"),),
            "compare the files of both hosts (sha256sum); else look for a second host that has the "
            "address (arping -D)",
        )
    said = error_text(session)
    if not OTHER_PROGRAM.search(said):
        return None
    return Hit(
        0.9,
        "client and server do not speak the same protocol: one of them is iperf 2, or their "
        "versions are too far apart",
        (single_fact("iperf3", said),),
        "install the same iperf3 on both hosts",
        "tool",
    )


def no_congestion_control(session: Session) -> Optional[Hit]:
    """Of tuning, or the one that was requested (-C)."""
    said = error_text(session)
    if not NO_CONGESTION.search(said):
        return missing_congestion_control(session)
    return Hit(
        0.9,
        "a host does not have the requested congestion control (-C)",
        (single_fact("iperf3", said),),
        "sysctl net.ipv4.tcp_available_congestion_control lists them; modprobe tcp_NAME adds one, "
        "if the kernel has it",
        "both",
    )


def refused_buffers(session: Session) -> Optional[Hit]:
    """The kernel gave less than the buffers that were requested, or iperf3 ended because of it."""
    said = error_text(session)
    if not NO_BUFFERS.search(said):
        return first_hit(map(_buffers_not_applied, session.looks))
    return Hit(
        0.9,
        "a host did not grant the requested socket buffers (-w)",
        (single_fact("iperf3", said),),
        "raise net.core.rmem_max and net.core.wmem_max on both hosts, or test without -w: Linux "
        "then sizes the buffers itself",
        "both",
    )
