#!/usr/bin/python3
"""A fuzz campaign: a million generated documents over all targets, with what each cost and what broke.

Each chunk of documents runs in a process of its own, which also makes the memory of each target known. The figures
are written after every chunk, so a campaign that is stopped has its partial result, and goes on with `--resume`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit"), str(ROOT / "tests")]

CHUNK = 5000  # documents of one process
SLOWEST = 1.0  # seconds of processor time that one document may take
STUCK = 10.0  # seconds of processor time after which one is given up
MEMORY = 64 * 1024  # KiB of resident memory
MAX_FAILURES = 20  # inputs that are kept of one chunk
COUNTED = ("documents", "passes", "crashes", "slow")
HEADER = "target             documents  passes crashes over 1 s  slowest  memory"


class StuckError(BaseException):
    """Nothing that a reader catches."""


def _give_up(*_: object) -> None:
    raise StuckError(f"stopped after {STUCK:g} s of processor time")


# --- one chunk, in a process of its own ---------------------------------------------------------------------


def run_chunk(target: str, seed: int, first: int, count: int, every: int) -> dict:
    """Documents `first` to `first + count`; one in `every` is carried through to a pass on the model kernel."""
    from fuzzing import held
    from mutation import generate

    signal.signal(signal.SIGVTALRM, _give_up)
    figures = {"documents": 0, "passes": 0, "crashes": 0, "slow": 0, "slowest": 0.0, "failures": []}
    for number in range(first, first + count):
        data = generate(target, seed, number)
        carry_out = number % every == 0
        began = time.process_time()
        failure = _broken(held, target, data, carry_out)
        seconds = time.process_time() - began
        figures["documents"] += 1
        figures["passes"] += carry_out
        if failure:
            figures["crashes"] += 1
        elif seconds >= SLOWEST:
            figures["slow"] += 1
            failure = f"{seconds:.2f} s of processor time"
        if seconds > figures["slowest"]:
            figures.update(slowest=seconds, slowest_number=number)
        if failure and len(figures["failures"]) < MAX_FAILURES:
            figures["failures"].append({"number": number, "text": failure, "pass": carry_out})
    figures["rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return figures


def _broken(held, target: str, data: bytes, carry_out: bool) -> str:
    """What went wrong; empty for nothing."""
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, STUCK)
        held(target, data, carry_out)
    except (Exception, StuckError):  # noqa: BLE001 - a campaign is there to find every one
        return traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return ""


# --- the campaign -------------------------------------------------------------------------------------------


class Campaign:
    """Hands the chunks out, adds their figures up, and keeps the inputs that failed."""

    def __init__(self, options: argparse.Namespace) -> None:
        from fuzzing import TARGETS

        self.options, self.targets = options, list(TARGETS)
        self.each = -(-options.documents // len(self.targets))
        self.path = options.results / "figures.json"
        self.figures = {"seed": options.seed, "every": options.every, "done": [], "targets": {}}
        if options.resume and self.path.exists():
            self.figures = json.loads(self.path.read_text())
        options.results.mkdir(parents=True, exist_ok=True)

    def chunks(self):
        """Target, first document and number of documents, in turn, so that a part of the campaign has all targets."""
        done = {tuple(one) for one in self.figures["done"]}
        for first in range(0, self.each, CHUNK):
            for target in self.targets:
                if (target, first) not in done:
                    yield target, first, min(CHUNK, self.each - first)

    def run(self) -> int:
        with ThreadPoolExecutor(self.options.processes) as pool:
            waiting = [(chunk, pool.submit(self.child, *chunk)) for chunk in self.chunks()]
            for chunk, future in waiting:
                self.add(chunk, future.result())
        print(self.report())
        return any(
            one["crashes"] or one["slow"] or one["rss"] > MEMORY
            for one in self.figures["targets"].values()
        )

    def child(self, target: str, first: int, count: int) -> dict:
        options = self.options
        words = ["--chunk", target, str(first), str(count)]
        numbers = ["--seed", str(options.seed), "--every", str(options.every)]
        done = subprocess.run(
            [sys.executable, __file__, *words, *numbers],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            text = f"ended with status {done.returncode}: {done.stderr[-400:]}"
            failure = {"number": first, "text": text, "pass": True}
            return {
                "documents": 0,
                "passes": 0,
                "crashes": 1,
                "slow": 0,
                "slowest": 0.0,
                "failures": [failure],
                "rss": 0,
            }
        return json.loads(done.stdout)

    def add(self, chunk, found: dict) -> None:
        target, first, _ = chunk
        total = self.figures["targets"].setdefault(
            target,
            dict.fromkeys((*COUNTED, "slowest", "slowest_number", "rss"), 0),
        )
        for name in COUNTED:
            total[name] += found[name]
        if found["slowest"] > total["slowest"]:
            total.update(slowest=found["slowest"], slowest_number=found["slowest_number"])
        total["rss"] = max(total["rss"], found["rss"])
        self.figures["done"].append([target, first])
        for failure in found["failures"]:
            self.keep(target, failure)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.figures))
        new.replace(self.path)
        (self.options.results / "report.txt").write_text(self.report() + "\n")

    def keep(self, target: str, failure: dict) -> None:
        from mutation import generate

        folder = self.options.results / "failures" / target
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.options.seed}-{failure['number']}"
        (folder / name).write_bytes(generate(target, self.options.seed, failure["number"]))
        (folder / f"{name}.txt").write_text(failure["text"])

    def report(self) -> str:
        found = self.figures["targets"]
        total = {name: sum(one[name] for one in found.values()) for name in COUNTED}
        for name in ("slowest", "rss"):
            total[name] = max((one[name] for one in found.values()), default=0)
        seed, every = self.figures["seed"], self.figures["every"]
        rows = [
            f"seed {seed}; one document in {every} is carried through to a pass",
            HEADER,
            *(_row(target, one) for target, one in found.items()),
            _row("all", total),
        ]
        return "\n".join(rows)


def _row(target: str, one: dict) -> str:
    counts = f"{one['documents']:>10}{one['passes']:>8}{one['crashes']:>8}{one['slow']:>9}"
    return f"{target:18}{counts}{one['slowest']:>7.2f} s{one['rss'] / 1024:>4.0f} MiB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--documents", type=int, default=1000000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--every", type=int, default=10, help="make a pass of one document in this many"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=ROOT / "build" / "fuzz",
        help="directory of the figures and of inputs that failed",
    )
    parser.add_argument("--resume", action="store_true", help="go on where a campaign was stopped")
    parser.add_argument(
        "--chunk", nargs=3, metavar=("TARGET", "FIRST", "COUNT"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.chunk:
        target, first, count = options.chunk
        print(json.dumps(run_chunk(target, options.seed, int(first), int(count), options.every)))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        return Campaign(options).run()
    return 130


if __name__ == "__main__":
    sys.exit(main())
