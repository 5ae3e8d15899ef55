"""What `pip install --no-deps .` of a clean checkout gives: every command, every data file, nothing heavy at start."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import neuca_tools

ROOT = Path(__file__).parents[2]

# The commands of version 1.7 among them keep their names.
COMMANDS = (
    "neuca neucad neuca-netconf neuca-user-script neuca-all-user-scripts neuca-run-scripts neuca-user-data neuca-get"
    " neuca-routes neuca-users neuca-interfaces neuca-storage neuca-get-public-ip neuca-distro neuca-version neuca-selftest"
).split()
HEAVY = {
    "pyroute2",
    "dbus",
    "pyudev",
    "systemd",
    "http",
    "configparser",
    "asyncio",
    "logging",
    "socket",
    "ssl",
}


def _run(*words: object, cwd: Path = ROOT, fine: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0 or not fine, f"{words}:\n{done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """The bin directory of a venv that a clean checkout was installed into, the distribution's libraries in sight."""
    clean, venv = tmp_path_factory.mktemp("clean"), tmp_path_factory.mktemp("venv")
    # What is tracked and as it now is: neither build left-overs nor files that somebody forgot to add.
    tracked = _run("git", "ls-files", "-z", "--cached").stdout.split("\0")
    for name in filter(lambda name: (ROOT / name).is_file(), tracked):
        (clean / name).parent.mkdir(parents=True, exist_ok=True)
        (clean / name).write_bytes((ROOT / name).read_bytes())
    _run(sys.executable, "-m", "venv", "--system-site-packages", venv)
    _run(venv / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps", clean)
    return venv / "bin"


def _package(installed: Path) -> Path:
    where = "import neuca_tools, os; print(os.path.dirname(neuca_tools.__file__))"
    return Path(_run(installed / "python", "-I", "-c", where, cwd=installed).stdout.strip())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_name_of_the_specification_is_a_command(installed, command):
    assert (installed / command).is_file()


def test_there_is_no_other_command(installed):
    assert {path.name for path in installed.glob("neuca*")} == set(COMMANDS)


def test_every_tracked_file_of_the_package_is_installed_and_no_other(installed):
    package = _package(installed)
    assert package != ROOT / "neuca_tools"
    there = {
        str(path.relative_to(package.parent))
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert there == {
        name
        for name in _run("git", "ls-files", "neuca_tools").stdout.split()
        if (ROOT / name).is_file()
    }


@pytest.mark.parametrize("command", [["neuca-version"], ["neuca", "version"]], ids=" ".join)
def test_the_version_is_one_exact_line(installed, command):
    done = _run(installed / command[0], *command[1:], cwd=installed)
    assert (done.stdout, done.stderr) == (f"NEuca version {neuca_tools.__version__}\n", "")


def test_the_version_is_2_0_0():
    assert neuca_tools.__version__ == "2.0.0"


def test_the_version_imports_nothing_heavy(installed):
    done = _run(
        installed / "python", "-X", "importtime", "-I", installed / "neuca-version", cwd=installed
    )
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
    }
    assert "neuca_tools" in loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("command", ["neuca", "neucad"])
def test_a_wrong_option_is_a_wrong_usage(installed, command):
    done = _run(installed / command, "--no-such-option", cwd=installed, fine=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
