"""The daemon, its worker and passes; and boot names, release, tuning, first boots, the cleaning of images."""

# SPDX-License-Identifier: MIT
