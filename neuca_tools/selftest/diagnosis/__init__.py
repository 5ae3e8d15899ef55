"""Evidence becomes ranked findings, limits and comparisons. Pure."""

# SPDX-License-Identifier: MIT
