"""The daemon, its worker and passes; boot names, release, tuning, first boots, image cleaning."""

# SPDX-License-Identifier: MIT
