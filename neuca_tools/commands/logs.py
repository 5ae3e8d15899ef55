"""Log handlers: the journal if standard error is connected to it, else standard error."""

# SPDX-License-Identifier: MIT

import logging

from neuca_tools.backends.systemd import journal_handler
from neuca_tools.model.printable import plain_lines


class PrintableFormatter(logging.Formatter):
    """Escapes control characters, which names of links and texts of other programs may have."""

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))


def to_stderr(level: str = "INFO") -> None:
    """Log plain lines to standard error. `level` is a name that `logging` knows."""
    _install_handler(logging.StreamHandler(), level)


def to_journal(level: str) -> None:
    """Log to the journal with priorities if standard error goes there, else to standard error."""
    _install_handler(journal_handler() or logging.StreamHandler(), level)


def _install_handler(handler: logging.Handler, level: str) -> None:
    handler.setFormatter(PrintableFormatter("%(message)s"))
    log = logging.getLogger("neuca")
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False
