"""The oracles: cloud-init and netplan of the distribution, unpacked by `tests/setup.sh wild` and never installed.

Installed, cloud-init would take over the machine at its next boot. Both run here as programs.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from unpacked import ROOT  # noqa: E402 - what tiers share lies above them

PYTHON = ROOT / "usr/lib/python3/dist-packages"
# Seconds, far more than a batch takes on a busy machine.
PATIENCE = 600


def _generator() -> Path:
    """netplan's generator, which Debian 12 and Ubuntu have in different places.

    Since netplan 1.2, `configure` writes the files for networkd, and `generate` only units.
    """
    homes = ("usr/libexec/netplan", "usr/lib/netplan", "lib/netplan")
    places = [f"{home}/{name}" for name in ("configure", "generate") for home in homes]
    found = [ROOT / place for place in places if (ROOT / place).is_file()]
    if not found or not (ROOT / "unpacked/netplan.io").exists():
        pytest.skip("cloud-init and netplan are not unpacked: run tests/setup.sh wild")
    return found[0]


def _run(words, **more):
    """A program with the libraries of the oracles."""
    libraries = {str(path.parent) for path in ROOT.glob("**/lib*.so.*")}
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(sorted(libraries)),
        "PYTHONPATH": str(PYTHON),
    }
    return subprocess.run(
        list(map(str, words)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        **more,
    )


def cloud_init(documents):
    """What cloud-init understands: for each (kind, text) its network state, or {"error": why}."""
    _generator()
    done = _run(
        ["/usr/bin/python3", HERE / "cloud_init_oracle.py"], input=json.dumps(list(documents))
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def netplan(documents, folder):
    """What netplan makes of each text: the files for networkd by name, or {"error": why}."""
    program = _generator()
    found = []
    for number, text in enumerate(documents):
        root = folder / f"netplan{number}"
        place = root / "etc/netplan/document.yaml"
        place.parent.mkdir(parents=True)
        place.write_text(text)
        place.chmod(0o600)
        done = _run([program, "--root-dir", root])
        if done.returncode:
            found.append({"error": (done.stderr.strip() or "no reason").splitlines()[-1]})
            continue
        files = sorted((root / "run/systemd/network").glob("*"))
        found.append({path.name: path.read_text() for path in files if path.is_file()})
    return found


def ours(documents, folder, count=False):
    """What `neuca show document --json` prints of each (kind, text), see `our_side.shown`."""
    words = [sys.executable, HERE / "our_side.py", folder, *(["count"] if count else [])]
    if os.geteuid() != 0:
        # The command reads a seed for root only; here its own root is enough.
        words = ["unshare", "--map-root-user", *words]
    done = subprocess.run(
        list(map(str, words)),
        input=json.dumps(list(documents)),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
