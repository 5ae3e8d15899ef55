"""What one end is: its links, counters, sockets and kernel settings; and what can be fixed there."""

# SPDX-License-Identifier: MIT
