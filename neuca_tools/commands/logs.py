"""Where log lines go: the journal where standard error is connected to it, else standard error."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging


def to_stderr(level: str = "INFO") -> None:
    """Plain lines on standard error, one for each operation."""
    _use(logging.StreamHandler(), level)


def to_journal(level: str) -> None:
    """The journal with its priorities (systemd-python) where it listens, else plain standard error."""
    from neuca_tools.backends.systemd import journal_handler

    _use(journal_handler() or logging.StreamHandler(), level)


def _use(handler: logging.Handler, level: str) -> None:
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("neuca")
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False
