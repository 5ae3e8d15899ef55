"""NEuca's own document format: `ini_document` is the entry point, one module reads each kind of section."""

# SPDX-License-Identifier: MIT
