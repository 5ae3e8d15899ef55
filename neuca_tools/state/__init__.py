"""What is kept between passes and boots: records, journals, the active document.

One module reads and writes all state files.
"""

# SPDX-License-Identifier: MIT
