"""The exceptions of the agent, one class for each stage, and the exit codes of the commands."""

# SPDX-License-Identifier: MIT

# These are documented in neuca-status(7).
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PENDING = 3
EXIT_DEGRADED = 4
EXIT_INVALID = 78


class NeucaError(Exception):
    """Base class of all errors that the agent raises.

    `text` says what was tried, on what, and why it failed. It is one line, and what is not
    printable in it is escaped: errors quote what others sent, and are printed and logged. `hint`
    says what a person can do, and is empty if there is nothing to suggest. `exit_code` is that of
    a command that ends with the error.
    """

    exit_code = EXIT_FAILED

    def __init__(self, text: str, hint: str = "") -> None:
        self.text = "".join(
            character if character.isprintable() else character.encode("unicode_escape").decode()
            for character in text
        )
        super().__init__(self.text)
        self.hint = hint


class UsageError(NeucaError):
    """The arguments of a command are invalid."""

    exit_code = EXIT_USAGE


class ArgumentsError(UsageError):
    """Arguments that do not fit each other; the usage of the command is printed with the text."""


class ConfigError(NeucaError):
    """A configuration file cannot be read at all."""

    exit_code = EXIT_INVALID


class DocumentError(NeucaError):
    """A whole document is refused: it is binary data, too large, or has no usable section."""

    exit_code = EXIT_INVALID


def unreadable(reason: str, what: str = "the document") -> DocumentError:
    """The error of a document that is refused; `what` names it."""
    return DocumentError(f"cannot read {what}: {reason}")


class SourceError(NeucaError):
    """A source gave no response, or an unusable one. Never means that there is no document."""


class SourceTimeoutError(SourceError):
    """A source did not answer, or not completely, before the deadline."""


class IncompleteError(SourceError):
    """A source has responded, but this cannot be all that it has."""


class ObserveError(NeucaError):
    """The state of this host could not be read."""


class ApplyError(NeucaError):
    """An operation failed in the kernel or a file system; `errno` is 0 if there is none."""

    def __init__(self, text: str, errno: int = 0) -> None:
        super().__init__(text)
        self.errno = errno


class LockedError(ApplyError):
    """A lock that another process holds, and did not release in time."""


class GuardError(ApplyError):
    """An operation on a link that no pass may change was stopped: a defect of the agent."""


class RecordError(NeucaError):
    """A state file of the agent is unreadable, or of a later version."""


class ManagerError(NeucaError):
    """NetworkManager or systemd-networkd refused a request, or gave no response in time."""


class SelftestError(NeucaError):
    """The evidence of a self-test cannot be read, or a report cannot be written."""
