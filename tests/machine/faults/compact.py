#!/usr/bin/python3 -B
"""`compact.py OUTCOME NAME`: what `run --keep` kept of a case becomes a fixture of tests/unit/data/faults.

All that no rule can see goes: iperf3's own words, counters that did not move, links that are not on the way.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import sys
from pathlib import Path

DATA = Path(__file__).parents[2] / "unit" / "data" / "faults"
IDENTITY = ("raw", "boot", "taken", "steps", "label")


def compact(evidence: dict) -> dict:
    """An evidence, without what is of no use."""
    kept = {name: value for name, value in evidence.items() if name not in IDENTITY}
    kept["phases"] = [_phase(phase) for phase in evidence.get("phases", [])]
    for end in ("local", "peer"):
        host = dict(evidence.get(end, {}))
        if "links" in host:
            host["links"] = [link for link in host["links"] if link["name"] in host.get("path", ())]
        kept[end] = host
    return kept


def rounded(value: object) -> object:
    """Nothing is measured to more than seven digits."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _phase(phase: dict) -> dict:
    """What counted is told once at the begin and once at the end."""
    kept = {name: value for name, value in phase.items() if name not in IDENTITY}
    for end in ("sender", "receiver"):
        samples = phase.get(end, [])
        last = samples[-1].get("counters", {}) if samples else {}
        for place, sample in enumerate(samples):
            counters = sample.get("counters", {}) if place in (0, len(samples) - 1) else {}
            sample["counters"] = {name: value for name, value in counters.items() if name in last}
        kept[end] = samples
    return kept


def main() -> None:
    outcome, name = sys.argv[1:]
    evidence = json.loads(Path(outcome).read_text())["report"]["evidence"]
    DATA.mkdir(exist_ok=True)
    (DATA / f"{name}.json").write_text(
        json.dumps(rounded(compact(evidence)), separators=(",", ":")) + "\n"
    )


if __name__ == "__main__":
    main()
