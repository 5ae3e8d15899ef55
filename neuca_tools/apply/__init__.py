"""Look, decide, transaction: what reads the host for a decision, and the only code that changes it."""

# SPDX-License-Identifier: MIT
