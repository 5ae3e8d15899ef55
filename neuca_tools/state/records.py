"""The state files: the record, the journal of a pass, the last good document and smaller ones.

All are JSON with a version, and are written whole. The journal holds the links before a pass; a
journal at start means that the last pass was interrupted.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address, ip_network
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Optional, TypeVar

from neuca_tools.errors import RecordError
from neuca_tools.model import (
    Address,
    Host,
    Incarnation,
    Link,
    LinkKey,
    NetworkState,
    NicRecord,
    OriginalValues,
    Record,
    WrittenSetting,
)
from neuca_tools.model.addresses import MAX_CACHED, read_address
from neuca_tools.model.device_settings import Declined
from neuca_tools.model.machine import Machine
from neuca_tools.model.rows import StoredDocument
from neuca_tools.model.shapes import Shapes
from neuca_tools.model.volumes import VolumeLog
from neuca_tools.state import store
from neuca_tools.state.store import Where
from neuca_tools.tuning.choice import Choice

T = TypeVar("T")
RECORD, JOURNAL, DOCUMENT = "record.json", "journal.json", "document.json"
SOURCE_ANSWERS = "last-look.json"
TRIAL = "trial.json"
CHOICE, VOLUMES = "tuning.json", "volumes.json"
RUN_FILES = (DOCUMENT, SOURCE_ANSWERS, CHOICE, VOLUMES)  # those of the run directory
MACHINE, SCRIPTS = "machine.json", "scripts"  # the second is a directory


# dev_valid_name(), net/core/dev.c: any bytes but these, such as an ideographic space.
_NAME = re.compile(r"(?!\.{1,2}$)[^/:\s\0]{1,15}", re.ASCII)
# Fields of a link that a journal need not have.
_NOT_SAVED = ("profile", "unmarked", "bare", "foreign_addresses")
_KEYS = {"management_networks": "ground"}  # where a key is not the name of the field
_UNLESS_EMPTY = ("tables", "made", "routers")  # as earlier versions wrote a record
_OF_A_RECORD = ("boot_id", "nics", "owned", "originals", "original_sysctls", "applied")
_NO_PARTS = frozenset(("", ".", ".."))  # of the path of a sysctl
# The exceptions that valid JSON raises in a reader if neucad did not write it.
SHAPE_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError)


def _load_file(where: Where, name: str, kind: type[T], needed: Collection[str] = ()) -> Optional[T]:
    """The content of a state file, None if there is none; `needed` must be in it.

    What only a later version has is left out. Raises RecordError if the file cannot be used.
    """
    data = store.read_state(where, name)
    if not data:
        return None
    missing = sorted({*needed} - data.keys())
    try:
        if missing:
            raise ValueError(f"{missing[0]!r} is missing")
        known = {_KEYS.get(field, field) for field in kind.__annotations__} & data.keys()
        content = _SHAPES.read(kind, {key: data[key] for key in known})
        record = getattr(content, "record", content)
        if isinstance(record, Record):
            _check_record(record)
        return content
    except SHAPE_ERRORS as error:
        path = (where if isinstance(where, Path) else where.directory) / name
        raise store.unusable_file(path, f"it is not what neucad wrote: {error}") from error


def load_record(where: Where) -> Record:
    """The record; an empty one if there is none. Raises RecordError if the file cannot be used."""
    return _load_file(where, RECORD, Record, _OF_A_RECORD) or Record()


def save_record(where: Where, record: Record) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    store.save_state(where, RECORD, _record_json(record), 0o644)


def load_journal(where: Where, boot_id: str) -> Optional[NetworkState]:
    """The links before an interrupted pass, None if the last pass completed.

    A journal of another boot does not apply to this kernel. One that cannot be read was not written
    completely, so no change followed it.
    """
    with suppress(RecordError):
        journal = _load_file(where, JOURNAL, _Journal, _Journal._fields)
        if journal and journal.boot_id == boot_id:
            return NetworkState({link.key: link for link in journal.links})
    return None


def save_journal(where: Where, before: NetworkState, boot_id: str) -> None:
    """Save the links as they are now, unsynced: it counts in this boot only. Raises ApplyError."""
    links = [_link_json(link) for link in before.links.values()]
    store.save_state(where, JOURNAL, {"boot_id": boot_id, "links": links}, 0o644, sync=False)


def remove_journal(where: Where) -> None:
    """Remove the journal, as the pass is complete. Raises ApplyError."""
    store.remove_state(where, JOURNAL, sync=False)


def load_document(where: Where) -> Optional[StoredDocument]:
    """The last good document, None if there is none. Raises RecordError if the file is unusable."""
    return _load_file(where, DOCUMENT, StoredDocument, ("source", "sha256", "fetched", "text"))


def has_document(where: Where) -> bool:
    """Whether there is a saved document. Raises RecordError if that cannot be determined."""
    return store.state_exists(where, DOCUMENT)


def save_document(where: Where, document: StoredDocument, mode: int = 0o600) -> None:
    """Save a document, for root only as it may have secrets, unless redacted. Raises ApplyError."""
    store.save_state(where, DOCUMENT, document._asdict(), mode)


def load_source_answers(directory: Path) -> dict[str, Any]:
    """The answers of the sources at the last look; empty if there was none since the boot."""
    with suppress(RecordError):
        look = store.read_state(directory, SOURCE_ANSWERS) or {}
        if all(name == "version" or type(look[name]) in (str, bool) for name in look):
            return look
    return {}


def save_source_answers(directory: Path, answers: Mapping[str, Any], sha256: str) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    store.save_state(directory, SOURCE_ANSWERS, {**answers, "sha256": sha256}, 0o644)


def load_volumes(directory: Path) -> VolumeLog:
    """The volumes that were not used since the boot; empty if the file is absent or damaged."""
    with suppress(RecordError):
        return _load_file(directory, VOLUMES, VolumeLog) or VolumeLog()
    return VolumeLog()


def save_volumes(directory: Path, log: VolumeLog) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    store.save_state(directory, VOLUMES, log._asdict(), 0o644)


def load_choice(directory: Path) -> Optional[Choice]:
    """The arguments of the last `neuca tune apply` since boot; None if `[tuning]` is in force."""
    with suppress(RecordError):
        return _load_file(directory, CHOICE, Choice, Choice._fields)
    return None


def save_choice(directory: Path, choice: Optional[Choice]) -> None:
    """Save the choice until the next boot; None removes it. Raises ApplyError."""
    if choice is None:
        store.remove_state(directory, CHOICE)
    else:
        store.save_state(directory, CHOICE, choice._asdict(), 0o644)


def load_machine(where: Where) -> Machine:
    """The machine that the state belongs to. Raises RecordError if the file cannot be used."""
    return _load_file(where, MACHINE, Machine) or Machine()


def save_machine(where: Where, machine: Machine) -> None:
    """Write the file if its content changes. Raises ApplyError."""
    origin = machine.origin and machine.origin._asdict()
    store.save_state(where, MACHINE, {**machine._asdict(), "origin": origin}, 0o644)


class Trial(NamedTuple):
    """A trial (`agent.trial`), in progress or interrupted; the fields have their names in its file.

    `process` identifies its process. `record` is the record from before it, `names` are those of
    the NICs then, `changed` the handles of what it changes. `until` is a time, for status.
    """

    boot_id: str = ""
    pid: int = 0
    process: str = ""
    until: str = ""
    source: str = ""
    record: Record = Record()
    names: Mapping[str, str] = {}
    changed: tuple[str, ...] = ()


def load_trial(where: Where) -> Optional[Trial]:
    """The trial, None if there is none. Raises RecordError if the file cannot be used."""
    return _load_file(where, TRIAL, Trial)


def save_trial(where: Where, trial: Trial) -> None:
    """Raises ApplyError."""
    store.save_state(where, TRIAL, {**trial._asdict(), "record": _record_json(trial.record)}, 0o644)


def _check_record(record: Record) -> None:
    """Raise ValueError for a name or network that is not possible."""
    for text, nic in record.nics.items():
        _check_nic(text, nic.name)
    sysctls = [original.sysctls for original in record.originals.values()]
    sysctls += [link.sysctls for link in record.made.values()]
    for path in chain(record.original_sysctls, *sysctls):
        # It must not lead out of /proc/sys.
        if not _NO_PARTS.isdisjoint(path.split("/")) or "\0" in path:
            raise ValueError(f"{path!r} is not a setting")
    for network in record.management_networks:
        ip_network(network)  # raises ValueError


def _check_nic(text: str, name: str) -> None:
    if key_of(text).vlan_id is not None:
        raise ValueError(f"{text!r} is no NIC")
    if name and not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an interface")


def _read_written(text: str) -> WrittenSetting:
    """The path of a sysctl of the host, or `LINK SETTING`; only a path contains slashes."""
    if "/" in text:
        return WrittenSetting(text)
    link, _, setting = text.rpartition(" ")
    return WrittenSetting(setting, key_of(link))


def _read_incarnation(text: str) -> Optional[Incarnation]:
    """Read `BOOT_ID:INDEX VLAN_ID=INDEX ...`; None if it is empty. Raises ValueError."""
    if not text:
        return None
    link, *vlans = text.split(" ")
    boot_id, _, index = link.rpartition(":")
    pairs = [word.partition("=")[::2] for word in vlans]
    numbers = [index, *chain.from_iterable(pairs)]
    if not boot_id or not all(map(str.isdecimal, numbers)):
        raise ValueError(f"{text!r} is not an incarnation")
    on_it = [(int(vlan_id), int(at)) for vlan_id, at in pairs]
    return Incarnation(boot_id, int(index), tuple(on_it))


class _Journal(NamedTuple):
    boot_id: str
    links: tuple[Link, ...]


@lru_cache(MAX_CACHED)  # a record names each link several times
def key_of(text: str) -> LinkKey:
    """The key of a link from its text. Raises ValueError."""
    mac, dot, vlan_id = text.partition(".")
    return LinkKey(mac, int(vlan_id) if dot else None)


# What is written as a text or list. A journal has no messages of the kernel.
_SHAPES = Shapes(
    {
        Address: read_address,
        Host: ip_address,
        Declined: lambda data: Shapes({}).read(Declined, dict(zip(Declined._fields, data))),
        LinkKey: key_of,
        Optional[Incarnation]: _read_incarnation,
        WrittenSetting: _read_written,
        bytes: bytes.fromhex,
    },
    key_by_field=_KEYS,
)


def _record_json(record: Record) -> dict[str, Any]:
    fields, own = record._asdict().items(), record.owned
    plain = {_KEYS.get(name, name): value for name, value in fields}
    plain.update(
        written=_by_text(record.written),
        nics=_by_text(record.nics, _nic_json),
        owned={
            "addresses": sorted([str(key), str(address)] for key, address in own.addresses),
            "vlans": sorted(map(str, own.vlans)),
        },
        declined=_by_text(record.declined),
        originals=_by_text(record.originals, OriginalValues._asdict),
        tables=_by_text(record.tables),
        routers=_by_text(record.routers, str),
        made=_by_text(record.made, _link_json),
    )
    return {name: value for name, value in plain.items() if value or name not in _UNLESS_EMPTY}


def _by_text(
    values: Mapping[Any, Any], convert: Callable[[Any], Any] = lambda value: value
) -> dict[str, Any]:
    return {str(key): convert(value) for key, value in values.items()}


def _nic_json(nic: NicRecord) -> dict[str, Any]:
    return {**nic._asdict(), "incarnation": str(nic.incarnation or "")}


def _link_json(link: Link) -> dict[str, Any]:
    fields = link._asdict().items()
    plain = {name: value for name, value in fields if name not in _NOT_SAVED}
    plain.update(key=str(link.key), addresses=list(map(str, link.addresses)), managers={})
    if link.bare:  # absent if there are none, as earlier versions wrote it
        plain["bare"] = list(map(str, link.bare))
    if link.master:
        plain["master"] = str(link.master)
    if link.virtual:
        members, parent = list(map(str, link.virtual.members)), link.virtual.parent
        links = {"members": members, "parent": parent and str(parent)}
        plain["virtual"] = {**link.virtual._asdict(), **links}
    return plain
