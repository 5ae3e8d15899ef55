"""The log of the agent, which imports `logging` when the first line is logged.

Most commands and most passes log nothing.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import logging


def _nothing() -> None:
    """Nothing is left to prepare."""


class _Log:
    """Stands for the logger "neuca". `prepare` runs before its first use: it adds a handler."""

    def __init__(self) -> None:
        self.prepare: Callable[[], None] = _nothing

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a Logger
        import logging

        prepare, self.prepare = self.prepare, _nothing
        prepare()
        return getattr(logging.getLogger("neuca"), name)


_log = _Log()
if TYPE_CHECKING:
    log = logging.getLogger("neuca")
else:
    log = _log


def load() -> None:
    """Import and prepare it now: a daemon without free descriptors cannot, and has to log that."""
    log.isEnabledFor(0)


def prepare_with(prepare: Callable[[], None]) -> None:
    """Call this before the next line is logged."""
    _log.prepare = prepare
