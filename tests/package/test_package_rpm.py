"""The rpm package: clean, the same each time, with every file in its place in an empty root; and its life until it is erased."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path

from packages import COMMANDS, ENVIRONMENT, FOREIGN, MARKS, SHARED, UNITS, WRITTEN, run

from neuca_tools.agent.image_clean import METRICS

# systemctl is there and has nobody to talk to; rpm has a database of its own.
# The Python of this host does not look where it would on the distribution that the rpm is for.
INSTALL = (
    "rpm -i --nodeps /tmp/*.rpm\n"
    "rpm -ql neuca-guest-tools | sed -n 's,/neuca_tools$,,p' > /usr/lib/python3/dist-packages/own.pth\n"
)
IN_ETC = {"neuca", "neuca/config", "neuca/config.d", "neuca/profiles"}


def _query(rpm: Path, *words: str) -> list[str]:
    return run("rpm", "--query", "--package", *words, rpm).stdout.splitlines()


def test_rpmlint_has_nothing_to_say(checkout, rpms):
    spec = checkout / "packaging" / "rpm" / "neuca-guest-tools.spec"
    done = run(
        "rpmlint",
        "--config",
        spec.with_name("rpmlint.toml"),
        *sorted(rpms.glob("*.rpm")),
        spec,
        fine=False,
    )
    assert "2 packages and 1 specfiles checked; 0 errors, 0 warnings" in done.stdout, (
        done.stdout + done.stderr
    )


def test_it_requires_packages_that_fedora_and_rhel_have(rpm):
    wanted = [
        line for line in _query(rpm, "--requires") if not re.match(r"rpmlib|config\(|/", line)
    ]
    # Of the interpreter that it was built with, and what the metadata of the Python package names.
    assert [line for line in wanted if not re.match(r"python(\(abi\)|[\d.]+dist\()", line)] == [
        "python3 >= 3.9",
        "python3-dbus",
        "python3-pyroute2 >= 0.7.2",
        "python3-pyudev",
        "python3-pyyaml",
        "python3-systemd",
        "systemd",
    ]
    assert _query(rpm, "--queryformat", "%{NAME} %{VERSION} %{ARCH}") == [
        "neuca-guest-tools 2.0.0 noarch"
    ]


def test_rpm_keeps_its_database_in_a_home_of_the_tests(home, rpm):
    assert _query(rpm, "--queryformat", "%{NAME}") == ["neuca-guest-tools"]
    # rpm 6 makes no database for a query of a file.
    is_made = int(run("rpm", "--version").stdout.split()[-1].partition(".")[0]) < 6
    assert (home / ".rpmdb").exists() or not is_made


def test_both_packages_have_one_version(checkout, rpm):
    changelog = (checkout / "packaging" / "debian" / "changelog").read_text()
    said = run(
        "python3",
        "-c",
        "import neuca_tools; print(neuca_tools.__version__)",
        cwd=checkout,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
    ).stdout.strip()
    assert {
        said,
        re.match(r".*\((.*)\)", changelog)[1],
        _query(rpm, "--queryformat", "%{VERSION}")[0],
    } == {"2.0.0"}


def test_equal_sources_give_equal_packages(checkout, rpm, tmp_path):
    elsewhere = {**ENVIRONMENT, "TZ": "Asia/Tokyo", "LC_ALL": "C", "TMPDIR": str(tmp_path)}
    run(
        "sh",
        "-c",
        'umask 077; exec "$0" "$1"',
        checkout / "packaging" / "build-rpm",
        tmp_path / "out",
        env=elsewhere,
    )
    assert (tmp_path / "out" / rpm.name).read_bytes() == rpm.read_bytes()


def test_the_files_in_an_empty_root(own_root, checkout, rpm):
    said = own_root(
        "mkdir /tmp/empty; rpm --root /tmp/empty -i --nodeps --noscripts /tmp/*.rpm\n"
        "cd /tmp/empty; find . -type f -o -type l -o -type d | grep -v rpm/ | sort\n",
        rpm,
    ).splitlines()
    there = {path[1:] for path in said}
    assert {Path(path).name for path in there if path.startswith("/usr/bin/")} == COMMANDS
    assert {path[5:] for path in there if path.startswith("/etc/")} == IN_ETC
    assert {path for path in there if path.startswith("/usr/lib/systemd/")} == {
        "/usr/lib/systemd/catalog",
        "/usr/lib/systemd/catalog/neuca.catalog",
        "/usr/lib/systemd/networkd.conf.d",
        "/usr/lib/systemd/networkd.conf.d/50-neuca.conf",
        "/usr/lib/systemd/system",
        "/usr/lib/systemd/system/neuca-dhcp@.service",
        "/usr/lib/systemd/system/neuca-drive@.service",
        "/usr/lib/systemd/system/neuca-guest-tools.service",
        "/usr/lib/systemd/system/neuca-guest.path",
        "/usr/lib/systemd/system/neuca-guest.service",
        "/usr/lib/systemd/system/neuca-host-keys.service",
        "/usr/lib/systemd/system/neuca-metrics.service",
        "/usr/lib/systemd/system/neuca-metrics.timer",
        "/usr/lib/systemd/system/neuca-names.service",
        "/usr/lib/systemd/system/neuca-selftest.service",
        "/usr/lib/systemd/system/neuca-selftest.timer",
        "/usr/lib/systemd/system/policy-routes@.service.d",
        "/usr/lib/systemd/system/policy-routes@.service.d/50-neuca.conf",
        "/usr/lib/systemd/system/refresh-policy-routes@.service.d",
        "/usr/lib/systemd/system/refresh-policy-routes@.service.d/50-neuca.conf",
        "/usr/lib/systemd/system-preset",
        "/usr/lib/systemd/system-preset/80-neuca-guest-tools.preset",
    }
    python = {
        path.partition("/site-packages/")[2]
        for path in there
        if "/site-packages/neuca_tools/" in path and "." in path[-6:]
    }
    assert python == {
        str(path.relative_to(checkout))
        for path in (checkout / "neuca_tools").rglob("*")
        if path.is_file()
    }
    assert {"/usr/share/man/man1/neuca.1.gz", "/usr/share/man/man5/neuca-user-data.5.gz"} <= there
    assert there >= SHARED


def test_the_configuration_is_kept_on_upgrade(rpm):
    assert (
        _query(rpm, "--queryformat", r"[%{FILENAMES} %{FILEFLAGS:fflags}\n]").count(
            "/etc/neuca/config cn"
        )
        == 1
    )
    assert _query(rpm, "--configfiles") == ["/etc/neuca/config"]


def test_everything_belongs_to_root_and_nobody_else_may_write(rpm):
    rows = _query(
        rpm,
        "--queryformat",
        r"[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]",
    )
    assert [
        row for row in rows if not re.match(r"(l.{9}|[d-]rwxr-xr-x|-rw-r--r--) root root ", row)
    ] == []


def test_presets_enable_every_service(own_root, rpm):
    said = own_root(INSTALL + "cd /etc/systemd/system; ls -d *.wants/neuca*\n", rpm)
    assert said.split() == [f"multi-user.target.wants/neuca-{name}" for name in UNITS] + [
        "multi-user.target.wants/neuca-selftest.timer"
    ]


def test_the_scriptlets_stop_the_agent_and_never_restart_the_names(rpm):
    said = "\n".join(_query(rpm, "--scripts"))
    assert (
        "preset neuca-names.service neuca-host-keys.service neuca-guest.path neuca-guest-tools.service neuca-self"
        in said
    )
    assert (
        "disable --now neuca-guest-tools.service neuca-guest.path neuca-guest.service neuca-names.service"
        in said
    )
    assert "try-restart neuca-guest-tools.service" in said
    assert "%{" not in said
    assert "systemd_" not in said, "a macro was not expanded"


def test_an_upgrade_keeps_what_the_agent_has_written(own_root, rpm):
    said = own_root(
        INSTALL + WRITTEN + "rpm -U --force --nodeps /tmp/*.rpm; "
        f"ls {' '.join(MARKS)} /var/lib/neuca/*; ls -d /etc/systemd/system/*.wants/neuca* | wc -l\n",
        rpm,
    )
    assert said.split() == [
        *sorted([*MARKS, "/var/lib/neuca/record.json"]),
        str(len(UNITS) + 1),
    ]  # and the timer


def test_erasing_it_leaves_what_the_agent_has_written_and_clean_removes_it(own_root, rpm):
    erase = "rpm -e neuca-guest-tools 2> /dev/null\n"
    metrics = f"mkdir -p /{Path(METRICS).parent}; touch /{METRICS}\n"
    left = f"find /{Path(METRICS).parent} -type f; ls {' '.join([*MARKS, *FOREIGN])}\n"
    said = own_root(f"{INSTALL}{WRITTEN}{metrics}{erase}{left}", rpm)
    assert said.split() == sorted([*MARKS, *FOREIGN])
    clean = "neuca clean --keep-identity > /dev/null\n"
    files = "find /etc /var -name '*neuca*' -type f -not -name '*-notes.rules' | sort\n"
    before = own_root(files)
    said = own_root(f"{INSTALL}{WRITTEN}{clean}{erase}{files}ls {' '.join(FOREIGN)}\n", rpm)
    assert said.splitlines() == [*before.splitlines(), *sorted(FOREIGN)]
