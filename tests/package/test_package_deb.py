"""The Debian package: clean, the same each time, with every file in its place; and its life from installation to purge."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from pathlib import Path

from packages import (
    COMMANDS,
    ENVIRONMENT,
    FOREIGN,
    INSTALL,
    INSTALL_ALL,
    LEFT,
    MARKS,
    SHARED,
    UNITS,
    WRITTEN,
    run,
)

from neuca_tools.agent.image_clean import METRICS
from neuca_tools.config import Config
from neuca_tools.desired import marks


def _field(deb: Path, name: str) -> str:
    return run("dpkg-deb", "--field", deb, name).stdout.strip()


def _files(deb: Path) -> dict[str, str]:
    """Each path with its mode and owner, and where a link leads."""
    rows = [line.split(None, 5) for line in run("dpkg-deb", "--contents", deb).stdout.splitlines()]
    return {row[5].split(" -> ")[0].lstrip(".").rstrip("/"): f"{row[0]} {row[1]}" for row in rows}


# Hints of newer versions of lintian to leave out what the packages of Debian 12 need.
NEWER_HINTS = {
    "package-uses-old-debhelper-compat-version",
    "redundant-priority-optional-field",
    "redundant-rules-requires-root-no-field",
}


def test_lintian_has_nothing_to_say(debs):
    changes = next(debs.glob("*.changes"))
    # Which version of the policy is current depends on the lintian that is asked.
    options = (
        "--profile",
        "debian",
        "--pedantic",
        "--display-info",
        "--suppress-tags",
        "out-of-date-standards-version",
    )
    done = run("lintian", "--allow-root", "--fail-on", "none", *options, changes)
    lines = [line for line in done.stdout.splitlines() if NEWER_HINTS.isdisjoint(line.split())]
    assert lines == []


def test_it_depends_on_packages_of_the_distribution_alone(deb):
    assert _field(deb, "Depends") == (
        "python3 (>= 3.9), python3-dbus, python3-pyroute2 (>= 0.7.2~), python3-pyudev,"
        " python3-systemd, python3-yaml, python3:any"
    )
    assert (_field(deb, "Package"), _field(deb, "Version"), _field(deb, "Architecture")) == (
        "neuca-guest-tools",
        "2.0.0",
        "all",
    )


def test_every_name_is_a_command_and_a_former_one_hides_no_page(deb):
    """`man neuca-user-data` is the format."""
    files = _files(deb)
    assert {Path(path).name for path in files if path.startswith("/usr/bin/")} == COMMANDS
    pages = {Path(path).name for path in files if "/share/man/" in path and path.endswith(".gz")}
    assert {"neuca.1.gz", "neucad.8.gz", "neuca-selftest.1.gz", "neuca-user-data.5.gz"} <= pages
    assert {page for page in pages if page.endswith(".1.gz")} == {
        "neuca.1.gz",
        "neuca-selftest.1.gz",
        "neuca-selftest-mesh.1.gz",
    }


def test_completion_and_schema_are_there(deb):
    assert _files(deb).keys() >= SHARED


def test_every_file_of_the_python_package_is_there_and_no_other(checkout, deb):
    there = {
        path
        for path, mode in _files(deb).items()
        if "/dist-packages/neuca_tools/" in path and mode[0] == "-"
    }
    assert there == {
        f"/usr/lib/python3/dist-packages/{path.relative_to(checkout)}"
        for path in (checkout / "neuca_tools").rglob("*")
        if path.is_file()
    }


def test_everything_belongs_to_root_and_nobody_else_may_write(deb):
    odd = {
        path: mode
        for path, mode in _files(deb).items()
        if not re.fullmatch(r"(l.{9}|[d-]rwxr-xr-x|-rw-r--r--) root/root", mode)
    }
    assert odd == {}


def test_a_first_boot_enables_what_an_installation_enables(deb, tmp_path):
    # systemd presets every unit at the boot of an image without a machine id: machine-id(5).
    run("dpkg-deb", "--extract", deb, tmp_path)
    run("systemctl", f"--root={tmp_path}", "preset-all")
    enabled = {path.name for path in (tmp_path / "etc/systemd/system").glob("*.wants/*")}
    assert enabled == {f"neuca-{name}" for name in UNITS} | {"neuca-selftest.timer"}


def test_only_the_configuration_and_the_init_scripts_are_conffiles(deb, tmp_path):
    run("dpkg-deb", "--control", deb, tmp_path)
    assert (tmp_path / "conffiles").read_text().splitlines() == [
        *(f"/etc/init.d/neuca-{name}" for name in ("guest", "guest-tools", "host-keys", "names")),
        "/etc/neuca/config",
    ]


def test_the_configuration_has_every_line_commented_out(checkout):
    lines = (checkout / "examples" / "config").read_text().splitlines()
    assert [line for line in lines if line and not re.match(r"[#;]|\[[a-z]+\]$", line)] == []


def test_equal_sources_give_equal_packages(checkout, deb, tmp_path):
    elsewhere = {**ENVIRONMENT, "TZ": "Asia/Tokyo", "LC_ALL": "C", "TMPDIR": str(tmp_path)}
    run(
        "sh",
        "-c",
        'umask 077; exec "$0" "$1"',
        checkout / "packaging" / "build-deb",
        tmp_path / "out",
        env=elsewhere,
    )
    assert (tmp_path / "out" / deb.name).read_bytes() == deb.read_bytes()


def test_a_build_leaves_the_checkout_alone(checkout, deb):
    assert not (checkout / "debian").exists()
    assert [
        path for path in checkout.rglob("*") if path.suffix == ".pyc" or path.name == "__pycache__"
    ] == []
    assert deb.exists()


def test_every_service_is_enabled_at_the_installation(own_root, deb):
    said = own_root(
        INSTALL + "cd /etc/systemd/system; ls -d *.wants/neuca*; cd /etc; ls -d rc[S2].d/*neuca*\n",
        deb,
    )
    assert re.sub(r"S\d\d", "S", said).split() == [
        *(f"multi-user.target.wants/neuca-{name}" for name in UNITS),
        "multi-user.target.wants/neuca-selftest.timer",
        "rc2.d/Sneuca-guest",
        "rc2.d/Sneuca-guest-tools",
        "rc2.d/Sneuca-host-keys",
        "rcS.d/Sneuca-names",
    ]


def test_the_installed_commands_run(own_root, deb):
    said = own_root(
        INSTALL
        + "neuca-version; neuca version; cd /; neucad --version; man -w neuca-user-data neucad\n",
        deb,
    )
    assert said.splitlines()[:3] == ["NEuca version 2.0.0"] * 3
    assert said.split()[9:] == [
        "/usr/share/man/man5/neuca-user-data.5.gz",
        "/usr/share/man/man8/neucad.8.gz",
    ]


def test_an_upgrade_keeps_the_configuration_and_the_state(own_root, deb):
    said = own_root(
        INSTALL
        + WRITTEN
        + """
        echo '[network]' > /etc/neuca/config; echo 'drift = enforce' >> /etc/neuca/config
        echo '[network]' > /etc/neuca/config.d/mine.conf
        dpkg -i /tmp/*.deb > /dev/null
        cat /etc/neuca/config /etc/neuca/config.d/mine.conf; ls /etc/neuca /var/lib/neuca
        """,
        deb,
    )
    assert said.split() == [
        "[network]",
        "drift",
        "=",
        "enforce",
        "[network]",
        "/etc/neuca:",
        "config",
        "config.d",
        "profiles",
        "/var/lib/neuca:",
        "record.json",
    ]


def test_a_removal_keeps_the_names_the_marks_and_the_state(own_root, deb):
    said = own_root(
        INSTALL_ALL
        + WRITTEN
        + f"mkdir -p /{Path(METRICS).parent}; touch /{METRICS} /{METRICS}.neuca-new\n"
        + f"dpkg -r neuca-guest-tools > /dev/null; ls {' '.join(MARKS)} /var/lib/neuca/*; "
        f"find /{Path(METRICS).parent} -type f; "
        "ls /usr/bin/neuca* /usr/lib/python3/dist-packages/neuca_tools 2> /dev/null || true\n",
        deb,
    )
    assert said.split() == sorted(
        [*MARKS, "/var/lib/neuca/generated-files", "/var/lib/neuca/record.json"]
    )


def test_a_purge_leaves_nothing_of_ours_and_all_of_others(own_root, deb):
    before = own_root(LEFT)
    said = own_root(
        INSTALL_ALL
        + WRITTEN
        + f"mkdir -p /{Path(METRICS).parent}; touch /{METRICS}\n"
        + "dpkg --purge neuca-guest-tools > /dev/null\n"
        + LEFT
        + f"ls {' '.join(FOREIGN)}\n",
        deb,
    )
    assert said.splitlines() == [*before.splitlines(), *sorted(FOREIGN)]


def test_what_an_agent_has_left_on_the_host_is_hidden_from_these_tests(own_root, tmp_path):
    left = [*MARKS, "/var/lib/neuca/selftest/last.json", "/var/log/neuca/neucad.log"]
    for path in left:
        place = tmp_path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    (tmp_path / "etc" / "other").touch()
    assert own_root(LEFT + "ls /etc/other\n", more=tmp_path) == "/etc/other\n"


def test_a_purge_finds_what_the_configuration_has_moved(own_root, deb):
    said = own_root(
        INSTALL
        + """
        mkdir -p /srv/rules /srv/nm /srv/state /srv/run
        printf '%s\\n' '[linux]' 'udev-directory = /srv/rules' 'udev-substring = own' > /etc/neuca/config
        printf '%s\\n' 'networkmanager-directory = /srv/nm' >> /etc/neuca/config
        printf '[runtime]\\nstate-directory = /srv/state\\nrun-directory = /srv/run\\n' >> /etc/neuca/config
        touch /srv/rules/10-own-fe163e006daf.rules /srv/rules/10-other-fe163e006daf.rules /srv/nm/neuca.conf /srv/nm/mine.conf
        touch /srv/state/record.json /srv/state/document.json.neuca-new /srv/run/lock /srv/run/foreign
        dpkg --purge neuca-guest-tools > /dev/null
        find /srv | sort
        """,
        deb,
    )
    assert said.split() == [
        "/srv",
        "/srv/nm",
        "/srv/nm/mine.conf",
        "/srv/rules",
        "/srv/rules/10-other-fe163e006daf.rules",
        "/srv/run",
        "/srv/run/foreign",
    ]


def test_the_usual_places_are_those_of_the_agent():
    config, mac = Config(), "fe:16:3e:00:6d:af"
    rule = marks.udev_rule_name(
        mac, True, config.udev_substring, config.data_udev_priority, config.mgmt_udev_priority
    )
    assert {
        str(config.udev_directory / rule),
        str(config.networkmanager_directory / marks.NETWORKMANAGER_FILE),
        str(config.networkd_directory / marks.NETWORKD_NICS_FILE),
        str(config.sysctl_directory / marks.SYSCTL_FILE),
        str(config.networkd_directory / marks.NETWORKD_VLANS_FILE),
    } <= set(MARKS)
    assert marks.rule_mac(Path(MARKS[1]).name, config.udev_substring) == "fe:16:3e:00:6d:ae"
