"""The status of the host: how it differs from its desired state, by the plan of the next pass."""

# SPDX-License-Identifier: MIT

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import find_links
from neuca_tools.errors import EXIT_DEGRADED, EXIT_FAILED, EXIT_INVALID, EXIT_OK, EXIT_PENDING
from neuca_tools.model import Device, Link, LinkKey, NetworkState, Problem, ProblemCode, World
from neuca_tools.model.links import Virtual
from neuca_tools.plan.link_operations import CreateLink
from neuca_tools.plan.operation import Operation, Plan, joined_domains, of_kind
from neuca_tools.plan.operations import ReloadManager, WriteFile
from neuca_tools.state.leftovers import TITLES

MAX_FILES = 3  # that are listed one by one
Names = Mapping[LinkKey, str]
NO_NAMES: Names = {}
NO_WORLD = World()
EXIT_CODES = {
    "ok": EXIT_OK,
    "pending": EXIT_PENDING,
    "degraded": EXIT_DEGRADED,
    "failed": EXIT_FAILED,
}
_DRIFT: tuple[ProblemCode, str] = ("drift", "as requested")
_PENDING: tuple[ProblemCode, str] = ("pending", "written yet")
# Problem codes that leave the state "ok", because the administrator wants it so.
INFORMATIVE_CODES = frozenset({"ignored"})


class Report(NamedTuple):
    """The outcome of a pass.

    `finished` is a time in UTC (RFC 3339), `seconds` the duration of the pass, `changed` the texts
    of the operations that were carried out; `rolled_back`: changes were. `removed` lists the
    configuration of network managers that was removed from NICs since the boot. `not_rolled_back`
    are changes that could not be, which come first in the status. `failed` are the parts of the
    scope (`state.changes`) that this pass tried without success, each with the index
    of its interface, 0 without one; `new_links` are the indexes of the links that it created and
    udev has processed. A decision may change at `next_age`, in seconds since the boot. These three
    are not stored.
    """

    finished: str
    seconds: float
    changed: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    rolled_back: bool = False
    removed: tuple[str, ...] = ()
    not_rolled_back: tuple[Problem, ...] = ()
    failed: Mapping[str, int] = {}
    new_links: tuple[int, ...] = ()
    next_age: Optional[float] = None


