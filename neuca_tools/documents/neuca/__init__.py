"""NEuca's own format: the INI reader, and one module for each kind of section and value."""

# SPDX-License-Identifier: MIT
