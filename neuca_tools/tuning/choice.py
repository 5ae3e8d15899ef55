"""The selection of profiles, which the configuration makes without knowing what is in them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.dataclass import dataclass
from neuca_tools.lazy import pattern
from neuca_tools.typed import Optional

AUTO = "auto"
NAME = pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Choice:
    """The selected profiles by name, and the path that `bdp` is computed for (bit/s, seconds)."""

    profiles: tuple[str, ...] = ()
    rate: Optional[int] = None
    rtt: Optional[float] = None
