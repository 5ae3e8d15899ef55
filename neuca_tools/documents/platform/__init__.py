"""Parse the platforms' own documents; `combined` is the entry point."""

# SPDX-License-Identifier: MIT
