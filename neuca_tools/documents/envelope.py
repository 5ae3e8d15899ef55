"""Find a NEuca document in the bytes of a source: unpack gzip and MIME, skip other user-data."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Optional

from neuca_tools.errors import unreadable

if TYPE_CHECKING:
    from email.message import Message

MAX_BYTES = 1024 * 1024
MAX_UNZIPPED_BYTES = 4 * 1024 * 1024
_MIME_TYPE = "text/x-neuca-userdata"
# The email package recurses into every multipart and every message in a message, and compares each
# line with the boundary of every multipart around it.
_MAX_PARTS = 32
_BOM = b"\xef\xbb\xbf"
# Without the characters that every other kind of user-data begins with.
_BASE64 = rb"[A-Za-z0-9+/\s]{16,}={0,2}"
# A text in base64, in which nothing is separated by blanks; of the alphabet for URLs too.
# Unlike a long word, it has a digit or a sign.
_ENCODED = rb"(?=[\sA-Za-z_-]*[0-9+/=])[\w+/-]{16,}(?:\r?\n[\w+/-]+)*={0,2}"
# Its byte order marks, and the beginning of a section header without one.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff", b"[\0", b"\0[")
_GZIP = b"\x1f\x8b"
# How cloud-init identifies user-data (cloudinit/handlers/__init__.py, and its manual on user-data);
# the first key of a configuration of Ignition.
_FOREIGN = (
    rb"#!|##\s*template:|\{\s*\"ignition\""
    rb"|#(?:cloud-config|cloud-boothook|include|upstart-job|part-handler|ps1\w*)\b"
)
_MIME = (
    rb"(?:From [^\n]*\n)?(?:[!-9;-~]+:[^\n]*\n(?:[ \t][^\n]*\n)*)*?(?:MIME-Version|Content-Type):"
)
_DECODED = ("", "7bit", "8bit", "binary", "base64", "quoted-printable")


def find_document(data: bytes) -> Optional[str]:
    """The text of the NEuca document in these bytes, with LF as line ends; None if there is none.

    Raises DocumentError for data that is not foreign and is unusable: too long, or not UTF-8.
    """
    plain = _unzipped(data)
    if re.fullmatch(_BASE64, plain.strip()):
        plain = _unzipped(_from_base64(plain))
    if is_foreign(plain):
        return None
    if not re.match(_MIME, plain.lstrip()[:MAX_BYTES], re.I):
        return _unix_text(plain)
    part = _neuca_part(plain.lstrip())
    return _unix_text(part) if part is not None else None


def _from_base64(text: bytes) -> bytes:
    """User-data that was encoded once too often: tools and people do what the platform's API does.

    The text as it is if it is not base64 of a text or of gzip after all.
    """
    # For such texts only.
    import binascii

    try:
        data = binascii.a2b_base64(text)
        if not data.startswith(_GZIP):
            data.decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return text
    return data


def is_foreign(data: bytes) -> bool:
    return not data.strip() or bool(re.match(_FOREIGN, data.lstrip()[:256], re.I))


def _unzipped(data: bytes) -> bytes:
    """Decompress gzip and remove a byte order mark. Raises DocumentError beyond the limits."""
    limit = MAX_BYTES
    if data.startswith(_GZIP):
        limit = MAX_UNZIPPED_BYTES
        try:
            data = gunzip(data, limit)
        except ValueError as error:
            raise unreadable(str(error)) from None
    plain = data.removeprefix(_BOM)
    if len(data) > limit and not is_foreign(plain):
        raise unreadable(f"it is longer than {limit} bytes")
    return plain


def gunzip(data: bytes, limit: int) -> bytes:
    """The first `limit` + 1 bytes of what gzip has packed. Raises ValueError if it is damaged."""
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"its gzip data is damaged: {error}") from None
    if len(plain) <= limit and not stream.eof:
        raise ValueError("its gzip data is damaged: it ends too early")
    if stream.unused_data.strip(b"\0"):
        raise ValueError("its gzip data is damaged: it is followed by other data")
    return plain


def _neuca_part(data: bytes) -> Optional[bytes]:
    """The content of the part with our type in a MIME message; None if there is none."""
    # Imported here, because it is slow and few documents are MIME.
    from email import message_from_bytes

    lower = data.lower()
    if lower.count(b"multipart/") + lower.count(b"message/") > _MAX_PARTS:
        raise unreadable(f"its MIME message has more than {_MAX_PARTS} levels")
    ours = [
        part for part in message_from_bytes(data).walk() if part.get_content_type() == _MIME_TYPE
    ]
    if len(ours) > 1:
        raise unreadable(f'{len(ours)} MIME parts of type "{_MIME_TYPE}" instead of one')
    return _unzipped(_decode_part(ours[0])) if ours else None


def _decode_part(part: Message) -> bytes:
    encoding = str(part.get("content-transfer-encoding", "")).strip().lower()
    payload: object = None
    if encoding in _DECODED:
        payload = part.get_payload(decode=True)
    if not isinstance(payload, bytes):
        raise unreadable("the transfer encoding of its MIME part is unknown")
    # Decoding records what it had to leave out.
    if part.defects:
        raise unreadable(f"its MIME part is damaged: {type(part.defects[0]).__name__}")
    return payload


def decode_text(data: bytes, what: str = "the document") -> str:
    """The text without a byte order mark.

    Raises DocumentError, which names `what` and the encoding if it is a known one.
    """
    encodings = (
        ("UTF-16", data.startswith(_UTF_16)),
        ("gzip", data.startswith(_GZIP)),
        ("base64", re.fullmatch(_ENCODED, data.strip())),
    )
    for name, is_encoded in encodings:
        if is_encoded:
            raise unreadable(f"it is {name}, not UTF-8 text", what)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(f"it is not UTF-8 text (byte {error.start})", what) from None


def _unix_text(data: bytes) -> Optional[str]:
    text = decode_text(data)
    return text.replace("\r\n", "\n") if text.strip() else None
