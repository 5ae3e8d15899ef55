"""The defects of neuca-guest-tools 1.7 that need no kernel, by their letters: none can happen here.

Those of the network are in tests/netns/test_netns_defects.py, `l` (sudoers) in tests/package/test_package_guest.py.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ast
import re
from configparser import ConfigParser
from pathlib import Path

import pytest

from neuca_tools.config import Config, load_config
from neuca_tools.documents import parse
from neuca_tools.documents.neuca.ini import redact_text

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text() for path in sorted((ROOT / "neuca_tools").rglob("*.py"))}
UNITS = [path.read_text() for path in sorted((ROOT / "systemd").iterdir())]
LINE = "iscsi:192.0.2.1:3260:1:joe:hush-hush:yes"


def calls(name):
    """Every call of a function or method of this name, with the file that it is in."""
    for path, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and name in (
                getattr(node.func, "attr", ""),
                getattr(node.func, "id", ""),
            ):
                yield path.name, node


def test_every_letter_has_its_test():
    places = {
        Path(__file__): "[a-p]",
        ROOT / "tests/netns/test_netns_defects.py": "[a-p]",
        ROOT / "tests/package/test_package_guest.py": "l",
    }
    found = [
        name
        for path, letter in places.items()
        for name in re.findall(rf"^def test_({letter})_", path.read_text(), re.M)
    ]
    assert sorted(found) == list("abcdefghijklmnop")


def test_h_no_bus_is_ever_scanned():
    """Nothing of ours names such a file, and /sys/bus is read-only for the agent. (iscsiadm's --rescan is about one session.)"""
    assert [
        path.name for path, text in SOURCES.items() if re.search(r"(?<!--)rescan|bus/pci", text)
    ] == []
    agent = next(text for text in UNITS if "ExecStart=/usr/bin/neucad\n" in text)
    assert "ReadOnlyPaths=/proc /sys\n" in agent
    assert "ReadWritePaths=/proc/sys/net -/sys/devices\n" in agent


@pytest.mark.parametrize(
    "rest", ["", ":", "::::", ":ext4", ":Not Specified:Not Specified:Not Specified:Not Specified"]
)
def test_k_fields_of_storage_that_are_left_out_are_absent(rest):
    document = parse(f"[storage]\ndev1 = {LINE}{rest}\n")
    assert document.faults == ()
    assert (document.storage[0].format, document.storage[0].mount_point) == (False, "")


def test_m_no_certificate_goes_unchecked_and_no_secret_is_shown():
    bad = ("CERT_NONE", "_create_unverified_context", "verify=False", "check_hostname = False")
    assert [path.name for path, text in SOURCES.items() if any(word in text for word in bad)] == []
    text = f"[global]\ncometreadtoken = hush-hush\n[storage]\ndev1 = {LINE}\n"
    assert "hush" not in redact_text(text)
    assert "hush" not in repr(parse(text))


def test_n_there_is_no_mode_for_testing(tmp_path):
    (tmp_path / "config").write_text("[runtime]\ntesting = true\n")
    found = load_config(tmp_path / "config")
    assert [fault.reason for fault in found.faults] == ["obsolete, it has no effect"]
    assert found._replace(faults=()) == Config()


def test_o_no_program_is_looked_for_where_somebody_happens_to_be():
    looked_for = list(calls("which"))
    assert len(looked_for) >= 2
    for name, call in looked_for:
        path = next((keyword.value for keyword in call.keywords if keyword.arg == "path"), None)
        assert path is not None, f"{name}: shutil.which goes by PATH of whoever started the agent"
    paths = [
        node.value
        for text in SOURCES.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "/bin:" in node.value
    ]
    assert len(paths) >= 2
    assert all(part.startswith("/") for path in paths for part in path.split(":"))


def test_p_python_3_alone_and_nothing_of_boto():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["python_requires"] == ">=3.9"
    assert "boto" not in setup["options"].get("install_requires", "")
    assert not any("import boto" in text or "platform.dist" in text for text in SOURCES.values())
