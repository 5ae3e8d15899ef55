"""Play a set-up between two namespaces, and write down what was said of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "netns"))

from between import Between, between
from effect import missing
from setups import Setup

ALONE = ("tcp", "tcp-reverse")


def play(setup: Setup, folder: Path | None = None) -> dict[str, Any]:
    """The result of the first run; `folder` keeps its report as well."""
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
        with (
            tempfile.TemporaryDirectory(dir=folder) as directory,
            between(Path(directory)) as hosts,
        ):
            report = _report(hosts, setup)
            tallies, drops = hosts.tallies(), _own_drops(hosts)
    except AssertionError as error:
        return {**found, "error": str(error)[-500:], "findings": []}
    found["unplayed"] = missing(setup, tallies, flow_rates(report), drops)
    found["box"] = {name: dataclasses.asdict(one) for name, one in tallies.items()}
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
