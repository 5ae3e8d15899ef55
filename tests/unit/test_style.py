"""Linters and sizes as ordinary tests: ruff, mypy --strict, the first line of every module, Python 3.9's syntax."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from venvs import Interpreter, cached_venv

ROOT = Path(__file__).parents[2]
PRODUCT = {
    str(path.relative_to(ROOT)): path for path in sorted((ROOT / "neuca_tools").rglob("*.py"))
}
TESTS = {str(path.relative_to(ROOT)): path for path in sorted((ROOT / "tests").rglob("*.py"))}

LONGEST_MODULE = 400  # lines
LONGEST_FUNCTION = 40  # lines, from its def to its end, docstring included


@pytest.fixture(scope="session")
def tools():
    """The directory of the programs that tests/requirements.txt pins."""
    return cached_venv(
        Interpreter(Path(sys.executable)), ROOT / "tests" / "requirements.txt"
    ).parent


def _must_be_content(*command: object) -> None:
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False
    )
    if done.returncode:
        pytest.fail(f"{done.stdout}{done.stderr}", pytrace=False)


def test_ruff_is_content(tools):
    _must_be_content(tools / "ruff", "check", "--output-format", "concise", ".")


def test_the_formatter_is_content(tools):
    _must_be_content(tools / "ruff", "format", "--check", ".")


def test_mypy_strict_is_content(tools):
    _must_be_content(tools / "mypy", "--config-file", "setup.cfg")


def test_python_3_9_can_read_every_module():
    for path in (PRODUCT | TESTS).values():
        ast.parse(path.read_text(), str(path), feature_version=(3, 9))


def _is_one_sentence(docstring):
    """Whether the first line is a whole sentence, and a second paragraph begins after an empty line."""
    sentence, _, rest = docstring.partition("\n")
    return sentence[-1:] in {".", ":"} and (rest == "" or rest.startswith("\n"))


def test_each_module_begins_with_one_sentence_that_says_its_job():
    docstrings = {
        name: ast.get_docstring(ast.parse(path.read_text())) or ""
        for name, path in (PRODUCT | TESTS).items()
    }
    assert [name for name, text in docstrings.items() if not _is_one_sentence(text)] == []


def test_no_module_is_too_long():
    lengths = {name: len(path.read_text().splitlines()) for name, path in PRODUCT.items()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def _functions(path):
    """The name, first line and length of each function of a module."""
    nodes = ast.walk(ast.parse(path.read_text()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    return [(node.name, node.lineno, node.end_lineno - node.lineno + 1) for node in functions]


def test_no_function_is_too_long():
    lengths = [(name, *function) for name, path in PRODUCT.items() for function in _functions(path)]
    assert [function for function in lengths if function[-1] > LONGEST_FUNCTION] == []


def test_names_say_what_they_hold():
    """Neither `one` nor `found` says anything; a function of one word rarely says what it returns."""
    nodes = [node for path in PRODUCT.values() for node in ast.walk(ast.parse(path.read_text()))]
    names = {getattr(node, "id", getattr(node, "arg", getattr(node, "attr", ""))) for node in nodes}
    assert names & {"one", "found"} == set()
    functions = [node.name.strip("_") for node in nodes if isinstance(node, ast.FunctionDef)]
    assert sum("_" not in name for name in functions) <= 0.25 * len(functions)
