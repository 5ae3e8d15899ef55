"""What comes before and beside the packages: versions, build dependencies, `make install` and `uninstall`, sdist, autopkgtest."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hashlib
import os
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from packages import ENVIRONMENT, INSTALL, ROOT, run
from packaging.version import Version

from neuca_tools.agent.image_clean import METRICS

as_root = pytest.mark.skipif(
    os.getuid() != 0, reason="these tests do not run as root, and have no other user to become"
)
AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.org")
# What a checkout has and no package needs.
NOT_SHIPPED = {".git-blame-ignore-revs"}


def git(tree: Path, *words: str, date: str = "2026-11-23T10:15:00Z") -> None:
    dates = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date}
    run("git", "-C", tree, *AUTHOR, *words, env={**ENVIRONMENT, **dates})


@pytest.fixture
def repository(checkout, tmp_path) -> Path:
    """A repository with the tracked files as its only commit."""
    run("cp", "-a", checkout, tmp_path / "tree")
    git(tmp_path / "tree", "init", "-q")
    git(tmp_path / "tree", "add", "-A", "-f")
    git(tmp_path / "tree", "commit", "-q", "-m", "one")
    return tmp_path / "tree"


def version(tree: Path) -> str:
    return run(tree / "packaging" / "version").stdout.split()[0]


def test_snapshots_sort_by_their_time_and_before_the_release(repository):
    first = version(repository)
    assert re.fullmatch(r"2\.0\.0~git20261123101500\.[0-9a-f]{7}", first)
    (repository / "README.md").write_text("changed\n")
    assert version(repository) == f"{first}.dirty"
    git(repository, "commit", "-q", "-a", "-m", "two", date="2026-11-23T10:15:01Z")
    second = version(repository)
    git(repository, "tag", "v2.0.0")
    assert version(repository) == "2.0.0"
    for older, newer in ((first, second), (second, "2.0.0"), ("1.7-1", first)):
        run("dpkg", "--compare-versions", older, "lt", newer)


def test_the_wheel_of_a_snapshot_has_its_version_in_pythons_notation(repository, tmp_path):
    run(repository / "packaging" / "build-python", tmp_path / "out")
    (wheel,) = (tmp_path / "out").glob("*.whl")
    (sdist,) = (tmp_path / "out").glob("*.tar.gz")
    found = re.fullmatch(r"neuca_guest_tools-(.*)-py3-none-any\.whl", wheel.name)[1]
    date, commit = re.fullmatch(r"2\.0\.0~git([0-9]+)\.(.*)", version(repository)).groups()
    assert found == f"2.0.0.dev{date}+git{commit}"
    assert sdist.name.endswith(f"-{found}.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"neuca_guest_tools-{found}.dist-info/METADATA").decode()
        assert f'__version__ = "{found}"' in archive.read("neuca_tools/__init__.py").decode()
    assert f"\nVersion: {found}\n" in metadata
    later = f"2.0.0.dev{int(date) + 1}+git0000000"
    assert Version("1.7") < Version(found) < Version(later) < Version("2.0.0a1") < Version("2.0.0")


@pytest.mark.long
def test_a_snapshot_is_built_with_its_version(repository, tmp_path):
    run(repository / "packaging" / "build-deb", tmp_path / "out")
    (deb,) = (tmp_path / "out").glob("*.deb")
    assert run("dpkg-deb", "--field", deb, "Version").stdout.strip() == version(repository)
    run("dpkg-deb", "--extract", deb, tmp_path / "tree")
    program = tmp_path / "tree/usr/lib/python3/dist-packages"
    words = (
        "-Ic",
        f"import sys; sys.path.insert(0, '{program}'); from neuca_tools.commands.neuca import main; main()",
    )
    said = run("/usr/bin/python3", *words, "version").stdout
    assert said == f"NEuca version {version(repository)}\n"
    run(repository / "packaging" / "build-rpm", tmp_path / "out")
    (rpm,) = (tmp_path / "out").glob("*.noarch.rpm")
    found = run("rpm", "-qp", "--queryformat", "%{VERSION}", rpm).stdout
    assert found == version(repository)
    assert version(repository).endswith(".dirty") is False


def test_a_build_names_what_it_needs_before_it_begins(checkout, tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "dpkg-query").write_text(
        '#!/bin/sh\nfor name; do :; done\n[ "$name" = debhelper ] || echo installed\n'
    )
    (programs / "dpkg-query").chmod(0o755)
    path = {**ENVIRONMENT, "PATH": f"{programs}:{ENVIRONMENT['PATH']}"}
    done = run(checkout / "packaging" / "build-deb", tmp_path / "out", env=path, fine=False)
    expected = "apt-get install -y build-essential debhelper dh-python python3"
    assert done.returncode == 1
    assert done.stderr == f"build-deb: missing debhelper; to install what it needs: {expected}\n"
    assert not (tmp_path / "out").exists()


def test_an_interrupt_while_a_program_starts_prints_nothing(checkout, tmp_path):
    """Before the modules of the package are there to handle it."""
    python = tmp_path / "python"
    commands = python / "neuca_tools" / "commands"
    commands.mkdir(parents=True)
    (commands / "__init__.py").write_text("raise KeyboardInterrupt\n")
    run(checkout / "packaging" / "install", tmp_path / "root", python)
    for program in ("neuca", "neucad", "neuca-selftest"):
        done = run(tmp_path / "root/usr/bin" / program, "--version", fine=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("prefix", ["/usr/local", "/opt/neuca"])
def test_make_install_puts_the_paths_of_the_prefix_into_every_file(checkout, tmp_path, prefix):
    root = tmp_path / "root"
    run("make", "-s", "-C", checkout, "install", f"DESTDIR={root}", f"PREFIX={prefix}")
    # Where systemd, udev, modprobe and networkd look.
    library = root / "usr/local/lib"
    units = list((library / "systemd/system").glob("neuca-*"))
    programs = {
        found
        for unit in units
        for found in re.findall(r"^Exec\w+=(\S*neuca\S*)", unit.read_text(), re.MULTILINE)
    }
    assert programs == {
        *(f"{prefix}/bin/{name}" for name in ("neuca", "neucad", "neuca-selftest")),
        f"{prefix}/libexec/neuca-guest-tools/dhcp-helper",
    }
    assert {path for path in programs if not os.access(root / path[1:], os.X_OK)} == set()
    assert {unit.name for unit in units} == {
        path.name
        for path in (checkout / "systemd").glob("neuca-*.*")
        if path.suffix not in (".conf", ".preset")
    }
    for place in (
        "udev/rules.d/90-neuca-drives.rules",
        "modprobe.d/neuca.conf",
        "systemd/networkd.conf.d/50-neuca.conf",
        "systemd/system/policy-routes@.service.d/50-neuca.conf",
        "systemd/system/refresh-policy-routes@.service.d/50-neuca.conf",
        "systemd/system-preset/80-neuca-guest-tools.preset",
    ):
        assert (library / place).is_file()
    assert (root / prefix[1:] / "share/man/man8/neucad.8.gz").is_file()
    completions = root / prefix[1:] / "share/bash-completion/completions"
    assert {path.name for path in completions.iterdir()} == {"neuca", "neucad", "neuca-selftest"}
    assert (root / prefix[1:] / "share/zsh/site-functions/_neuca").is_file()
    assert (root / "etc/neuca/config").is_file()


def test_make_install_without_python_names_the_packages(checkout, tmp_path):
    words = ("make", "-s", "-C", checkout, "install", f"DESTDIR={tmp_path}/root", "PYTHON=/none")
    done = run(*words, fine=False)
    packages = " ".join(
        f"python3-{name}" for name in ("pyroute2", "pyudev", "yaml", "dbus", "systemd")
    )
    expected = f"make install: there is no /none: install the distribution's python3 {packages}"
    assert (done.stderr.splitlines()[0], done.stdout) == (expected, "")
    assert (done.returncode != 0, (tmp_path / "root").exists()) == (True, False)


def make(tree: Path, *words: str, fine: bool = True):
    return run("make", "-s", "-C", tree, *words, fine=fine)


def files(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() or path.is_symlink()
    }


def test_make_uninstall_leaves_what_was_there_before(checkout, tmp_path):
    root = tmp_path / "root"
    for place in ("usr/local/bin/other", "etc/udev/rules.d/other", "usr/local/share/man/man1/x.1"):
        (root / place).parent.mkdir(parents=True)
        (root / place).write_text("of somebody else\n")
    (root / "usr/local/bin").chmod(0o2775)
    before = {path: path.stat().st_mode for path in sorted(root.rglob("*"))}
    for _ in range(2):
        make(checkout, "install", f"DESTDIR={root}")
    compiled = next(root.rglob("neuca_tools/model/links.py")).parent / "__pycache__"
    compiled.mkdir()
    (compiled / "links.cpython-39.pyc").touch()
    done = make(checkout, "uninstall", f"DESTDIR={root}")
    assert done.stdout == f"uninstalled below {root}/usr/local\n"
    assert {path: path.stat().st_mode for path in sorted(root.rglob("*"))} == before


def test_a_configuration_that_was_changed_outlives_make_uninstall(checkout, tmp_path):
    root = tmp_path / "root"
    config = root / "etc/neuca/config"
    make(checkout, "install", f"DESTDIR={root}")
    config.write_text("[network]\n")
    own = config.parent / "config.d" / "own.conf"
    own.write_text("[runtime]\n")
    make(checkout, "install", f"DESTDIR={root}")
    done = make(checkout, "uninstall", f"DESTDIR={root}")
    assert done.stdout.splitlines()[0] == f"kept {config}, which was changed"
    assert files(root) == {
        "etc/neuca/config": b"[network]\n",
        "etc/neuca/config.d/own.conf": b"[runtime]\n",
    }
    make(checkout, "install", f"DESTDIR={root}")
    assert config.read_text() == "[network]\n"


def test_a_second_installation_replaces_the_first(checkout, tmp_path):
    tree, root = tmp_path / "tree", tmp_path / "root"
    run("cp", "-a", checkout, tree)
    (tree / "neuca_tools" / "obsolete.py").touch()
    (tree / "examples" / "config").write_text("# older\n")
    make(tree, "install", f"DESTDIR={root}")
    assert len(list(root.rglob("obsolete.py"))) == 1
    make(checkout, "install", f"DESTDIR={root}")
    make(checkout, "install", f"DESTDIR={tmp_path / 'fresh'}")
    found, fresh = files(root), files(tmp_path / "fresh")
    record = "usr/local/share/neuca-guest-tools/installed"
    assert sorted(found.pop(record).splitlines()) == sorted(fresh.pop(record).splitlines())
    assert found == fresh


def test_make_uninstall_without_an_installation_says_so(checkout, tmp_path):
    done = make(checkout, "uninstall", f"DESTDIR={tmp_path}", fine=False)
    place = f"{tmp_path}/usr/local/share/neuca-guest-tools/installed"
    expected = f'make uninstall: there is no "{place}", where make install records what it installs'
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, expected)


@as_root
def test_who_may_not_write_there_is_told_what_to_do(own_root, checkout, tmp_path):
    tar = tmp_path / "tree.tar"
    run("tar", "-cf", tar, "-C", checkout, ".")
    said = own_root(
        "mkdir /tmp/tree; tar -xf /tmp/tree.tar -C /tmp/tree; chmod 755 /tmp /tmp/tree; cd /tmp/tree\n"
        "as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups make -s \"$@\" 2>&1 | grep -v '^make: ' || true; }\n"
        "files() { find /etc /usr/bin /usr/lib /usr/local /usr/share ! -type d | sort; }; files > /tmp/before\n"
        "as_nobody install; as_nobody install PREFIX=/usr\n"
        "files | diff - /tmp/before\n"
        "make -s install > /dev/null; as_nobody uninstall\n",
        tar,
    )
    hint = "is not writable: run it as root"
    more = "or set DESTDIR to a directory of your own"
    assert said.splitlines() == [
        f"make install: /usr/local/bin {hint}, {more}",
        f"make install: /usr/bin {hint}, {more}",
        f"make uninstall: /usr/local/share/neuca-guest-tools/installed {hint}",
    ]


@as_root
@pytest.mark.parametrize("prefix", ["/usr/local", "/opt/neuca"])
def test_what_the_agent_has_written_goes_with_purge_only(own_root, checkout, tmp_path, prefix):
    tar = tmp_path / "tree.tar"
    run("tar", "-cf", tar, "-C", checkout, ".")
    said = own_root(
        "mkdir /tmp/tree; tar -xf /tmp/tree.tar -C /tmp/tree; cd /tmp/tree\n"
        "files() { find /etc /opt /usr /var/lib /var/log /run ! -type d | sort; }\n"
        f"make -s install PREFIX={prefix} > /dev/null\n"
        "systemctl --quiet enable neuca-guest-tools.service 2>/dev/null; ls /etc/systemd/system/*.wants | grep neuca\n"
        "mkdir -p /var/lib/neuca; echo '{}' > /var/lib/neuca/machine.json\n"
        f"mkdir -p /{Path(METRICS).parent}; touch /{METRICS}\n"
        "echo '# ours' > /etc/udev/rules.d/10-neuca-persistent-fe163e006da1.rules\n"
        "echo '[network]' > /etc/neuca/config\n"
        f"make -s uninstall PREFIX={prefix}\n"
        "files | grep neuca\n"
        f"make -s uninstall PREFIX={prefix} PURGE=yes\n"
        "files | grep neuca || echo nothing\n",
        tar,
    )
    rule = "/etc/udev/rules.d/10-neuca-persistent-fe163e006da1.rules"
    listed = "/var/lib/neuca/generated-files"
    assert said.splitlines() == [
        "neuca-guest-tools.service",
        "kept /etc/neuca/config, which was changed",
        f"kept what the agent has written, as listed in {listed}; to remove it: make uninstall PURGE=yes",
        f"uninstalled below {prefix}",
        *("/etc/neuca/config", rule, listed, "/var/lib/neuca/machine.json"),
        f"uninstalled below {prefix}",
        "nothing",
    ]


@as_root
def test_make_uninstall_stops_the_units_of_the_agent_but_not_the_scripts(
    own_root, checkout, tmp_path
):
    tar = tmp_path / "tree.tar"
    run("tar", "-cf", tar, "-C", checkout, ".")
    said = own_root(
        "mkdir -p /tmp/tree /run/systemd/system; tar -xf /tmp/tree.tar -C /tmp/tree; cd /tmp/tree\n"
        "make -s install > /dev/null\n"
        "printf '#!/bin/sh\\necho \"$@\"\\n' > /usr/local/sbin/systemctl; chmod +x /usr/local/sbin/systemctl\n"
        "PATH=/usr/local/sbin:$PATH make -s uninstall | grep stop\n",
        tar,
    )
    units = {path.name for path in (checkout / "systemd").glob("neuca-*.*")}
    units = {name for name in units if name.endswith((".service", ".path", ".timer"))}
    templates = {"neuca-dhcp@*", "neuca-drive@*"}
    expected = {"--quiet", "stop", *templates, *(name for name in units if "@" not in name)}
    assert sorted(said.split()) == sorted(expected)


@as_root
@pytest.mark.parametrize("prefix", ["/usr/local", "/opt/neuca"])
def test_what_make_installs_runs_and_keeps_the_configuration(own_root, checkout, tmp_path, prefix):
    tar = tmp_path / "tree.tar"
    run("tar", "-cf", tar, "-C", checkout, ".")
    said = own_root(
        "mkdir /tmp/tree /etc/neuca; tar -xf /tmp/tree.tar -C /tmp/tree; echo '[network]' > /etc/neuca/config\n"
        f"make -s -C /tmp/tree install PREFIX={prefix}; cat /etc/neuca/config\n"
        f"cd /; {prefix}/bin/neuca-version; {prefix}/bin/neucad --version\n"
        f"{prefix}/libexec/neuca-guest-tools/generated-files > /dev/null\n"
        "systemd-analyze verify --man=no /usr/local/lib/systemd/system/neuca-*.service 2>&1 | grep -i neuca || echo no complaint\n",
        tar,
    )
    assert said.splitlines()[1:] == [
        "[network]",
        *["NEuca version 2.0.0"] * 2,
        "no complaint",
    ]


def test_the_sdist_is_complete_and_both_files_are_reproducible(checkout, tmp_path):
    sums = []
    for name in ("one", "two"):
        run(
            checkout / "packaging" / "build-python",
            tmp_path / name,
            env={**ENVIRONMENT, "HOME": name},
        )
        files = sorted((tmp_path / name).iterdir())
        sums.append([(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files])
    assert sums[0] == sums[1]
    (sdist,) = (tmp_path / "one").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        there = {member.name.partition("/")[2] for member in archive if member.isfile()}
    tracked = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    assert {path for path in tracked - there if not path.startswith(".ci/")} <= NOT_SHIPPED


@as_root
def test_the_autopkgtest_passes_with_the_installed_package(own_root, deb):
    test = ROOT / "packaging" / "debian" / "tests" / "installed"
    said = own_root(INSTALL + "mount -t sysfs none /sys; sh /tmp/installed\n", deb, test)
    assert said.splitlines()[-1] == "ok: eth1 has its address, and a second pass has nothing to do"
