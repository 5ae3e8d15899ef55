"""Whether a requested setting is in effect, or why not; no pass fails for it.

`not applicable`: the device, driver or container does not accept it, or it would change nothing;
`unsupported`: the kernel does not have it; `overridden`: something with a higher precedence sets
it.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import Literal, NamedTuple, Optional

from neuca_tools.model import LinkKey

Effect = Literal["effective", "not applicable", "unsupported", "overridden"]


class Note(NamedTuple):
    """One setting by its requested name (`rings.rx`, `txqueuelen`).

    `link` is None for a host-wide setting.
    """

    setting: str
    effect: Effect
    reason: str = ""
    link: Optional[LinkKey] = None

    @property
    def text(self) -> str:
        """Setting, effect and reason, for messages."""
        return ": ".join(filter(None, (self.setting, self.effect, self.reason)))

    def to_json(self) -> dict[str, str]:
        """The JSON form, without the link."""
        return {"setting": self.setting, "effect": self.effect, "reason": self.reason}
