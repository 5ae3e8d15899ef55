"""Tuning profiles, judged against a host: the desired state with the lowest precedence. Pure.

`choice` names the selected profiles, `profile` parses one, `environment` distinguishes a virtual
machine from bare metal, `sysctld` reads the administrator's sysctl.d files, `arithmetic` converts
rate and RTT to buffer sizes and back, `layer` judges sysctls, `links` judges the settings of single
NICs.
"""

# SPDX-License-Identifier: MIT
