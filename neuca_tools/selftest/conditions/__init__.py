"""The conditions of neuca-selftest(1): `table` has a row for each, with its signs."""

# SPDX-License-Identifier: MIT
