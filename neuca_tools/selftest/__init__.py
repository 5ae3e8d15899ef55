"""The self-test: what was measured, what it means, and how it is shown. Pure, but for `running`, which fills an Evidence.

run, readers/         what iperf3 and iperf 2 write, of any version, becomes a Run
evidence, codec       what was seen at both ends; the same as JSON
documents             somebody's document becomes Evidence
measure, load         one phase as numbers (a Look): rates, windows, shares of the time, CPUs
conditions/           the 47 conditions, a small rule each
diagnosis             Evidence becomes ranked findings; limits and predict say what comes once one is fixed
compare, paths        a test against earlier ones; several paths against the first of them
running/              what measures, and fills the evidence: the one part that is not pure
report/               text, JSON, HTML with charts, Prometheus, Nagios; codes has the exit codes, amounts the units
"""

# SPDX-License-Identifier: MIT

# The names of the kept reports, in the agent's state directory.
REPORTS = "selftest-[0-9]*.json"
