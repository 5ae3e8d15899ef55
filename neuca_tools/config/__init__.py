"""The agent's configuration: `options` lists the options, `files` reads files, `load` both."""

# SPDX-License-Identifier: MIT

from neuca_tools.config.load import DEFAULT_PATH, load_config
from neuca_tools.config.options import Config

__all__ = ["DEFAULT_PATH", "Config", "load_config"]
