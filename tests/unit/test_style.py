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


@pytest.mark.parametrize("path", PRODUCT | TESTS)
def test_python_3_9_can_read_it(path):
    ast.parse((PRODUCT | TESTS)[path].read_text(), feature_version=(3, 9))


@pytest.mark.parametrize("path", PRODUCT | TESTS)
def test_a_module_begins_with_one_sentence_that_says_its_job(path):
    docstring = ast.get_docstring(ast.parse((PRODUCT | TESTS)[path].read_text())) or ""
    sentence, _, rest = docstring.partition("\n")
    assert sentence[-1:] in {".", ":"}, "the first line is no whole sentence"
    assert rest == "" or rest.startswith("\n"), "a second paragraph begins after an empty line"


@pytest.mark.parametrize("path", PRODUCT)
def test_no_module_is_too_long(path):
    lines = len(PRODUCT[path].read_text().splitlines())
    assert lines <= LONGEST_MODULE


def _long_functions(path):
    """The name, first line and length of each function over the limit."""
    nodes = ast.walk(ast.parse(PRODUCT[path].read_text()))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    lengths = [(one.name, one.lineno, one.end_lineno - one.lineno + 1) for one in functions]
    return [found for found in lengths if found[2] > LONGEST_FUNCTION]


@pytest.mark.parametrize("path", PRODUCT)
def test_no_function_is_too_long(path):
    assert _long_functions(path) == []
