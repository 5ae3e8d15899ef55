"""State files: JSON with a version and a checksum, and a spare place if the disk is unwritable.

A file that cannot be written to the state directory (which is full, read-only, over quota or
broken) is written to the spare directory below the run directory. The copy there takes precedence
over the file in the state directory, and is removed once that has been written.
"""

# SPDX-License-Identifier: MIT

import errno
import json
from binascii import crc32
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

from neuca_tools import files
from neuca_tools.errors import ApplyError, ObserveError, RecordError

VERSION = 1
MAX_STATE_BYTES = 16 * 1024 * 1024  # a record has less than 1 KiB for each NIC
LONGEST_REASON = 200  # characters
CHECKSUM = "crc32"
SPARE, REASON_FILE = "unsaved", "unsaved.json"  # in the run directory
REMOVED_MARK = b"null\n"  # the content of a file that could not be removed
_NOTHING = (None, REMOVED_MARK, b"null")
PROBE = "room.neuca-new"  # `demand_room` writes and removes it
BLOCK = 65536  # bytes that `demand_room` requests
# errno(3) of a file system that cannot be written to for now
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})


class StateDirectories(NamedTuple):
    """The state directory, and the run directory, which stands in until that can be written."""

    directory: Path
    run: Path

    @property
    def spare(self) -> Path:
        """The directory of what could not be saved."""
        return self.run / SPARE


Where = Union[Path, StateDirectories]  # a bare path has no spare


def read_state(where: Where, name: str) -> Optional[dict[str, Any]]:
    """What was last saved under this name, None for nothing. Raises RecordError, ObserveError."""
    path, content = _file_in_force(where, name)
    return None if content in _NOTHING else parse_state(path, content or b"")


def state_exists(where: Where, name: str) -> bool:
    """Whether there is such a file. Raises RecordError if that cannot be determined."""
    return _file_in_force(where, name)[1] not in _NOTHING


def _file_in_force(where: Where, name: str) -> tuple[Path, Optional[bytes]]:
    """The file that takes precedence, with its content. Raises RecordError."""
    if isinstance(where, StateDirectories):
        content = _read_content(where.spare / name)
        if content is not None:
            return where.spare / name, content
        where = where.directory
    return where / name, _read_content(where / name)


def save_state(
    where: Where, name: str, data: Mapping[str, Any], mode: int, *, sync: bool = True
) -> None:
    """Write the file if it changes; without `sync`, a power cut may lose it. Raises ApplyError."""
    _write_or_spare(where, name, content_of(name, data), mode, sync)


def content_of(name: str, data: Mapping[str, Any]) -> bytes:
    """The content of a state file of this name with this data: one line for each key."""
    members = _json_members({"version": VERSION, **data})
    lines = sorted([*members, *_json_members({CHECKSUM: _checksum_of(name, members)})])
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def remove_state(where: Where, name: str, *, sync: bool = True) -> None:
    """Remove the file. Without `sync`, a power cut may bring it back. Raises ApplyError."""
    _write_or_spare(where, name, None, 0o644, sync)


def _checksum_of(name: str, members: Sequence[str]) -> str:
    """It covers the file's name, to detect a misnamed file, and its content."""
    covered = f"{name}\0{{{','.join(members)}}}"
    return f"{crc32(covered.encode()):08x}"


def _json_members(body: Mapping[str, Any]) -> list[str]:
    """Each key with its value as compact JSON, by key.

    Indentation would make the library encode in Python, which takes ten times as long.
    """
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
    return [f"{encoder.encode(key)}:{encoder.encode(part)}" for key, part in sorted(body.items())]


def unsaved_reason(directories: StateDirectories) -> str:
    """Why the state could not be saved; empty if all of it is saved."""
    return _recorded_reason(directories.run)


def run_problem(directories: StateDirectories) -> str:
    """Why the run directory could not be written; empty if it could."""
    return _recorded_reason(directories.directory)


def _recorded_reason(directory: Path) -> str:
    try:
        return str((read_state(directory, REASON_FILE) or {}).get("reason", ""))
    except RecordError as error:
        return error.text


def save_unsaved_reason(directories: StateDirectories, reason: str) -> None:
    """Save for `neuca status` why something could not be written. Raises ApplyError."""
    save_state(directories.run, REASON_FILE, {"reason": reason}, 0o644)


