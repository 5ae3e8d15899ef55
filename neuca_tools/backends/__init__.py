"""Everything outside the agent: the kernel, udev, the other managers, systemd; each library is imported in one module here."""

# SPDX-License-Identifier: MIT
