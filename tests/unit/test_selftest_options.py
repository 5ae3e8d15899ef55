"""What each option of `neuca-selftest` sets, what it is without it, and which values it takes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from neuca_tools.commands import selftest_mesh, selftest_options, selftest_parsers, selftest_paths
from neuca_tools.selftest.measure.iperf.plans import STEPS

PRINTED = {"verbose": False, "quiet": False, "color": "auto"}
REPORTED = {"json": False, "nagios": False, "html": None, "prometheus": None}
SERIES = {"csv": None, "svg": None}
MEASURED = {
    "plan": None, "time": None, "parallel": None, "bidir": False, "udp": False, "rate": None, "only": None,
    "skip": frozenset(), "port": None, "numa": None, "ssh": None, "secret_file": None, "expect": None, "config": None,
}  # fmt: skip
WITHIN = {"interface": None, "netns": None, "container": None}
# The parser of a command, words that it needs, and what it returns for these alone.
COMMANDS = {
    "run": (
        selftest_options.run_parser,
        "",
        {**MEASURED, **WITHIN, **REPORTED, **PRINTED, "peers": [], "family": None, "label": None, "at_boot": False},
    ),
    "serve": (
        selftest_options.serve_parser,
        "",
        {
            **WITHIN, **PRINTED, "port": None, "address": None, "secret_file": None, "period": 600.0,
            "stdio": False, "config": None, "peers": [],
        },
    ),
    "explain": (
        selftest_parsers.explain_parser,
        "f",
        {**REPORTED, **SERIES, **PRINTED, "file": "f", "expect": None, "rtt": None},
    ),
    "compare": (
        selftest_parsers.compare_parser,
        "a b",
        {**SERIES, **PRINTED, "runs": ["a", "b"], "config": None, "json": False, "html": None},
    ),
    "history": (
        selftest_parsers.history_parser,
        "",
        {**PRINTED, "peer": None, "last": None, "json": False, "config": None},
    ),
    "compare-paths": (
        selftest_paths.compare_paths_parser,
        "a=10.0.0.1",
        {
            **MEASURED, **PRINTED, "rounds": 3, "json": False, "at_boot": False, "label": None, "interface": None,
            "paths": [selftest_paths.Path("a", "10.0.0.1")],
        },
    ),
    "mesh plan": (
        selftest_mesh.mesh_parser,
        "hosts --rate 1G",
        {
            **PRINTED, "hosts": "hosts", "rate": 1e9, "expect": None, "rounds": 0, "seed": 1, "group": None,
            "per_uplink": 4, "seconds": 2.0, "guard": 3.0, "port": 45678, "engine": [],
        },
    ),
    "mesh run": (
        selftest_mesh.mesh_parser,
        "plan --output out",
        {
            **REPORTED, **PRINTED, "plan": Path("plan"), "output": Path("out"), "remote": "neuca-selftest mesh join -",
            "patience": 60.0, "engine": [],
        },
    ),
    "mesh join": (
        selftest_mesh.mesh_parser,
        "-",
        {**PRINTED, "plan": "-", "name": None, "start": None, "secret_file": None, "config": None, "engine": []},
    ),
    "mesh report": (
        selftest_mesh.mesh_parser,
        "a b",
        {**REPORTED, **PRINTED, "files": [Path("a"), Path("b")], "engine": []},
    ),
    "mesh stop": (selftest_mesh.mesh_parser, "out", {**PRINTED, "file": Path("out"), "engine": []}),
}  # fmt: skip
# The options of several commands, and what each sets.
SET = {
    "--plan quick": {"plan": "quick"},
    "--time 3600": {"time": 3600.0},
    "--parallel 8,1,8,128": {"parallel": (1, 8, 128)},
    "--bidir": {"bidir": True},
    "--udp": {"udp": True},
    "--rate 500M": {"rate": 5e8},
    "--expect 5G": {"expect": 5e9},
    "--only tcp,udp": {"only": frozenset({"tcp", "udp"})},
    "--skip path": {"skip": frozenset({"path"})},
    "--port 1024": {"port": 1024},
    "--numa auto": {"numa": "auto"},
    "--ssh root@a": {"ssh": "root@a"},
    "--secret-file s": {"secret_file": "s"},
    "--config c": {"config": "c"},
    "--interface eth1": {"interface": "eth1"},
    "--netns n": {"netns": "n"},
    "--container c": {"container": "c"},
    "--family 6": {"family": "6"},
    "--label monday": {"label": "monday"},
    "--at-boot": {"at_boot": True},
    "--json": {"json": True},
    "--nagios": {"nagios": True},
    "--html h": {"html": Path("h")},
    "--prometheus p": {"prometheus": Path("p")},
    "--csv c": {"csv": Path("c")},
    "--svg s": {"svg": Path("s")},
    "--for 86400": {"period": 86400.0},
    "--address ::1 --address 10.0.0.1": {"address": [ip_address("::1"), ip_address("10.0.0.1")]},
    "--stdio": {"stdio": True},
    "--rtt 20": {"rtt": 0.02},
    "--peer ::1": {"peer": ip_address("::1")},
    "--last 10": {"last": 10},
    "--rounds 20": {"rounds": 20},
    "--seed 1000000000": {"seed": 10**9},
    "--group rack": {"group": "rack"},
    "--per-uplink 4096": {"per_uplink": 4096},
    "--guard 0.5": {"guard": 0.5},
    "--remote ssh": {"remote": "ssh"},
    "--patience 3600": {"patience": 3600.0},
    "--name n1": {"name": "n1"},
    "--start 0": {"start": 0.0},
    "-v": {"verbose": True},
    "-q": {"quiet": True},
    "--color never": {"color": "never"},
}
MEASURING = (
    "--plan quick;--time 3600;--parallel 8,1,8,128;--bidir;--udp;--rate 500M;--expect 5G;--only tcp,udp;--skip path;"
    "--port 1024;--numa auto;--ssh root@a;--secret-file s;--config c"
)
WHERE = "--interface eth1;--netns n;--container c"
REPORTS = "--json;--nagios;--html h;--prometheus p"
PRINTS = "-v;-q;--color never"
OPTIONS_OF = {
    "run": f"{MEASURING};{WHERE};{REPORTS};--family 6;--label monday;--at-boot",
    "serve": f"{WHERE};--port 1024;--secret-file s;--config c;--for 86400;--address ::1 --address 10.0.0.1;--stdio",
    "explain": f"{REPORTS};--csv c;--svg s;--expect 5G;--rtt 20",
    "compare": "--json;--html h;--csv c;--svg s;--config c",
    "history": "--json;--config c;--peer ::1;--last 10",
    "compare-paths": f"{MEASURING};--json;--rounds 20",
    "mesh plan": "--rate 500M;--expect 5G;--rounds 20;--seed 1000000000;--group rack;--per-uplink 4096;"
    "--guard 0.5;--port 1024",
    "mesh run": f"{REPORTS};--remote ssh;--patience 3600",
    "mesh join": "--name n1;--start 0;--secret-file s;--config c",
    "mesh report": REPORTS,
    "mesh stop": "",
}
EACH = [
    (command, words)
    for command, options in OPTIONS_OF.items()
    for words in f"{options};{PRINTS}".split(";")
    if words
]


def parsed(command, *words):
    """What the parser of a command returns, without the function that it calls."""
    parser, needed, _ = COMMANDS[command]
    given = vars(parser().parse_args([*command.split()[1:], *needed.split(), *words]))
    return {name: value for name, value in given.items() if name not in ("act", "usage")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_an_option(command):
    assert parsed(command) == COMMANDS[command][2]


@pytest.mark.parametrize(("command", "words"), EACH)
def test_an_option_sets_what_it_says_and_nothing_else(command, words):
    assert parsed(command, *words.split()) == {**COMMANDS[command][2], **SET[words]}


# An option, a value next to those that it takes, and what is said of it.
REFUSED = [
    ("run", "--port 1023", '"1023" is not a port from 1024 to 65533'),
    ("run", "--port 65534", '"65534" is not a port from 1024 to 65533'),
    ("run", "--parallel 0", '"0" is not a number of streams from 1 to 128'),
    ("run", "--parallel 1,129", '"129" is not a number of streams from 1 to 128'),
    ("run", "--time 0.9", '"0.9" is not a number of seconds from 1 to 3600'),
    ("run", "--time 3601", '"3601" is not a number of seconds from 1 to 3600'),
    ("run", "--rate 500", '"500" is not a rate such as 5G or 100M'),
    ("run", "--expect 0G", '"0G" is not a rate such as 5G or 100M'),
    ("run", "--only nap", f'"nap" is not one of the steps {", ".join(STEPS)}'),
    ("run", "--skip ,", f'"," is not one of the steps {", ".join(STEPS)}'),
    ("run", "--plan huge", '"huge" is not "full", "quick" or "standard"'),
    ("run", "--family 5", '"5" is not "4" or "6"'),
    ("run", "--color red", '"red" is not "auto", "always" or "never"'),
    ("run", "--json --nagios", "not allowed with argument --json"),
    ("run", "-v -q", "not allowed with argument -v/--verbose"),
    ("serve", "--for 86401", '"86401" is not a number of seconds from 1 to 86400'),
    ("serve", "--address host", '"host" is not an IP address'),
    ("explain", "--rtt 0", '"0" is not a time in milliseconds'),
    ("explain", "--rtt 60000", '"60000" is not a time in milliseconds'),
    ("history", "--last 0", '"0" is not a number from 1 to 1000000'),
    ("history", "--last 1000001", '"1000001" is not a number from 1 to 1000000'),
    ("compare-paths", "--rounds 21", '"21" is not a number of rounds from 1 to 20'),
    ("mesh plan", "--rounds 4097", '"4097" is not a number of rounds from 1 to 4096'),
    ("mesh plan", "--seed 0", '"0" is not a seed from 1 to 1000000000'),
    ("mesh plan", "--per-uplink 4097", '"4097" is not a number of tests from 1 to 4096'),
    ("mesh plan", "--per-uplink 0", '"0" is not a number of tests from 1 to 4096'),
    ("mesh plan", "--time 61", '"61" is not a number of seconds from 1 to 60'),
    ("mesh plan", "--guard 0.4", '"0.4" is not a number of seconds from 0.5 to 60'),
    ("mesh plan", "--guard 61", '"61" is not a number of seconds from 0.5 to 60'),
    ("mesh run", "--patience 3601", '"3601" is not a number of seconds from 1 to 3600'),
    ("mesh join", "--start -1", '"-1" is not a number of seconds from 0 to 1e+11'),
]


@pytest.mark.parametrize(("command", "words", "reason"), REFUSED)
def test_a_value_out_of_bounds_is_refused(command, words, reason, capsys):
    words = words.replace("--start -1", "--start=-1").split()
    with pytest.raises(SystemExit) as ended:
        parsed(command, *words)
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("command", ["mesh plan", "mesh join", "mesh report", "mesh stop"])
def test_options_of_clush_are_for_run(command, capsys):
    parser, needed, _ = COMMANDS[command]
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([*command.split()[1:], *needed.split(), "--", "-l", "root"])
    assert ended.value.code == 2
    assert "mesh: only run accepts options of clush" in capsys.readouterr().err
    assert parsed("mesh run", "--", "-l", "root")["engine"] == ["-l", "root"]


@pytest.mark.parametrize(
    ("command", "missing"),
    [("mesh plan", "--rate"), ("mesh run", "--output")],
)
def test_an_option_without_which_nothing_works_is_required(command, missing, capsys):
    parser, needed, _ = COMMANDS[command]
    with pytest.raises(SystemExit):
        parser().parse_args([*command.split()[1:], needed.split()[0]])
    assert f"the following arguments are required: {missing}" in capsys.readouterr().err


def test_each_option_belongs_to_its_group_of_the_help():
    titles = {}
    for group in selftest_options.run_parser()._action_groups:
        for action in group._group_actions:
            titles[action.option_strings[-1] if action.option_strings else action.dest] = (
                group.title
            )
    wanted = {
        "what to test": "--plan --time --parallel --bidir --udp --rate --only --skip",
        "the path": "--interface --netns --container --family --port --numa",
        "the peer": "--ssh --secret-file",
        "expectations": "--expect",
        "output": "--json --nagios --html --prometheus --label",
        "configuration": "--config --at-boot",
        "what is printed": "--verbose --quiet --color",
    }
    for title, names in wanted.items():
        assert [name for name, its in titles.items() if its == title] == names.split()
