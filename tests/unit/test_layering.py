"""The design's rules 1 to 3, read from the imports themselves: pure stages, one home for each library, imports point down."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# A module imports from its own line or from one above it. A package stands for all that is in it.
LEVELS = [
    {
        "neuca_tools",
        "errors",
        "rows",
        "stored",
        "keys",
        "model",
        "effects",
        "device_settings",
        "machine",
        "rates",
        "shapes",
        "plain",
        "volumes",
    },
    {
        "documents",
        "roles",
        "topology",
        "names",
        "guard",
        "coverage",
        "sysctls",
        "marks",
        "requests",
        "layers",
        "advertised",
        "outlets",
        "routing",
        "forwarding",
        "devices",
        "stacks",
        "sizes",
        "desired",
        "link_resolver",
        "marking",
        "tuning",
    },
    {
        "operation",
        "operations",
        "device_operation",
        "link_operations",
        "leftovers",
        "memory",
        "plan",
        "sides",
        "observe",
        "observation",
        "decide",
        "status",
        "render",
    },
    {"fileio", "store"},
    {"backends", "sources", "config"},
    {"record", "report", "drives", "managers", "hardware"},
    {"intake", "look", "apply", "probing", "rounds", "transaction"},
    {"approach", "firstboot", "guest", "host", "current", "reconcile"},
    {"handback", "pinning", "sealing", "worker"},
    {"daemon", "tuneup"},
    {"selftest"},
    {"commands"},
]
PURE = LEVELS[0] | LEVELS[1] | LEVELS[2]
RUNNING = "neuca_tools.selftest.running"  # what starts programs and looks at hosts; the rest of the self-test is pure
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
    "yaml": "documents.tree",
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
    """Which entry of LEVELS a module belongs to."""
    return module.split(".")[1] if "." in module else module


def level(module: str) -> int:
    return next(number for number, parts in enumerate(LEVELS) if part(module) in parts)


each_module = pytest.mark.parametrize("module", FILES)


@each_module
def test_every_module_has_its_level(module):
    assert any(part(module) in parts for parts in LEVELS), (
        f"give {part(module)} its place in LEVELS"
    )


@each_module
def test_imports_point_down(module):
    assert {name for name in own(imported(module)) if level(name) > level(module)} == set()


@each_module
def test_sources_and_backends_never_import_each_other(module):
    other = {"sources": "backends", "backends": "sources"}.get(part(module))
    assert {name for name in own(imported(module)) if part(name) == other} == set()


def is_pure(module: str) -> bool:
    return part(module) in PURE or (part(module) == "selftest" and not module.startswith(RUNNING))


@pytest.mark.parametrize("module", [module for module in FILES if is_pure(module)])
def test_a_pure_stage_meets_no_clock_no_file_and_no_log(module):
    calls = [node.func for node in ast.walk(TREES[module]) if isinstance(node, ast.Call)]
    # The name alone, whatever stands before its dot: no stage has a function of its own that is called like these.
    assert {getattr(call, "id", getattr(call, "attr", "")) for call in calls} & REACHING == set()
    assert foreign(imported(module)) & (IMPURE | HOMES.keys() - PURE_LIBRARIES) == set()
    assert {name for name in own(imported(module)) if not is_pure(name)} == set()


@each_module
def test_each_library_is_imported_in_its_one_home(module):
    libraries = foreign(imported(module)) - sys.stdlib_module_names - {"_typeshed"}
    assert {
        library for library in libraries if HOMES.get(library) != module.partition(".")[2]
    } == set()


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
