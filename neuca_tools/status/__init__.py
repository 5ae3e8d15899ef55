"""How far the host is from its desired state, judged from the plan of a pass; as text and as JSON."""

# SPDX-License-Identifier: MIT
