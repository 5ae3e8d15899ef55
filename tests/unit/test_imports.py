"""Every module can be imported by the interpreter and with the libraries that run the tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import neuca_tools

MODULES = sorted(
    one.name for one in pkgutil.walk_packages(neuca_tools.__path__, f"{neuca_tools.__name__}.")
)


@pytest.mark.parametrize("module", MODULES)
def test_it_can_be_imported(module):
    assert import_module(module).__name__ == module
