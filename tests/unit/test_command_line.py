"""Wrong command lines of `neuca`: the usage of the subcommand, one prefix, and exit code 2."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.commands import agent
from neuca_tools.commands.neuca import main


def refused(capsys, *words, program=main):
    """The lines on standard error of a command line that is refused."""
    with pytest.raises(SystemExit) as ended:
        program(list(words))
    told = capsys.readouterr()
    assert (ended.value.code, told.out) == (2, "")
    return told.err.splitlines()


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["status", "--no-such"], "usage: neuca status [-h]", "unrecognized arguments: --no-such"),
        (["status", "more"], "usage: neuca status [-h]", "unrecognized arguments: more"),
        (
            ["explain"],
            "usage: neuca explain [-h]",
            "the following arguments are required: MAC-or-name",
        ),
        (["--no-such"], "usage: neuca [-h]", "unrecognized arguments: --no-such"),
        (
            ["plan", "--source"],
            "usage: neuca plan [-h]",
            "argument --source: expected one argument",
        ),
    ],
)
def test_a_wrong_option_gets_the_usage_of_its_own_subcommand(capsys, words, usage, message):
    first, *_, last = refused(capsys, *words)
    assert (first[: len(usage)], last) == (usage, f"neuca: {message}")


def test_the_daemon_uses_the_same_prefix(capsys):
    first, *_, last = refused(capsys, "--no-such", program=agent.main)
    assert (first[:18], last) == ("usage: neucad [-h]", "neuca: unrecognized arguments: --no-such")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "a", "b", "c"], "get: give a field, or a section and a field"),
    ],
)
def test_arguments_that_do_not_fit_each_other_get_the_usage_too(capsys, tmp_path, words, message):
    config = tmp_path / "config"
    config.write_text(f"[runtime]\nstate-directory = {tmp_path}\nrun-directory = {tmp_path}\n")
    assert main([words[0], "--config", str(config), *words[1:]]) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert (first[:16], last) == (f"usage: neuca {words[0]}", f"neuca: {message}")
