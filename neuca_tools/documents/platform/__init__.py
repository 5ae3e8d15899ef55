"""What the platform itself says beside user-data: OpenStack, NoCloud, netplan and EC2 as one PlatformDocument."""

# SPDX-License-Identifier: MIT
