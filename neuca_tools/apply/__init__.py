"""Look, decide, transaction: read the host for a decision, and make all changes to it."""

# SPDX-License-Identifier: MIT
