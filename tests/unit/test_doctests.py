"""The examples in docstrings give what they show."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import neuca_tools


def test_the_examples_in_docstrings_give_what_they_show(capsys):
    packages = pkgutil.walk_packages(neuca_tools.__path__, f"{neuca_tools.__name__}.")
    results = {
        module.name: doctest.testmod(import_module(module.name))
        for module in packages
        if not module.name.endswith(".__main__")
    }
    assert sum(result.attempted for result in results.values()) > 30
    wrong = [name for name, result in results.items() if result.failed]
    assert wrong == [], capsys.readouterr().out
