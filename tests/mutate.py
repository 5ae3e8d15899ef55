#!/usr/bin/python3
"""Mutations of the product, and whether the unit and namespace tiers notice: tests/mutate.py --help.

mutmut 3 mutates functions only, needs itself in every process that the code runs in, and learns which tests reach a
function from the process of pytest alone; our namespace tests run programs. cosmic-ray mutates files in place and runs
one command for every mutation: here, ten minutes for each. So, for each tier: a run of a copy of the tree records which
tests reach each drawn place, in whatever process; then each mutation runs in a copy with those tests alone, up to the
first failure. What survives goes to the next tier. A place outside of functions is reached with any function of its module,
and by the tests in files that import it.

Not mutated: docstrings, annotations, decorators, what is logged, and texts (strings with a space).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import count, zip_longest
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from mutations import mutated, observed, places

ROOT = Path(__file__).parents[1]
PRODUCT = "neuca_tools"
RECORDER = "mutate_record"
# Seconds of tests for each mutation, by the times of the recorded run: a place that every pass reaches has hours of them.
TIERS = {"tests/unit": 240, "tests/netns": 150}
# They judge the text of the tree, not what it does.
LEFT_OUT = ("style", "layering", "docs", "docs_pages", "docs_browser", "packaging", "comments")

# Of pytest: passed, failed, a module that cannot be imported, no such test any more.
EXIT_CODES = {0: "survived", 1: "killed by {}", 2: "killed by {}", 5: "survived", -1: "killed by its time limit"}  # fmt: skip
NEAR_FILES = 3
SPARE_SECONDS = 300  # for a start on a busy machine
TIMES = count(1_000_000_000)


class Mutation(NamedTuple):
    """The mutation with this index of a file."""

    path: str
    line: int
    index: int


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the product and run its tests.")
    parser.add_argument("--changed", metavar="REVISION", help="only files that differ from it")
    parser.add_argument("--draw", nargs="+", default=["all=40"], metavar="ROOMS=NUMBER",
                        help="mutations of all, the agent or the selftest (all=40)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="tests at the same time (2)")
    options = parser.parse_args()
    drawn = {}
    for words in options.draw:
        rooms, _, number = words.partition("=")
        drawn[rooms] = draw(product_files(rooms, options.changed), int(number), options.seed)
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        Path(folder).chmod(0o755)
        survivors = [mutation for mutations in drawn.values() for mutation in mutations]
        for tier in TIERS:
            survivors = run_tier(Path(folder), tier, survivors, options.jobs)
    for rooms, mutations in drawn.items():
        killed = len(set(mutations) - set(survivors))
        share = 100 * killed / max(1, len(mutations))
        print(f"{rooms}: {killed} of {len(mutations)} mutations killed ({share:.1f} %)")
    return 0


def product_files(rooms: str, revision: str | None) -> list[str]:
    """Files of the self-test have `selftest` in their path; the agent is everything else."""
    names = f"git diff --name-only {revision}" if revision else "git ls-files"
    listed = subprocess.run([*names.split(), "--", PRODUCT], cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    return [
        name
        for name in listed.stdout.splitlines()
        if name.endswith(".py") and (ROOT / name).exists()
        if rooms in ("all", "selftest" if "selftest" in name else "agent")
    ]


def draw(files: list[str], most: int, seed: int) -> list[Mutation]:
    """One mutation for each drawn line."""
    by_line = defaultdict(list)
    for path in files:
        source = (ROOT / path).read_text(encoding="utf-8")
        for index, place in enumerate(places(ast.parse(source))):
            by_line[path, place.line].append(index)
    chance = random.Random(seed)
    lines = chance.sample(sorted(by_line), min(most, len(by_line)))
    return [Mutation(path, line, chance.choice(by_line[path, line])) for path, line in lines]


def run_tier(folder: Path, tier: str, mutations: list[Mutation], jobs: int) -> list[Mutation]:
    """The mutations that no test of the tier notices."""
    if not mutations:
        return []
    tests = record(copy(folder), tier, mutations, jobs)
    copies: Queue[Path] = Queue()
    for _ in range(jobs):
        copies.put(copy(folder))

    def judge(mutation: Mutation) -> bool:
        tree = copies.get()
        survived = run_mutation(tree, tier, mutation, tests[mutation])
        copies.put(tree)
        return survived

    with ThreadPoolExecutor(jobs) as pool:
        verdicts = list(pool.map(judge, mutations))
    return [mutation for mutation, survived in zip(mutations, verdicts) if survived]


def copy(folder: Path) -> Path:
    """A copy of the files of the checkout, with what has not been committed."""
    tree = Path(tempfile.mkdtemp(dir=folder))
    tree.chmod(0o755)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    shutil.copy(ROOT / "tests" / f"{RECORDER}.py", tree / PRODUCT)
    return tree


def pytest(tree: Path, *arguments: str, seconds: float | None = None, **environment: str) -> tuple[int, str]:  # fmt: skip
    """Exit code and output; -1 after so many seconds."""
    plugins = ["-p", "no:cacheprovider", "-p", f"{PRODUCT}.{RECORDER}", "-m", "not long"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *plugins, *arguments],
        cwd=tree,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return -1, process.communicate()[0]
    return process.returncode, output


def record(tree: Path, tier: str, mutations: list[Mutation], jobs: int) -> dict[Mutation, dict[str, float]]:  # fmt: skip
    """For each mutation the tests that reach its place, and their seconds, from a run without mutations."""
    call = f"__import__('{PRODUCT}.{RECORDER}').{RECORDER}.hit"
    for path in {mutation.path for mutation in mutations}:
        source = (ROOT / path).read_text(encoding="utf-8")
        indexes = {number: mutation.index for number, mutation in enumerate(mutations) if mutation.path == path}  # fmt: skip
        (tree / path).write_text(observed(source, indexes, call), encoding="utf-8")
    left_out = [f"--ignore={tier}/test_{name}.py" for name in LEFT_OUT]
    _, output = pytest(tree, "-n", str(jobs), *left_out, tier)
    print(f"{tier} without mutations:", output.splitlines()[-1], flush=True)
    return read_record(tree / "mutate-record.jsonl", mutations)


def read_record(path: Path, mutations: list[Mutation]) -> dict[Mutation, dict[str, float]]:
    """A test that fails without a mutation, as one that counts calls may here, is left out."""
    reached, seconds, failing = defaultdict(set), defaultdict(float), set()
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, *values = json.loads(line)
        if kind == "hit":
            reached[values[0]].add(values[1])
            continue
        test, duration, outcome = values
        seconds[test] += duration
        if outcome == "failed":
            failing.add(test)
    return {
        mutation: {test: seconds[test] for test in seconds
                   if test not in failing and (test in reached[number] or reads_table(test, mutation))}
        for number, mutation in enumerate(mutations)
    }  # fmt: skip


def reads_table(test: str, mutation: Mutation) -> bool:
    """Whether the place is outside of functions, and the file of the test imports its module."""
    return is_outside(mutation) and imports(test.partition("::")[0], mutation.path)


@cache
def is_outside(mutation: Mutation) -> bool:
    source = (ROOT / mutation.path).read_text(encoding="utf-8")
    return not places(ast.parse(source))[mutation.index].functions


@cache
def imports(file: str, path: str) -> bool:
    """Whether a file of tests names this module of the product in an import."""
    name = Path(path).stem
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.search(rf"import\b.*\b{name}\b|\.{name} import\b", text) is not None


def run_mutation(tree: Path, tier: str, mutation: Mutation, tests: dict[str, float]) -> bool:
    """Whether the tests that reach its place let it survive."""
    original = (ROOT / mutation.path).read_text(encoding="utf-8")
    source, before, after = mutated(original, mutation.index)
    write(tree / mutation.path, source)
    outcome, count = "survived", 0
    for batch in batches(tests, mutation.path, TIERS[tier]):
        outcome, count = run_tests(tree, batch, sum(tests[test] for test in batch)), count + len(batch)  # fmt: skip
        if outcome != "survived":
            break
    write(tree / mutation.path, original)
    where = f"{mutation.path}:{mutation.line}: {before} -> {after}"
    print(f"{where}: {outcome} ({count} of {len(tests)} tests of {tier})", flush=True)
    return outcome == "survived"


def run_tests(tree: Path, tests: list[str], planned: float) -> str:
    """What becomes of the mutation in this tree."""
    chosen = tree / "mutate-tests.json"
    chosen.write_text(json.dumps(tests), encoding="utf-8")
    files = sorted({test.partition("::")[0] for test in tests})
    seconds = SPARE_SECONDS + 5 * planned
    code, output = pytest(tree, "-x", *files, seconds=seconds, MUTATE_TESTS=str(chosen))
    if code not in EXIT_CODES:
        raise RuntimeError(output)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.M)
    return EXIT_CODES[code].format(failed[1] if failed else "a test")


def batches(tests: dict[str, float], path: str, limit: float) -> list[list[str]]:
    """The tests of the three nearest files, then those of the others: quick ones first, for so many seconds.

    Near is a file that imports the mutated module, then one with many tests that reach its place.
    """
    by_file: dict[str, list[str]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: tests[test]):
        by_file[test.partition("::")[0]].append(test)

    def distance(file: str) -> tuple[bool, int]:
        return not imports(file, path), -len(by_file[file])

    files = sorted(by_file, key=distance)
    planned, chosen = 0.0, ([], [])
    for turn in zip_longest(*(by_file[file] for file in files)):
        for place, test in enumerate(turn):
            if test is not None and planned + tests[test] <= limit:
                chosen[place >= NEAR_FILES].append(test)
                planned += tests[test]
    return [batch for batch in chosen if batch]


def write(path: Path, source: str) -> None:
    """With a time of its own, by which Python sees that a compiled file is old."""
    path.write_text(source, encoding="utf-8")
    os.utime(path, (next(TIMES),) * 2)


if __name__ == "__main__":
    sys.exit(main())
