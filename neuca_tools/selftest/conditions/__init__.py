"""The 47 conditions of neuca-selftest(1), D01 to D47: a small rule each, causes before symptoms.

To add one, write a rule in the module where it belongs, a row in that module's table, a line in the
manual page, and a test.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.selftest.conditions.capacity import CAPACITY, CAPACITY_SESSION
from neuca_tools.selftest.conditions.compare import COMPARE_SESSION
from neuca_tools.selftest.conditions.datagrams import DATAGRAMS_SESSION
from neuca_tools.selftest.conditions.errors import ERRORS_SESSION
from neuca_tools.selftest.conditions.host import HOST, HOST_SESSION
from neuca_tools.selftest.conditions.loss import LOSS
from neuca_tools.selftest.conditions.overflow import OVERFLOW
from neuca_tools.selftest.conditions.path import PATH_SESSION
from neuca_tools.selftest.conditions.printed_datagrams import PRINTED_DATAGRAMS
from neuca_tools.selftest.conditions.printed_hosts import PRINTED_HOSTS
from neuca_tools.selftest.conditions.printed_options import BUFFERS, PRINTED_OPTIONS
from neuca_tools.selftest.conditions.printed_path import PRINTED_PATH
from neuca_tools.selftest.conditions.printed_stops import PRINTED_STOPS
from neuca_tools.selftest.conditions.printed_window import PRINTED_WINDOW
from neuca_tools.selftest.conditions.queues import QUEUES
from neuca_tools.selftest.conditions.reach import REACH_SESSION
from neuca_tools.selftest.conditions.session import Rule, Session
from neuca_tools.selftest.conditions.udp import UDP
from neuca_tools.selftest.conditions.window import WINDOW
from neuca_tools.selftest.evidence.look import Look

__all__ = ["PHASE_RULES", "SESSION_RULES"]

PHASE_RULES: tuple[Rule[Look], ...] = (
    *UDP,
    *QUEUES,
    *CAPACITY,
    *OVERFLOW,
    *HOST,
    *WINDOW,
    *BUFFERS,
    *LOSS,
    *PRINTED_HOSTS,
    *PRINTED_WINDOW,
    *PRINTED_PATH,
    *PRINTED_DATAGRAMS,
    *PRINTED_OPTIONS,
    *PRINTED_STOPS,
)
SESSION_RULES: tuple[Rule[Session], ...] = (
    *ERRORS_SESSION,
    *REACH_SESSION,
    *PATH_SESSION,
    *DATAGRAMS_SESSION,
    *CAPACITY_SESSION,
    *HOST_SESSION,
    *COMPARE_SESSION,
)
