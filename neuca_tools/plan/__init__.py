"""Two states become operations: the only place that decides what happens in which order. Pure."""

# SPDX-License-Identifier: MIT
