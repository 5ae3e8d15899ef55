"""Runs `neuca show document --json` on each document from standard input, and prints what it printed.

With the argument `count`, it prints too how many lines of Python that took: a measure of work that no load changes.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import io
import json
import sys
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


def shown(folder, kind, text, count=False):
    """The output as JSON with the exit code, the standard error and the lines of Python that were run, if counted."""
    source = seed(folder, kind, text)
    out, err = io.StringIO(), io.StringIO()
    lines = 0

    def trace(_, event, __):
        nonlocal lines
        lines += event == "line"
        return trace

    if count:
        sys.settrace(trace)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(
            ["show", "document", "--json", "--config", str(folder / "config"), "--source", source]
        )
    sys.settrace(None)
    parsed = json.loads(out.getvalue()) if out.getvalue() else None
    return {"code": code, "document": parsed, "err": err.getvalue(), "lines": lines}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    (place / "config").write_text(CONFIGURATION.format(place))
    shown(place, "network-config", "version: 2\n")  # imports are not counted
    counted = sys.argv[2:] == ["count"]
    documents = json.load(sys.stdin)
    json.dump([shown(place, *document, counted) for document in documents], sys.stdout)
