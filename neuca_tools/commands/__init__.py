"""The command line: thin modules that parse arguments, call a stage and print its result."""

# SPDX-License-Identifier: MIT
