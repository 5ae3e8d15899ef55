"""The log of the agent, which imports `logging` when the first line is logged.

Most commands and most passes log nothing, nor does the daemon, whose children make the passes.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys

from neuca_tools.typed import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    import logging


def _nothing() -> None:
    """Nothing is left to prepare."""


class _Log:
    """Stands for the logger "neuca". `prepare` runs before its first use: it adds a handler."""

    def __init__(self) -> None:
        self.prepare: Callable[[], None] = _nothing

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a Logger
        if not self.load():
            return _print
        import logging

        return getattr(logging.getLogger("neuca"), name)

    def load(self) -> bool:
        """Import and prepare `logging`. Returns False if the host is short of a resource."""
        try:
            import logging  # noqa: F401

            self.prepare()
        except (OSError, MemoryError):  # EMFILE, ENFILE, ENOMEM: no module can be read
            return False
        self.prepare = _nothing
        return True


def _print(text: str, *values: object, **_: object) -> None:
    """Stands for a method of the logger; systemd takes standard error to the journal."""
    print(text % values, file=sys.stderr, flush=True)


_log = _Log()
if TYPE_CHECKING:
    log = logging.getLogger("neuca")
else:
    log = _log


def has_fields() -> bool:
    """Whether the fields of a message are kept: the journal does, standard error does not."""
    if not _log.load():
        return False
    import logging

    handlers = logging.getLogger("neuca").handlers
    return not handlers or any(type(one) is not logging.StreamHandler for one in handlers)


def load() -> None:
    """Import and prepare it now, while there is time for it."""
    _log.load()


def prepare_with(prepare: Callable[[], None]) -> None:
    """Call this before the next line is logged."""
    _log.prepare = prepare