def save_in_run(directories: StateDirectories, name: str, data: Mapping[str, Any]) -> None:
    """Write a file that a pass can do without, in each pass, to the run directory.

    If that cannot be written, the state directory has the reason until it can. Raises ApplyError.
    """
    try:
        save_state(directories.run, name, data, 0o644)
    except ApplyError as error:
        if error.errno not in NO_ROOM:
            raise
        save_state(directories.directory, REASON_FILE, {"reason": error.text}, 0o644)
    else:
        remove_state(directories.directory, REASON_FILE)


def save_unsaved_files(directories: StateDirectories) -> bool:
    """Save what could not be saved before; returns whether everything is saved now.

    Raises ApplyError, ObserveError, and RecordError for a damaged copy, which replaces no file.
    """
    for name in files.names_in(directories.spare):
        if name.endswith(files.NEW):
            files.write_files({directories.spare / name: None})
            continue
        spare = directories.spare / name
        try:
            content, mode = files.read_bytes(spare) or b"", spare.stat().st_mode & 0o777
        except OSError as error:
            raise ObserveError(f'read "{spare}": {error.strerror}') from error
        if content != REMOVED_MARK:
            parse_state(spare, content)
        try:
            _write(directories.directory / name, None if content == REMOVED_MARK else content, mode)
        except ApplyError as error:
            if error.errno not in NO_ROOM:
                raise
            save_unsaved_reason(directories, error.text)
            return False
        files.write_files({spare: None})
    remove_state(directories.run, REASON_FILE)
    return True


def demand_room(directories: StateDirectories) -> None:
    """Make sure that the state can be saved, before a step to be remembered. Raises ApplyError."""
    probe = directories.directory / PROBE
    files.write_files({probe: b"\0" * BLOCK}, 0o600)
    files.write_files({probe: None})
    if not save_unsaved_files(directories):
        raise ApplyError(unsaved_reason(directories), errno.ENOSPC)


def _write_or_spare(
    where: Where, name: str, content: Optional[bytes], mode: int, sync: bool
) -> None:
    if not isinstance(where, StateDirectories):
        _write(where / name, content, mode, sync)
        return
    spare = where.spare / name
    if file_exists(spare):
        # It takes precedence, so it must never be older.
        _write(spare, REMOVED_MARK if content is None else content, mode)
    try:
        _write(where.directory / name, content, mode, sync)
    except ApplyError as error:
        if error.errno not in NO_ROOM:
            raise
        _write(spare, REMOVED_MARK if content is None else content, mode)
        save_unsaved_reason(where, error.text)
        return
    _write(spare, None, mode)


def _write(path: Path, content: Optional[bytes], mode: int, sync: bool = True) -> None:
    if content is None:
        if file_exists(path):
            files.write_files({path: None}, sync=sync)
        return
    with suppress(OSError):
        if files.read_bytes(path) == content and path.stat().st_mode & 0o777 == mode:
            return
    files.write_files({path: content}, mode, sync=sync)


def file_exists(path: Path) -> bool:
    """Raises ApplyError if that cannot be determined."""
    with files.as_apply_error(f'look for "{path}"'):
        return files.mode_of(path) != 0


def _read_content(path: Path) -> Optional[bytes]:
    try:
        return files.read_bytes(path, MAX_STATE_BYTES + 1)
    except OSError as error:
        files.raise_shortage(error, path)
        raise RecordError(f'read "{path}": {error.strerror}') from error


def parse_state(path: Path, content: bytes) -> dict[str, Any]:
    """The data of a state file. Raises only RecordError: it is damaged or of another version."""
    if len(content) > MAX_STATE_BYTES:
        raise unusable_file(path, f"it is larger than {MAX_STATE_BYTES >> 20} MiB")
    try:
        loaded: Any = json.loads(content)
    except ValueError as error:
        raise unusable_file(path, f"it is not JSON: {error}") from None
    except RecursionError:
        raise unusable_file(path, "it is nested too deeply") from None
    version = loaded.get("version") if isinstance(loaded, dict) else None
    # In Python, True and 1.0 are equal to 1.
    if type(version) is not int or version != VERSION:
        raise unusable_file(path, f"it is not of version {VERSION}")
    data: dict[str, Any] = loaded
    checksum = data.pop(CHECKSUM, None)
    if checksum is not None and checksum != _checksum_of(path.name, _json_members(data)):
        raise unusable_file(path, "its checksum does not match its content")
    return data


def unusable_file(path: Path, why: str) -> RecordError:
    """The error for a state file that exists and cannot be used."""
    short = why if len(why) <= LONGEST_REASON else f"{why[:LONGEST_REASON]}…"
    hint = f"move it away, and restart neucad: it starts afresh without {path.name}"
    return RecordError(f'read "{path}": {short}', hint=hint)
