"""Measurements without iperf3: round trips, path MTU, reachability, RDMA."""

# SPDX-License-Identifier: MIT
