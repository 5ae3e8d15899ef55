"""The guest in which the cases run, and what comes out of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from catalogue import Case
from counted import CONFIGURATION, counted
from guest import Guest

INSIDE = Path(__file__).with_name("inside")
MEMORY = 1024  # MiB
PATIENCE = 1800.0  # seconds: of the guest's leaping clock, and of an emulation that shares this machine with others


class Stage:
    """A booted guest in which `rehearse.py` waits for cases."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        for path in INSIDE.glob("*.py"):
            guest.put(f"/run/{path.name}", path.read_text())
        guest.put("/run/configuration", CONFIGURATION)
        self.kernel = guest.check("uname -sr").strip()
        guest.check(
            "mkfifo /run/ask /run/answer; python3 /run/rehearse.py /run/ask /run/answer > /run/rehearse.log 2>&1 &"
        )

    def play(self, case: Case) -> dict:
        """A case's outcome: `report` is what neuca-selftest says, `error` why there is none; `seconds` of the guest's clock."""
        said = self._guest.check(
            "cat > /run/ask && cat /run/answer", PATIENCE, json.dumps(asdict(case)).encode()
        )
        return json.loads(said)


@contextlib.contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Boot a guest that has its disk in `folder`; it ends with the block."""
    with counted(folder, MEMORY) as guest:
        yield Stage(guest)
