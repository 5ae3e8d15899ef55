"""What a start costs, counted: the modules that a command imports, the patterns and classes that it compiles."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from neuca_tools.commands import logs
from neuca_tools.commands.neuca import main
from neuca_tools.lazy import pattern, sha256
from neuca_tools.log import log
from neuca_tools.selftest.readers.documents import evidence_of

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "neuca status, plan, explain": "neuca_tools.commands.look",
    "neucad --once": "neuca_tools.commands.agent, neuca_tools.commands.apply",
    "neucad": "neuca_tools.agent.daemon",
    "neucad --names": "neuca_tools.commands.agent, neuca_tools.agent.boot_names",
    "dhcp-helper": "neuca_tools.commands.dhcp_helper",
}
# Each takes as long as starting Python, or half of it.
HEAVY = set(
    "ast asyncio concurrent ctypes dataclasses datetime decimal dis email hashlib html http inspect logging pickle shutil"
    " ssl subprocess threading tokenize traceback uuid dbus pyroute2 pyudev systemd yaml".split()
)
MOST_MODULES = 259  # of them, 169 are ours; the library's differ with its version
# Of a pass, and of a poll: only the children of the daemon have them.
OF_A_PASS = {"apply", "desired", "guest", "plan", "status"}
MESH = "neuca_tools.commands.selftest, neuca_tools.commands.selftest_mesh"


def loaded(modules):
    return printed_by(f"import {modules}, sys; print(*sys.modules)")


def printed_by(code):
    """The words that the code prints last, run by a new interpreter."""
    return set(run_by_a_new_interpreter(code).stdout.splitlines()[-1].split())


def run_by_a_new_interpreter(code):
    command = [sys.executable, "-S", "-B", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_nothing_heavy(command):
    assert loaded(COMMANDS[command]) & HEAVY == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_imports_few_modules(command):
    assert len(loaded(COMMANDS[command])) <= MOST_MODULES


def test_the_idle_daemon_has_no_module_of_a_pass():
    found = {one for one in loaded(COMMANDS["neucad"]) if one.startswith("neuca_tools.")}
    assert {one.split(".")[1] for one in found} & OF_A_PASS == set()
    assert "neuca_tools.agent.reconcile" not in found
    assert len(found) <= 65


def test_a_host_joins_a_mesh_without_the_librarys_dataclasses():
    found = loaded(MESH)
    assert found & {"ast", "dataclasses", "dis", "inspect", "logging", "tokenize"} == set()
    assert len(found) <= 418


@pytest.mark.parametrize("name", ["iperf/3.21-tcp.json", "faults/half-duplex.json"])
def test_explain_loads_what_it_needs_of_the_self_test_and_nothing_of_the_agent(name):
    file = ROOT / "tests" / "unit" / "data" / name
    code = f"""import sys
from neuca_tools.commands.neuca import main
main(["explain", {str(file)!r}], "neuca-selftest")
print(*sys.modules)"""
    found = printed_by(code)
    own = {one for one in found if one.startswith("neuca_tools.")}
    packages = {one.split(".")[1] for one in own}
    assert packages == {"commands", "dataclass", "errors", "lazy", "model", "selftest", "typed"}
    assert not {one for one in own if one.startswith("neuca_tools.selftest.measure")}
    assert found & (HEAVY | {"socket", "signal", "difflib"}) <= {"decimal"}  # of `statistics`
    assert len(own) <= 90


def test_the_annotations_of_a_class_are_read_once_for_a_report():
    content = (ROOT / "tests" / "unit" / "data" / "faults" / "half-duplex.json").read_bytes()
    evidence_of(content)
    counted = []

    def count(frame, event, _):
        if event == "call" and frame.f_code is typing.get_type_hints.__code__:
            counted.append(frame)

    sys.setprofile(count)
    try:
        evidence_of(content)
    finally:
        sys.setprofile(None)
    assert counted == []


def test_sources_and_platforms_are_loaded_when_they_are_needed():
    for command in COMMANDS.values():
        found = {one for one in loaded(command) if "documents.platform." in one}
        assert found == set()
        assert not loaded(command) & {"neuca_tools.sources.clouds", "neuca_tools.sources.ec2"}


@pytest.mark.parametrize("words", [["version"], ["help", "status"], ["distro"]])
@pytest.mark.usefixtures("capsys")
def test_a_command_builds_one_parser(words):
    """`help status` builds that of `help` and that of `status`."""
    counted = []

    def count(frame, event, _):
        if event == "call" and frame.f_code is argparse.ArgumentParser.__init__.__code__:
            counted.append(frame)

    sys.setprofile(count)
    try:
        main(words)
    finally:
        sys.setprofile(None)
    assert len(counted) == {"version": 0, "help": 2}.get(words[0], 1)


def test_a_start_does_not_search_for_garbage():
    code = """import gc, sys
from neuca_tools.commands import collect_rarely
found = []
gc.callbacks.append(lambda phase, _: found.append(phase))
collect_rarely()
import neuca_tools.commands.agent, neuca_tools.commands.apply
print(f"searches={len(found)}")"""
    assert printed_by(code) == {"searches=0"}


def test_no_module_compiles_a_pattern_when_it_is_imported():
    """But in the self-test, which is not loaded at boot."""
    files = [
        path
        for path in (ROOT / "neuca_tools").rglob("*.py")
        if "selftest" not in str(path.relative_to(ROOT)) and path.name != "lazy.py"
    ]
    compiling = [
        path for path in files if re.search(r"^\S.*\bre\.compile\(", path.read_text(), re.M)
    ]
    assert compiling == []


def test_a_lazy_pattern_is_a_pattern():
    lazy = pattern(r"(?P<name>[a-z]+)", re.IGNORECASE)
    assert lazy.fullmatch("ABC")["name"] == "ABC"
    assert lazy.sub("x", "a1") == "x1"
    assert (lazy.pattern, lazy.flags) == (r"(?P<name>[a-z]+)", re.compile("", re.IGNORECASE).flags)
    with pytest.raises(AttributeError):
        _ = lazy.nothing


def test_a_digest_is_that_of_the_library():
    wanted = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(b"abc").hexdigest() == wanted


@pytest.fixture
def logger():
    found = logging.getLogger("neuca")
    before = (found.handlers[:], found.level, found.propagate)
    yield found
    found.handlers[:], found.propagate = before[0], before[2]
    found.setLevel(before[1])


def test_the_handler_is_made_for_the_first_line_and_used_for_all(logger, capsys):
    logger.handlers[:] = []
    logs.to_stderr("WARNING")
    assert logger.handlers == []
    log.info("too little")
    log.warning("first %s", "line")
    log.error("second line")
    assert capsys.readouterr().err == "first line\nsecond line\n"
    logs.to_stderr("INFO")
    log.info("now it matters")
    assert capsys.readouterr().err == "now it matters\n"
    assert len(logger.handlers) == 1


def test_a_line_is_written_though_no_module_can_be_read():
    """EMFILE: standard input, output and error are all that this process may have open."""
    code = """import resource
from neuca_tools.commands import logs
from neuca_tools.log import log
logs.to_stderr()
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
log.error("start a pass: %s", "Too many open files", extra={})
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
log.warning("it %s", "recovers")
"""
    done = run_by_a_new_interpreter(code)
    assert done.stderr == "start a pass: Too many open files\nit recovers\n"
