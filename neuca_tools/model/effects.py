"""What became of a setting that was asked for: in effect, or why not. Not a problem: no pass fails for it.

`not applicable`: this device, driver or container cannot take it, or it would change nothing; `unsupported`: this kernel has
no such thing; `overridden`: somebody whose word counts more says otherwise.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from neuca_tools.model import LinkKey

Effect = Literal["effective", "not applicable", "unsupported", "overridden"]


@dataclass(frozen=True)
class Note:
    """One setting by the name that it was asked by (`rings.rx`, `txqueuelen`); `link` None: a setting of the whole host."""

    setting: str
    effect: Effect
    reason: str = ""
    link: Optional[LinkKey] = None

    @property
    def text(self) -> str:
        return f"{self.setting}: {self.effect}{': ' if self.reason else ''}{self.reason}"

    def to_json(self) -> dict[str, str]:
        return {"setting": self.setting, "effect": self.effect, "reason": self.reason}
