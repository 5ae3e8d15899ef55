"""The SysV scripts: run for real against the installed agent, in a root, a network and processes of their own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

import pytest
from packages import INSTALL, ROOT, run

SCRIPT = "/etc/init.d/neuca-guest-tools"
# tail follows the name of a file that does not exist yet; the first line ends the wait.
UP = "read -r pid < <(timeout 300 tail -F -n +1 /run/neucad.pid 2> /dev/null)\n"
QUIETLY = "metadata='[metadata]\\nsources = file:/etc/neuca/doc.ini\\n'; printf \"$metadata\" > /etc/neuca/config.d/own.conf\n"
STATUS = f'code=0; {SCRIPT} status > /tmp/said || code=$?; sed "s/[0-9][0-9]*$/PID/" /tmp/said; echo $code\n'
SHELL = (
    "packaging/install packaging/install-all packaging/uninstall-all packaging/sources packaging/build-deb"
    " packaging/build-rpm packaging/debian/prerm packaging/debian/postrm sysvinit/neuca-guest-tools sysvinit/neuca-guest"
    " sysvinit/neuca-names sysvinit/neuca-host-keys"
).split()


def _lines(text: str) -> list[str]:
    """Without what lsb-base prints: Debian ends a message with a period, Ubuntu with a line of its own."""
    told = (".", "   ...done.")
    return [line for line in text.splitlines() if " NEuca agent" not in line and line not in told]


@pytest.mark.parametrize("script", SHELL)
def test_shellcheck_has_nothing_to_say(script):
    run("shellcheck", "--shell=sh", ROOT / script)


def test_start_status_and_stop(own_root, deb):
    said = own_root(
        INSTALL
        + QUIETLY
        + STATUS
        + f"{SCRIPT} start\n"
        + UP
        + 'cat "/proc/$pid/comm"\n'
        + STATUS
        + f"{SCRIPT} stop\n[ ! -e /proc/$pid ] && echo gone; ls /run/neucad.pid 2> /dev/null || true\n"
        + STATUS,
        deb,
    )
    assert _lines(said) == [
        "neucad is not running",
        "3",
        "neucad",
        "neucad is running with process id PID",
        "0",
        "gone",
        "neucad is not running",
        "3",
    ]


@pytest.mark.parametrize("name", ["guest-tools", "guest"])
def test_the_service_is_running_when_its_start_has_ended(own_root, deb, name):
    script = f"/etc/init.d/neuca-{name}"
    steps = f"{script} start > /dev/null; {script} status | tr -d 0-9; {script} stop > /dev/null\n"
    said = own_root(INSTALL + QUIETLY + 3 * steps, deb)
    what = {"guest-tools": "neucad", "guest": "neucad --guest"}[name]
    assert _lines(said) == 3 * [f"{what} is running with process id "]


def test_a_second_start_and_a_second_stop_change_nothing(own_root, deb):
    said = own_root(
        INSTALL
        + QUIETLY
        + f"{SCRIPT} start\n"
        + UP
        + f"{SCRIPT} start; echo $?; grep -cx $pid /run/neucad.pid\n{SCRIPT} stop; {SCRIPT} stop; echo $?\n",
        deb,
    )
    assert _lines(said) == ["0", "1", "0"]


def test_restart_and_reload(own_root, deb):
    said = own_root(
        INSTALL
        + QUIETLY
        + f"{SCRIPT} start\n"
        + UP
        + f"first=$pid; {SCRIPT} restart\n"
        + UP
        + f"[ $pid != $first ] && echo another\n{SCRIPT} reload; echo $?\n"
        "timeout 300 grep -qm1 'configuration reloaded' <(tail -F -n +1 /var/log/neuca/neucad.out) && echo again\n"
        f"{SCRIPT} stop\ncode=0; {SCRIPT} reload > /dev/null || code=$?; echo $code\n",
        deb,
    )
    assert _lines(said) == ["another", "0", "again", "7"]


def test_the_process_id_of_another_program_is_never_signalled(own_root, deb):
    said = own_root(
        INSTALL
        + "sleep 60 & echo $! > /run/neucad.pid\n"
        + STATUS
        + f"{SCRIPT} stop; kill -0 $! && echo alive\n",
        deb,
    )
    assert _lines(said) == ["neucad is dead, and its pid file exists", "1", "alive"]


def test_the_scripts_do_nothing_once_the_package_is_removed(own_root, deb):
    start = "for script in names host-keys guest-tools guest; do sh /etc/init.d/neuca-$script start; echo $?; done\n"
    said = own_root(INSTALL + "dpkg -r neuca-guest-tools > /dev/null\n" + start, deb)
    assert said.split() == ["0", "0", "0", "0"]


def test_the_host_itself_has_a_process_that_runs_when_a_run_is_due(own_root, deb):
    script, ended = "/etc/init.d/neuca-guest", "/run/neuca/guest-ran"
    said = own_root(
        INSTALL
        + QUIETLY
        + "printf '[metadata]\\npoll-interval = 1\\n' > /etc/neuca/config.d/poll.conf\n"
        "printf '[users]\\nann = no\\n' > /etc/neuca/doc.ini; neuca apply > /dev/null 2>&1 || true\n"
        f"{script} start > /dev/null; {script} start > /dev/null; cat /run/neuca-guest.pid > /tmp/pid\n"
        f"read -r _ < <(timeout 300 tail -F -c +1 {ended} 2> /dev/null | head -c 9; echo) && id -un ann\n"
        f"{script} status | tr -d 0-9; {script} stop > /dev/null; {script} status || echo $?\n"
        "kill -0 $(cat /tmp/pid) 2> /dev/null || echo gone\n",
        deb,
    )
    assert _lines(said) == [
        "ann",
        "neucad --guest is running with process id ",
        "neucad --guest is not running",
        "3",
        "gone",
    ]


def test_host_keys_are_made_once_and_only_for_a_server(own_root, deb):
    start = "/etc/init.d/neuca-host-keys start > /dev/null; echo $?; ls /etc/ssh | grep -c 'ssh_host_.*_key$' || true\n"
    said = own_root(
        INSTALL
        + "rm -f /etc/ssh/ssh_host_* /usr/sbin/sshd; ls /usr/bin/ssh-keygen > /dev/null\n"
        + start
        + "touch /usr/sbin/sshd; chmod +x /usr/sbin/sshd\n"
        + start
        + "rm /etc/ssh/ssh_host_rsa_key\n"
        + start,
        deb,
    )
    kinds = int(said.split()[3])  # of keys; ssh-keygen makes three on Debian 12, four on sid
    assert kinds >= 3
    assert said.split() == ["0", "0", "0", str(kinds), "0", str(kinds - 1)]


def test_names_come_before_the_network_and_the_agent_after_it():
    names = (ROOT / "sysvinit" / "neuca-names").read_text()
    agent = (ROOT / "sysvinit" / "neuca-guest-tools").read_text()
    assert re.search(r"X-Start-Before: +networking ", names)
    assert re.search(r"Default-Start: +S$", names, re.MULTILINE)
    assert re.search(r"Should-Start: +\$network .*neuca-names", agent)
    keys = (ROOT / "sysvinit" / "neuca-host-keys").read_text()
    assert re.search(r"X-Start-Before: +ssh ", keys)


def test_the_output_of_both_services_is_readable_by_root_only_under_any_umask(own_root, deb):
    guest = "/etc/init.d/neuca-guest"
    said = own_root(
        INSTALL
        + QUIETLY
        + "rm -rf /var/log/neuca; mkdir /var/log/neuca; echo Sesame > /var/log/neuca/neuca-guest.out\n"
        + f"umask 0; {SCRIPT} start\n"
        + UP
        + f"{guest} start > /dev/null\n"
        "stat -c '%n %a' /var/log/neuca/neucad.out /var/log/neuca/neuca-guest.out /run/neuca\n"
        "grep -c Sesame /var/log/neuca/neuca-guest.out || true\n"
        f"{guest} stop > /dev/null; {SCRIPT} stop\n",
        deb,
    )
    assert _lines(said) == [
        "/var/log/neuca/neucad.out 600",
        "/var/log/neuca/neuca-guest.out 600",
        "/run/neuca 755",
        "0",
    ]
