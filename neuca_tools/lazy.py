"""Regular expressions that are compiled when they are first used, and SHA-256 without OpenSSL.

A command loads modules with some sixty patterns and uses few of them.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
    from re import compile as pattern
else:
    try:
        from _sha2 import sha256  # since Python 3.12
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

    class pattern:  # noqa: N801 - it stands for a function
        """A regular expression that is compiled when one of its methods is used."""

        def __init__(self, text: object, flags: int = 0) -> None:
            self._words = text, flags

        def __getattr__(self, name: str) -> object:
            import re

            value = getattr(re.compile(*self._words), name)
            setattr(self, name, value)
            return value


__all__ = ["pattern", "sha256"]
