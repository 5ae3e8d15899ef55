"""The peer's answers, checked before they are used.

The peer knows the secret, but it may be compromised. An answer with wrong types or sizes is refused
as a document. A name that is not safe to copy to a command line is left out.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence import VERSION, Evidence, Host, Sample
from neuca_tools.selftest.evidence.codec import decode
from neuca_tools.selftest.measure.helper.channel import ChannelError, Message
from neuca_tools.selftest.measure.probes.echo import TOKEN_BYTES

LONGEST_TEXT = 2048  # characters
LARGEST_NUMBER = 2.0**64  # counters are unsigned numbers of 64 bits
MAX_LINKS = 4096  # of the peer
TOKEN_FORM = re.compile(rf"[0-9a-f]{{{2 * TOKEN_BYTES}}}")
# At most 15 characters: IFNAMSIZ without the final NUL.
DEVICE = re.compile(r"[A-Za-z0-9_.:@+-]{1,15}")
SYSCTL = re.compile(r"[A-Za-z0-9_./@:+-]{1,128}")
SETTING = re.compile(r"[A-Za-z0-9_.,:/+ \t-]{0,256}")


def token_of(answer: Message) -> bytes:
    """The token for the echo. Raises ChannelError."""
    token = answer.get("token")
    if not isinstance(token, str) or not TOKEN_FORM.fullmatch(token):
        raise ChannelError(f"the peer's response to hello: its token is not of {TOKEN_BYTES} bytes")
    return bytes.fromhex(token)


def host_of(answer: Message, what: str) -> Host:
    """The peer's description of itself. Raises ChannelError."""
    host = _checked_evidence({"peer": answer.get("host", {})}, what).peer
    if len(host.links) > MAX_LINKS:
        raise ChannelError(f"the peer's response to {what}: it has too many links")
    return replace(
        host,
        links=tuple(
            replace(link, parent=_safe_device_name(link.parent))
            for link in host.links
            if _safe_device_name(link.name)
        ),
        path=tuple(filter(_safe_device_name, host.path)),
        planned=_safe_device_name(host.planned),
        sysctls=_safe_settings(host.sysctls),
        wanted=_safe_settings(host.wanted),
        log=(),
    )


def observations_of(answer: Message) -> tuple[Sample, ...]:
    """The samples of a test. Raises ChannelError."""
    phase = {"name": "", "sender": answer.get("samples", [])}
    return _checked_evidence({"phases": [phase]}, "finish").phases[0].sender


def _checked_evidence(data: Mapping[str, object], what: str) -> Evidence:
    document = {"version": VERSION, **data}
    try:
        _check_bounds(document, "evidence")
        return decode(Evidence, document)
    except (SelftestError, RecursionError) as error:
        raise ChannelError(f"the peer's response to {what}: {error}") from error


def _check_bounds(value: object, path: str) -> None:
    """Raises SelftestError for a text that is too long, or a number that is too large or NaN."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise SelftestError(f"{path} is longer than {LONGEST_TEXT} characters")
    if isinstance(value, (int, float)) and not abs(value) < LARGEST_NUMBER:
        raise SelftestError(f"{path} is out of range")
    if isinstance(value, dict):
        for key, member in value.items():
            _check_bounds(key, path)
            _check_bounds(member, f"{path}.{key[:40]}")
    if isinstance(value, list):
        for place, member in enumerate(value):
            _check_bounds(member, f"{path}[{place}]")


def _safe_device_name(name: Optional[str]) -> Optional[str]:
    return name if name and DEVICE.fullmatch(name) else None


def _safe_settings(known: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in known.items()
        if SYSCTL.fullmatch(name) and SETTING.fullmatch(value)
    }
