"""Wrong command lines of `neuca`: the usage of the subcommand, one prefix, and exit code 2."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from neuca_tools.commands import neucad, selftest
from neuca_tools.commands.common import show, uses_color
from neuca_tools.commands.neuca import _BY_NAME, COMMANDS, _command_parser, main
from neuca_tools.model.printable import GREEN, painted_text
from neuca_tools.sources import _KINDS


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
        (["status", ""], "usage: neuca status [-h]", "unrecognized arguments: ''"),
        (["status", "--", "a b"], "usage: neuca status [-h]", "unrecognized arguments: -- 'a b'"),
        (
            ["plan", "--sorce=auto", "x"],
            "usage: neuca plan [-h]",
            'unrecognized arguments: --sorce=auto x; did you mean "--source"?',
        ),
        (
            ["explain"],
            "usage: neuca explain [-h]",
            "the following arguments are required: MAC-or-name",
        ),
        (["--no-such"], "usage: neuca COMM", "unrecognized arguments: --no-such"),
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


def test_the_options_of_a_command_without_arguments_may_end():
    assert _command_parser(_BY_NAME["status"]).parse_args(["--json", "--"]).json


def test_a_wrong_word_cannot_control_the_terminal(capsys):
    assert refused(capsys, "sta\x1b[2Jtus")[-1] == (
        'neuca: there is no command "sta\\x1b[2Jtus"; did you mean "status"?'
    )


def test_the_daemon_uses_the_same_prefix(capsys):
    first, *_, last = refused(capsys, "--no-such", program=neucad.main)
    assert (first[:18], last) == ("usage: neucad [-h]", "neuca: unrecognized arguments: --no-such")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "a", "b", "c"], "get: expected a field, or a section and a field"),
        (
            ["status", "--prometheus", "--json"],
            "status: --json and --prometheus cannot be combined",
        ),
        (["status", "--timeout", "3"], "status: --timeout requires --wait"),
    ],
)
def test_arguments_that_do_not_fit_each_other_get_the_usage_too(capsys, tmp_path, words, message):
    config = tmp_path / "config"
    config.write_text(f"[runtime]\nstate-directory = {tmp_path}\nrun-directory = {tmp_path}\n")
    assert main([words[0], "--config", str(config), *words[1:]]) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"usage: neuca {words[0]} ")
    assert last == f"neuca: {message}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-v", "status"], 'options follow the command, as in "neuca status -v"'),
        (
            ["--config", "x", "status"],
            'options follow the command, as in "neuca status --config"',
        ),
        (["show"], "the following arguments are required: {document,desired,observed}"),
        (
            ["show", "desird"],
            '"desird" is not "document", "desired" or "observed"; did you mean "desired"?',
        ),
        (["image", "x", "y"], '"x" is not "capture"'),
        (
            ["check", "--format", "neuc", "-"],
            (
                'argument --format: "neuc" is not "neuca", "network_data.json", "network-config" or'
                ' "configuration"; did you mean "neuca"?'
            ),
        ),
        (["help", "stats"], 'there is no command "stats"; did you mean "status"?'),
        (["logs"], 'there is no command "logs"; did you mean "collect-logs"?'),
        (
            ["status", "--timeout", "nan"],
            'argument --timeout: "nan" is not a number of seconds from 0 to 86400',
        ),
        (
            ["apply", "--try", "0"],
            'argument --try: "0" is not a number of seconds from 1 to 3600',
        ),
        (["--json"], "unrecognized arguments: --json"),
        (["status", "--jso"], 'unrecognized arguments: --jso; did you mean "--json"?'),
        (["status", "--prometheus="], "argument --prometheus: it is empty"),
        (["status", "--config="], "argument --config: it is empty"),
        (["apply", "--source", ""], "argument --source: it is empty"),
        (["tune", "apply", "--interface", ""], "argument --interface: it is empty"),
        (["tune", "apply", "--profile", ""], "argument --profile: it is empty"),
        (["collect-logs", "--output="], "argument --output: it is empty"),
        (["read-drive", ""], "argument DEVICE: it is empty"),
    ],
)
def test_a_wrong_word_is_named_with_what_is_right(capsys, words, message):
    assert refused(capsys, *words)[-1] == f"neuca: {message}"


def test_a_file_for_a_source_is_a_file_source(tmp_path, capsys):
    path = tmp_path / "user-data.ini"
    path.touch()
    assert main(["plan", "--source", str(path)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f'neuca: invalid source "{path}": ')
    assert hint == f'       did you mean "file:{path}"?'


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (neucad.main, ["--vers"]),
        (selftest.main, ["run", "--fam", "4", "peer"]),
        (selftest.main, ["mesh", "report", "--js", "results"]),
    ],
)
def test_no_program_accepts_an_abbreviated_option(capsys, program, words):
    assert ": unrecognized arguments: --" in refused(capsys, *words, program=program)[-1]


@pytest.mark.parametrize("action", ["audit", "plan", "apply"])
def test_a_list_without_a_profile_does_not_stand_for_the_configured_ones(capsys, action):
    assert main(["tune", action, "--profile", " , "]) == 2
    *_, last = capsys.readouterr().err.splitlines()
    assert last == 'neuca: tune --profile: " , " names no profile'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--only", ",", "peer"], 'argument --only: "," is not one of the steps'),
        (["run", "--skip", ",", "peer"], 'argument --skip: "," is not one of the steps'),
        (["run", "--html", "", "peer"], "argument --html: it is empty"),
        (["explain", "file", "--svg="], "argument --svg: it is empty"),
        (["mesh", "report", ""], "argument FILE: it is empty"),
    ],
)
def test_an_empty_value_of_the_self_test_stands_for_nothing_else(capsys, words, message):
    assert refused(capsys, *words, program=selftest.main)[-1].startswith(
        f"neuca-selftest: {message}"
    )


@pytest.mark.parametrize("words", [["--once", "--names"], ["--guest", "--once"]])
def test_the_daemon_takes_one_step_at_a_time(capsys, words):
    last = refused(capsys, *words, program=neucad.main)[-1]
    assert last == f"neuca: argument {words[1]}: not allowed with argument {words[0]}"


def test_the_daemon_takes_no_empty_configuration_for_the_default_one(capsys):
    last = refused(capsys, "--once", "--config", "", program=neucad.main)[-1]
    assert last == "neuca: argument --config: it is empty"


def test_stay_alone_gets_the_usage_of_the_daemon(capsys):
    assert neucad.main(["--stay"]) == 2
    first, *_, last = capsys.readouterr().err.splitlines()
    assert (first[:13], last) == ("usage: neucad", "neuca: --stay: it requires --guest")


def test_a_file_of_metrics_or_logs_makes_no_directory(tmp_path, capsys):
    path = tmp_path / "none" / "x.prom"
    for words in (["status", f"--prometheus={path}"], ["collect-logs", "--output", str(path)]):
        assert main(words) == 1
        told = capsys.readouterr().err.splitlines()[-1]
        assert told == f'neuca: write "{path}": its directory does not exist'
    assert list(tmp_path.iterdir()) == []


def test_metrics_or_logs_replace_no_device(tmp_path, capsys):
    path = tmp_path / "x.prom"
    os.mkfifo(path)
    for words in (["status", f"--prometheus={path}"], ["collect-logs", "--output", str(path)]):
        assert main(words) == 1
        told = capsys.readouterr().err.splitlines()[-1]
        assert told == f'neuca: write "{path}": it exists, and is not a regular file'
    assert path.is_fifo()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["status", "--config", "{}"], 78, 'cannot read the configuration file "{}": '),
        (["plan", "--source", "{}"], 2, 'invalid source "{}": '),
        (["status", "--prometheus={}/x"], 1, 'write "{}/x": '),
        (["collect-logs", "--output={}/x"], 1, 'write "{}/x": '),
        (["image", "capture", "{}/x.tar"], 1, 'capture into "{}/x.tar": '),
        (["read-drive", "{}"], 1, 'read the drive "{}": '),
    ],
)
def test_a_path_that_cannot_be_looked_up_is_one_line(capsys, monkeypatch, words, code, message):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    path = "/" + "x" * 300
    assert main([word.replace("{}", path) for word in words]) == code
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"neuca: {message.replace('{}', path)}")
    assert code == 2 or told.endswith(": File name too long")


def test_the_version_does_not_depend_on_what_follows(capsys):
    assert main(["--version", "status"]) == 0
    assert capsys.readouterr().out == "NEuca version 2.0.0\n"


def test_the_selftest_has_the_version_of_the_package(capsys):
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--version"], "neuca-selftest")
    assert capsys.readouterr().out == "NEuca version 2.0.0\n"


def test_a_misspelled_command_gets_a_suggestion(capsys):
    assert refused(capsys, "stauts")[-1] == (
        'neuca: there is no command "stauts"; did you mean "status"?'
    )
    assert refused(capsys, "help", "aply")[-1] == (
        'neuca: there is no command "aply"; did you mean "apply"?'
    )
    assert refused(capsys, "help", "xyzzy")[-1] == 'neuca: there is no command "xyzzy"'


@pytest.mark.parametrize("words", [["help"], ["help", "apply"]])
def test_help_describes_a_command_as_its_option_does(capsys, words):
    assert main(words) == 0
    told = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words[1:], "--help"])
    assert told == capsys.readouterr().out


def test_help_has_every_command_in_a_group_an_example_and_the_manual(capsys):
    assert main(["help"]) == 0
    text = capsys.readouterr().out
    listed = re.findall(r"^  ([a-z][a-z-]*)(?: |$)", text, re.MULTILINE)
    assert sorted(listed) == sorted([*(command.name for command in COMMANDS), "selftest"])
    titles = [line for line in text.splitlines() if re.fullmatch(r"[a-z].*:", line)]
    assert len(titles) == 7
    assert "positional arguments" not in text
    assert "Example: neuca plan --source file:" in " ".join(text.split())
    assert "neuca(1)" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_help_of_every_command_fits_in_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for command in COMMANDS:
        assert main(["help", command.name]) == 0
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80, text


def test_quiet_prints_errors_only(tmp_path, capsys):
    path = tmp_path / "doc"
    path.write_text("[interface 02:00:00:00:00:01]\nmut = 1\n[what]\n")
    assert main(["check", "-q", str(path)]) == 78
    assert main(["check", "-q", str(tmp_path / "none")]) == 1
    told = capsys.readouterr()
    fault, missing = told.err.splitlines()
    assert told.out == ""
    assert fault.startswith(f'{path}:2: error: [interface 02:00:00:00:00:01] "mut" = "1": ')
    assert missing == f'neuca: read "{tmp_path}/none": No such file or directory'


def test_the_color_of_a_row_does_not_wrap_a_table_that_fits(monkeypatch, capsys):
    row = f"{painted_text('ok', GREEN, True)}  eth1  dataplane  up"
    monkeypatch.setenv("COLUMNS", "23")
    show({}, False, lambda _: row)
    assert capsys.readouterr().out == f"{row}\n"


def test_a_line_is_wrapped_for_a_terminal_and_whole_for_a_program(monkeypatch, capsys):
    text = (
        "ok: all is well\n      drift: changed; "
        + "neuca apply would write it, " * 9
        + "/a/b-c" * 20
    )
    monkeypatch.delenv("COLUMNS", raising=False)
    show({}, False, lambda _: text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setenv("COLUMNS", "70")
    show({}, False, lambda _: text)
    lines = capsys.readouterr().out.splitlines()
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert lines[:1] == ["ok: all is well"]
    assert all(line.startswith(" " * 10) for line in lines[2:])
    assert [line for line in lines if len(line) > 70] == [f"{' ' * 10}{'/a/b-c' * 20}"]
    show({}, False, lambda _: text, wraps=False)
    assert capsys.readouterr().out == f"{text}\n"


def test_verbose_and_quiet_exclude_each_other(capsys):
    assert refused(capsys, "status", "-v", "-q")[-1] == (
        "neuca: argument -q/--quiet: not allowed with argument -v/--verbose"
    )


@pytest.mark.parametrize(
    ("words", "environment", "terminal", "colored"),
    [
        ([], {}, True, True),
        ([], {}, False, False),
        ([], {"NO_COLOR": "1"}, True, False),
        ([], {"NO_COLOR": ""}, True, True),
        ([], {"TERM": "dumb"}, True, False),
        (["--color=always"], {"NO_COLOR": "1"}, False, True),
        (["--color=never"], {}, True, False),
    ],
)
def test_when_output_is_colored(monkeypatch, words, environment, terminal, colored):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr("sys.stdout", Terminal() if terminal else io.StringIO())
    assert uses_color(_command_parser(_BY_NAME["status"]).parse_args(words)) is colored


class Terminal(io.StringIO):
    def isatty(self):
        return True


# --- completion -------------------------------------------------------------------------------------------------------

COMPLETION = Path(__file__).parents[2] / "packaging" / "completion" / "neuca"


def completed(*words, program="neuca"):
    """What bash offers for the last of these words."""
    script = (
        f". {COMPLETION.with_name(program)}; COMP_WORDS=({program} {' '.join(map(shlex.quote, words))});"
        f' COMP_CWORD={len(words)}; _{program}; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=COMPLETION.parents[2],
    )
    return set(done.stdout.split())


def test_completion_offers_every_command():
    assert completed("") == {*(one.name for one in COMMANDS), "selftest", "--version", "--help"}
    assert completed("app") == {"apply"}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_completion_offers_every_option_of_a_command(command):
    common = {"config", "verbose", "quiet", "color", "help"}
    assert completed(command.name, "--") == {
        f"--{one}" for one in {*command.options.split(), *common}
    }


def test_completion_offers_values():
    assert completed("show", "") == {"document", "desired", "observed"}
    assert completed("status", "--color", "a") == {"auto", "always"}
    assert completed("image", "") == {"capture"}
    assert completed("tune", "") == {"audit", "plan", "apply", "revert"}
    assert completed("tune", "apply", "") == set()
    assert "lo" not in completed("explain", "")


def test_completion_offers_the_options_of_the_daemon(tmp_path, capsys):
    with pytest.raises(SystemExit):
        neucad.main(["--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert completed("--", program="neucad") == {*options, "--help"}
    (tmp_path / "config").touch()
    assert completed("--config", f"{tmp_path}/", program="neucad") == {f"{tmp_path}/config"}


def test_completion_offers_the_sources_and_the_path_of_a_file(tmp_path):
    every = {re.match(r"file:|\w+", kind.usage)[0] for kind in _KINDS.values()}
    assert completed("plan", "--source", "") == {"auto", *every}
    (tmp_path / "a.ini").touch()
    # As bash splits "file:PATH" and "file:".
    assert completed("plan", "--source", "file", ":", f"{tmp_path}/") == {f"{tmp_path}/a.ini"}
    assert completed("plan", "--source", "file", ":") >= {"README.md", "docs"}


def test_both_shells_offer_the_same_words():
    texts = [
        (COMPLETION.parent / name).read_text() for name in ("_neuca", "neuca", "neuca-selftest")
    ]
    zsh, bash = texts[0], texts[1] + texts[2]
    for option in ("--color", "--format", "--profile", "--plan", "--family"):
        pattern = rf"{option}\).*?(?:compadd|-W) \"?([^\";]*)"
        offered = [re.findall(pattern, text)[0].split() for text in (zsh, bash)]
        assert offered[0] == offered[1], option
    selftest = re.search(r"commands=\"([^\"]*)", texts[2])
    assert selftest
    assert f"values=({selftest[1]})" in zsh
    assert "compadd plan run join report stop" in zsh
    assert '"plan run join report stop"' in bash
    sources = re.search(r"sources=\"([^\"]*)", texts[1])
    assert sources
    assert f"compadd {sources[1].replace('file: ', '')}\n" in zsh


@pytest.mark.parametrize("step", ["", "--once", "--names", "--guest"])
@pytest.mark.parametrize("config", ["", "--config /a/file"])
def test_what_the_units_run_means_the_same_without_argparse(step, config):
    given = [*step.split(), *config.split()]
    expected = vars(neucad._parser().parse_args(given))
    del expected["usage"]
    assert vars(neucad.arguments_of_units(given)) == expected


@pytest.mark.parametrize(
    "words",
    [
        "--once --names",
        "--onc",
        "--config",
        "--config=/a/file",
        "--config -x",
        "--config a b",
        "--config a --once",
        "--guest --stay",
        "--stay",
        "--version",
        "--",
        "x",
    ],
)
def test_all_other_arguments_of_neucad_are_read_by_argparse(words):
    assert neucad.arguments_of_units(words.split()) is None
