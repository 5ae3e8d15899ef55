"""The self-test: what was measured, what it means, and how it is shown. Pure, except for `measure`.

evidence    observations of both hosts (Evidence), one iperf run (Run), and one phase as numbers
            (Look): rates, windows, shares of the time, CPUs; `codec` reads and writes it as JSON
readers     the output of iperf3 and iperf 2, of any version, as Run and Evidence
conditions  a row for each condition, and which explains which
diagnosis   from Evidence to ranked findings; comparison with earlier tests, and of several paths
            with the first of them
report      text, JSON, HTML with charts, OpenMetrics, Nagios, entries of the archive
mesh        tests between many hosts: their plan, what is at fault, and its reports
measure     runs the tests and fills in the evidence: the only part that is not pure
codes       the exit codes; amounts writes rates, sizes and times
"""

# SPDX-License-Identifier: MIT

# The names of the kept reports, in the agent's state directory.
REPORTS = "selftest-[0-9]*.json*"
# The archive of all tests there.
ARCHIVE = "selftests.jsonl"
# The lock there while a test is archived: the unit may write nowhere else.
ARCHIVE_LOCK = "selftests.lock"
