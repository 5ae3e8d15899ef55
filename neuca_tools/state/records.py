"""The state files: the record, the journal of a pass, the last good document and smaller ones.

All are JSON with a version, and are written whole. The journal holds the links before a pass; a
journal at start means that the last pass was interrupted.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from ipaddress import ip_address, ip_network
from itertools import chain
from pathlib import Path
from typing import Any, Optional, TypeVar

from neuca_tools.errors import RecordError
from neuca_tools.model import (
    Address,
    Incarnation,
    Link,
    LinkKey,
    NetworkState,
    Record,
    Virtual,
    Written,
)
from neuca_tools.model.addresses import MOST_KEPT, read_address
from neuca_tools.model.device_settings import Declined
from neuca_tools.model.machine import Machine
from neuca_tools.model.rows import StoredDocument
from neuca_tools.model.shapes import Shapes
from neuca_tools.model.volumes import VolumeLog
from neuca_tools.state.store import Where, exists, read, remove, save, unusable
from neuca_tools.tuning.choice import Choice

T = TypeVar("T")
RECORD, JOURNAL, DOCUMENT, LOOK = "record.json", "journal.json", "document.json", "last-look.json"
TRIAL = "trial.json"
CHOICE, VOLUMES = "tuning.json", "volumes.json"
RUN_FILES = (DOCUMENT, LOOK, CHOICE, VOLUMES)  # those of the run directory
MACHINE, SCRIPTS = "machine.json", "scripts"  # the second is a directory


_NAME = re.compile(r"(?!\.{1,2}$)[^/:\s\0]{1,15}")  # dev_valid_name(), net/core/dev.c
# Fields of a link that a journal need not have.
_NOT_KEPT = ("profile", "unmarked", "bare", "theirs")
_OF_A_RECORD = ("boot_id", "nics", "owned", "originals", "original_sysctls", "applied")
_NO_PARTS = frozenset(("", ".", ".."))  # of the path of a sysctl
# The exceptions that valid JSON raises in a reader if neucad did not write it.
STRANGE = (KeyError, TypeError, ValueError, AttributeError, IndexError)


def load_record(where: Where) -> Record:
    """The record; an empty one if there is none. Raises RecordError if the file cannot be used."""
    data = read(where, RECORD)
    try:
        return _checked(_of(Record, data, _OF_A_RECORD)) if data else Record()
    except STRANGE as error:
        raise _strange(where, RECORD, error) from error


def save_record(where: Where, record: Record) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    save(where, RECORD, _record_json(record), 0o644)


def load_journal(where: Where, boot_id: str) -> Optional[NetworkState]:
    """The links before an interrupted pass, None if the last pass completed.

    A journal of another boot does not apply to this kernel. One that cannot be read was not written
    completely, so no change followed it.
    """
    try:
        data = read(where, JOURNAL)
        if not data or data["boot_id"] != boot_id:
            return None
        links = [_SHAPES.read(Link, link) for link in data["links"]]
        return NetworkState({link.key: link for link in links})
    except (RecordError, *STRANGE):
        return None


def save_journal(where: Where, before: NetworkState, boot_id: str) -> None:
    """Save the links as they are now, unsynced: it counts in this boot only. Raises ApplyError."""
    links = [_link_json(link) for link in before.links.values()]
    save(where, JOURNAL, {"boot_id": boot_id, "links": links}, 0o644, sync=False)


def remove_journal(where: Where) -> None:
    """Remove the journal, as the pass is complete. Raises ApplyError."""
    remove(where, JOURNAL, sync=False)


def load_document(where: Where) -> Optional[StoredDocument]:
    """The last good document, None if there is none. Raises RecordError if the file is unusable."""
    data = read(where, DOCUMENT)
    if data is None:
        return None
    try:
        return _of(StoredDocument, data, ("source", "sha256", "fetched", "text"))
    except KeyError as error:
        raise _strange(where, DOCUMENT, error, f"{error} is missing") from error
    except STRANGE as error:
        raise _strange(where, DOCUMENT, error) from error


def has_document(where: Where) -> bool:
    """Whether there is a saved document. Raises RecordError if that cannot be determined."""
    return exists(where, DOCUMENT)


def save_document(where: Where, document: StoredDocument, mode: int = 0o600) -> None:
    """Save a document, readable by root only because it may have secrets. Raises ApplyError.

    A redacted copy has another `mode`.
    """
    save(where, DOCUMENT, dict(document.__dict__), mode)


def load_look(directory: Path) -> dict[str, Any]:
    """The answers of the sources at the last look; empty if there was none since the boot."""
    try:
        return read(directory, LOOK) or {}
    except RecordError:
        return {}


def save_look(directory: Path, said: Mapping[str, Any], sha256: str) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    save(directory, LOOK, {**said, "sha256": sha256}, 0o644)


def load_volumes(directory: Path) -> VolumeLog:
    """The volumes that were not used since the boot; empty if the file is absent or damaged."""
    try:
        return _of(VolumeLog, read(directory, VOLUMES) or {})
    except (RecordError, *STRANGE):
        return VolumeLog()


def save_volumes(directory: Path, log: VolumeLog) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    data = {"refused": dict(log.refused), "reported": list(log.reported)}
    save(directory, VOLUMES, data, 0o644)


def load_choice(directory: Path) -> Optional[Choice]:
    """The arguments of the last `neuca tune apply` since boot; None if `[tuning]` is in force."""
    try:
        data = read(directory, CHOICE)
        return _of(Choice, data, ("profiles", "rate", "rtt")) if data else None
    except (RecordError, *STRANGE):
        return None


def save_choice(directory: Path, choice: Optional[Choice]) -> None:
    """Save the choice until the next boot; None removes it. Raises ApplyError."""
    if choice is None:
        remove(directory, CHOICE)
        return
    data = {"profiles": list(choice.profiles), "rate": choice.rate, "rtt": choice.rtt}
    save(directory, CHOICE, data, 0o644)


def load_machine(where: Where) -> Machine:
    """The machine that the state belongs to. Raises RecordError if the file cannot be used."""
    try:
        return _of(Machine, read(where, MACHINE) or {})
    except STRANGE as error:
        raise _strange(where, MACHINE, error) from error


def save_machine(where: Where, machine: Machine) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    save(where, MACHINE, asdict(machine), 0o644)


def _strange(where: Where, name: str, error: Exception, why: str = "") -> RecordError:
    path = (where if isinstance(where, Path) else where.directory) / name
    return unusable(path, why or f"it is not what neucad wrote: {error!r}")


# --- JSON -----------------------------------------------------------------------------------------


def _of(kind: type[T], data: Mapping[str, Any], needed: Collection[str] = ()) -> T:
    """The content of a state file, without what only a later version has. Raises one of STRANGE."""
    missing = sorted({*needed} - data.keys())
    if missing:
        raise KeyError(missing[0])
    fields = kind.__annotations__
    return _SHAPES.read(kind, {name: data[name] for name in fields if name in data})


def _checked(record: Record) -> Record:
    """The record if its names are possible. Raises ValueError."""
    for text, nic in record.nics.items():
        if key_of(text).vlan_id is not None:
            raise ValueError(f"{text!r} is no NIC")
        if nic.name and not _NAME.fullmatch(nic.name):
            raise ValueError(f"{nic.name!r} is no name of an interface")
    sysctls = [original.sysctls for original in record.originals.values()]
    sysctls += [link.sysctls for link in record.made.values()]
    for path in chain(record.original_sysctls, *sysctls):
        # It must not lead out of /proc/sys.
        if not _NO_PARTS.isdisjoint(path.split("/")) or "\0" in path:
            raise ValueError(f"{path!r} is no setting")
    for router in record.routers.values():
        ip_address(router)  # raises ValueError
    return record._replace(ground=tuple(str(ip_network(text)) for text in record.ground))


def _written(text: str) -> Written:
    """The path of a sysctl of the host, or `LINK SETTING`; only a path contains slashes."""
    if "/" in text:
        return Written(text)
    link, _, setting = text.rpartition(" ")
    return Written(setting, key_of(link))


def _incarnation(text: str) -> Optional[Incarnation]:
    """Read `BOOT_ID:INDEX VLAN_ID=INDEX ...`; None if it is empty. Raises ValueError."""
    if not text:
        return None
    link, *vlans = text.split(" ")
    boot_id, _, index = link.rpartition(":")
    pairs = [word.partition("=")[::2] for word in vlans]
    numbers = [index, *chain.from_iterable(pairs)]
    if not boot_id or not all(map(str.isdecimal, numbers)):
        raise ValueError(f"{text!r} is not an incarnation")
    return Incarnation(boot_id, int(index), tuple([(int(one), int(at)) for one, at in pairs]))


def _declined(data: Sequence[object]) -> Declined:
    return Shapes({}).read(Declined, dict(zip(Declined._fields, data)))


@lru_cache(MOST_KEPT)  # a record names each link several times
def key_of(text: str) -> LinkKey:
    """The key of a link from its text. Raises ValueError."""
    mac, dot, vlan_id = text.partition(".")
    return LinkKey(mac, int(vlan_id) if dot else None)


# What is written as a text or list. A journal has no messages of the kernel.
_SHAPES = Shapes(
    {
        Address: read_address,
        Declined: _declined,
        LinkKey: key_of,
        Optional[Incarnation]: _incarnation,
        Written: _written,
        bytes: bytes.fromhex,
    }
)


def _record_json(record: Record) -> dict[str, Any]:
    return {
        "boot_id": record.boot_id,
        "applied": record.applied,
        "ground": list(record.ground),
        "original_sysctls": dict(record.original_sysctls),
        "written": {str(one): value for one, value in record.written.items()},
        "probed": dict(record.probed),
        "retry": list(record.retry),
        **({"tables": dict(record.tables)} if record.tables else {}),
        **(
            {"made": {str(key): _link_json(link) for key, link in record.made.items()}}
            if record.made
            else {}
        ),
        **({"routers": dict(record.routers)} if record.routers else {}),
        "nics": {
            mac: {**nic._asdict(), "incarnation": str(nic.incarnation or "")}
            for mac, nic in record.nics.items()
        },
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
                **original._asdict(),
                "sysctls": dict(original.sysctls),
                "device": dict(original.device),
            }
            for key, original in record.originals.items()
        },
    }


def _virtual_json(virtual: Virtual) -> dict[str, Any]:
    return {
        "members": list(map(str, virtual.members)),
        "parent": virtual.parent and str(virtual.parent),
        "options": [list(pair) for pair in virtual.options],
    }


def _link_json(link: Link) -> dict[str, Any]:
    plain = {name: one for name, one in link.__dict__.items() if name not in _NOT_KEPT}
    if link.bare:  # absent if there are none, as earlier versions wrote it
        plain["bare"] = list(map(str, link.bare))
    return {
        **plain,
        "key": str(link.key),
        "addresses": [str(address) for address in link.addresses],
        "sysctls": dict(link.sysctls),
        "device": dict(link.device),
        "managers": {},
        "master": link.master and str(link.master),
        "virtual": link.virtual and _virtual_json(link.virtual),
    }
