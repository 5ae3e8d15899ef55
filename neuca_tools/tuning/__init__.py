"""Tuning profiles, judged against a host: the desired state with the lowest precedence. Pure.

`profile` parses a profile, `environment` distinguishes a virtual machine from bare metal, `sysctld`
reads the administrator's sysctl.d files, `arithmetic` converts rate and RTT to buffer sizes and
back, `layer` judges sysctls, `links` judges the settings of single NICs.
"""

# SPDX-License-Identifier: MIT

from neuca_tools.tuning.layer import Choice, Layer
from neuca_tools.tuning.links import tune

__all__ = ["Choice", "Layer", "tune"]
