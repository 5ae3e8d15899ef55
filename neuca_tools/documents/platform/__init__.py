"""The platform's own documents from OpenStack, NoCloud, netplan and EC2; `combined` is the entry point."""

# SPDX-License-Identifier: MIT
