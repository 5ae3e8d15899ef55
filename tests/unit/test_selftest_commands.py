"""The commands of neuca-selftest: every former spelling still works, help has groups, completion knows each option."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from ipaddress import ip_address
from pathlib import Path

import pytest

from neuca_tools.commands import selftest_options as measuring
from neuca_tools.commands import selftest_parsers as parsers
from neuca_tools.commands.neuca import main
from neuca_tools.commands.selftest_mesh import mesh_parser
from neuca_tools.commands.selftest_paths import compare_paths_parser
from neuca_tools.commands.selftest_serve import _addresses_to_serve
from neuca_tools.selftest.measure import program
from neuca_tools.selftest.measure.host.planned import AgentPlan

ROOT = Path(__file__).parents[2]
COMPLETION = ROOT / "packaging" / "completion" / "neuca-selftest"
PARSERS = {
    "run": measuring.run_parser,
    "serve": measuring.serve_parser,
    "explain": parsers.explain_parser,
    "compare": parsers.compare_parser,
    "history": parsers.history_parser,
    "compare-paths": compare_paths_parser,
    "mesh": mesh_parser,
}
# neuca-selftest(1), README.md, the unit and the ssh command of the first builds, which had no "run" and no "serve".
FORMER_TESTS = """\
172.16.0.1
name@172.16.0.1 fd00::2
--expect 5G --secret-file /etc/neuca/selftest.secret 172.16.0.1
--at-boot
--config FILE --plan quick PEER
--plan standard PEER
--plan full --time 30 --port 5201 --parallel 1,8,128 PEER
--bidir --udp --rate 500M PEER
PEER --skip udp,path
--only tcp,udp PEER
--numa auto PEER
--ssh HOST PEER
--interface eth1 PEER
--netns NAME PEER
--container NAME PEER
--family 6 PEER
--label TEXT PEER
--json PEER
--nagios PEER
--html PATH --prometheus PATH PEER
--expect=5G --parallel 4 PEER
-- PEER"""
FORMER_SERVICES = """\
--serve
--serve --for 300 --secret-file /etc/neuca/selftest.secret
--serve --address 172.16.0.1 --address fd00::1 --port 5201
--serve --stdio --address 172.16.0.1 --port 45678 --for 230
--for 60 --serve --interface eth1 --config FILE
--serve --netns NAME
--serve --container NAME"""
FORMER_OPTIONS = (
    "--config --plan --time --port --parallel --bidir --udp --rate --expect --skip --only --numa --ssh"
    " --secret-file --interface --netns --container --family --label --at-boot --json --nagios --html"
    " --prometheus --serve --for --address --stdio"
).split()


def spellings(text):
    return pytest.mark.parametrize("words", list(map(shlex.split, text.split("\n"))), ids=" ".join)


@spellings(FORMER_TESTS)
def test_a_former_spelling_of_a_test_means_run(words):
    former, run = (
        vars(one().parse_args(words)) for one in (measuring.former_parser, PARSERS["run"])
    )
    assert former.pop("serve") is False
    assert {name: former[name] for name in run} == run
    assert {name: former[name] for name in former.keys() - run.keys()} == {
        "period": 600.0,
        "address": None,
        "stdio": False,
    }


@spellings(FORMER_SERVICES)
def test_a_former_spelling_of_a_service_means_serve(words):
    former = vars(measuring.former_parser().parse_args(words))
    served = vars(
        measuring.serve_parser().parse_args([word for word in words if word != "--serve"])
    )
    assert former["serve"] is True
    assert {name: former[name] for name in served} == served


def test_no_former_option_is_gone():
    known = [name for one in measuring.former_parser()._actions for name in one.option_strings]
    assert set(FORMER_OPTIONS) <= set(known)


@pytest.fixture
def nothing(tmp_path):
    """A configuration without peers and without a secret."""
    path = tmp_path / "config"
    path.write_text(f"[runtime]\nstate-directory = {tmp_path}\nrun-directory = {tmp_path}\n")
    return str(path)


def said(capsys, *words):
    code = main(list(words), "neuca-selftest")
    return (code, *capsys.readouterr())


def test_without_a_command_the_configured_peers_are_tested(capsys, nothing):
    expected = (
        77,
        "",
        "neuca-selftest: no PEER, and no [selftest] peers in the configuration: nothing to test\n",
    )
    assert said(capsys, "--config", nothing) == expected
    assert said(capsys, "run", "--config", nothing) == expected
    assert main(["selftest", "run", "--config", nothing]) == 77


def test_a_peer_for_a_service_is_refused_in_the_former_spelling(capsys, nothing):
    assert said(capsys, "--serve", "--config", nothing, "172.16.0.1") == (
        2,
        "",
        "neuca-selftest: serve: it takes no PEER; any host with the secret can connect\n",
    )


def test_serve_without_a_secret_prints_the_command_that_makes_one(capsys, nothing, tmp_path):
    """The command works as printed."""
    words = ("serve", "--config", nothing, "--interface", "lo")
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert "serve: a secret is required: --secret-file" in err
    command = re.search(r"(\(umask 077; .* > )/etc/neuca/selftest.secret\)", err)[1]
    path = tmp_path / "secret"
    subprocess.run(["sh", "-c", f"{command}{path})"], check=True)
    assert (path.stat().st_mode & 0o777, len(path.read_bytes()) > 16) == (0o600, True)


def test_serve_at_a_port_in_use_says_what_to_do(capsys, nothing, tmp_path):
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("a secret that both ends share")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        words = ("--interface", "lo", "--secret-file", str(secret), "--port", str(port - 1))
        code, out, err = said(capsys, "serve", "--config", nothing, *words)
    assert (code, out) == (1, "")
    assert err.endswith(
        f"neuca-selftest: serve tests on port {port}: Address already in use\n"
        f"       ss -ltnp sport = :{port} shows the program;"
        " or use another --port, for serve and for run\n"
    )


def test_an_address_that_is_repeated_is_served_once():
    address = ip_address("127.0.0.1")
    assert _addresses_to_serve([address, address], "lo", AgentPlan()) == [address]


@pytest.fixture
def names(monkeypatch):
    """The host names that can be resolved: all other names cannot."""
    known = {}

    def resolve(name, *_):
        if name in known:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (known[name], 0))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return known


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["expalin"], "explain"),
        (["expalin", "run.json", "--rtt", "1"], "explain"),
        (["servee"], "serve"),
        (["histroy", "--last", "3"], "history"),
        (["compare_paths", "a=x", "b=y"], "compare-paths"),
        (["Mesh"], "mesh"),
        (["expalin", "--nagios", "run.json"], "explain"),
    ],
)
@pytest.mark.usefixtures("names")
def test_a_misspelled_command_that_is_no_host_is_an_error(capsys, words, meant):
    with pytest.raises(SystemExit) as raised:
        said(capsys, *words)
    _, error = capsys.readouterr()
    first, last = error.splitlines()
    assert (raised.value.code, first) == (
        3 if "--nagios" in words else 2,  # 2 is CRITICAL for Nagios
        "usage: neuca-selftest COMMAND [OPTION ...] [ARGUMENT ...]",
    )
    assert last == (
        f'neuca-selftest: there is no command "{words[0]}", and no host of that name can be'
        f' resolved; did you mean "{meant}"?'
    )


def test_a_host_with_a_name_like_a_command_is_tested(capsys, nothing, names, monkeypatch, tmp_path):
    names["server"] = "192.0.2.1"
    monkeypatch.setattr(program, "PATH", str(tmp_path))
    no_iperf3 = "neuca-selftest: run iperf3: it is not installed\n"
    for words in (["server"], ["serve.example"], ["name@192.0.2.1"], ["run", "servee"]):
        code, _, error = said(capsys, *words, "--config", nothing)
        assert (code, error[: len(no_iperf3)]) == (1, no_iperf3)


def test_the_messages_of_a_mesh_have_the_name_of_the_program(capsys):
    with pytest.raises(SystemExit):
        said(capsys, "mesh", "plan", "--no-such")
    assert capsys.readouterr().err.splitlines()[-1].startswith("neuca-selftest: ")


@pytest.mark.parametrize(
    ("words", "usage", "message"),
    [
        (["mesh", "stop", "x", "y"], "mesh stop [-h]", "unrecognized arguments: y"),
        (
            ["mesh", "run", "--json", "--nagios", "--output", "x", "y"],
            "mesh run [-h]",
            "argument --nagios: not allowed with argument --json",
        ),
        (["mesh", "stp"], "mesh [-h]", 'there is no command "stp"; did you mean "stop"?'),
        (
            ["run", "--plan", "quik"],
            "run [-h]",
            'argument --plan: "quik" is not "full", "quick" or "standard"; did you mean "quick"?',
        ),
    ],
)
def test_a_wrong_word_gets_the_usage_of_its_own_command(capsys, words, usage, message):
    with pytest.raises(SystemExit) as raised:
        said(capsys, *words)
    first, *_, last = capsys.readouterr().err.splitlines()
    code = 3 if "--nagios" in words else 2  # 2 is CRITICAL for Nagios
    assert (raised.value.code, last) == (code, f"neuca-selftest: {message}")
    assert first.startswith(f"usage: neuca-selftest {usage}")


def test_a_peer_with_the_name_of_a_command_can_be_tested():
    assert measuring.run_parser().parse_args(["serve"]).peers == ["serve"]


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["--plan", "quick", "--help"]], ids=" ".join)
def test_help_without_a_command_lists_the_commands(capsys, words):
    with pytest.raises(SystemExit) as raised:
        main(words, "neuca-selftest")
    shown = capsys.readouterr().out
    assert raised.value.code == 0
    assert re.findall(r"^    (\w[\w-]*)(?:  |$)", shown, re.MULTILINE) == list(PARSERS)
    assert "--parallel" not in shown
    assert re.search(r"^  --version +print the version and exit$", shown, re.MULTILINE)


@pytest.mark.parametrize("command", PARSERS)
def test_help_of_a_command_has_groups_and_one_example(capsys, command):
    with pytest.raises(SystemExit) as raised:
        main([command, "--help"], "neuca-selftest")
    shown = capsys.readouterr().out
    assert raised.value.code == 0
    assert shown.startswith(f"usage: neuca-selftest {command} ")
    titles = re.findall(r"^(\w[\w ]+):$", shown, re.MULTILINE)
    known = [title for title, _ in parsers.GROUPS]
    assert [title for title in titles if title in known] == [one for one in known if one in titles]
    own = shown.partition("\noptions:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (-\S.*?)  ", own, re.MULTILINE) == ["-h, --help"]
    example = re.findall(r"^Example: neuca-selftest (.*)$", shown, re.MULTILINE)
    assert [one.split()[0] for one in example] == [command]
    PARSERS[command]().parse_args(shlex.split(example[0])[1:])


@pytest.mark.parametrize("command", PARSERS)
def test_every_option_is_in_a_group(command):
    grouped = {f"--{name}" for _, names in parsers.GROUPS for name in names.split()}
    options = {name for one in PARSERS[command]()._actions for name in one.option_strings}
    assert options - grouped - {"-v", "-q"} == {"-h", "--help"}


RUN = Path(__file__).parent / "data" / "iperf"


def test_the_verdict_is_colored_and_quiet_leaves_only_the_exit_status(capsys):
    words = ["explain", "--expect", "100G", str(sorted(RUN.iterdir())[0])]
    code = main([*words, "--color=always"], "neuca-selftest")
    colored = capsys.readouterr().out
    assert (code, main(words, "neuca-selftest")) == (8, 8)
    text = capsys.readouterr().out
    assert "\n\x1b[31mVERDICT\x1b[0m" in colored
    assert re.sub("\x1b\\[[0-9]+m", "", colored) == text
    assert main([*words, "-q", "--color=always"], "neuca-selftest") == 8
    assert capsys.readouterr() == ("", "")


# --- Completion -----------------------------------------------------------------------------------------------------------


def completed(*words):
    """What bash offers for the last word."""
    listed = " ".join(map(shlex.quote, ("neuca-selftest", *words)))
    script = (
        f"source {shlex.quote(str(COMPLETION))}; COMP_WORDS=({listed}); COMP_CWORD={len(words)};"
        ' _neuca_selftest; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("command", PARSERS)
def test_completion_offers_the_options_of_a_command(command):
    actions = PARSERS[command]()._actions
    options = {name for one in actions for name in one.option_strings if name.startswith("--")}
    assert sorted(completed(command, "--")) == sorted(options)


def test_completion_offers_the_commands_and_the_former_options():
    assert [word for word in completed("") if word in PARSERS] == list(PARSERS)
    assert completed("com") == ["compare", "compare-paths"]
    assert {"--serve", "--plan", "--for"} <= set(completed("--"))


def test_completion_offers_values(tmp_path):
    assert completed("run", "--plan", "q") == ["quick"]
    assert completed("run", "--only", "tcp-") == ["tcp-reverse", "tcp-parallel", "tcp-bidir"]
    assert completed("--family", "") == ["4", "6"]
    (tmp_path / "a run.json").touch()
    assert completed("explain", f"{tmp_path}/a") == [str(tmp_path / "a"), "run.json"]
    assert completed("run", "--rate", "") == []


def test_completion_knows_every_step_and_plan():
    from neuca_tools.selftest.measure.iperf.plans import PLANS, STEPS

    assert completed("run", "--only", "") == list(STEPS)
    assert sorted(completed("run", "--plan", "")) == sorted(PLANS)


@pytest.mark.parametrize(
    ("command", "words", "bounds"),
    [
        ("serve", "--for", "1 to 86400"),
        ("run", "--time", "1 to 3600"),
        ("mesh", "plan --time", "1 to 60"),
        ("mesh", "plan --guard", "0.5 to 60"),
        ("mesh", "run --patience", "1 to 3600"),
    ],
)
def test_a_time_that_is_too_long_is_refused_with_the_bounds(command, words, bounds, capsys):
    with pytest.raises(SystemExit):
        PARSERS[command]().parse_args([*words.split(), "1e6"])
    assert f'"1e6" is not a number of seconds from {bounds}\n' in capsys.readouterr().err


DEFAULT = re.compile(r"\(default: ([\w.]+)\)")


def defaults_of(page):
    """The default of each option in a manual page, in the order in which an entry has both."""
    source = (ROOT / "docs" / "man" / page).read_text(encoding="utf-8")
    entries = re.findall(r"^\.It (Fl -.*)\n((?:(?!\.It|\.El).*\n)*)", source, re.MULTILINE)
    return {
        name: value
        for head, text in entries
        for name, value in zip(re.findall(r"Fl -([\w-]+)", head), DEFAULT.findall(text))
    }


@pytest.mark.parametrize("command", [name for name in PARSERS if name != "mesh"])
def test_the_manual_names_the_value_of_each_option_as_the_help_does(command):
    page = (ROOT / "docs" / "man" / "neuca-selftest.1").read_text()
    options = [option for option in PARSERS[command]()._actions if option.metavar]
    named = [
        f"Fl {option.option_strings[-1][1:]} Ar {option.metavar.lower()}"
        for option in options
        if option.option_strings
    ]
    assert [words for words in named if not re.search(rf"{re.escape(words)}\b", page)] == []
    assert named


@pytest.mark.parametrize(
    ("page", "command", "count"),
    [
        ("neuca-selftest.1", "run", 1),
        ("neuca-selftest.1", "serve", 2),
        ("neuca-selftest.1", "compare-paths", 2),
        ("neuca-selftest-mesh.1", "mesh plan", 5),
        ("neuca-selftest-mesh.1", "mesh run", 1),
    ],
)
def test_the_defaults_of_the_manual_are_those_of_the_help(page, command, count, capsys):
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"], "neuca-selftest")
    documented = defaults_of(page)
    shown = {
        entry.split()[0]: DEFAULT.search(" ".join(entry.split()))
        for entry in re.split(r"^\s+--", capsys.readouterr().out, flags=re.MULTILINE)[1:]
    }
    known = {name: value[1] for name, value in shown.items() if value and name in documented}
    assert known == {name: documented[name] for name in known}
    assert len(known) == count


def test_every_command_describes_itself():
    for name, parser in {"neuca-selftest": parsers.overview_parser, **PARSERS}.items():
        assert parser().description, name
