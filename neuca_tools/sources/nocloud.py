"""NoCloud: a seed in a directory or on a volume, and the place that the boot itself or such a seed points to.

Reference: cloud-init's manual, "NoCloud". Of each item of meta-data the first word counts: that of the boot, of the seed, of the
place that it points to; of the other documents the last one.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from neuca_tools.documents.platform import instance, netplan
from neuca_tools.documents.platform.tree import Tree, from_yaml
from neuca_tools.errors import DocumentError, SourceError, UsageError
from neuca_tools.sources.base import Answer, Deadline, Session, Surroundings
from neuca_tools.sources.directories import SEED, Directory, copied, read
from neuca_tools.sources.service import outlets_for
from neuca_tools.sources.url import Url, parse_url

# The second name is the older one.
_SEEDS = (Path("/var/lib/cloud/seed/nocloud"), Path("/var/lib/cloud/seed/nocloud-net"))
_BOOT = re.compile(r"ds=nocloud(?:-net)?(?:;|$)")
_SHORT = {"s": "seedfrom", "h": "local-hostname", "i": "instance-id"}
# dmidecode(8)'s names, and the kernel's below /sys/class/dmi/id.
_DMI = {"system-serial-number": "product_serial", "system-uuid": "product_uuid", "system-product-name": "product_name",
        "system-manufacturer": "sys_vendor", "chassis-serial-number": "chassis_serial", "chassis-asset-tag": "chassis_asset_tag",
        "baseboard-serial-number": "board_serial"}  # fmt: skip


class _Seed(NamedTuple):
    """The documents of one place."""

    data: bytes
    about: bytes
    network: Optional[bytes]


class NoCloud(Directory):
    """`nocloud`: as the boot says, the volume `cidata` or a seed directory; or `nocloud=PATH`."""

    kind = "nocloud"
    local = False

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        super().__init__(argument, (*copied(surroundings, SEED), *_SEEDS))
        self.surroundings = surroundings

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """A seed has user-data and meta-data, both perhaps empty. One that says nothing leaves the word to other sources."""
        boot = {} if self.expected else _boot(self.surroundings)
        seed = next(filter(None, map(_read, self.places)), None)
        if seed is None and not boot:
            return self.none(session, "user-data or meta-data")
        seed = seed or _Seed(b"", b"", None)
        place = boot.pop("seedfrom", "") or _pointer(seed.about)
        if place:
            seed = _over(self._at(place, deadline), seed)
        if boot:
            seed = seed._replace(about=json.dumps({**_mapping(seed.about), **boot}).encode())
        if not (seed.data.strip() or boot or seed.network is not None):
            return Answer(self.name, None, session)
        parts = {
            instance.NOCLOUD: seed.about,
            **({} if seed.network is None else {netplan.NAME: seed.network}),
        }
        return Answer(self.name, seed.data if seed.data.strip() else None, session, parts)

    def _at(self, text: str, deadline: Deadline) -> _Seed:
        """The seed that is expected there: a URL, or a path."""
        place = re.sub(
            r"__dmi\.([a-z-]+)__", lambda match: _dmi(self.surroundings.dmi, match[1]), text
        ).rstrip("/")
        if place.startswith("http://"):
            found = self._fetched(place, deadline)
        elif place.startswith(("/", "file:///")):
            found = _read(Path(place[len("file://") :] if place.startswith("file:") else place))
        else:
            raise SourceError(
                f'the seed is at "{place}", which is neither http://ADDRESS/ nor a path'
            )
        if found is None:
            raise SourceError(f'the seed at "{place}" has no user-data or no meta-data')
        return found

    def _fetched(self, base: str, deadline: Deadline) -> Optional[_Seed]:
        """The seed at a URL, through the likeliest interface through which there is an answer."""
        try:
            url = parse_url(base)
        except UsageError as error:
            raise SourceError(f"the seed: {error}") from None
        outlets = outlets_for(url, self.surroundings, named=True)
        failed = [] if outlets else [f"GET {url}/user-data: {self.surroundings.blocked}"]
        for number, outlet in enumerate(outlets):
            there = replace(url, device=outlet.name if outlet else "")
            share = deadline.share(len(outlets) - number)
            try:
                return _seed(partial(_fetched, there, deadline=share))
            except SourceError as error:
                failed.append(str(error))
        raise SourceError("; ".join(failed))


def _seed(get: Callable[[str], Optional[bytes]]) -> Optional[_Seed]:
    data, about = get("user-data"), get("meta-data")
    return None if data is None or about is None else _Seed(data, about, get("network-config"))


def _read(place: Path) -> Optional[_Seed]:
    return _seed(lambda name: read(place / name))


def _fetched(url: Url, name: str, deadline: Deadline) -> Optional[bytes]:
    from neuca_tools.sources import http

    response = http.request("GET", url, f"/{name}", {}, deadline)
    if response.status not in (200, 404):
        raise SourceError(f"GET {url}/{name}: HTTP {response.status}")
    return response.body if response.status == 200 else None


def _boot(surroundings: Surroundings) -> dict[str, str]:
    """What the SMBIOS serial number says, or else the kernel's command line: `ds=nocloud;s=URL;h=NAME;i=ID`."""
    words = [
        _dmi(surroundings.dmi, "system-serial-number"),
        *_text(surroundings.proc / "cmdline").replace('"', "").split(),
    ]
    word = next(filter(_BOOT.match, words), "")
    pairs = (item.partition("=") for item in word.split(";")[1:])
    said = {_SHORT.get(key, key): value for key, _, value in pairs}
    return {key: value for key, value in said.items() if key in _SHORT.values() and value}


def _dmi(folder: Path, name: str) -> str:
    return _text(folder / _DMI[name]) if name in _DMI else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:  # a machine without DMI
        return ""


def _pointer(about: bytes) -> str:
    """`seedfrom` of meta-data, which is read for it only where the word is in it."""
    value = _mapping(about).get("seedfrom") if b"seedfrom" in about else None
    return value if isinstance(value, str) else ""


def _over(new: _Seed, old: _Seed) -> _Seed:
    about = {**_mapping(new.about), **_mapping(old.about)}
    return _Seed(
        new.data, json.dumps(about).encode(), old.network if new.network is None else new.network
    )


def _mapping(about: bytes) -> Mapping[str, Tree]:
    try:
        tree = from_yaml(about, instance.NOCLOUD)
    except DocumentError as error:
        raise SourceError(error.text) from None
    return tree if isinstance(tree, dict) else {}
