"""NEuca's document format: `ini_document` is the entry point, one module reads each section."""

# SPDX-License-Identifier: MIT
