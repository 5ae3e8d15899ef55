"""What the agent remembers between passes, boots and crashes: the record, the journal of a pass, the last good document.

All are JSON with a version, written whole. The journal holds what the touched links were like before a pass; one that is
found at start says that the last pass died.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional

from .device_settings import Declined
from .errors import RecordError
from .fileio import read_bytes, write_files
from .machine import Machine, Origin
from .model import Hop, Link, LinkKey, NetworkState, NicRecord, Original, Owned, Record, Virtual
from .stored import StoredDocument
from .volumes import VolumeLog

if TYPE_CHECKING:
    from .tuning.layer import Choice

VERSION = 1
RECORD, JOURNAL, DOCUMENT, LOOK = "record.json", "journal.json", "document.json", "last-look.json"
CHOICE, VOLUMES = "tuning.json", "volumes.json"
RUN_FILES = (DOCUMENT, LOOK, CHOICE, VOLUMES)  # those of the run directory
MACHINE, SCRIPTS = "machine.json", "scripts"  # the second is a directory


def load_record(directory: Path) -> Record:
    """The record; an empty one where there is none. Raises RecordError for one that cannot be used."""
    data = _read(directory / RECORD)
    try:
        return _record(data) if data else Record()
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(directory / RECORD, f"it is not what neucad wrote: {error!r}") from error


def save_record(directory: Path, record: Record) -> None:
    """Write it where it differs from what is there. Raises ApplyError."""
    _write(directory / RECORD, _record_json(record), 0o644)


def load_journal(directory: Path, boot_id: str) -> Optional[NetworkState]:
    """What the links were like before the pass that died, None if the last one ended well.

    A journal of another boot says nothing of this kernel; one that cannot be read was never finished, so nothing was changed.
    """
    try:
        data = _read(directory / JOURNAL)
        return _state(data) if data and data["boot_id"] == boot_id else None
    except (RecordError, KeyError, TypeError, ValueError, AttributeError):
        return None


def save_journal(directory: Path, before: NetworkState, boot_id: str) -> None:
    """Keep what the links are like now. Raises ApplyError."""
    _write(directory / JOURNAL, {"boot_id": boot_id, **_state_json(before)}, 0o644)


def remove_journal(directory: Path) -> None:
    """The pass has ended well. Raises ApplyError."""
    if (directory / JOURNAL).exists():
        write_files({directory / JOURNAL: None})


def load_document(directory: Path) -> Optional[StoredDocument]:
    """The last good document, None where there is none. Raises RecordError for one that cannot be read."""
    data = _read(directory / DOCUMENT)
    if data is None:
        return None
    try:
        return StoredDocument(
            **{name: str(data[name]) for name in ("source", "sha256", "fetched", "text")},
            platform=str(data.get("platform", "")),
        )
    except KeyError as error:
        raise _unusable(directory / DOCUMENT, f"{error} is missing") from error


def save_document(directory: Path, document: StoredDocument, mode: int = 0o600) -> None:
    """It may hold secrets: only root reads it; a redacted copy goes to the run directory with another mode."""
    _write(directory / DOCUMENT, dict(document.__dict__), mode)


def load_look(directory: Path) -> dict[str, Any]:
    """What the sources said at the last look; empty where nobody has looked since the boot."""
    try:
        return _read(directory / LOOK) or {}
    except RecordError:
        return {}


def save_look(directory: Path, said: Mapping[str, Any], sha256: str) -> None:
    """Write it where it differs from what is there. Raises ApplyError."""
    _write(directory / LOOK, {**said, "sha256": sha256}, 0o644)


def load_volumes(directory: Path) -> VolumeLog:
    """The volumes that did not count since the boot; empty if the file is absent or damaged."""
    try:
        data = _read(directory / VOLUMES) or {}
        return VolumeLog(dict(data.get("refused", {})), tuple(data.get("reported", ())))
    except (RecordError, TypeError, ValueError):
        return VolumeLog()


def save_volumes(directory: Path, log: VolumeLog) -> None:
    """Write it where it differs from what is there. Raises ApplyError."""
    data = {"refused": dict(log.refused), "reported": list(log.reported)}
    _write(directory / VOLUMES, data, 0o644)


def load_choice(directory: Path) -> Optional[Choice]:
    """What `neuca tune apply` was told since the boot; None where `[tuning]` holds."""
    from .tuning.layer import (
        Choice,
    )  # 40 ms, which the unit that reads a volume at boot need not pay

    try:
        data = _read(directory / CHOICE)
        return (
            Choice(tuple(map(str, data["profiles"])), data["rate"], data["rtt"]) if data else None
        )
    except (RecordError, KeyError, TypeError):
        return None


def save_choice(directory: Path, choice: Optional[Choice]) -> None:
    """Keep it until the next boot; None: forget it. Raises ApplyError."""
    if choice is not None:
        _write(
            directory / CHOICE,
            {"profiles": list(choice.profiles), "rate": choice.rate, "rtt": choice.rtt},
            0o644,
        )
    elif (directory / CHOICE).exists():
        write_files({directory / CHOICE: None})


def load_machine(directory: Path) -> Machine:
    """Whose state this is. Raises RecordError for a file that cannot be used."""
    data = _read(directory / MACHINE) or {"version": VERSION}
    try:
        instances = {str(kind): str(name) for kind, name in dict(data.get("instances", {})).items()}
        return Machine(
            str(data.get("machine_id", "")),
            str(data.get("uuid", "")),
            instances,
            str(data.get("set_aside", "")),
            _origin(data.get("origin")),
            str(data.get("volume", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unusable(directory / MACHINE, f"it is not what neucad wrote: {error!r}") from error


def save_machine(directory: Path, machine: Machine) -> None:
    """Write it where it differs from what is there. Raises ApplyError."""
    origin = machine.origin and dict(machine.origin.__dict__)
    data = {**machine.__dict__, "instances": dict(machine.instances), "origin": origin}
    _write(directory / MACHINE, data, 0o644)


def _origin(data: Optional[Mapping[str, Any]]) -> Optional[Origin]:
    return Origin(*(str(data[name]) for name in ("source", "url", "mac"))) if data else None


# --- JSON -----------------------------------------------------------------------------------------------------------


def _read(path: Path) -> Optional[dict[str, Any]]:
    try:
        content = read_bytes(path)
        data = None if content is None else json.loads(content)
    except OSError as error:
        raise RecordError(f'read "{path}": {error.strerror}') from error
    except (ValueError, RecursionError) as error:
        raise _unusable(path, f"it is no JSON: {error}") from error
    if data is not None and (not isinstance(data, dict) or data.get("version") != VERSION):
        raise _unusable(path, f"it is not of version {VERSION}")
    return data


def _unusable(path: Path, why: str) -> RecordError:
    return RecordError(
        f'read "{path}": {why}',
        hint=f"move it away, and restart neucad: it starts afresh without {path.name}",
    )


def _write(path: Path, data: Mapping[str, Any], mode: int) -> None:
    text = json.dumps({"version": VERSION, **data}, indent=1, sort_keys=True) + "\n"
    content = text.encode()
    if _unchanged(path, content, mode):
        return
    write_files({path: content}, mode)


def _unchanged(path: Path, content: bytes, mode: int) -> bool:
    try:
        return read_bytes(path) == content and path.stat().st_mode & 0o777 == mode
    except OSError:
        return False


def _key(text: str) -> LinkKey:
    mac, dot, vlan_id = text.partition(".")
    return LinkKey(mac, int(vlan_id) if dot else None)


def _record(data: Mapping[str, Any]) -> Record:
    owned = data["owned"]
    return Record(
        data["boot_id"],
        {mac: _nic(nic) for mac, nic in data["nics"].items()},
        Owned(
            frozenset((_key(key), ip_interface(text)) for key, text in owned["addresses"]),
            frozenset(_key(key) for key in owned["vlans"]),
        ),
        {_key(key): Original(**original) for key, original in data["originals"].items()},
        data["original_sysctls"],
        data["applied"],
        tuple(str(ip_network(text)) for text in data.get("ground", ())),
        {
            _key(key): {name: Declined(*one) for name, one in settings.items()}
            for key, settings in data.get("declined", {}).items()
        },
        data.get("written", {}),
        data.get("probed", {}),
        tuple(map(str, data.get("retry", ()))),
    )


def _nic(data: Mapping[str, Any]) -> NicRecord:
    doubt = data.get("doubtful", ())
    doubt = (
        (4, 6)[: 2 * doubt] if isinstance(doubt, bool) else doubt
    )  # an earlier record did not say of which family it was
    return NicRecord(**{**data, "doubtful": tuple(map(int, doubt))})


def _record_json(record: Record) -> dict[str, Any]:
    return {
        "boot_id": record.boot_id,
        "applied": record.applied,
        "ground": list(record.ground),
        "original_sysctls": dict(record.original_sysctls),
        "written": dict(record.written),
        "probed": dict(record.probed),
        "retry": list(record.retry),
        "nics": {mac: dict(nic.__dict__) for mac, nic in record.nics.items()},
        "owned": {
            "addresses": sorted(
                [str(key), str(address)] for key, address in record.owned.addresses
            ),
            "vlans": sorted(str(key) for key in record.owned.vlans),
        },
        "declined": {
            str(key): {name: list(one) for name, one in settings.items()}
            for key, settings in record.declined.items()
        },
        "originals": {
            str(key): {
                **original.__dict__,
                "sysctls": dict(original.sysctls),
                "device": dict(original.device),
            }
            for key, original in record.originals.items()
        },
    }


def _virtual(data: Optional[Mapping[str, Any]]) -> Optional[Virtual]:
    if data is None:
        return None
    parent = _key(data["parent"]) if data["parent"] else None
    return Virtual(
        tuple(map(_key, data["members"])),
        parent,
        tuple((name, value) for name, value in data["options"]),
    )


def _virtual_json(virtual: Virtual) -> dict[str, Any]:
    return {
        "members": list(map(str, virtual.members)),
        "parent": virtual.parent and str(virtual.parent),
        "options": [list(pair) for pair in virtual.options],
    }


def _state(data: Mapping[str, Any]) -> NetworkState:
    links = [
        Link(
            **{
                **link,
                "key": _key(link["key"]),
                "addresses": tuple(map(ip_interface, link["addresses"])),
                "master": _key(link["master"]) if link.get("master") else None,
                "virtual": _virtual(link.get("virtual")),
            }
        )
        for link in data["links"]
    ]
    hops = [
        Hop(
            ip_network(hop["to"]),
            _key(hop["link"]),
            hop["via"] and ip_address(hop["via"]),
            hop["metric"],
        )
        for hop in data["hops"]
    ]
    return NetworkState({link.key: link for link in links}, tuple(hops), sysctls=data["sysctls"])


def _state_json(state: NetworkState) -> dict[str, Any]:
    return {
        "links": [
            {
                **link.__dict__,
                "key": str(link.key),
                "addresses": [str(address) for address in link.addresses],
                "sysctls": dict(link.sysctls),
                "device": dict(link.device),
                "managers": {},
                "master": link.master and str(link.master),
                "virtual": link.virtual and _virtual_json(link.virtual),
            }
            for link in state.links.values()
        ],
        "hops": [
            {
                "to": str(hop.to),
                "link": str(hop.link),
                "via": hop.via and str(hop.via),
                "metric": hop.metric,
            }
            for hop in state.hops
            if hop.ours
        ],
        "sysctls": dict(state.sysctls),
    }
