"""One run of iperf3: its command line, its phases, and the program around it."""

# SPDX-License-Identifier: MIT
