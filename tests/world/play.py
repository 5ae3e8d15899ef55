"""Play a set-up between two namespaces or in a guest, and write down what was said of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "netns"))

from between import Between, between
from effect import Seen, missing
from guests import case_of, seen_in
from limited import SAMPLER, limits
from setups import FORWARD, REVERSE, Setup

if TYPE_CHECKING:
    from harness import Stage

ALONE = ("tcp", "tcp-reverse")


def play(setup: Setup, folder: Path | None = None, guest: Stage | None = None) -> dict[str, Any]:
    """The result of the first run; `folder` is for temporary files, `guest` for what is too fast for a box."""
    began, load = time.monotonic(), os.getloadavg()[0]
    found: dict[str, Any] = {
        "seed": setup.seed,
        "number": setup.number,
        "name": setup.name,
        "what": setup.what,
        "wanted": setup.wanted,
        "busy": setup.busy,
        "load": load,
    }
    try:
        played = _in_guest(guest, setup) if guest else _between(setup, folder)
    except AssertionError as error:
        return {**found, "error": str(error)[-500:], "findings": []}
    report, seen = played.report, played.seen
    found["unplayed"] = missing(setup, seen._replace(rates=flow_rates(report)))
    found["box"] = {name: dataclasses.asdict(one) for name, one in seen.tallies.items()}
    found["limits"] = {name: one._asdict() for name, one in seen.limits.items()}
    found["findings"] = [
        {key: one.get(key) for key in ("id", "severity", "confidence", "share", "direction")}
        for one in report["findings"]
    ]
    return {
        **found,
        "verdict": report["verdict"],
        "unknown": report.get("unknown"),
        "rates": [[one["name"], one["direction"], one.get("rate")] for one in report["phases"]],
        "seconds": round(time.monotonic() - began),
        "report": report,
    }


class Played(NamedTuple):
    """What the self-test said, and what happened."""

    report: dict[str, Any]
    seen: Seen


def _between(setup: Setup, folder: Path | None) -> Played:
    with tempfile.TemporaryDirectory(dir=folder) as directory, between(Path(directory)) as hosts:
        samples = dict(_sampled(hosts)) if setup.buffers else {}
        report = _report(hosts, setup)
        found = {name: limits(path.read_text()) for name, path in samples.items()}
        return Played(report, Seen(hosts.tallies(), _own_drops(hosts), limits=found))


def _sampled(hosts: Between) -> Iterator[tuple[str, Path]]:
    """Files with what the kernel of each sender says of its sockets, by direction."""
    for direction, where in ((FORWARD, hosts.near), (REVERSE, hosts.far)):
        path = hosts.folder / f"sockets-{direction}"
        path.touch()
        hosts.start("bash", "-c", f"exec > {path}; {SAMPLER}", where=where)
        yield direction, path


def _in_guest(guest: Stage, setup: Setup) -> Played:
    outcome = guest.play(case_of(setup))
    assert "report" in outcome, outcome["error"]
    return Played(outcome["report"], seen_in(outcome["tally"], setup))


def flow_rates(report: Mapping[str, Any]) -> dict[str, float | None]:
    """bit/s of the first test of one flow in each direction."""
    found: dict[str, float | None] = {}
    for one in report["phases"]:
        if one["name"] in ALONE:
            found.setdefault(one["direction"], one.get("steady") or one.get("rate"))
    return found


def _own_drops(hosts: Between) -> int:
    """Of the near host's own queues."""
    queues = json.loads(hosts.run(*"tc -s -j qdisc show dev a0".split(), where=hosts.near))
    return sum(one["drops"] for one in queues)


def _report(hosts: Between, setup: Setup) -> dict[str, Any]:
    for where, settings in zip((hosts.near, hosts.far), setup.sysctls):
        for one in settings:
            hosts.run("sysctl", "-qw", one, where=where)
    hosts.boxed(setup.there, setup.back, setup.number)
    if setup.own:
        hosts.run(*f"tc qdisc add dev a0 root tbf {setup.own}".split(), where=hosts.near)
    if setup.listens:
        hosts.serve()
    if setup.busy:
        hosts.busy(os.cpu_count() or 1)
    return hosts.report(*setup.words, helped=setup.listens)
