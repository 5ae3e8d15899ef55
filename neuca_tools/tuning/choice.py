"""The selection of profiles, which the configuration makes without knowing what is in them."""

# SPDX-License-Identifier: MIT

import re
from typing import NamedTuple, Optional

AUTO = "auto"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Choice(NamedTuple):
    """The selected profiles by name, and the path that `bdp` is computed for (bit/s, seconds)."""

    profiles: tuple[str, ...] = ()
    rate: Optional[int] = None
    rtt: Optional[float] = None
