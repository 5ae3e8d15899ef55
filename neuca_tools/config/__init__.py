"""The agent's own configuration: `options` lists the options, `files` reads the files, `load` combines both."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.config.load import DEFAULT_PATH, load
from neuca_tools.config.options import Config, ConfigFault

__all__ = ["DEFAULT_PATH", "Config", "ConfigFault", "load"]
