"""The documentation against the product: options, commands and codes are all documented, examples are what they say."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import email
import re
import shutil
import subprocess
from configparser import ConfigParser
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import get_args

import pytest
import sysctls_manual
from command_schemas import SCHEMAS, path

from neuca_tools import errors
from neuca_tools.apply.observe import observed_state
from neuca_tools.commands import (
    INTERRUPTED,
    neuca,
    neucad,
    selftest,
    selftest_mesh,
    selftest_options,
    selftest_parsers,
    selftest_paths,
)
from neuca_tools.config import Config, load_config
from neuca_tools.config.options import MAC_LISTS, OBSOLETE, OPTIONS, RAW_SECTIONS
from neuca_tools.desired import manager_files
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.desired.routes import ROUTE_METRIC
from neuca_tools.documents import find_document, parse
from neuca_tools.documents.neuca import routing
from neuca_tools.documents.neuca.link_settings import SETTINGS
from neuca_tools.documents.neuca.links import _READERS
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.privacy import LINK_KINDS, SECTIONS
from neuca_tools.model import OWN, Device, ProblemCode, Record, Route, World
from neuca_tools.model.routing import ROUTE_PROTOCOL as PROTOCOL
from neuca_tools.plan import link_operations, operations, route_operations
from neuca_tools.plan.link_operations import SetDevice
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.plan import plan_operations
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.conditions.table import CAUSES as CONDITIONS
from neuca_tools.status import render
from neuca_tools.tuning import allowed_sysctls

ROOT = Path(__file__).parents[2]
MAN = {path.name: path.read_text() for path in sorted((ROOT / "docs" / "man").iterdir())}
README = (ROOT / "README.md").read_text()
GUIDE = (ROOT / "docs" / "GUIDE.md").read_text()
DECISIONS = (ROOT / "docs" / "DECISIONS.md").read_text()
MAX_WORDS_OF_THE_DAEMON = 5000
HACKING = (ROOT / "docs" / "HACKING.md").read_text()


def words(roff: str) -> str:
    """The text of a piece of a manual page, without its macros."""
    lines = [line.partition(" ")[2] if line.startswith(".") else line for line in roff.splitlines()]
    return " ".join(" ".join(lines).replace("\\&", "").replace("\\-", "-").split())


def parts(page: str, macro: str) -> dict[str, str]:
    """What follows each `.Ss` or `.Sh` of a page, up to the next one, by its title."""
    pieces = re.split(rf"^\.{macro} (.*)\n", MAN[page], flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2]))


def items(roff: str) -> dict[str, str]:
    """The items of the lists in a piece of a page: what follows each `.It Cm NAME`, its other words first."""
    pieces = re.split(r"^\.It Cm (\S+)", roff, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2]))


def test_the_sysctls_that_a_document_may_set_are_documented_with_their_bounds():
    page = MAN["neuca-sysctls.7"]
    assert sysctls_manual.written(page) == page, "run python3 tests/sysctls_manual.py"
    documented = re.findall(r"^\.It Va (net\.\S+)\n.+$", page, re.MULTILINE)
    assert sorted(documented) == sorted(path.replace("/", ".") for path in allowed_sysctls.ALLOWED)
    assert "\n.It Va net.ipv4.ip_local_port_range\n1024 to 40000, 50000 to 65535\n" in page


def test_the_version_of_the_status_is_that_of_its_schema():
    (schema,) = (ROOT / "docs" / "schema").glob("status-*.json")
    status = parts("neuca-status.7", "Ss")["neuca status \\-\\-json"]
    version = re.search(r"^\.It Ic version\n(\d+)$", status, re.MULTILINE)[1]
    assert schema.stem == f"status-{version}"


# --- The configuration ----------------------------------------------------------------------------------------------

DOCUMENTED = {
    (title.strip("[]"), name): text
    for title, part in parts("neuca-config.5", "Ss").items()
    if title[0] == "[" and title.strip("[]") not in RAW_SECTIONS
    for name, text in items(part).items()
}
FIELDS = {**{where: name for where, (name, _) in OPTIONS.items()}, **MAC_LISTS}


def test_every_option_is_documented_in_its_section_and_no_other_is():
    assert set(DOCUMENTED) == set(FIELDS)


def test_every_option_of_the_self_test_is_one_of_the_configuration():
    titles = tuple(items(parts("neuca-config.5", "Ss")["[selftest]"]))
    assert titles == tuple(selftest_options.SETTINGS)


def test_every_section_of_the_configuration_is_documented():
    titles = " ".join(parts("neuca-config.5", "Ss"))
    assert {section for section, _ in FIELDS} | set(RAW_SECTIONS) == set(
        re.findall(r"\[(\w+)\]", titles)
    )


@pytest.mark.parametrize("option", sorted(option for _, option in OBSOLETE))
def test_an_obsolete_option_is_documented(option):
    assert re.search(rf"^\.Cm {option}(?: ,)?$", MAN["neuca-config.5"], re.MULTILINE)


def default(name: str) -> str:
    value = getattr(Config(), name)
    if value is None:
        return "none"
    if isinstance(value, (tuple, frozenset)):
        return ", ".join(value) or "none"
    if isinstance(value, (bool, str)):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("where", FIELDS, ids=" ".join)
def test_the_documented_default_is_the_default(where):
    assert re.search(r"Default: (?:Pa |Cm |Ql )?(.*?) ?\.(?: |$)", words(DOCUMENTED[where]))[
        1
    ] == default(FIELDS[where])


BOUNDS = {
    where: bounds
    for where, text in DOCUMENTED.items()
    for bounds in re.findall(r"^\.Bq (\S+) to (\S+)", text, re.MULTILINE)
}


def test_the_bounds_of_all_numbers_are_documented():
    numbers = {
        name for name, default in Config._field_defaults.items() if type(default) in (int, float)
    }
    assert {where for where, name in FIELDS.items() if name in numbers} == set(BOUNDS)


@pytest.mark.parametrize("where", BOUNDS, ids=" ".join)
def test_the_documented_bounds_are_the_bounds(where):
    read = OPTIONS[where][1]
    low, high = BOUNDS[where]
    assert [read(low), read(high)] == [float(low), float(high)]
    for beyond in (
        f"{float(low) - 0.05:g}" if "." in low else str(int(low) - 1),
        str(int(high) + 1),
    ):
        with pytest.raises(UnusableError):
            read(beyond)


def test_the_sample_configuration_has_every_option_with_its_default(tmp_path):
    text = (ROOT / "examples" / "config").read_text()
    (tmp_path / "config").write_text(
        re.sub(r"^;(?!\[|mtu|txq|addr|peers|expect|secret)", "", text, flags=re.MULTILINE)
    )
    assert load_config(ROOT / "examples" / "config") == Config()
    assert load_config(tmp_path / "config") == Config()
    shown = set(re.findall(r"^;(\S+) =", text, re.MULTILINE))
    assert {option for _, option in FIELDS} <= shown


def test_the_sections_of_links_in_the_sample_configuration_can_be_used(tmp_path):
    text = (ROOT / "examples" / "config").read_text()
    (tmp_path / "config").write_text(re.sub(r"^;(?=\[|mtu|txq|addr)", "", text, flags=re.MULTILINE))
    config = load_config(tmp_path / "config")
    assert (config.faults, len([link for link in config.links if link.origins])) == ((), 2)


# --- Commands -------------------------------------------------------------------------------------------------------

COMMANDS = {
    name: text
    for part in parts("neuca.1", "Ss").values()
    for name, text in items(part).items()
    if name in {command.name for command in neuca.COMMANDS}
}


def test_every_command_is_documented():
    assert set(COMMANDS) == {command.name for command in neuca.COMMANDS}


def test_the_rows_of_help_are_the_first_sentences_of_the_manual_page(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    rows = dict(
        re.findall(r"^ {2}(\w\S*)\s+(\S.*)$", neuca._overview_parser().format_help(), re.MULTILINE)
    )
    assert rows.pop("selftest") == neuca.SELFTEST
    sentences = {name: text.split("\n")[1] for name, text in COMMANDS.items()}
    assert sentences == {
        name: f"{purpose[0].upper()}{purpose[1:]}." for name, purpose in rows.items()
    }


@pytest.mark.parametrize("command", neuca.COMMANDS, ids=lambda command: command.name)
def test_every_option_of_a_command_is_in_its_synopsis(command):
    assert (
        re.findall(r"Fl -([\w-]+)", COMMANDS[command.name].split("\n")[0])
        == command.options.split()
    )


def test_the_table_of_outputs_names_every_command_and_every_schema():
    rows = re.findall(r"^\.It Ic (.*) Ta (.*) Ta (.*)$", MAN["neuca.1"], re.MULTILINE)
    names = [(name.split()[0], output) for words, _, output in rows for name in words.split(" , ")]
    assert {name for name, _ in names} == COMMANDS.keys() - {"help"}
    with_json = {command.name for command in neuca.COMMANDS if "json" in command.options.split()}
    assert {name for name, output in names if not output.startswith("none: ")} == with_json
    outputs = {output for _, *columns in rows for text in columns for output in text.split(", ")}
    assert {path(name).stem for name in SCHEMAS} == {
        output for output in outputs if re.fullmatch(r"[a-z-]+-\d", output)
    }


def test_every_former_name_is_a_command_and_the_page_has_no_other_name():
    """man(1) finds a page by each of its names: neuca-user-data has to be the format."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    installed = set(
        re.findall(r"^(\S+) =", setup["options.entry_points"]["console_scripts"], re.MULTILINE)
    )
    assert re.findall(r"^\.Nm (\S+)", parts("neuca.1", "Sh")["NAME"], re.MULTILINE) == ["neuca"]
    former = installed - {"neuca", "neucad", "neuca-netconf", "neuca-selftest"}
    assert {name[len("neuca-") :] for name in former} <= set(COMMANDS)


