"""Plays sequences, one line of JSON for each seed; one that fails is cut down to what is needed.

    python3 seq_play.py shrink=SECONDS leave-out=HEX SEED...
    python3 seq_play.py replay FILE

Started by run.py, on this machine or in a guest.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from seq_documents import Section
from seq_host import isolated, kinds, load
from seq_steps import Broken, Play, Step, draw_sequence


def attempt(data, by_hand=""):
    """The promise that was broken and the details; empty if all held."""
    play = Play(by_hand)
    try:
        play.play([Step.load(one) for one in data])
    except Broken as broken:
        return [broken.promise, *broken.details]
    finally:
        play.close()
    return []


def outcome(steps, by_hand=""):
    try:
        return isolated(attempt, [step.dump() for step in steps], by_hand)
    except RuntimeError as error:
        return ["the harness works", str(error)]


def smaller(steps):
    """Sequences with less in them, those with much less first."""
    for place in range(len(steps)):
        yield steps[:place] + steps[place + 1 :]
    for place, step in enumerate(steps):
        for less in _smaller_step(step):
            yield [*steps[:place], less, *steps[place + 1 :]]


def _smaller_step(step):
    if step.action != "apply":
        yield replace(step, action="apply")
    if not step.checked:
        yield replace(step, checked=True)
    for event in step.events:
        yield replace(step, events=[one for one in step.events if one is not event])
    for section in step.sections:
        yield replace(step, sections=[one for one in step.sections if one is not section])
    for place, section in enumerate(step.sections):
        for line in section.lines:
            less = Section(section.header, [one for one in section.lines if one != line])
            sections = [*step.sections[:place], less, *step.sections[place + 1 :]]
            yield replace(step, sections=sections)


def shrink(steps, promise, seconds):
    """The smallest sequence found in so many seconds that breaks the same promise."""
    deadline = time.monotonic() + seconds
    best, found = steps, outcome(steps)
    place = int(found[1].split()[2]) if found and found[0] == promise and found[1].startswith("in step") else len(steps)  # fmt: skip
    best = steps[:place]
    is_smaller = True
    while is_smaller and time.monotonic() < deadline:
        is_smaller = False
        for candidate in smaller(best):
            if time.monotonic() > deadline:
                break
            result = outcome(candidate)
            if result and result[0] == promise:
                best, found, is_smaller = candidate, result, True
                break
    return best, found


def line(seed, steps, result, began):
    seconds = round(time.monotonic() - began, 1)
    data = {"seed": seed, "seconds": seconds, "broken": result, "steps": [step.dump() for step in steps]}  # fmt: skip
    print(json.dumps(data), flush=True)


def main(words):
    load()
    if words[0] == "replay":
        data, began = json.loads(Path(words[1]).read_text()), time.monotonic()
        steps = [Step.load(one) for one in data["steps"]]
        line(data.get("seed", 0), steps, outcome(steps, data.get("by hand", "")), began)
        return
    options = dict(word.split("=", 1) for word in words if "=" in word)
    left_out = bytes.fromhex(options.get("leave-out", "")).decode()
    available = tuple(isolated(kinds))
    for seed in (int(word) for word in words if "=" not in word):
        began, steps = time.monotonic(), without(draw_sequence(seed, available), left_out)
        result = outcome(steps)
        if result and float(options.get("shrink", 0)):
            steps, again = shrink(steps, result[0], float(options["shrink"]))
            result = again or result
        line(seed, steps, result, began)


def without(steps, pattern):
    """The sequence without the lines that match, and with `apply` for the ways of applying that do."""
    if not pattern:
        return steps
    for step in steps:
        step.action = "apply" if re.search(pattern, step.action) else step.action
        for section in step.sections:
            section.lines = [one for one in section.lines if not re.search(pattern, one)]
    return steps


if __name__ == "__main__":
    main(sys.argv[1:])
