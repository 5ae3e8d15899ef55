"""Whether the firmware vouches for an answer that came through a NIC for which nothing else does.

Any host on the link can respond, but only the hypervisor writes the DMI tables of the guest, and
the UUID in them is unknown to others.
"""

# SPDX-License-Identifier: MIT

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from neuca_tools.documents.platform import combined
from neuca_tools.errors import DocumentError, SourceError
from neuca_tools.files import text_of
from neuca_tools.sources.base import Answer, Source, Surroundings

_EC2_INSTANCE = re.compile(r"i-[0-9a-f]{17}")
_RANDOM = 4  # the version of a random UUID (RFC 9562, 5.4); firmware without one may state another
_UNVOUCHED = (
    "a service responded through {name}, but nothing vouches for that NIC, so its response is not"
    " used; if {name} is the management NIC, run: neuca trust {name}"
)


def require_vouched(answer: Answer, source: Source, surroundings: Surroundings) -> Answer:
    """The answer. Raises SourceError if neither its NIC nor the firmware vouches for it."""
    outlet = source.outlet
    if outlet is None or outlet.is_vouched or (answer.is_empty and not answer.instance):
        return answer
    with suppress(DocumentError):
        instance = answer.instance or combined.instance_id(combined.reduce_documents(answer.parts))
        if instance.partition(":")[2].lower() in _firmware_identities(surroundings.dmi):
            return answer
    raise SourceError(_UNVOUCHED.format(name=outlet.name))


def _firmware_identities(dmi: Path) -> Iterator[str]:
    """The identities that the firmware states, if nobody can guess them.

    These are a random UUID, which Azure's service has in the other byte order (SMBIOS 3.7, 7.2.1),
    and the ID of an EC2 instance (AWS, "Detect whether a host is an EC2 instance").
    """
    with suppress(ValueError):
        stated = UUID(text_of(dmi / "product_uuid"))
        swapped = UUID(bytes=stated.bytes_le)
        if _RANDOM in (stated.version, swapped.version):
            yield str(stated)
            yield str(swapped)
    tag = text_of(dmi / "board_asset_tag").lower()
    if _EC2_INSTANCE.fullmatch(tag):
        yield tag
