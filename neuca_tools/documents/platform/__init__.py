"""The platforms' own documents: `combined` is the entry point, one module reads each format."""

# SPDX-License-Identifier: MIT

BY_NAME = "name "
"""How the key of a link begins that the document names instead of giving its MAC."""
