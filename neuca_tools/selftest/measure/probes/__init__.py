"""Measurements without iperf3: round trips, path MTU, reachability, broadcasts, RDMA."""

# SPDX-License-Identifier: MIT
