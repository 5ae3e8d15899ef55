"""The status as metrics, for `neuca status --prometheus`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from neuca_tools import __version__
from neuca_tools.model.openmetrics import Sample, metrics_text, seconds_of_time
from neuca_tools.status.judge import EXIT_CODES

METRICS = {
    "info": "The version of neuca-guest-tools, always 1.",
    "state": "1 for the present state of the host, 0 for the others.",
    "problems": "The problems of the host and of its interfaces, by code.",
    "drift": "The values and files that were changed since neucad set them.",
    "document_stale": "1 while no source confirms the document.",
    "document_info": "The active document, always 1; absent without a document.",
    "document_fetched_timestamp_seconds": "When the document was read, in seconds since 1970.",
    "unsaved": "1 while the state cannot be saved.",
    "interface_ok": "1 if an interface is configured as requested.",
    "interface_problems": "The problems of an interface, by code.",
    "last_pass_timestamp_seconds": "When the last pass ended, in seconds since 1970.",
    "last_pass_duration_seconds": "How long the last pass took.",
    "last_pass_changed": "The operations that the last pass carried out.",
    "last_pass_failed": "The operations of the last pass that failed.",
}


def status_metrics(status: Mapping[str, Any]) -> str:
    """The whole file for what `neuca status --json` prints."""
    return metrics_text("neuca_", METRICS, _status_samples(status), 13)


def metrics_without_status() -> str:
    """The whole file if the status cannot be determined, so that no earlier file hides that."""
    return metrics_text("neuca_", METRICS, _state_samples(__version__, "failed"), 13)


def _state_samples(version: str, present: str) -> Iterator[Sample]:
    yield "info", {"version": version}, 1
    for state in EXIT_CODES:
        yield "state", {"state": state}, float(state == present)


def _status_samples(status: Mapping[str, Any]) -> Iterator[Sample]:
    yield from _state_samples(status["neuca"], status["state"])
    codes = _count_codes([status, *status["interfaces"]])
    for code in sorted(codes):
        yield "problems", {"code": code}, codes[code]
    yield "drift", {}, codes["drift"]
    yield "unsaved", {}, float(bool(status.get("unsaved")))
    yield from _of_document(status["document"])
    for interface in status["interfaces"]:
        yield from _of_interface(interface)
    yield from _of_pass(status["last_pass"])


def _of_document(document: Mapping[str, Any]) -> Iterator[Sample]:
    yield "document_stale", {}, float(document["stale"])
    if document["source"]:
        labels = {name: document[name] or "" for name in ("source", "sha256")}
        yield "document_info", labels, 1
        yield "document_fetched_timestamp_seconds", {}, seconds_of_time(document["fetched"])


def _of_interface(interface: Mapping[str, Any]) -> Iterator[Sample]:
    labels = {
        "interface": interface["name"] or interface["desired_name"] or "",
        "mac": interface["mac"] or interface["parent"] or "",
        "vlan_id": str(interface["vlan_id"] or ""),
        "role": interface["role"],
    }
    yield "interface_ok", labels, float(interface["ok"])
    for code, number in sorted(_count_codes([interface]).items()):
        yield "interface_problems", {**labels, "code": code}, number


def _of_pass(last: Optional[Mapping[str, Any]]) -> Iterator[Sample]:
    if last is not None:
        yield "last_pass_timestamp_seconds", {}, seconds_of_time(last["finished"])
        yield "last_pass_duration_seconds", {}, last["seconds"]
        yield "last_pass_changed", {}, last["changed"]
        yield "last_pass_failed", {}, last["failed"]


def _count_codes(holders: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(problem["code"] for holder in holders for problem in holder["problems"])
