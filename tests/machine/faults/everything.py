"""The whole catalogue, and the part of it that `make test` runs. Pure, but for the week."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import random
from datetime import datetime, timezone

import causes_path
import causes_reach
import causes_window
import healthy_setups
from catalogue import CAUSES, HEALTHY, Case, cases

__all__ = ["CAUSES", "HEALTHY", "cases", "chosen", "this_week"]
MODULES = (causes_window, causes_path, causes_reach, healthy_setups)  # each adds to the catalogue what it knows


def this_week() -> int:
    """Year and week, such as 202647: another part of the catalogue each week, and the same all week."""
    year, week, _ = datetime.now(timezone.utc).isocalendar()
    return 100 * year + week


def chosen(seed: int, sure: list[str], count: int) -> list[Case]:
    """So many of these cases, one of each condition at the most, and a healthy set-up; as the seed decides."""
    order = random.Random(seed).sample(sure, len(sure))
    found: dict[str, Case] = {}
    for case in cases(seed, order):
        found.setdefault(case.wanted, case)
    causes = [case for wanted, case in found.items() if wanted]
    return [*causes[: count - 1], *(case for wanted, case in found.items() if not wanted)]
