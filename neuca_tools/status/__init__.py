"""How far the host is from its desired state, judged from a plan; as text and as JSON."""

# SPDX-License-Identifier: MIT
