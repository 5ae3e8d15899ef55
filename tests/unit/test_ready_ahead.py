"""READY before the agent is imported: only where no boot could wait for anything, and at the price of Python itself."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.commands.neucad import CONFIG, DOCUMENT, STATE_DIRECTORY, WAITING, ready_ahead
from neuca_tools.config import DEFAULT_PATH, Config
from neuca_tools.state.records import DOCUMENT as REAL_DOCUMENT

ROOT = Path(__file__).parents[2]
OWN = {"__future__", "neuca_tools", "neuca_tools.commands", "neuca_tools.commands.neucad"}


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        yield made


def heard(manager):
    try:
        return manager.recv(4096).decode()
    except BlockingIOError:
        return ""


@pytest.fixture
def host(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "config").write_text(f"[runtime]\nstate-directory = {tmp_path}/state\n")
    return tmp_path


def ahead(host):
    ready_ahead(str(host / "notify"), str(host / "config"))


def test_it_goes_by_the_places_of_the_agent():
    assert (Path(STATE_DIRECTORY), Path(CONFIG), DOCUMENT) == (
        Config().state_directory,
        DEFAULT_PATH,
        REAL_DOCUMENT,
    )


def test_without_a_document_it_is_ready(host, manager):
    ahead(host)
    assert heard(manager) == WAITING


def test_with_a_document_a_boot_may_wait_for_the_dataplane(host, manager):
    (host / "state" / DOCUMENT).touch()
    ahead(host)
    assert heard(manager) == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[runtime]\nState-Directory = {}/other ; moved\n", True),
        ("[runtime]\nstate-directory = elsewhere\n", False),
        (";state-directory = {}/other\n", False),
        ("\udcff = \0\n[\n", False),
    ],
)
def test_the_last_file_that_moves_the_state_directory_counts(host, manager, text, found):
    (host / "other").mkdir()
    (host / "other" / DOCUMENT).touch()
    (host / "config.d").mkdir()
    (host / "config.d" / "a.conf").write_bytes(
        text.replace("{}", str(host)).encode("utf-8", "surrogateescape")
    )
    ahead(host)
    assert heard(manager) == ("" if found else WAITING)


def test_a_configuration_that_cannot_be_read_is_left_to_the_agent(host, manager):
    (host / "config").unlink()
    (host / "config").mkdir()
    ahead(host)
    assert heard(manager) == ""


@pytest.mark.parametrize("address", ["", "notify", "/nowhere/at/all", "@" + "x" * 300])
def test_nobody_to_tell_is_no_error(host, address):
    ready_ahead(address, str(host / "config"))


def test_nothing_is_imported_for_it_but_what_python_has_itself(host, manager):
    bare = _modules("")
    mine = _modules(
        f"from neuca_tools.commands.neucad import ready_ahead; ready_ahead('{host}/notify', '{host}/config')"
    )
    assert heard(manager) == WAITING
    assert mine - bare == {*OWN, "_socket"}


def _modules(code):
    words = [sys.executable, "-c", f"import sys; {code}\nprint(*sys.modules)"]
    return set(
        subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600
        ).stdout.split()
    )
