"""What a diagnosis looks like: text, JSON, a Prometheus text file, a Nagios line, an HTML page. All of them pure functions."""

# SPDX-License-Identifier: MIT
