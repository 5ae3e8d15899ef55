"""The table of names, by which a boot sees without Python that no NIC has to be renamed.

After a pass the table holds all that `neucad --names` would decide by: the digests of the
configuration, the record and the document, and the name and MAC of every NIC. It also holds those
of the udev rules, which keep the names of NICs that udev has not processed yet. It exists only if
the decision was that there is nothing to do. At boot, `restore-names` (packaging) writes the same
lines and compares them; at any difference it runs `neucad --names`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from neuca_tools.config import DEFAULT_PATH, Config, load
from neuca_tools.errors import NeucaError
from neuca_tools.files import names_in, read_bytes, write_files
from neuca_tools.sources import parse_source, without_network
from neuca_tools.sources.directories import DRIVES
from neuca_tools.state.records import DOCUMENT, RECORD

FILE = "names"  # in the state directory
# Another one after each change of what `neucad --names` decides.
FORM = "neuca-names 2"
Nics = Sequence[tuple[str, str]]


class Places(NamedTuple):
    """The configuration file and the directories from which `restore-names` reads."""

    config: Path = DEFAULT_PATH
    state: Path = Config.state_directory
    run: Path = Config.run_directory
    rules: Path = Config.udev_directory

    def are_of(self, config: Config) -> bool:
        """Whether an agent with this configuration uses these directories, and names of rules."""
        used = (config.state_directory, config.run_directory, config.udev_directory)
        is_usual = config.udev_substring == Config.udev_substring
        return is_usual and used == (self.state, self.run, self.rules)

    def decisive_files(self) -> list[Path]:
        """The files that decide about names, in the order of the table."""
        drop_ins = _listed(self.config.with_name("config.d"), ".conf")
        rules = _listed(self.rules, ".rules", f"-{Config.udev_substring}-")
        return [self.config, *drop_ins, self.state / RECORD, self.state / DOCUMENT, *rules]


def _listed(directory: Path, ending: str, part: str = "") -> list[Path]:
    """The files that a shell finds with `*part*ending`, in the order of bytes."""
    names = [one for one in names_in(directory) if one.endswith(ending) and part in one]
    return [directory / name for name in sorted(names, key=os.fsencode) if name[0] != "."]


USUAL = Places()


def update(config: Config) -> None:
    """Write or remove the table after a pass, unless it says how everything is now.

    Raises NeucaError, OSError.
    """
    from neuca_tools.backends import udev
    from neuca_tools.backends.linkwatch import interfaces

    if not USUAL.are_of(config) or not udev.here(interfaces()):
        return
    nics, path = udev.hardware(), USUAL.state / FILE
    table, before = table_of(USUAL.decisive_files(), nics), read_bytes(path)
    if table == before:
        return
    # What is read in between must not have changed meanwhile.
    is_last = is_quiet(USUAL, nics) and table == table_of(USUAL.decisive_files(), udev.hardware())
    if is_last or before is not None:
        write_files({path: table if is_last else None}, 0o600)


def table_of(files: Iterable[Path], nics: Nics) -> bytes:
    """The table of these files, as sha256sum(1) prints them, and NICs.

    Raises OSError for a file that exists and cannot be read.
    """
    contents = {path: read_bytes(path) for path in files}
    lines = [FORM]
    lines += [
        f"{sha256(content).hexdigest()}  {path}"
        for path, content in contents.items()
        if content is not None
    ]
    lines += [f"{name} {mac}" for name, mac in sorted(nics, key=lambda nic: os.fsencode(nic[0]))]
    return b"".join(os.fsencode(f"{line}\n") for line in [*lines, "end"])


def is_quiet(places: Places, nics: Nics) -> bool:
    """Whether `neucad --names` has nothing to do, judged from the files, with these NICs.

    What the sources without a network have is not judged: `restore-names` looks whether they are
    there at all.
    """
    from neuca_tools.agent import boot_names

    with suppress(NeucaError):
        config = load(places.config)
        if not places.are_of(config) or names_in(config.state.spare):
            return False
        local = without_network([parse_source(text) for text in config.sources])
        if any(spec.argument or spec.kind == "file" for spec in local):
            return False
        # At boot a volume may not have been read yet.
        if config.managers != "auto" or (places.run / DRIVES).exists():
            return False
        return boot_names.is_quiet(config, nics)
    return False
