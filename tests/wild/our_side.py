"""Runs `neuca show document --json` on each document from standard input, and prints what it printed and how long it took."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path

from neuca_tools.commands.neuca import main

CONFIGURATION = """[runtime]
state-directory = {0}/state
run-directory = {0}/run
pid-directory = {0}/pid
[logging]
log-directory = {0}/log
"""


def seed(folder, kind, text):
    """Write the document where its source has it, and return the source."""
    if kind == "network_data.json":
        place = folder / "drive/openstack/latest"
        texts = {"meta_data.json": '{"uuid": "one"}', kind: text}
        source = f"configdrive={folder / 'drive'}"
    else:
        place = folder / "seed"
        texts = {"user-data": "#cloud-config\n", "meta-data": "instance-id: one\n", kind: text}
        source = f"nocloud={place}"
    place.mkdir(parents=True, exist_ok=True)
    for name, content in texts.items():
        (place / name).write_text(content)
    return source


def shown(folder, kind, text):
    """The output as JSON with the exit code, the standard error and the seconds of processor time."""
    source = seed(folder, kind, text)
    out, err = io.StringIO(), io.StringIO()
    begin = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(
            ["show", "document", "--json", "--config", str(folder / "config"), "--source", source]
        )
    took = time.process_time() - begin
    parsed = json.loads(out.getvalue()) if out.getvalue() else None
    return {"code": code, "document": parsed, "err": err.getvalue(), "seconds": took}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "config").write_text(CONFIGURATION.format(place))
    shown(place, "network-config", "version: 2\n")  # imports are not counted
    json.dump([shown(place, *document) for document in json.load(sys.stdin)], sys.stdout)
