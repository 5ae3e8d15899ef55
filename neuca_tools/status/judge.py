"""How far the host is from what is asked: built from the same plan that apply carries out, so that both always agree."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from neuca_tools.desired.resolve import Resolution
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.neuca.values import mac as mac_of
from neuca_tools.errors import EXIT_DEGRADED, EXIT_FAILED, EXIT_INVALID, EXIT_OK, EXIT_PENDING
from neuca_tools.model import Link, LinkKey, NetworkState, Problem
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import WriteFile

MOST_FILES = 3  # named one by one
NO_NAMES: Mapping[LinkKey, str] = {}
INFORMATION = frozenset({"ignored"})  # what the administrator wanted is no shortfall


@dataclass(frozen=True)
class Report:
    """How the last pass went. `finished` in RFC 3339, UTC; `seconds` it took; `changed`: the texts of the operations done.

    `removed`: what managers had put on NICs before those were ours, and is gone; from all passes since the boot.
    """

    finished: str
    seconds: float
    changed: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    undone: bool = False
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class DocumentStatus:
    """The document in force, in words for status; `source` is empty where there is none.

    `disputed`: another metadata service has answered too, and differently.
    """

    source: str = ""
    sha256: str = ""
    fetched: str = ""
    stale: bool = False
    none_for_us: bool = False
    reason: str = ""
    platform: str = ""
    invalid: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    disputed: str = ""


@dataclass(frozen=True)
class Status:
    """`data` is what `neuca status --json` prints; `notes` in it are worth a line, and no shortfall. `held`: see `Roles`."""

    data: Mapping[str, Any]
    exit_code: int
    held: bool = False


def judge(
    version: str,
    document: DocumentStatus,
    resolution: Resolution,
    have: NetworkState,
    left: Sequence[Operation],
    unapplied: Collection[str],
    managers: Mapping[str, Mapping[str, str]],
    notes: Iterable[str],
    report: Optional[Report],
    own_names: Mapping[LinkKey, str] = NO_NAMES,
) -> Status:
    """`left` is the plan for all NICs; `unapplied` those whose request has not been applied yet: for the others it is drift.

    `own_names` is what each NIC should be called, whether that can be done now or not.
    """
    problems = [*resolution.problems, *_of_document(document)]
    failed = _failures(report, left)
    problems += failed
    lost = _lost({problem.link.mac for problem in failed if problem.link}, left)
    pending = {
        operation
        for operation in left
        if _is_pending(operation, unapplied) and operation.domain not in lost
    }
    problems += [
        _shortfall(operation, operation in pending)
        for operation in left
        if operation.domain not in lost and not isinstance(operation, WriteFile)
    ]
    problems += _taken_back(failed, left)
    problems += _files(
        [operation for operation in left if isinstance(operation, WriteFile)], report is not None
    )
    problems += _contested(resolution, have)
    problems = list(dict.fromkeys(problems))
    own: dict[LinkKey, list[Problem]] = {}
    for problem in problems:
        if problem.link is not None:
            own.setdefault(problem.link, []).append(problem)
    waiting = bool(pending or resolution.roles.held) or (
        not document.source and not document.none_for_us
    )
    codes = {problem.code for problem in problems} - INFORMATION
    state = (
        "failed"
        if "failed" in codes
        else "pending"
        if waiting
        else "degraded"
        if codes or (document.stale and document.source)
        else "ok"
    )
    data = {
        "version": 1,
        "neuca": version,
        "state": state,
        "document": _document(document),
        "interfaces": [
            _interface(link, resolution, have, own.get(link.key, []), managers, own_names)
            for link in resolution.shown
        ],
        "problems": [_problem(problem) for problem in problems if problem.link is None],
        "notes": [*document.warnings, *notes],
        "last_pass": report
        and {
            "finished": report.finished,
            "seconds": report.seconds,
            "changed": len(report.changed),
            "failed": len(report.problems),
        },
    }
    return Status(data, _exit_code(state, codes), bool(resolution.roles.held))


def with_unsaved(status: Status, reason: str, held: Sequence[Operation]) -> Status:
    """`reason`: why the state cannot be saved, empty if it can; `held`: what waits for that."""
    problems = status.data["problems"]
    files = [problem["text"] for problem in problems if problem["code"] == "unsaved"]
    why = next(iter([reason] if reason else files), None)
    waits = [_problem(Problem("unsaved", f"waits for room: {one.text}")) for one in held]
    data = {**status.data, "unsaved": why, "problems": [*problems, *waits]}
    if why is None or data["state"] != "ok":
        return replace(status, data=data)
    return replace(status, data={**data, "state": "degraded"}, exit_code=EXIT_DEGRADED)


def unsaved_line(data: Mapping[str, Any]) -> list[str]:
    """What `neuca status` says near its top while the state cannot be saved."""
    return [f"degraded: not saved: {data['unsaved']}"] if data.get("unsaved") else []


def _of_document(document: DocumentStatus) -> list[Problem]:
    found = [Problem("invalid", text) for text in document.invalid]
    return [*found, *([Problem("contested", document.disputed)] if document.disputed else [])]


def _exit_code(state: str, codes: Collection[str]) -> int:
    if "invalid" in codes:
        return EXIT_INVALID
    return {"failed": EXIT_FAILED, "pending": EXIT_PENDING, "degraded": EXIT_DEGRADED}.get(
        state, EXIT_OK
    )


def _is_pending(operation: Operation, unapplied: Collection[str]) -> bool:
    return bool(operation.handles & set(unapplied))


def _lost(failed: set[str], left: Sequence[Operation]) -> set[str]:
    """The NICs that failed, and those that were to be put together with one."""
    while True:
        more = {
            mac for operation in left if operation.fate & failed for mac in operation.fate
        } - failed
        if not more:
            return failed
        failed = failed | more


def _taken_back(failed: Sequence[Problem], left: Sequence[Operation]) -> list[Problem]:
    """The other links of a NIC that failed: they were undone with it."""
    first = {
        mac: problem
        for problem in reversed(failed)
        if problem.link
        for mac in _lost({problem.link.mac}, left)
    }
    named = {problem.link for problem in failed}
    links = {
        operation.link.key for operation in left if operation.link and operation.domain in first
    } - named
    return [
        Problem("failed", f"undone, since this failed: {first[key.mac].text}", key)
        for key in sorted(links)
    ]


def _files(left: Sequence[WriteFile], passed: bool) -> list[Problem]:
    if len(left) > MOST_FILES:
        word = "as they should be" if passed else "written yet"
        return [Problem("drift", f'{len(left)} files are not {word}, "{left[0].path}" among them')]
    word = "as it should be" if passed else "written yet"
    return [Problem("drift", f'"{operation.path}" is not {word}') for operation in left]


def _failures(report: Optional[Report], left: Sequence[Operation]) -> list[Problem]:
    """Failures of the last pass that still matter: something is left to do where they were."""
    unfinished = {operation.domain for operation in left}
    return [
        problem
        for problem in (report.problems if report else ())
        if (problem.link.mac if problem.link else None) in unfinished
    ]


def _shortfall(operation: Operation, pending: bool) -> Problem:
    link = operation.link.key if operation.link else None
    return Problem("drift", _words(operation, pending), link)


def _words(operation: Operation, pending: bool) -> str:
    return (
        f"not done yet: {operation.text}"
        if pending
        else f"changed since; a start would {operation.text}"
    )


def _contested(resolution: Resolution, have: NetworkState) -> list[Problem]:
    titles = {"networkmanager": "NetworkManager", "networkd": "systemd-networkd"}
    return [
        Problem("contested", f"{titles.get(manager, manager)} manages it", key)
        for key, link in have.links.items()
        for manager, word in link.managers.items()
        if word == "managed" and key in resolution.want.links
    ]


def _document(document: DocumentStatus) -> dict[str, Any]:
    return {
        "source": document.source or None,
        "sha256": document.sha256 or None,
        "fetched": document.fetched or None,
        "stale": document.stale,
        "none_for_us": document.none_for_us,
        "reason": document.reason or None,
        "platform": document.platform or None,
    }


def _problem(problem: Problem) -> dict[str, str]:
    return {"code": problem.code, "text": problem.text}


def _interface(
    link: Link,
    resolution: Resolution,
    have: NetworkState,
    problems: Sequence[Problem],
    managers: Mapping[str, Mapping[str, str]],
    own_names: Mapping[LinkKey, str],
) -> dict[str, Any]:
    found, is_nic = have.links.get(link.key), not link.key.rank
    present = resolution.roles.name(link.key.mac) if is_nic else ""
    name = (found.name if found else None) or present or link.name
    words = {
        manager: managers[manager].get(name or "", "unknown") if manager in managers else "absent"
        for manager in ("networkmanager", "networkd")
    }
    return {
        "mac": link.key.mac if is_nic else None,
        "name": name,
        "wanted_name": _should_be(link, resolution, own_names),
        "kind": link.kind,
        "role": link.role,
        "ok": all(problem.code in INFORMATION for problem in problems),
        "managers": words,
        "problems": [_problem(problem) for problem in problems],
        "notes": [note.to_json() for note in resolution.notes if note.link == link.key],
        "parent": parent(link),
        "vlan_id": link.key.vlan_id,
        "members": members(link),
        "master": link.master and str(link.master),
    }


def parent(link: Link) -> Optional[str]:
    """What a VLAN, VXLAN or macvlan is on: a MAC, or `bond NAME`; None for the others."""
    if link.key.vlan_id is not None:
        return link.key.mac
    return str(link.virtual.parent) if link.virtual and link.virtual.parent else None


def members(link: Link) -> list[str]:
    """What is put into a bond or a bridge."""
    return list(map(str, link.virtual.members)) if link.virtual else []


def _should_be(
    link: Link, resolution: Resolution, own_names: Mapping[LinkKey, str]
) -> Optional[str]:
    """The name that is meant for it, whether it can be given or not."""
    request = resolution.requests.get(link.key)
    asked = (request.name if request else None) or link.name
    return asked if link.key.rank else own_names.get(link.key)


def find_link(text: str, resolution: Resolution, names: Mapping[LinkKey, str]) -> Optional[LinkKey]:
    """The link that a person means by a name, by a MAC in any notation, or by `MAC.ID`."""
    by_name = {name: key for key, name in names.items()}
    nic, _, vlan = text.rpartition(".")
    known = {*by_name.values(), *resolution.requests, *map(LinkKey, resolution.roles.by_mac)}
    whole = next((key for key in known if str(key) == text), None)
    keys = (
        by_name.get(text),
        whole,
        _key(text, None),
        _key(nic, int(vlan)) if vlan.isdecimal() else None,
    )
    return next((key for key in keys if key in known), None)


def _key(mac: str, vlan_id: Optional[int]) -> Optional[LinkKey]:
    try:
        return LinkKey(mac_of(mac), vlan_id)
    except UnusableError:
        return None