class DocumentStatus(NamedTuple):
    """The active document as status shows it; `source` is empty if there is none.

    `disputed`: another metadata service has a different document.
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


class Status(NamedTuple):
    """What `neuca status --json` prints (`data`), and what has to be watched.

    `waits_for_management`: NICs are held (`desired.roles.Roles`). `has_routing_to_keep`: there are
    routing rules to keep, routes from DHCP to copy, or our own default route. `problems` are those
    of `data`, `names` the names of links to print with them. `has_silent_manager`: a network
    manager has not answered, and may not have read our files.
    """

    data: Mapping[str, Any]
    exit_code: int
    waits_for_management: bool = False
    has_routing_to_keep: bool = False
    problems: tuple[Problem, ...] = ()
    names: Names = NO_NAMES
    has_silent_manager: bool = False


def judge_host(
    version: str,
    document: DocumentStatus,
    resolution: Resolution,
    observed: NetworkState,
    left: Plan,
    *,
    unapplied: Collection[str] = (),
    world: World = NO_WORLD,
    notes: Iterable[str] = (),
    report: Optional[Report] = None,
    own_names: Names = NO_NAMES,
) -> Status:
    """Compare the host with its desired state; `left` is the plan for all NICs.

    What is left to do for the entries of the scope `unapplied` is pending, all else is drift.
    """
    failed = _failed_problems(report, left)
    rolled_back, without_failure = _apply_failures(failed, left)
    pending = {operation for operation in without_failure if _is_pending(operation, unapplied)}
    reported = [*resolution.problems, *_document_problems(document), *failed]
    reported += [*_unfinished_problems(without_failure, pending), *rolled_back]
    reported += _file_problems(left, failed, applied=report is not None and not pending)
    problems = tuple(dict.fromkeys([*reported, *_contested_problems(resolution, observed)]))
    codes = {problem.code for problem in problems} - INFORMATIVE_CODES
    held_back = bool(resolution.roles.waiting_nics)
    state = _state_of_host(codes, document, waiting=held_back or "pending" in codes)
    data = {
        "version": 2,
        "neuca": version,
        "state": state,
        "document": _document_json(document),
        "interfaces": list(_interfaces_json(resolution, world, problems, own_names)),
        "problems": [problem_json(problem) for problem in problems if problem.link is None],
        "notes": [*document.warnings, *notes, *_host_notes(resolution)],
        "last_pass": _last_pass_json(report),
        "not_rolled_back": [problem.text for problem in (report.not_rolled_back if report else ())],
    }
    exit_code = _exit_code(state, codes)
    return Status(data, exit_code, held_back, resolution.is_routed, problems, resolution.names)


def _host_notes(resolution: Resolution) -> list[str]:
    """The notes about no link, such as those on routes of other types."""
    return [note.text for note in resolution.notes if note.link is None]


def _is_pending(operation: Operation, unapplied: Collection[str]) -> bool:
    """Whether it has not been applied yet. A manager reads its files for all NICs."""
    if isinstance(operation, ReloadManager):
        return bool(unapplied)
    return not operation.handles.isdisjoint(unapplied)


def _document_problems(document: DocumentStatus) -> Iterator[Problem]:
    yield from (Problem("invalid", text) for text in document.invalid)
    if document.disputed:
        yield Problem("contested", document.disputed)


def _state_of_host(codes: Collection[str], document: DocumentStatus, waiting: bool) -> str:
    """The state of the host in one word; the first that applies."""
    if "failed" in codes:
        return "failed"
    no_answer = not document.source and not document.none_for_us
    if waiting or no_answer:
        return "pending"
    return "degraded" if codes or (document.stale and document.source) else "ok"


def _last_pass_json(report: Optional[Report]) -> Optional[dict[str, Any]]:
    return report and {
        "finished": report.finished,
        "seconds": report.seconds,
        "changed": len(report.changed),
        "failed": len(report.problems),
    }


def _exit_code(state: str, codes: Collection[str]) -> int:
    return EXIT_INVALID if "invalid" in codes else EXIT_CODES[state]


def with_unsaved(status: Status, reason: str, postponed: Plan) -> Status:
    """The status of a host that cannot save its state; `reason` says why, and is empty if it can.

    `postponed` are the operations that wait until it can (`apply.result.postponed_operations`).
    """
    problems = status.data["problems"]
    files = (problem["text"] for problem in problems if problem["code"] == "unsaved")
    why = reason or next(files, None)
    waits = [Problem("unsaved", f"waits for room: {operation.text}") for operation in postponed]
    data = {**status.data, "unsaved": why, "problems": [*problems, *map(problem_json, waits)]}
    if why is not None and data["state"] == "ok":
        data["state"] = "degraded"
        status = status._replace(exit_code=EXIT_DEGRADED)
    return status._replace(data=data, problems=(*status.problems, *waits))


def _file_problems(left: Plan, failed: Sequence[Problem], applied: bool) -> list[Problem]:
    """One problem for each file that differs, or a single one if there are many.

    `applied`: a pass has carried out every request, so the files have been changed since. None if
    files could not be written, which has `failed`.
    """
    if any(problem.code == "unsaved" for problem in failed):
        return []
    paths = [operation.path for operation in left if isinstance(operation, WriteFile)]
    code, word = _DRIFT if applied else _PENDING
    if len(paths) > MAX_FILES:
        return [Problem(code, f'{len(paths)} files are not {word}, "{paths[0]}" among them')]
    return [Problem(code, f'"{path}" is not {word}') for path in paths]


def _failed_problems(report: Optional[Report], left: Plan) -> list[Problem]:
    """What could not be rolled back, and the failures of the last pass that leave work to do."""
    if report is None:
        return []
    unfinished = {operation.domain for operation in left}
    failed = (each for each in report.problems if (each.link and each.link.mac) in unfinished)
    return [*report.not_rolled_back, *failed]


def _apply_failures(failed: Sequence[Problem], left: Plan) -> tuple[list[Problem], Plan]:
    """The problems of links whose changes were rolled back, and the operations without a failure.

    `failed` are the failures of NICs for which operations are `left`.
    """
    operations = _failed_operations(failed, left)
    serious = [problem for problem in failed if not _spares_others(problem, operations)]
    groups = {operation.failing_domains for operation in left}
    lost = joined_domains(_macs(serious), groups)
    tried = {*operations.values()}
    missing = {creation.on.key for creation in of_kind(tried, CreateLink)}
    without_failure = tuple(
        operation
        for operation in left
        if operation.domain not in lost
        and operation not in tried
        and operation.needed.isdisjoint(missing)
    )
    return _rolled_back(serious, left, groups), without_failure


def _macs(problems: Iterable[Problem]) -> set[str]:
    return {problem.link.mac for problem in problems if problem.link}


def _failed_operations(failed: Iterable[Problem], left: Plan) -> Mapping[Problem, Operation]:
    """The operation that each failure is about, as far as it is still to be done."""
    by_link = _grouped_by_link(failed)
    return {
        problem: operation
        for operation in left
        for problem in by_link[operation.link and operation.link.key]
        if problem.text.startswith(f"{operation.text}: ")
    }


def _spares_others(problem: Problem, operations: Mapping[Problem, Operation]) -> bool:
    """Whether nothing else was rolled back because of this failure."""
    operation = operations.get(problem)
    return problem.code == "pending" or (operation is not None and operation.spares_others)


def _rolled_back(
    serious: Sequence[Problem], left: Iterable[Operation], groups: Iterable[frozenset[str]]
) -> list[Problem]:
    """A problem for each other link of a failed NIC, whose changes were rolled back too."""
    first: dict[str, Problem] = {}
    for problem in serious:
        if problem.link:
            for mac in joined_domains({problem.link.mac}, groups):
                first.setdefault(mac, problem)
    links = {step.link.key for step in left if step.link and step.domain in first}
    links -= {problem.link for problem in serious if problem.link}
    return [
        Problem("failed", f"rolled back, because this failed: {first[key.mac].text}", key)
        for key in sorted(links)
    ]


def _unfinished_problems(left: Plan, pending: Collection[Operation]) -> Iterator[Problem]:
    """What is left to do, apart from files."""
    for operation in left:
        if isinstance(operation, WriteFile):
            continue
        key = operation.link and operation.link.key
        if operation in pending:
            yield Problem("pending", f"not done yet: {operation.text}", key)
        else:
            yield Problem("drift", f"changed; neuca apply would {operation.text}", key)


def _contested_problems(resolution: Resolution, observed: NetworkState) -> Iterator[Problem]:
    """A problem for each of our links that a network manager manages too."""
    for key, link in observed.links.items():
        desired = resolution.desired.links.get(key)
        if desired is None or not desired.managers:  # empty: a manager does DHCP on it
            continue
        for manager, state in link.managers.items():
            if state == "managed" != desired.managers.get(manager):
                yield Problem("contested", f"{TITLES.get(manager, manager)} manages it", key)


def _document_json(document: DocumentStatus) -> dict[str, Any]:
    keys = ("source", "sha256", "fetched", "stale", "none_for_us", "reason", "platform")
    values = {key: getattr(document, key) for key in keys}
    return {key: None if value == "" else value for key, value in values.items()}


def problem_json(problem: Problem) -> dict[str, str]:
    return {"code": problem.code, "text": problem.text}


def _interfaces_json(
    resolution: Resolution, world: World, problems: Sequence[Problem], own_names: Names
) -> Iterator[dict[str, Any]]:
    by_link, notes = _grouped_by_link(problems), _grouped_by_link(resolution.notes)
    devices = find_links(world, resolution.roles)
    for link in resolution.shown_links:
        device, on_link = devices.get(link.key), by_link[link.key]
        name = device.name if device else _absent_name(link, resolution)
        yield {
            "mac": nic_mac(link),
            "name": name,
            "desired_name": _desired_name(link, resolution, own_names),
            "kind": link.kind,
            "role": link.role,
            "desired_state": link.state,
            **network_json(device, world),
            "ok": bool(device or link.role != "dataplane")  # the NIC below a VLAN may be absent
            and all(problem.code in INFORMATIVE_CODES for problem in on_link),
            "managers": {
                manager: _manager_state(world.managers.get(manager), name) for manager in TITLES
            },
            "problems": [problem_json(problem) for problem in on_link],
            "notes": [note.to_json() for note in notes[link.key]],
            "parent": parent_name(link),
            "vlan_id": link.key.vlan_id,
            "members": member_names(link.virtual),
            "master": link.master and str(link.master),
            "table": resolution.tables.get(link.key),
        }


def _grouped_by_link(items: Iterable[Any]) -> Mapping[Optional[LinkKey], list[Any]]:
    """The problems or notes of each link; an empty list for a link without any."""
    by_link = defaultdict(list)
    for item in items:
        by_link[item.link].append(item)
    return by_link


def network_json(device: Optional[Device], world: World) -> dict[str, Any]:
    """What a device shows of the network; every value is null, or empty, for an absent one."""
    if device is None:
        return {"state": None, "carrier": None, "mtu": None, "addresses": []}
    return {
        "state": "up" if device.up else "down",
        "carrier": device.carrier,
        "mtu": device.mtu,
        "addresses": [str(address) for address in world.addresses.get(device.index, ())],
    }


def nic_mac(link: Link) -> Optional[str]:
    """The MAC of a NIC; None for a VLAN or a virtual link."""
    return None if link.key.rank else link.key.mac


def _manager_state(states: Optional[Mapping[str, str]], name: Optional[str]) -> str:
    """What a network manager reports of an interface; `absent` if the manager does not run."""
    return "absent" if states is None else states.get(name or "", "unknown")


def parent_name(link: Link) -> Optional[str]:
    """The MAC or GUID of the lower NIC, or such as `bond NAME`; None without a lower device."""
    if link.key.vlan_id is not None:
        return link.key.mac
    lower = (link.virtual or Virtual()).parent
    return lower and str(lower)


def member_names(virtual: Optional[Virtual]) -> list[str]:
    """The members of a bond or the ports of a bridge, as text."""
    return [str(member) for member in (virtual or Virtual()).members]


def _absent_name(link: Link, resolution: Resolution) -> Optional[str]:
    """The requested name of a link; for a MAC that several NICs have, the first name."""
    return (not link.key.rank and resolution.roles.name(link.key.mac)) or link.name


def _desired_name(link: Link, resolution: Resolution, own_names: Names) -> Optional[str]:
    """The requested name of a link, whether or not it can be renamed now."""
    if not link.key.rank:
        return own_names.get(link.key)
    request = resolution.requests.get(link.key)
    return (request and request.name) or link.name
