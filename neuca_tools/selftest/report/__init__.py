"""A diagnosis as text, JSON, a Prometheus text file, a Nagios line or an HTML page; all pure."""

# SPDX-License-Identifier: MIT
