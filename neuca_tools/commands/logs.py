"""Log handlers: the journal if standard error is connected to it, else standard error."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.log import prepare_with
from neuca_tools.typed import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    import logging


def to_stderr(level: str = "INFO") -> None:
    """Log plain lines to standard error."""
    _install(_stream, level)


def to_journal(level: str) -> None:
    """Log to the journal with priorities if standard error goes there, else to standard error."""
    _install(_journal, level)


def _stream() -> logging.Handler:
    import logging

    return logging.StreamHandler()


def _journal() -> logging.Handler:
    from neuca_tools.backends.systemd import journal_handler

    return journal_handler() or _stream()


def _install(make: Callable[[], logging.Handler], level: str) -> None:
    """Have the handler made when the first line is logged: most commands log none."""

    def prepare() -> None:
        import logging

        handler = make()
        handler.setFormatter(logging.Formatter("%(message)s"))
        log = logging.getLogger("neuca")
        log.handlers[:] = [handler]
        log.setLevel(level)
        log.propagate = False

    prepare_with(prepare)
