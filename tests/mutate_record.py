"""Records which tests run which mutated place: `mutate.py` copies it into `neuca_tools` of the tree that it runs.

It is a pytest plugin, which knows the running test, and what the mutated places call, in whatever process they run. With
MUTATE_TESTS, the name of a file, pytest runs the tests in it alone, in their order: a mutation may change which there are.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

TREE = Path(__file__).parents[1]
RECORD = TREE / "mutate-record.jsonl"
_recorded: set[tuple[int, str, int]] = set()
_running = ""  # in the process of pytest


def _write(*line: object) -> None:
    with contextlib.suppress(OSError), RECORD.open("a", encoding="utf-8") as record:
        record.write(json.dumps(line) + "\n")


def hit(place: int) -> None:
    """Called where the mutation will be. A process that outlives a test reads often which one runs now."""
    file = os.environ.get("MUTATE_RUNNING")
    if file is None:
        return
    key = (place, _running or str(int(time.monotonic() * 20)), os.getpid())
    if key in _recorded:
        return
    _recorded.add(key)
    test = _running
    if not test:
        with contextlib.suppress(OSError):
            test = Path(file).read_text(encoding="utf-8")
    _write("hit", place, test)


def _without_tree(nodeid: str) -> str:
    """Parameters may be paths in the copy."""
    return nodeid.replace(str(TREE), "TREE")


def pytest_configure() -> None:
    """The processes that tests start inherit the name of the file."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    os.environ["MUTATE_RUNNING"] = str(RECORD.with_name(f"mutate-running-{worker}"))
    RECORD.touch()
    RECORD.chmod(0o666)


def pytest_collection_modifyitems(items) -> None:
    """All, if no tests are chosen."""
    if "MUTATE_TESTS" in os.environ:
        chosen = json.loads(Path(os.environ["MUTATE_TESTS"]).read_text(encoding="utf-8"))
        by_id = {_without_tree(item.nodeid): item for item in items}
        items[:] = [by_id[test] for test in chosen if test in by_id]


def pytest_runtest_logstart(nodeid: str) -> None:
    """Called in the worker, and in the main process once a worker has begun."""
    global _running  # noqa: PLW0603 - pytest calls functions
    _running = _without_tree(nodeid)
    Path(os.environ["MUTATE_RUNNING"]).write_text(_running, encoding="utf-8")


def pytest_runtest_logreport(report) -> None:
    """The main process gets those of the workers too."""
    if not hasattr(report, "node"):
        _write("test", _without_tree(report.nodeid), report.duration, report.outcome)
