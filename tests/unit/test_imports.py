"""Every module can be imported by the interpreter and with the libraries that run the tests."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pkgutil
from importlib import import_module

import neuca_tools


def test_every_module_can_be_imported():
    names = [
        module.name
        for module in pkgutil.walk_packages(neuca_tools.__path__, f"{neuca_tools.__name__}.")
    ]
    assert len(names) > 100
    assert [name for name in names if import_module(name).__name__ != name] == []
