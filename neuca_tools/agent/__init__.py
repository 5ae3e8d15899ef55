"""The daemon, its worker and passes, and what a host does around them: boot names, release, first boot, image clean."""

# SPDX-License-Identifier: MIT
