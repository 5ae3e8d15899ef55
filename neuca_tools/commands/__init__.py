"""What users type: thin modules that read arguments, call a stage and print what it says."""

# SPDX-License-Identifier: MIT
