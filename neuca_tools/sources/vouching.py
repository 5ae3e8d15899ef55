"""Whether the firmware vouches for an answer that came through a NIC for which nothing else does.

Any host on the link can respond, but only the hypervisor writes the DMI tables of the guest, and
the UUID in them is unknown to others.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from neuca_tools.documents import platform
from neuca_tools.errors import DocumentError, SourceError
from neuca_tools.files import text_of
from neuca_tools.lazy import pattern
from neuca_tools.sources.base import Answer, Source, Surroundings

# A UUID, or an instance ID of EC2: too long to be guessed.
_UNGUESSABLE = pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|i-[0-9a-f]{17}")
_UNVOUCHED = (
    "a service responded through {name}, but nothing vouches for that NIC, so its response is not"
    " used; if {name} is the management NIC, run: neuca trust {name}"
)


def vouched(answer: Answer, source: Source, around: Surroundings) -> Answer:
    """The answer. Raises SourceError if neither its NIC nor the firmware vouches for it."""
    outlet = source.outlet
    if outlet is None or outlet.vouched or (answer.empty and not answer.instance):
        return answer
    instance = _instance_of(answer).partition(":")[2].lower()
    if _UNGUESSABLE.fullmatch(instance) and instance in _identities(around.dmi):
        return answer
    raise SourceError(_UNVOUCHED.format(name=outlet.name))


def _instance_of(answer: Answer) -> str:
    try:
        return answer.instance or platform.instance_id(platform.reduced(answer.parts))
    except DocumentError:
        return ""


def _identities(dmi: Path) -> Iterator[str]:
    """What the firmware states: the UUID, which Azure's service has in the other byte order, and
    the ID of an EC2 instance (AWS, "Detect whether a host is an EC2 instance").
    """
    uuid = text_of(dmi / "product_uuid").lower()
    yield uuid
    yield _swapped(uuid)
    yield text_of(dmi / "board_asset_tag").lower()


def _swapped(uuid: str) -> str:
    """The UUID with its first three fields in the other byte order (SMBIOS 3.7, 7.2.1)."""
    with suppress(ValueError):
        return str(UUID(bytes=UUID(uuid).bytes_le))
    return ""