def test_every_option_of_neucad_is_documented():
    options = {
        option[1:] for action in neucad._parser()._actions for option in action.option_strings
    }
    lines = re.findall(r"^\.It Fl (.*)", MAN["neucad.8"], re.MULTILINE)
    documented = {word for line in lines for word in re.split(r"[ ,]+", line)}
    assert options <= documented
    assert {word for word in documented if word.startswith("-")} <= options


# --- Codes ----------------------------------------------------------------------------------------------------------


def test_every_problem_code_is_documented():
    assert set(items(parts("neuca-status.7", "Ss")["Problem codes"])) == set(get_args(ProblemCode))


def test_every_exit_code_is_documented():
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert set(map(int, re.findall(r"^\.It (\d+)", MAN["neuca-status.7"], re.MULTILINE))) == codes
    assert set(map(int, re.findall(r"^\| (\d+) \|", GUIDE, re.MULTILINE))) == codes


def test_every_kind_of_operation_is_documented():
    kinds = {
        one.kind
        for one in [
            *vars(operations).values(),
            *vars(link_operations).values(),
            *vars(route_operations).values(),
            SetDevice,
        ]
        if isinstance(one, type) and issubclass(one, Operation) and "kind" in vars(one)
    }
    text = (
        words(parts("neuca-status.7", "Ss")["neuca plan \\-\\-json"])
        .partition("one of")[2]
        .partition(" .")[0]
    )
    assert set(text.replace("Cm ", "").replace(",", "").split()) == kinds


