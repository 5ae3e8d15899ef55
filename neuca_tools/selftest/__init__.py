"""The self-test: what was measured, what it means, and how it is shown.

run, readers/         what iperf3 and iperf 2 write, of any version, becomes a Run
"""

# SPDX-License-Identifier: MIT
