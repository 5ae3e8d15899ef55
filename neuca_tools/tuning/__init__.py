"""Tuning: profiles, read against what a host is and has, become the weakest layer of what a pass wants. Pure.

`profile` reads a profile, `environment` tells a virtual machine from bare metal, `sysctld` finds what the administrator's own
files say, `arithmetic` goes from rate and RTT to bytes and back, `layer` joins them, `links` has what concerns single NICs.
"""

# SPDX-License-Identifier: MIT

from neuca_tools.tuning.layer import Choice, Layer
from neuca_tools.tuning.links import tune

__all__ = ["Choice", "Layer", "tune"]
