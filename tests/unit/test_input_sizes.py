"""What is too large is refused before it is parsed, and before it is read if its size is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from neuca_tools.documents.platform import tree

MIB = 1 << 20
MEMORY = 400 * MIB
COMMANDS = {
    "explain": ("neuca_selftest", ["explain", "{}"]),
    "compare": ("neuca_selftest", ["compare", "{small}", "{}"]),
    "mesh hosts": ("neuca_selftest", ["mesh", "plan", "--rate", "1G", "{}"]),
    "check": ("neuca", ["check", "{}"]),
    "show": ("neuca", ["show", "document", "--source", "file:{}"]),
}
RUN = {
    "neuca_selftest": "from neuca_tools.commands.neuca import main; raise SystemExit(main(None, 'neuca-selftest'))",
    "neuca": "from neuca_tools.commands.neuca import main; raise SystemExit(main())",
}
SMALL = b"""[ ID] Interval           Transfer     Bitrate         Retr
[  5]   0.00-10.00  sec  1.10 GBytes   941 Mbits/sec    0             sender
[  5]   0.00-10.00  sec  1.09 GBytes   938 Mbits/sec                  receiver
"""


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def run(command, name, tmp_path, **more):
    program, words = COMMANDS[command]
    small = tmp_path / "small"
    small.write_bytes(SMALL)
    words = [word.format(name, small=small) for word in words]
    return subprocess.run(
        [sys.executable, "-c", RUN[program], *words],
        preexec_fn=limited, capture_output=True, text=True, timeout=60, check=False, **more,
    )  # fmt: skip


def check(done):
    assert done.returncode not in (0, -9), done
    assert "Traceback" not in done.stderr, done.stderr
    assert re.search("is l(arg|ong)er than|has more than", done.stdout + done.stderr), done


@pytest.mark.parametrize("command", COMMANDS)
def test_a_sparse_file_of_several_gigabytes_is_refused(command, tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(5 << 30)
    check(run(command, large, tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_large_document_is_refused(command, tmp_path):
    large = tmp_path / "large"
    large.write_bytes(b'{"a": [' + b"0," * (50 * MIB) + b"0]}")
    check(run(command, large, tmp_path))


@pytest.mark.parametrize("command", [one for one in COMMANDS if one != "show"])
def test_an_endless_file_is_refused(command, tmp_path):
    check(run(command, "/dev/zero", tmp_path))


@pytest.mark.parametrize("command", ["explain", "mesh hosts", "check"])
def test_endless_standard_input_is_refused(command, tmp_path):
    with Path("/dev/zero").open("rb") as zeros:
        check(run(command, "-", tmp_path, stdin=zeros))


@pytest.mark.parametrize("command", [one for one in COMMANDS if one != "show"])
def test_an_endless_pipe_is_refused(command, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def feed():
        with pipe.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(b"[0," * 21845)
            except BrokenPipeError:
                pass

    writer = threading.Thread(target=feed, daemon=True)
    writer.start()
    check(run(command, pipe, tmp_path))
    writer.join(10)
    assert not writer.is_alive()


def test_no_more_lines_are_looked_up_than_a_document_may_have_items():
    """Each alias is two items more: a million paths in 21 lines."""
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]\n" for at in range(1, 20)
    )
    assert 0 < len(tree.lines_of(bomb.encode())) <= tree.MAX_ITEMS + 2
