"""The architecture, read from the imports themselves: packages in order, pure stages, one home for each library."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A package imports from those above it, never from one beside or below it.
ORDER = [
    "errors",
    "libc",
    "files",
    "model",
    "documents",
    "tuning",
    "desired",
    "plan",
    "backends",
    "selftest",
    "sources",
    "state",
    "config",
    "status",
    "apply",
    "guest",
    "agent",
    "commands",
]
PURE = {
    "neuca_tools",
    "errors",
    "model",
    "documents",
    "tuning",
    "desired",
    "plan",
}
# What decides within packages that also read, write or wait.
PURE_MODULES = {
    f"neuca_tools.{name}"
    for name in (
        "apply",
        "apply.decide",
        "apply.observe",
        "state",
        "state.changes",
        "state.intentions",
        "state.leftovers",
        "state.updates",
        "status",
        "status.audit",
        "status.judge",
        "status.prometheus",
        "status.render",
        "status.render_json",
    )
}
RUNNING = "neuca_tools.selftest.measure"  # what starts programs and looks at hosts; the rest of the self-test is pure
# What a pure stage cannot use without meeting a clock, a file, another process, the network or chance.
IMPURE = set(
    "asyncio configparser ctypes fcntl fileinput getpass glob grp http importlib linecache logging mmap multiprocessing"
    " os platform pwd random resource runpy sched secrets select selectors shelve shutil signal smtplib socket"
    " socketserver sqlite3 ssl stat subprocess sys syslog tempfile threading time urllib uuid webbrowser".split()
)
# io and pathlib are not on the list, for BytesIO and for joining paths; what of theirs reaches a file is here.
REACHING = set(
    "open print input exec eval exists is_file is_dir is_symlink iterdir glob rglob stat lstat read_text read_bytes"
    " write_text write_bytes mkdir touch unlink rmdir cwd home now utcnow today".split()
)
PURE_LIBRARIES = {"yaml"}  # it makes events of a text, and meets nothing
HOMES = {
    "pyroute2": "backends.netlink",
    "pyudev": "backends.udev",
    "dbus": "backends.bus",
    "systemd": "backends.systemd",
    "yaml": "documents.platform.tree",
}


def imports(tree: ast.AST, package: str, lazy: bool) -> set[str]:
    """The dotted names that a module imports; `lazy` False leaves out what is inside of functions or for a type checker."""
    names: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*above, node.module] if node.module else above)
            names |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif lazy or not (isinstance(node, (ast.FunctionDef, ast.If)) and _is_lazy(node)):
            names |= imports(node, package, lazy)
    return names


def _is_lazy(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) or "TYPE_CHECKING" in ast.dump(node.test)


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).replace(".__init__", "")


FILES = {_name(path): path for path in sorted((ROOT / "neuca_tools").rglob("*.py"))}
TREES = {name: ast.parse(path.read_text()) for name, path in FILES.items()}


def test_the_page_for_developers_lists_the_packages_in_this_order():
    page = (ROOT / "docs" / "HACKING.md").read_text()
    table = page.partition("\n## Packages\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == ORDER


def test_the_reader_of_imports_sees_every_form():
    text = "import a.b\nfrom . import c\nfrom .d import e\nfrom ..f import g\ndef h():\n  import i\nif TYPE_CHECKING:\n  import j"
    always = {"a.b", "p.q", "p.q.c", "p.q.d", "p.q.d.e", "p.f", "p.f.g"}
    assert imports(ast.parse(text), "p.q", lazy=False) == always
    assert imports(ast.parse(text), "p.q", lazy=True) == always | {"i", "j"}


def imported(module: str, lazy: bool = True) -> set[str]:
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    return imports(TREES[module], package, lazy)


def own(names: set[str]) -> set[str]:
    return names & FILES.keys()


def foreign(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names} - {"neuca_tools", "__future__"}


def part(module: str) -> str:
    """Which entry of ORDER a module belongs to."""
    return module.split(".")[1] if "." in module else module


def level(module: str) -> int:
    return ORDER.index(part(module)) if module != "neuca_tools" else -1


def offenders(
    names_of: Callable[[str], set[str]], modules: Iterable[str] = FILES
) -> dict[str, set[str]]:
    """The modules for which a function has a name that they may not use, with these names."""
    names = {module: names_of(module) for module in modules}
    return {module: wrong for module, wrong in names.items() if wrong}


def test_every_package_has_its_place_and_every_place_its_package():
    assert {part(module) for module in FILES} == {"neuca_tools", *ORDER}


def test_imports_point_down():
    def above(module: str) -> set[str]:
        others = {name for name in own(imported(module)) if part(name) != part(module)}
        return {name for name in others if level(name) > level(module)}

    assert offenders(above) == {}


def test_the_map_has_every_package_and_nothing_else():
    """The docstring of the root has a line for each; words in a line name modules that exist."""
    described = re.findall(r"^(\w+)/?  +", ast.get_docstring(TREES["neuca_tools"]), re.M)
    assert sorted(described) == sorted(ORDER)


def test_modules_that_the_map_names_exist():
    text = ast.get_docstring(TREES["neuca_tools"])
    named = set(re.findall(r"`([a-z_]+\.[a-z_.]+)`", text))
    assert {name for name in named if f"neuca_tools.{name}" not in FILES} == set()
    assert named


def test_sources_and_backends_never_import_each_other():
    def across(module: str) -> set[str]:
        other = {"sources": "backends", "backends": "sources"}.get(part(module))
        return {name for name in own(imported(module)) if part(name) == other}

    assert offenders(across) == {}


def test_the_self_test_knows_the_agent_only_as_a_protocol():
    """Of backends it requires the readers of the kernel and the packet filter that confines iperf3."""
    allowed = {"neuca_tools", "errors", "libc", "files", "model", "backends", "selftest"}

    def beyond(module: str) -> set[str]:
        return {name for name in own(imported(module)) if part(name) not in allowed}

    assert offenders(beyond, [module for module in FILES if part(module) == "selftest"]) == {}


def is_pure(module: str) -> bool:
    if part(module) == "selftest":
        return not module.startswith(RUNNING)
    return part(module) in PURE or module in PURE_MODULES


def test_a_pure_stage_uses_no_clock_no_file_and_no_log():
    def impure(module: str) -> set[str]:
        calls = [node.func for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)]
        # The name alone, whatever stands before its dot: no stage has a function that is called like these.
        called = {getattr(call, "id", getattr(call, "attr", "")) for call in calls} & REACHING
        libraries = foreign(imported(module)) & (IMPURE | HOMES.keys() - PURE_LIBRARIES)
        return called | libraries | {name for name in own(imported(module)) if not is_pure(name)}

    assert offenders(impure, [module for module in FILES if is_pure(module)]) == {}


def test_each_library_is_imported_in_its_one_home():
    # Of the library as well, of other versions of Python.
    versions = {"_typeshed", "_sha2", "_sha256"}

    def elsewhere(module: str) -> set[str]:
        libraries = foreign(imported(module)) - sys.stdlib_module_names - versions
        return {name for name in libraries if HOMES.get(name) != module.partition(".")[2]}

    assert offenders(elsewhere) == {}


# Names of requests to rtnetlink that change something.
CHANGE = re.compile(
    r"(RTM_?)?(NEW|DEL|DELETE|SET)_?(LINK|ADDR|ADDRESS|ROUTE|RULE|NEIGH|QDISC|NEXTHOP|NSID|VLAN)\w*"
)
NUMBERED_CHANGES = {
    "neuca_tools.backends.linkwatch": {
        "RTM_NEWLINK",
        "RTM_DELLINK",
        "RTM_NEWROUTE",
        "RTM_DELROUTE",
    },
    "neuca_tools.backends.netlink": {"RTM_NEWRULE"},
    "neuca_tools.backends.queues": {"NEWQDISC", "DELQDISC"},
    "neuca_tools.backends.raw_requests": {"NEW_ADDRESS", "NEW_ROUTE"},
}


def test_pyroute2_makes_the_changes_of_the_network():
    """The exceptions: what the kernel reports, what pyroute2 is told by number or cannot do, and qdiscs."""

    def changes(module: str) -> set[str]:
        fields = ("id", "attr", "name")
        nodes = list(ast.walk(TREES[module]))
        names = {str(getattr(node, field, "")) for node in nodes for field in fields}
        return set(filter(CHANGE.fullmatch, names))

    assert offenders(changes) == NUMBERED_CHANGES


def test_no_imports_go_round_in_a_circle():
    def below(module: str) -> set[str]:
        # A package's __init__ runs before its modules: naming the package that one is in makes no circle.
        return {
            name for name in own(imported(module, lazy=False)) if not module.startswith(f"{name}.")
        }

    TopologicalSorter({module: below(module) for module in FILES}).prepare()


@pytest.mark.parametrize("command", ["neuca_tools.commands.neuca", "neuca_tools.commands.neucad"])
def test_a_command_starts_without_any_library(command):
    reached: set[str] = set()
    waiting = {command}
    while waiting:
        module = waiting.pop()
        reached |= {module}
        parents = {module.rpartition(".")[0]} & FILES.keys()
        waiting |= (own(imported(module, lazy=False)) | parents) - reached
    assert {
        module for module in reached if foreign(imported(module, lazy=False)) & HOMES.keys()
    } == set()


def test_a_pass_is_composed_of_few_modules():
    """What one pass uses directly: a dozen, and few more."""
    modules = own(imported("neuca_tools.agent.reconcile")) & FILES.keys()
    packages = {name for name in modules if any(one.startswith(f"{name}.") for one in modules)}
    assert len(modules - packages) <= 15
