"""Access to the kernel, udev, systemd and other network managers; one module for each library."""

# SPDX-License-Identifier: MIT
