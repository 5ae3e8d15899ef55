"""What is kept between passes and boots: records, journals, the active document; one reader and writer of state files."""

# SPDX-License-Identifier: MIT
