"""How far the host is from what is asked, out of the plan that a start would carry out; and its texts."""

# SPDX-License-Identifier: MIT
