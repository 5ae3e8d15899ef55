"""The exceptions of the agent: one class for each stage, every one with a text made for people; and the exit codes.

A text says what was tried, on what, and why it failed; `hint`, where there is one, says what a person can do.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_PENDING, EXIT_DEGRADED, EXIT_INVALID = (
    0,
    1,
    2,
    3,
    4,
    78,
)  # neuca-status(7)


class NeucaError(Exception):
    """Anything that the agent raises on purpose."""

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.hint = hint


class UsageError(NeucaError):
    """The words of a command line that make no sense (exit code 2)."""


class ConfigError(NeucaError):
    """A configuration file that cannot be read at all."""


class DocumentError(NeucaError):
    """A document that is refused whole: binary rubbish, too large, no section that can be read."""


class SourceError(NeucaError):
    """A source that did not answer, or not with anything usable. Never means "there is no document"."""


class ObserveError(NeucaError):
    """The state of this host that could not be read."""


class ApplyError(NeucaError):
    """One operation that the kernel or a file system refused; `errno` is 0 where there was none."""

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class LockedError(ApplyError):
    """A lock that another process holds, and did not release in time."""


class GuardError(ApplyError):
    """An operation on a link that no pass may write to: a defect of ours, caught before it could do harm."""


class RecordError(NeucaError):
    """The agent's own state files, unreadable or of a later version."""


class ManagerError(NeucaError):
    """NetworkManager or systemd-networkd did not do as asked, or did not answer in time."""


class SelftestError(NeucaError):
    """Evidence of a self-test that cannot be read, or a report that cannot be written."""
