"""One end: its links, counters, sockets and kernel settings, and fixes for them."""

# SPDX-License-Identifier: MIT
