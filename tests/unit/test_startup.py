"""What a command imports when it starts."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import ast
import logging
import subprocess
import sys
import typing
from pathlib import Path

import pytest

from neuca_tools.commands import logs
from neuca_tools.commands.neuca import main
from neuca_tools.selftest.readers.documents import evidence_of

log = logging.getLogger("neuca")

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "neuca status, plan, explain": "neuca_tools.commands.look",
    "neucad --once": "neuca_tools.commands.neucad, neuca_tools.commands.apply",
    "neucad": "neuca_tools.agent.daemon",
    "neucad --names": "neuca_tools.commands.neucad, neuca_tools.agent.boot_names",
    "dhcp-helper": "neuca_tools.commands.dhcp_helper",
}
# None is needed where nothing changes; each takes as long as starting Python, or half of it.
HEAVY = {
    "asyncio",
    "concurrent",
    "dbus",
    "email",
    "html",
    "pyroute2",
    "pyudev",
    "ssl",
    "subprocess",
    "yaml",
}
# Of a pass, and of a poll: only the children of the daemon have them.
OF_A_PASS = {"apply", "desired", "guest", "plan", "status"}


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


def test_the_idle_daemon_has_no_module_of_a_pass():
    found = {one for one in loaded(COMMANDS["neucad"]) if one.startswith("neuca_tools.")}
    assert {one.split(".")[1] for one in found} & OF_A_PASS == set()
    assert "neuca_tools.agent.reconcile" not in found


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
    assert packages == {"commands", "errors", "model", "selftest"}
    assert not {one for one in own if one.startswith("neuca_tools.selftest.measure")}
    assert found & (HEAVY | {"socket", "signal"}) == set()


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
        assert [name for name in loaded(command) if "documents.platform." in name] == []
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


def test_an_installed_program_does_not_search_for_garbage_when_it_starts():
    text = (ROOT / "packaging" / "install").read_text()
    start = text.partition("[$path]\n")[2].partition("\nsys.exit(main())")[0]
    code = f"""import gc, sys, neuca_tools.commands
found = []
gc.callbacks.append(lambda phase, _: found.append(phase))
{start.replace("$1", "neucad")}
import neuca_tools.commands.apply
print(f"searches={{len(found)}}")"""
    assert printed_by(code) == {"searches=0"}


def test_lines_below_the_level_are_not_written(logger, capsys):
    logs.to_stderr("WARNING")
    log.info("too little")
    log.warning("first %s", "line")
    log.error("second line")
    assert capsys.readouterr().err == "first line\nsecond line\n"
    logs.to_stderr("INFO")
    log.info("now it matters")
    assert capsys.readouterr().err == "now it matters\n"
    assert len(logger.handlers) == 1


def test_a_line_of_the_log_has_no_control_character(capsys):
    logs.to_stderr()
    log.info("%s", "bring a\x1b[2Jb up\nbring \u202ec up")
    assert capsys.readouterr().err == "bring a\\x1b[2Jb up\nbring \\u202ec up\n"


def test_a_line_is_written_though_no_module_can_be_read():
    """EMFILE: standard input, output and error are all that this process may have open."""
    code = """import resource
from neuca_tools.commands import logs
import logging
log = logging.getLogger("neuca")
logs.to_stderr()
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
log.error("start a pass: %s", "Too many open files", extra={})
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
log.warning("it %s", "recovers")
"""
    done = run_by_a_new_interpreter(code)
    assert done.stderr == "start a pass: Too many open files\nit recovers\n"


def test_an_import_inside_a_function_has_a_comment_that_says_what_it_saves():
    """Above the first of its function, or for the whole module below its own imports."""
    bare = []
    for path in sorted((ROOT / "neuca_tools").rglob("*.py")):
        text = path.read_text()
        lines = text.splitlines()
        if "selftest" in path.parts or "\n# Imports inside functions: " in text:
            continue
        for function in ast.walk(ast.parse(text)):
            if isinstance(function, ast.FunctionDef):
                found = [
                    one
                    for one in ast.walk(function)
                    if isinstance(one, (ast.Import, ast.ImportFrom))
                ]
                above = lines[max(found[0].lineno - 4, 0) : found[0].lineno] if found else ["#"]
                if not any("#" in line for line in above):
                    bare.append(f"{path.relative_to(ROOT)}:{found[0].lineno}")
    assert bare == []
