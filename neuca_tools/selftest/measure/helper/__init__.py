"""The two ends of a self-test: the server, its client, and the channel between them."""

# SPDX-License-Identifier: MIT
