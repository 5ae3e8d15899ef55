"""The 47 conditions (D01 to D47 of neuca-selftest(1)): a table of small rules, causes before symptoms.

To add one: a rule in the module that it belongs to, a row in that module's table, a line in the manual page, a test.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.selftest.conditions.base import PhaseRule, SessionRule
from neuca_tools.selftest.conditions.capacity import CAPACITY, CAPACITY_SESSION
from neuca_tools.selftest.conditions.compare import COMPARE_SESSION
from neuca_tools.selftest.conditions.host import HOST, HOST_SESSION
from neuca_tools.selftest.conditions.loss import LOSS
from neuca_tools.selftest.conditions.path import PATH_SESSION
from neuca_tools.selftest.conditions.queues import QUEUES
from neuca_tools.selftest.conditions.reach import REACH_SESSION
from neuca_tools.selftest.conditions.udp import UDP, UDP_SESSION
from neuca_tools.selftest.conditions.window import WINDOW

PHASE_RULES: tuple[PhaseRule, ...] = (*UDP, *QUEUES, *CAPACITY, *HOST, *WINDOW, *LOSS)
SESSION_RULES: tuple[SessionRule, ...] = (
    *REACH_SESSION,
    *PATH_SESSION,
    *UDP_SESSION,
    *CAPACITY_SESSION,
    *HOST_SESSION,
    *COMPARE_SESSION,
)
