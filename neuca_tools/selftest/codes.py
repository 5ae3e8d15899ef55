"""The exit codes of neuca-selftest, their names in reports, and their Nagios states."""

# SPDX-License-Identifier: MIT

from enum import IntEnum


class ExitCode(IntEnum):
    """See EXIT STATUS in neuca-selftest(1).

    BELOW: a rate is below its threshold, or something is broken. WORSE: than in earlier tests.
    """

    PASS = 0
    ERROR = 1
    USAGE = 2
    BELOW = 4
    NOT_AS_PLANNED = 5
    INCONCLUSIVE = 6
    WORSE = 7
    UNREACHABLE = 8
    BUSY = 9
    NOTHING_CONFIGURED = 77


# OK, WARNING, CRITICAL and UNKNOWN are 0 to 3.
NAGIOS = {
    **dict.fromkeys(ExitCode, 3),
    ExitCode.PASS: 0,
    ExitCode.WORSE: 1,
    ExitCode.NOT_AS_PLANNED: 1,
    ExitCode.BELOW: 2,
    ExitCode.UNREACHABLE: 2,
}
# BELOW, where every rate that was measured is as it should be.
FAULTY = "fault found"
WORDS = {
    ExitCode.PASS: "pass",
    ExitCode.ERROR: "error",
    ExitCode.USAGE: "usage",
    ExitCode.BELOW: "below threshold",
    ExitCode.NOT_AS_PLANNED: "not as planned",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.WORSE: "worse than before",
    ExitCode.UNREACHABLE: "peer unreachable",
    ExitCode.BUSY: "peer busy",
    ExitCode.NOTHING_CONFIGURED: "nothing configured",
}