# --- The format of user-data ----------------------------------------------------------------------------------------


def test_every_section_of_user_data_is_documented():
    titles = " ".join(parts("neuca-user-data.5", "Ss"))
    assert set(re.findall(r"\[(\w+)", titles)) == {*SECTIONS, *LINK_KINDS, "rule"}
    configured = " ".join(parts("neuca-config.5", "Ss"))
    assert [kind for kind in LINK_KINDS if f"[{kind} " not in configured] == []
    shown = MAN["neuca-status.7"].partition("\n.It Ic kind\n")[2].partition("\n.It ")[0]
    assert {*LINK_KINDS} - {*re.findall(r"\w+", shown)} == {"interface"}


def test_every_key_of_a_link_is_documented():
    documented = set(items(parts("neuca-user-data.5", "Ss")["[interface MAC]"]))
    keys = {*_READERS, *routing.LINK_READERS, *routing.AUTOMATIC}
    keys |= {"addresses", "sysctl."}
    assert documented == keys, f"neuca-user-data(5), [interface MAC]: {documented ^ keys}"


def test_every_number_of_a_link_is_documented_with_its_bounds():
    documented = items(parts("neuca-user-data.5", "Ss")["[interface MAC]"])
    bounds = {row.key: row.limits for row in SETTINGS.values() if row.limits}
    assert {"mtu", "txqueuelen"} <= bounds.keys()
    for key, (least, most) in bounds.items():
        text = f"\n.Bq {least} to {most} .\n"
        assert text in documented.get(key, ""), f"neuca-user-data(5), {key}: no line {text.strip()}"


def test_the_examples_of_the_manual_page_have_no_fault_and_show_each_kind_of_link():
    examples = re.findall(
        r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", MAN["neuca-user-data.5"], re.MULTILINE | re.DOTALL
    )
    assert [parse(text).faults for text in examples] == [()] * len(examples)
    kinds = set(re.findall(r"^\[(\w+)", "".join(examples), re.MULTILINE))
    assert set(LINK_KINDS) - kinds <= {"ipoib"}


# --- The guide ------------------------------------------------------------------------------------------------------


