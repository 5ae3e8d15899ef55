"""Readers turn the output of iperf3 (JSON or text) and iperf 2 (text) into runs and evidence."""

# SPDX-License-Identifier: MIT
