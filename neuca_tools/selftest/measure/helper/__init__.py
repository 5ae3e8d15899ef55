"""The two ends of a self-test: the server, the client's side of it, and the channel between them."""

# SPDX-License-Identifier: MIT
