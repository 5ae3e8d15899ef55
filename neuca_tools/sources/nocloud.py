"""NoCloud: a seed in a directory or on a volume, and the place to which it or the boot refers.

Reference: cloud-init's manual, "NoCloud". For each item of meta-data, the boot (SMBIOS or the
kernel command line) takes precedence over the seed, and the seed over the place to which it refers;
for the other documents that place takes precedence.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.documents.platform import instance, netplan
from neuca_tools.documents.platform.tree import Tree, from_yaml
from neuca_tools.errors import DocumentError, SourceError, UsageError
from neuca_tools.files import text_of
from neuca_tools.sources.base import Answer, Deadline, Session, Surroundings, Url, parse_url
from neuca_tools.sources.files import SEED, Directory, copied_volume, read_document
from neuca_tools.sources.service import outlets_for

# The second is the former name.
_SEEDS = (Path("/var/lib/cloud/seed/nocloud"), Path("/var/lib/cloud/seed/nocloud-net"))
_BOOT = re.compile(r"ds=nocloud(?:-net)?(?:;|$)")
_SHORT = {"s": "seedfrom", "h": "local-hostname", "i": "instance-id"}
# The names of dmidecode(8), as in cloud-init's dmi.py, and those of the files in /sys/class/dmi/id.
_DMI = {
    "baseboard-asset-tag": "board_asset_tag",
    "baseboard-manufacturer": "board_vendor",
    "baseboard-product-name": "board_name",
    "baseboard-serial-number": "board_serial",
    "baseboard-version": "board_version",
    "bios-release-date": "bios_date",
    "bios-vendor": "bios_vendor",
    "bios-version": "bios_version",
    "chassis-asset-tag": "chassis_asset_tag",
    "chassis-manufacturer": "chassis_vendor",
    "chassis-serial-number": "chassis_serial",
    "chassis-version": "chassis_version",
    "system-manufacturer": "sys_vendor",
    "system-product-name": "product_name",
    "system-serial-number": "product_serial",
    "system-uuid": "product_uuid",
    "system-version": "product_version",
}


class _Seed(NamedTuple):
    """The documents of one place."""

    data: bytes
    metadata: bytes
    network: Optional[bytes]


class NoCloud(Directory):
    """`nocloud`: the volume `cidata`, a seed directory or the boot's seed; or `nocloud=PATH`."""

    kind = "nocloud"
    local = False

    def __init__(self, argument: str, surroundings: Surroundings) -> None:
        super().__init__(argument, (*copied_volume(surroundings, SEED), *_SEEDS))
        self.surroundings = surroundings

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """The documents of the seed; none if it has neither user-data nor a network-config."""
        # A seed has user-data and meta-data, either of which may be empty.
        boot = {} if self.must_exist else _boot_items(self.surroundings)
        seed = next(filter(None, map(_read_directory, self.directories)), None)
        if seed is None and not boot:
            return self.no_document(session, "user-data or meta-data")
        seed = seed or _Seed(b"", b"", None)
        place = boot.pop("seedfrom", "") or _seed_place(seed.metadata)
        if place:
            there = self._at(place, deadline)
            items = {**_parse_metadata(there.metadata), **_parse_metadata(seed.metadata)}
            network = seed.network if there.network is None else there.network
            seed = _Seed(there.data, json.dumps(items).encode(), network)
        if boot:
            items = {**_parse_metadata(seed.metadata), **boot}
            seed = seed._replace(metadata=json.dumps(items).encode())
        return _answer_from(self.name, seed, session, has_boot_items=bool(boot))

    def _at(self, text: str, deadline: Deadline) -> _Seed:
        """The seed at a URL or path. Raises SourceError, also if there is none."""
        dmi = self.surroundings.dmi
        place = re.sub(r"__dmi\.([a-z-]+)__", lambda match: _dmi_value(dmi, match[1]), text)
        place = place.rstrip("/")
        if place.startswith("http://"):
            seed = self._fetched(place, deadline)
        elif place.startswith(("/", "file:///")):
            seed = _read_directory(Path(place.removeprefix("file://")))
        else:
            what = f'the seed is at "{place}"'
            raise SourceError(f"{what}, which is neither http://ADDRESS/ nor a path")
        if seed is None:
            raise SourceError(f'the seed at "{place}" has no user-data or no meta-data')
        return seed

    def _fetched(self, base: str, deadline: Deadline) -> Optional[_Seed]:
        """The seed at a URL, read through the likeliest interface that gets an answer."""
        try:
            url = parse_url(base)
        except UsageError as error:
            raise SourceError(f"the seed: {error}") from None
        every = outlets_for(url, self.surroundings, named=True)
        # A seed does not prove which instance it is for.
        outlets = [outlet for outlet in every if outlet is None or outlet.is_vouched]
        failed = [] if outlets else [f"GET {url}/user-data: {self.surroundings.blocked}"]
        for number, outlet in enumerate(outlets):
            there = url._replace(device=outlet.name if outlet else "")
            share = deadline.share(len(outlets) - number)
            try:
                return _fetch_seed(there, share)
            except SourceError as error:
                failed.append(str(error))
        raise SourceError("; ".join(failed))


def _answer_from(name: str, seed: _Seed, session: Session, has_boot_items: bool) -> Answer:
    data = seed.data if seed.data.strip() else None
    if data is None and seed.network is None and not has_boot_items:
        return Answer(name, None, session)
    parts = {instance.NOCLOUD: seed.metadata}
    if seed.network is not None:
        parts[netplan.NAME] = seed.network
    return Answer(name, data, session, parts)


def _seed_from(get: Callable[[str], Optional[bytes]]) -> Optional[_Seed]:
    data, metadata = get("user-data"), get("meta-data")
    if data is None or metadata is None:
        return None
    return _Seed(data, metadata, get("network-config"))


def _read_directory(directory: Path) -> Optional[_Seed]:
    return _seed_from(lambda name: read_document(directory / name))


def _fetch_seed(url: Url, deadline: Deadline) -> Optional[_Seed]:
    # Files are read without http.client, which takes 19 ms.
    from neuca_tools.sources.http import Connection

    with closing(Connection(url)) as connection:
        return _seed_from(lambda name: connection.get(f"/{name}", deadline).content)


def _boot_items(surroundings: Surroundings) -> dict[str, str]:
    """The items of `ds=nocloud;s=URL;h=NAME;i=ID` in the SMBIOS serial or the command line."""
    serial = _dmi_value(surroundings.dmi, "system-serial-number")
    words = text_of(surroundings.proc / "cmdline").replace('"', "").split()
    word = next(filter(_BOOT.match, (serial, *words)), "")
    pairs = (item.partition("=") for item in word.split(";")[1:])
    items = {_SHORT.get(key, key): value for key, _, value in pairs}
    return {key: value for key, value in items.items() if key in _SHORT.values() and value}


def _dmi_value(folder: Path, name: str) -> str:
    return text_of(folder / _DMI[name]) if name in _DMI else ""


def _seed_place(metadata: bytes) -> str:
    """The value of `seedfrom` in meta-data; meta-data without that word is not parsed."""
    if b"seedfrom" not in metadata:
        return ""
    value = _parse_metadata(metadata).get("seedfrom")
    return value if isinstance(value, str) else ""


def _parse_metadata(metadata: bytes) -> Mapping[str, Tree]:
    try:
        tree = from_yaml(metadata, instance.NOCLOUD)
    except DocumentError as error:
        raise SourceError(error.text) from None
    if tree is not None and not isinstance(tree, dict):
        raise SourceError(f"cannot read {instance.NOCLOUD}: it is not an object")
    return tree or {}
