# SPDX-License-Identifier: MIT
"""What the modules that run neuca have in common, as documentation."""


class ModuleDocFragment:
    """For modules that run neuca on the host."""

    DOCUMENTATION = r"""
author:
  - The neuca-guest-tools authors (@neuca-guest-tools)
options:
  config:
    description:
      - The configuration to use instead of C(/etc/neuca/config).
    type: path
"""