def block(beginning: str) -> str:
    """The first fenced block of the guide that begins so."""
    blocks = re.findall(r"^```\w*\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return next(text for text in blocks if text.startswith(beginning))


def test_the_example_document_is_the_sample_and_has_no_fault():
    text = block("[global]")
    assert text == (ROOT / "examples" / "user-data.ini").read_text()
    assert parse(text).faults == ()


def guide_world() -> World:
    """The guest of the guide: a management NIC with a default route, four other NICs, all of them veth devices."""
    macs = [f"fe:16:3e:00:6d:{last}" for last in ("ae", "af", "b0", "b1", "b2")]
    nics = {
        index: Device(
            index,
            f"eth{index - 1}",
            "veth",
            mac,
            up=index == 1,
            mtu=1500,
            min_mtu=68,
            max_mtu=65535,
            txqueuelen=1000,
        )
        for index, mac in enumerate(macs, 1)
    }
    management = ip_interface("10.0.0.2/24")
    default_route = Route(ip_network("0.0.0.0/0"), 1, ip_interface("10.0.0.1/24").ip)
    return World(nics, {1: (management,)}, (Route(management.network, 1), default_route), 1, "boot")


def test_the_plan_in_the_guide_is_what_plan_says_of_its_document(tmp_path):
    config, world, record = Config(), guide_world(), Record(boot_id="boot")
    directories = [
        tmp_path / str(path)[1:]
        for path in (
            config.udev_directory,
            config.networkmanager_directory,
            config.networkd_directory,
            config.sysctl_directory,
        )
    ]
    places = manager_files.Places(
        *directories, config.udev_substring, config.data_udev_priority, config.mgmt_udev_priority
    )
    resolution = resolve_state(parse(block("[global]")), Settings(), world, record)
    files = manager_files.wanted_files(resolution, record, places, {}).files
    names = {link.name: link.sysctls for link in resolution.desired.links.values()}
    world.sysctls.update((template.replace(OWN, "eth1"), "0") for template in names["eth1"])
    resolution = resolution._replace(desired=resolution.desired._replace(files=files))
    observed = observed_state(resolution, world, record)
    desired = type(resolution.desired)(
        resolution.desired.links, resolution.desired.hops, files=files
    )
    text = render.plan_text(
        plan_operations(observed, desired), resolution.problems, resolution.names
    )
    assert "# neuca plan\n" + text.replace(str(tmp_path), "") + "\n" == block("# neuca plan")


def test_the_message_for_both_agents_has_a_document_for_this_one():
    """Beside a cloud-config, which the other one reads."""
    (message,) = re.findall(r"^```mime\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    document = parse(find_document(message.encode()))
    assert [str(link.key) for link in document.links] == ["fe:16:3e:00:6d:af"]
    assert document.faults == ()
    kinds = {part.get_content_type() for part in email.message_from_string(message).walk()}
    assert kinds == {"multipart/mixed", "text/cloud-config", "text/x-neuca-userdata"}


def test_the_route_marks_that_the_pages_name_are_those_in_use():
    assert f"protocol {PROTOCOL} and metric {ROUTE_METRIC}" in DECISIONS


# --- All of it ------------------------------------------------------------------------------------------------------


def test_every_relative_path_on_the_page_for_developers_is_there():
    """Those of modules are relative to neuca_tools, those of tests to tests."""
    named = set(re.findall(r"`([\w-]+(?:/[\w-]+)*(?:\.py)?)`", HACKING))
    paths = {path for path in named if "/" in path or path.endswith(".py")}
    homes = (ROOT, ROOT / "neuca_tools", ROOT / "tests")
    missing = {path for path in paths if not any((home / path).exists() for home in homes)}
    assert (len(paths) > 40, missing) == (True, set())


def test_every_name_on_the_pages_for_developers_is_defined():
    pages = HACKING + (ROOT / "tests" / "README.md").read_text()
    paths = [*(ROOT / "neuca_tools").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    text = "\n".join([path.read_text() for path in paths])
    defined = set(re.findall(r"^(?:class )?(\w+)\b", text, re.MULTILINE))
    methods = set(re.findall(r"^    def (\w+)\(", text, re.MULTILINE))
    elsewhere = {"IPBatch", "TIERS"}  # pyroute2, the Makefile
    named = set(re.findall(r"`(_?[A-Z]\w+)(?:\.\w+)?`", pages))
    called = set(re.findall(r"`(?:lab|[A-Z]\w+)\.(\w+)\b", pages))
    assert (len(called) > 10, named - defined - elsewhere, called - methods) == (True, set(), set())


def test_every_package_is_on_the_page_for_developers():
    table = re.search(r"^## Packages\n(.*?)^## ", HACKING, re.MULTILINE | re.DOTALL)[1]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    modules = ROOT / "neuca_tools"
    packages = {path.parent.name for path in modules.glob("*/__init__.py")}
    assert names == packages | {path.stem for path in modules.glob("[a-z]*.py")}


def test_every_manual_page_that_is_referred_to_is_there():
    text = "".join([*MAN.values(), README, HACKING])
    named = re.findall(r"^\.Xr (neuca\S*) (\d)", text, re.MULTILINE) + re.findall(
        r"(neuca[\w-]*)\((\d)\)", text
    )
    assert {f"{name}.{section}" for name, section in named} == set(MAN)


def test_the_page_of_the_daemon_has_what_an_administrator_needs():
    """Why it is so is on the page about decisions, the effect of a key beside the key."""
    assert len(MAN["neucad.8"].split()) <= MAX_WORDS_OF_THE_DAEMON


@pytest.mark.parametrize("page", MAN)
def test_a_manual_page_has_no_warnings(page):
    if not shutil.which("mandoc"):
        pytest.skip("mandoc is not installed")
    command = ["mandoc", "-T", "lint", "-W", "warning", ROOT / "docs" / "man" / page]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


# --- The self-test --------------------------------------------------------------------------------------------------


def test_every_condition_of_the_self_test_is_documented():
    """By its title; several conditions have another title in some cases."""
    documented = items(parts("neuca-selftest.1", "Sh")["CONDITIONS"])
    titles = {name: words(text).strip().split("; ") for name, text in documented.items()}
    assert list(titles) == [cause.id for cause in CONDITIONS]
    assert all(cause.title in titles[cause.id] for cause in CONDITIONS)


def options_of(command: str) -> list[str]:
    """The options of a command of the self-test, in the order of its --help."""
    found = re.findall(r"^  --([\w-]+)", PARSERS[command]().format_help(), re.MULTILINE)
    return [name for name in found if name != "color"]


PARSERS = {
    "run": selftest_options.run_parser,
    "serve": selftest_options.serve_parser,
    "explain": selftest_parsers.explain_parser,
    "compare": selftest_parsers.compare_parser,
    "history": selftest_parsers.history_parser,
    "compare-paths": selftest_paths.compare_paths_parser,
    "mesh": selftest_mesh.mesh_parser,
}


@pytest.mark.parametrize("command", selftest_parsers.TEXTS)
def test_every_option_of_the_self_test_is_documented(command):
    """What compare-paths shares with a test is documented there."""
    text = parts("neuca-selftest.1", "Ss")[f"neuca-selftest {command}"]
    shared = options_of("run") if command == "compare-paths" else []
    lines = re.findall(r"^\.It (Fl .*)", text, re.MULTILINE)
    documented = [name for line in lines for name in re.findall(r"Fl -([\w-]+)", line)]
    assert documented == [name for name in options_of(command) if name not in shared]


def test_every_command_of_the_self_test_is_in_its_synopsis():
    synopsis = parts("neuca-selftest.1", "Sh")["SYNOPSIS"]
    assert re.findall(r"^\.Cm (\S+)$", synopsis, re.MULTILINE) == list(selftest_parsers.TEXTS)
    assert list(selftest.COMMANDS) == list(selftest_parsers.TEXTS)


@pytest.mark.parametrize("command", selftest_mesh.COMMANDS)
def test_every_option_of_a_mesh_is_documented(command, capsys):
    """What report shares with run is named in its text."""
    text = parts("neuca-selftest-mesh.1", "Ss")[command.capitalize()] if command != "stop" else ""
    lines = re.findall(r"^\.It (Fl .*)", text, re.MULTILINE)
    documented = [name for line in lines for name in re.findall(r"Fl -([\w-]+)", line)]
    with pytest.raises(SystemExit):
        selftest_mesh.mesh_parser().parse_args([command, "--help"])
    found = re.findall(r"^  --([\w-]+)", capsys.readouterr().out, re.MULTILINE)
    options = [name for name in found if name != "color"]
    if command == "report":
        assert set(options) == {"json", "nagios", "html", "prometheus"}
    else:
        assert documented == options


def test_the_kinds_of_findings_of_a_mesh_are_documented():
    from neuca_tools.selftest.mesh.causes import TEXTS

    assert sorted(items(parts("neuca-selftest-mesh.1", "Ss")["Report"])) == sorted(TEXTS)


def test_the_exit_codes_of_the_self_test_are_documented():
    told = set(map(int, re.findall(r"^\.It (\d+)", MAN["neuca-selftest.1"], re.MULTILINE)))
    assert told == {*ExitCode, errors.EXIT_INVALID, INTERRUPTED}
