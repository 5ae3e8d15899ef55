"""Measurements without iperf3: round trips, path MTU, reachability."""

# SPDX-License-Identifier: MIT
