"""What is kept between passes and boots: records, journals, the active document."""

# SPDX-License-Identifier: MIT
