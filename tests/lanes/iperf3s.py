"""Other versions of iperf3, built from the source packages of distributions that have them, and cached by their content."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fcntl
import hashlib
import io
import re
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Optional

from venvs import CACHE

# The oldest that is promised (Ubuntu 20.04), and the newest of a release with long support (Ubuntu 26.04).
SOURCES = {
    "3.7": "d846040224317caf2f75c843d309a950a7db23f9b44b94688ccbe557d6d1710c",
    "3.20": "84640ea0f43831850434e50134d0554b7a94f97fb02e2488ffbe252c9fb05a56",
}
TEMPLATES = Path(
    "/usr/share/python-apt/templates"
)  # of python-apt-common: where distributions keep their archives
LARGEST = 4 * 1024 * 1024  # bytes of a source package
PATIENCE = 30  # seconds for an answer
BUILD_LIMIT = 900  # seconds


def built(version: str) -> Optional[Path]:
    """The program; None where no mirror has its source. Raises CalledProcessError where it cannot be built."""
    folder = CACHE / f"iperf3-{version}-{SOURCES[version][:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "iperf3").exists():
            source = _source(version)
            if source is None:
                return None
            _build(source, folder)
    return folder / "iperf3"


def archives() -> list[str]:
    """The directory of iperf3's source packages in the archive of Ubuntu and in that of Debian."""
    places = []
    for name, component in (("Ubuntu", "universe"), ("Debian", "main")):
        found = re.findall(
            rf"^BaseURI: (https?://\S+/{name.lower()})/?$",
            (TEMPLATES / f"{name}.info").read_text(),
            re.MULTILINE,
        )
        places += [f"{archive}/pool/{component}/i/iperf3" for archive in dict.fromkeys(found)]
    return places


def _source(version: str) -> Optional[bytes]:
    """What an archive has, if it is what it should be."""
    for place in archives():
        try:
            with urllib.request.urlopen(
                f"{place}/iperf3_{version}.orig.tar.gz", timeout=PATIENCE
            ) as answer:
                content = answer.read(LARGEST)
        except (OSError, urllib.error.URLError):
            continue
        if hashlib.sha256(content).hexdigest() == SOURCES[version]:
            return content
    return None


def _build(source: bytes, folder: Path) -> None:
    """Without what only a server in the open needs."""
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        with tarfile.open(fileobj=io.BytesIO(source)) as archive:
            # As in tests/netns/test_netns_upgrade.py.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(place)
        (tree,) = (path for path in Path(place).iterdir() if path.is_dir())
        configure = ["./configure", "--disable-shared", "--without-openssl", "--without-sctp"]
        for command in (configure, ["make", "-C", "src", "iperf3"]):
            subprocess.run(
                command,
                cwd=tree,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=BUILD_LIMIT,
                check=True,
            )
        folder.mkdir(exist_ok=True)
        (tree / "src" / "iperf3").rename(folder / "iperf3")
