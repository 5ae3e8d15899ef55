"""Parse the sections whose lines are independent: `[users]`, `[scripts]` and `[storage]`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Fault, Host
from neuca_tools.model.rows import Script, Storage, User

_Row = TypeVar("_Row")
_LOGIN = r"[a-z_][a-z0-9_-]{0,30}[a-z0-9_$-]?"
_FILE_NAME = r"[a-z0-9_][a-z0-9_.-]{0,63}"
_PUBLIC_KEY = r"(?:^|\s)(?:ssh|ecdsa|sk)-\S+\s+[A-Za-z0-9+/]+=*(?:\s|$)"
# A colon in an option of a key is quoted, as in permitopen="[fd00::1]:22" (sshd(8)).
_COLUMN = r'(?:"[^"]*"|[^:])+'
INITIATOR = "iscsi_initiator_iqn"  # in [global]: the name of this host for iSCSI servers
# Suffix of the name of a device.
_MUTUAL = ".mutual-chap"
# RFC 7143, 12.1.3 does not limit names and secrets. open-iscsi stores each on one line of at most
# 255 bytes (AUTH_STR_MAX_LEN) and strips blanks from both ends.
_CHAP = r"[!-~](?:[ -~]{0,253}[!-~])?"
_YES_NO = {"yes": True, "no": False}


def read_rows(
    lines: Iterable[Line], read: Callable[[Line], _Row], most: int, faults: list[Fault]
) -> tuple[_Row, ...]:
    """Parse at most `most` lines; a further or unusable one is added to the faults."""
    parsed: list[_Row] = []
    for line in lines:
        if len(parsed) == most:
            nameless = line._replace(key="", value="")
            faults.append(nameless.fault(f"more than {most} lines, ignoring the rest"))
            break
        try:
            parsed.append(read(line))
        except UnusableError as reason:
            faults.append(line.fault(str(reason), unknown=reason.unknown))
    return tuple(parsed)


def read_user(faults: list[Fault], line: Line) -> User:
    """`login = yes` or `no`, then `:key` for each public key. No fault quotes a key.

    Warnings are added to `faults`.
    """
    if not re.fullmatch(_LOGIN, line.key):
        raise UnusableError("the key is not a login name")
    word, _, rest = line.value.partition(":")
    sudo, texts = _yes_no(word, "sudo"), re.findall(_COLUMN, rest)
    keys = tuple(filter(None, (" ".join(text.split()) for text in texts)))
    if not all(key.isprintable() for key in keys):
        raise UnusableError("a public key has control characters")
    odd = [number for number, key in enumerate(keys, 1) if not is_public_key(key)]
    faults += [line.fault(f"key {number} is not a public key", "warning") for number in odd]
    return User(line.key, sudo, keys)


def is_public_key(text: str) -> bool:
    """Whether it can be a line of authorized_keys (sshd(8)): options, key type, base64, comment."""
    return text.isprintable() and not text.startswith("#") and bool(re.search(_PUBLIC_KEY, text))


def read_script(line: Line) -> Script:
    """`name = body`; the name becomes part of a file name."""
    if not re.fullmatch(_FILE_NAME, line.key):
        reason = "the key is not the name of a script (or this line of a script is not indented)"
        raise UnusableError(reason)
    return Script(line.key, line.value)


def read_storage(line: Line) -> Storage:
    """`NAME = iscsi:ip:port:lun:user:secret:attach[:fs_type:fs_options:format:mount_point]`."""
    if not re.fullmatch(_FILE_NAME, line.key):
        raise UnusableError("the key is not the name of a device")
    kind, _, rest = line.value.partition(":")
    if kind.strip().lower() != "iscsi":
        raise UnusableError('the kind is not "iscsi"')
    ip, fields = _split_target(rest)
    if len(fields) < 5:
        raise UnusableError("fewer than 7 fields")
    # The last four are optional.
    port, lun, chap_user, chap_secret, attach, fs_type, fs_options, format_word, mount_point = (
        *fields,
        *[""] * (9 - len(fields)),
    )
    return Storage(
        device=line.key,
        ip=_target_address(ip),
        port=_number(port, 1, 65535, "port"),
        lun=_number(lun, 0, 16383, "LUN"),
        chap_user=chap_user and _chap_text(chap_user, "user"),
        chap_secret=chap_secret and _chap_text(chap_secret, "secret"),
        attach=_yes_no(attach, "attach"),
        fs_type=_matching_text(r"[A-Za-z0-9._-]{0,32}", fs_type, "the type of the file system"),
        fs_options=_matching_text(r"[^\x00-\x1f]*", fs_options, "the text of file system options"),
        format=bool(format_word) and _yes_no(format_word, "format"),
        mount_point=_matching_text(
            r"(?!.*/\.\.(?:/|$))(?:/[^\x00-\x1f]*)?", mount_point, "the mount point"
        ),
    )


def storage_rows(lines: Iterable[Line], most: int, faults: list[Fault]) -> tuple[Storage, ...]:
    """All devices; `DEVICE.mutual-chap = user:secret` also has the target authenticate itself.

    A device is not attached if its mutual-chap line is unusable, because its target would not be
    authenticated.
    """
    mutual: dict[str, Line] = {}
    devices: list[Line] = []
    for line in lines:
        if line.key.endswith(_MUTUAL):
            mutual[line.key[: -len(_MUTUAL)]] = line
        else:
            devices.append(line)

    def read(line: Line) -> Storage:
        device = read_storage(line)
        chap_line = mutual.pop(line.key, None)
        return _with_mutual_chap(device, chap_line.value) if chap_line else device

    attached = read_rows(devices, read, most, faults)
    named = {line.key for line in devices}
    lost = (line for device, line in mutual.items() if device not in named)
    faults += (line.fault("it is for a device that is not listed") for line in lost)
    return attached


def _with_mutual_chap(device: Storage, text: str) -> Storage:
    """Mutual CHAP requires CHAP of the initiator and two different secrets (RFC 7143, 12.1.3)."""
    user, _, secret = map(str.strip, text.partition(":"))
    its = _chap_text(user, "user of the target"), _chap_text(secret, "secret of the target")
    if not (device.chap_user and device.chap_secret):
        raise UnusableError("mutual CHAP needs a user and a secret of this host too")
    if secret == device.chap_secret:
        raise UnusableError("the secret of the target is that of this host, which CHAP forbids")
    return device._replace(mutual_chap=its)


def _chap_text(text: str, what: str) -> str:
    if not re.fullmatch(_CHAP, text):
        raise UnusableError(f"the CHAP {what} is not 1 to 255 printable ASCII characters")
    return text


def _split_target(text: str) -> tuple[str, list[str]]:
    if text.strip().startswith("["):
        ip, _, rest = text.strip()[1:].partition("]:")
    else:
        ip, _, rest = text.partition(":")
    return ip, ["" if values.is_absent(part) else part.strip() for part in rest.split(":", 8)]


def _yes_no(text: str, name: str) -> bool:
    answer = _YES_NO.get(text.strip().lower())
    if answer is None:
        raise UnusableError(f'the {name} word is not "yes" or "no"')
    return answer


# With one field too many or too few, the CHAP secret may be in the place of another field, so the
# reasons of these two do not quote the text.


def _target_address(text: str) -> Host:
    try:
        return values.host(text)
    except UnusableError:
        reason = "the target is not an IP address (an IPv6 one in brackets)"
        raise UnusableError(reason) from None


def _number(text: str, low: int, high: int, what: str) -> int:
    try:
        return values.integer(text, low, high)
    except UnusableError:
        raise UnusableError(f"the {what} is not a number from {low} to {high}") from None


def _matching_text(pattern: str, text: str, what: str) -> str:
    if not re.fullmatch(pattern, text):
        raise UnusableError(f"{what} cannot be used")
    return text
