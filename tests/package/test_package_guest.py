"""What the installed agent does for the host itself, with the real useradd, visudo and sudo, in a root of its own."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re

import pytest
from packages import INSTALL, ROOT, run

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="these tests do not run as root, and have no other user to become"
)

KEY, OTHER = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK01 a@b",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC02 c@d",
)
BEGIN = "# BEGIN neuca-guest-tools: what is between these two lines is written anew"
END = "# END neuca-guest-tools"
# The agent alone: to build and install a package for each of these takes a while.
UNPACK = r"""
for directory in /root /home; do mount -t tmpfs -o mode=0755 none $directory; done
tar -xf /tmp/agent.tar -C /usr/lib/python3/dist-packages; mkdir -p /etc/neuca/config.d
for name in neuca neucad; do
    printf '#!/usr/bin/python3 -I\nimport sys\nfrom neuca_tools.commands.%s import main\n' $name > /usr/bin/$name
    echo 'sys.exit(main())' >> /usr/bin/$name
    chmod +x /usr/bin/$name
done
"""
PREPARE = """
printf '[metadata]\\nsources = file:/etc/neuca/doc.ini\\n' > /etc/neuca/config.d/own.conf
ip link set lo up
guest() { code=0; neucad --guest 2>&1 || code=$?; echo "exit $code"; }
asks() { printf '[global]\\nrouter = user\\n%b\\n' "$1" > /etc/neuca/doc.ini; neuca apply > /dev/null 2>&1 || true; }
state() { find /home /root /etc/sudoers.d /etc/passwd /etc/shadow -exec stat -c '%n %i %a %U:%G %Y' {} + | sort; }
"""


@pytest.fixture(scope="session")
def agent(tmp_path_factory):
    """The agent as it now is, compiled files included."""
    tar = tmp_path_factory.mktemp("agent") / "agent.tar"
    run("tar", "-cf", tar, "-C", ROOT, "neuca_tools")
    return tar


def test_a_user_is_made_with_keys_and_sudo_and_a_second_run_changes_nothing(own_root, agent):
    said = own_root(
        UNPACK
        + PREPARE
        + f"asks '[users]\nalice = yes:{KEY}:{OTHER}\n'\n"
        + """
        guest
        getent passwd alice | cut -d: -f6,7; getent shadow alice | cut -d: -f2
        stat -c '%n %a %U:%G' /home/alice/.ssh /home/alice/.ssh/authorized_keys /etc/sudoers.d/neuca-alice
        stat -c '%n %a %U:%G' /var/lib/neuca/guest-users.json
        cat /home/alice/.ssh/authorized_keys
        visudo --check > /dev/null && runuser -u alice -- sudo -n id -u
        state > /tmp/before; guest; state | diff /tmp/before - && echo same
        """,
        agent,
    )
    assert said.splitlines() == [
        'users: "alice": created, 2 keys',
        'users: "alice" may use sudo',
        "exit 0",
        "/home/alice:/bin/bash",
        "*",
        "/home/alice/.ssh 700 alice:alice",
        "/home/alice/.ssh/authorized_keys 600 alice:alice",
        "/etc/sudoers.d/neuca-alice 440 root:root",
        "/var/lib/neuca/guest-users.json 600 root:root",
        BEGIN,
        KEY,
        OTHER,
        END,
        "0",
        'users: "alice": 2 keys',
        "exit 0",
        "same",
    ]


def test_a_user_that_is_there_keeps_all_but_the_marked_lines_and_loses_them_alone(own_root, agent):
    said = own_root(
        UNPACK
        + PREPARE
        + f"useradd -m -s /bin/sh -c 'Bob B.' bob; mkdir -m 0755 /home/bob/.ssh; cd /home/bob/.ssh\n"
        f"printf '%s' '{OTHER}' > authorized_keys; chmod 0640 authorized_keys; chown -R bob:bob .\n"
        f"cp -p authorized_keys /tmp/mine; getent passwd bob > /tmp/passwd; getent shadow bob >> /tmp/passwd\n"
        f"asks '[users]\nbob = yes:{KEY}\n'\n"
        + """
        guest; cat authorized_keys; echo; stat -c '%a %U' . authorized_keys; ls /etc/sudoers.d/neuca-*
        asks '[users]\\nbob = no'
        guest; ls /etc/sudoers.d | grep -c neuca || true
        asks ''
        guest; cmp authorized_keys /tmp/mine && stat -c '%a %U' authorized_keys
        { getent passwd bob; getent shadow bob; } | cmp - /tmp/passwd && ls /var/lib/neuca | grep -c guest-users || true
        """,
        agent,
    )
    assert said.splitlines() == [
        'users: "bob": 1 key',
        'users: "bob" may use sudo',
        "exit 0",
        BEGIN,
        KEY,
        END,
        OTHER,
        "755 bob",
        "640 bob",
        "/etc/sudoers.d/neuca-bob",
        'users: "bob": 0 keys',
        "exit 0",
        "0",
        'users: "bob" is no longer requested: its keys and its sudo file are removed',
        "exit 0",
        "640 bob",
        "0",
    ]


PLANTED = {
    "a link in the place of the directory": (
        "ln -s /root /home/eve/.ssh",
        '"/home/eve/.ssh": it is a symbolic link, which is not followed',
    ),
    "a link in the place of the file": (
        "mkdir /home/eve/.ssh; ln -s /etc/shadow /home/eve/.ssh/authorized_keys",
        '"/home/eve/.ssh/authorized_keys": it is a symbolic link, which is not followed',
    ),
    "a pipe that nobody writes to": (
        "mkdir /home/eve/.ssh; mkfifo /home/eve/.ssh/authorized_keys",
        '"/home/eve/.ssh/authorized_keys": it is not a regular file',
    ),
    "a file in the place of the directory": (
        "touch /home/eve/.ssh",
        '"/home/eve/.ssh": it is not a directory',
    ),
    "half a pair of marks": (
        f"mkdir /home/eve/.ssh; echo '{BEGIN}' > /home/eve/.ssh/authorized_keys",
        (
            '"/home/eve/.ssh/authorized_keys": its marked lines are damaged: it does not have exactly one BEGIN and one END of'
            " neuca-guest-tools"
        ),
    ),
    "a directory that only root may write to": (
        "mkdir /home/eve/.ssh; chmod 0500 /home/eve/.ssh",
        '"/home/eve/.ssh/authorized_keys": Permission denied',
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_user_has_planted_is_left_as_it_is_and_costs_only_its_keys(own_root, agent, name):
    plant, why = PLANTED[name]
    said = own_root(
        UNPACK
        + PREPARE
        + f'useradd -m eve; runuser -u eve -- sh -c "{plant}"; mkdir -p /root/.ssh\n'
        f"asks '[users]\neve = yes:{KEY}\nfay = no:{KEY}\n'\n"
        + """
        find /home/eve /root -printf '%p %i %M %u %s\\n' | sort > /tmp/before
        guest
        find /home/eve /root -printf '%p %i %M %u %s\\n' | sort | diff /tmp/before - && echo untouched
        """,
        agent,
    )
    assert said.splitlines() == [
        f'users: "eve": keys: {why}',
        'users: "eve" may use sudo',
        'users: "fay": created, 1 key',
        "exit 1",
        "untouched",
    ]


def test_keys_that_sshd_would_not_read_are_a_failure_that_says_so(own_root, agent):
    said = own_root(
        UNPACK
        + PREPARE
        + f"useradd -m gus; chmod 0777 /home/gus; asks '[users]\ngus = no:{KEY}\n'\nguest\n",
        agent,
    )
    assert said.splitlines() == [
        'users: "gus": sshd ignores the keys: "/home/gus" is writable by users other than its owner',
        "exit 0",
    ]


def test_names_that_are_no_names_make_no_user(own_root, agent):
    names = [
        "-rf",
        "--root",
        "../etc",
        "a b",
        "x%wheel",
        "x$",
        "root;id",
        "a" * 40,
        "7up",
        "x.y",
        "ALL",
    ]
    lines = "\n".join(f"{name} = yes:{KEY}" for name in names)
    said = own_root(
        UNPACK
        + PREPARE
        + f"cp /etc/passwd /tmp/passwd\nasks '[users]\n{lines}\n'\nguest | tail -1\n"
        "diff /tmp/passwd /etc/passwd || true; ls /etc/sudoers.d | grep neuca; ls /home\n",
        agent,
    )
    # Keys are case-insensitive: the last is the user "all", which is none of sudo's words.
    assert re.sub(r"\d+", "N", said).split() == [
        "exit",
        "N",
        "NaN",
        ">",
        "all:x:N:N::/home/all:/bin/bash",
        "neuca-all",
        "all",
    ]


def test_a_sudo_file_of_somebody_else_is_left_alone(own_root, agent):
    said = own_root(
        UNPACK
        + PREPARE
        + "mine=/etc/sudoers.d/neuca-hal; echo '# mine' > $mine; chmod 0440 $mine\n"
        "asks '[users]\nhal = yes\n'\nguest; cat $mine; asks ''; guest; cat $mine\n",
        agent,
    )
    assert said.splitlines() == [
        'users: "hal": created, 0 keys',
        'users: let "hal" use sudo: "/etc/sudoers.d/neuca-hal" was not written by neuca-guest-tools, and is left alone',
        "exit 1",
        "# mine",
        'users: "hal" is no longer requested: its keys and its sudo file are removed',
        "exit 0",
        "# mine",
    ]


def test_l_sudoers_itself_is_never_written_and_no_rule_that_visudo_refuses_is(own_root, agent):
    """Defect l of 1.7: see tests/unit/test_defects.py."""
    said = own_root(
        UNPACK
        + PREPARE
        + "stat -c '%i %a %Y' /etc/sudoers > /tmp/before; asks '[users]\nivy = yes\n'\n"
        "printf '#!/bin/sh\\necho no such rule >&2\\nexit 1\\n' > /usr/sbin/visudo\n"
        "guest; ls -A /etc/sudoers.d | grep ivy || true\n"
        "stat -c '%i %a %Y' /etc/sudoers | diff /tmp/before - && echo same\n",
        agent,
    )
    assert said.splitlines() == [
        'users: "ivy": created, 0 keys',
        'users: let "ivy" use sudo: visudo ended with status 1: no such rule',
        "exit 1",
        "same",
    ]


def test_a_run_that_is_killed_half_way_is_finished_by_the_next(own_root, agent):
    said = own_root(
        UNPACK + PREPARE + f"asks '[users]\njoe = yes:{KEY}\n'\n"
        "cp /usr/sbin/useradd /tmp/useradd; rm /usr/sbin/useradd\n"
        "printf '#!/bin/sh\\n/tmp/useradd \"$@\"; kill -9 $PPID\\n' > /usr/sbin/useradd; chmod +x /usr/sbin/useradd\n"
        "neucad --guest > /dev/null 2>&1 || true; id -un joe; ls -A /home/joe | grep -c ssh || true\n"
        "cp /tmp/useradd /usr/sbin/useradd\nguest; cat /home/joe/.ssh/authorized_keys\n",
        agent,
    )
    assert said.splitlines() == [
        "joe",
        "0",
        'users: "joe": 1 key',
        'users: "joe" may use sudo',
        "exit 0",
        BEGIN,
        KEY,
        END,
    ]


def test_a_sealed_image_has_no_keys_and_no_sudo_of_its_users(own_root, agent):
    said = own_root(
        UNPACK + PREPARE + f"asks '[users]\nkim = yes:{KEY}\n'\nguest > /dev/null\n"
        "neuca clean --keep-identity | grep kim\n"
        "cat /home/kim/.ssh/authorized_keys; ls /etc/sudoers.d | grep -c neuca || true; id -un kim\n",
        agent,
    )
    assert said.splitlines() == [
        'remove the keys of "kim"',
        'remove "/etc/sudoers.d/neuca-kim"',
        "0",
        "kim",
    ]


def test_a_purge_takes_the_sudo_files(own_root, deb):
    said = own_root(
        INSTALL + PREPARE + f"asks '[users]\nlea = yes:{KEY}\n'\nguest > /dev/null\n"
        "dpkg --purge neuca-guest-tools > /dev/null; ls /etc/sudoers.d | grep -c neuca || true\n"
        "ls -d /var/lib/neuca 2> /dev/null || echo gone; id -un lea\n",
        deb,
    )
    assert said.splitlines() == ["0", "gone", "lea"]


def test_the_host_name_is_set_without_systemd(own_root, agent):
    before = os.uname().nodename
    said = own_root(
        UNPACK
        + PREPARE
        + "printf '[global]\\nhost_name = node0.example.org\\n' > /etc/neuca/doc.ini\n"
        "cp /etc/hosts /tmp/hosts; neuca apply > /dev/null 2>&1 || true; ls /run/neuca/guest-due\n"
        "neucad --guest 2>&1; uname -n; cat /etc/hostname; head -3 /etc/hosts\n"
        "tail -n +4 /etc/hosts | cmp - /tmp/hosts && ls /run/neuca/guest-due 2> /dev/null || echo done\n",
        agent,
    )
    assert said.splitlines() == [
        "/run/neuca/guest-due",
        'hostname: the host name is "node0.example.org"',
        "node0.example.org",
        "node0.example.org",
        BEGIN,
        "127.255.255.1\tnode0.example.org node0",
        END,
        "done",
    ]
    assert os.uname().nodename == before, "the test has renamed the machine it runs on"


GETTERS = "user-data interfaces routes users storage user-script all-user-scripts".split()


def test_getters_show_secrets_to_root_alone(own_root, agent):
    document = (
        f"[global]\nhost_name = node0\nslice_id = s-17\ncomettoken = CANARY1\n[users]\nann = no:{KEY}\n"
        "[storage]\ndev = iscsi:10.0.0.9:3260:0:CANARY2:CANARY3:no\n[scripts]\nbootscript = echo CANARY4\n"
        "[interfaces]\nfe163e006daf = user\n"
    )
    said = own_root(
        UNPACK
        + PREPARE
        + f"printf '%b' '{document}' > /etc/neuca/doc.ini; neuca apply > /dev/null 2>&1 || true\n"
        + f"every() {{ for name in {' '.join(GETTERS)}; do $1 neuca $name || true; done; }}\n"
        "every '' > /tmp/root; every 'runuser -u nobody --' > /tmp/nobody\n"
        "grep -o 'CANARY.' /tmp/root | sort -u; echo and; grep -c 'CANARY\\|AAAA' /tmp/nobody || true\n"
        "neuca get slice_id; runuser -u nobody -- neuca get slice_id || echo $?\n"
        "runuser -u nobody -- neuca get host_name; runuser -u nobody -- neuca interfaces; neuca distro\n",
        agent,
    )
    lines = said.splitlines()
    assert lines[:8] == [
        "CANARY1",
        "CANARY2",
        "CANARY3",
        "CANARY4",
        "and",
        "0",
        "s-17",
        "Not found",
    ]
    assert lines[8:11] == ["1", "node0", "fe163e006daf = user"]
    assert lines[11] in ("debian", "ubuntu", "fedora")
