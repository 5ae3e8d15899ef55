"""The whole catalogue. Pure, but for the week."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from datetime import datetime, timezone

import causes_path
import causes_reach
import causes_window
import healthy_setups
from catalogue import CAUSES, HEALTHY, cases

__all__ = ["CAUSES", "HEALTHY", "cases", "this_week"]
MODULES = (
    causes_window,
    causes_path,
    causes_reach,
    healthy_setups,
)  # each adds to the catalogue what it knows


def this_week() -> int:
    """Year and week, such as 202647: other parameters each week, and the same all week."""
    year, week, _ = datetime.now(timezone.utc).isocalendar()
    return 100 * year + week
