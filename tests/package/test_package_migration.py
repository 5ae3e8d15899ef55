"""The package over an installation of version 1.7: its options, rules and state, and the names of the NICs."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re

import pytest
from packages import INSTALL, QUIET, ROOT
from version17 import VERSION_17

pytestmark = pytest.mark.skipif(
    os.getuid() != 0, reason="these tests do not run as root, and have no other user to become"
)

OLD_PACKAGE = f"rm -f /usr/bin/*py3compile /var/lib/man-db/auto-update\n{VERSION_17}"
UPGRADE = "dpkg --force-unsafe-io --force-confold -i /tmp/neuca-guest-tools_2*.deb 2>&1\n"
SILENTLY = UPGRADE.replace(" 2>&1", " > /dev/null 2>&1")
NICS = """
mount -t sysfs none /sys
for nic in "ae mgmt" "af dp1" "b0 dp2" "b9 mine"; do
    set -- $nic; ip link add $2 address fe:16:3e:00:6d:$1 type veth peer name peer$1; ip link set peer$1 up
done
ip link set lo up; ip link set mgmt up; ip address add 10.0.0.2/24 dev mgmt; ip route add default via 10.0.0.1
ip link set dp1 up; ip address add 172.16.0.1/24 dev dp1
names() { ip -br link show type veth | sed -n 's/^\\(mgmt\\|dp[12]\\|mine\\)@.* \\(fe:[^ ]*\\) .*/\\1 \\2/p' | sort; }
cat > /etc/neuca/config.d/test.conf <<END
[linux]
managers = none
[metadata]
sources = file:/tmp/user-data
END
cat > /tmp/user-data <<END
[global]
host_name = Node0
[interfaces]
fe163e006daf = up:ipv4:172.16.0.1/24
fe163e006db0 = up:ipv4:172.16.1.1/24
fe163e006db9 = up:ipv4:172.16.9.1/24
[scripts]
bootscript = #!/bin/sh
    echo ran >> /tmp/ran
END
"""
REPORT = """\
neuca-guest-tools: found what version 1.7 has left; see /usr/share/doc/neuca-guest-tools/MIGRATING.md
  note: /etc/neuca/config: [runtime] "pidfile-timeout" = "5": obsolete, it has no effect
  note: /etc/neuca/config: [runtime] "testing" = "false": obsolete, it has no effect
  note: /etc/neuca/config: [logging] "log-retain" = "5": obsolete, it has no effect
  "/etc/udev/rules.d/10-neuca-persistent-fe163e006daf.rules" (dp1): the first pass replaces it, and renames nothing
  "/etc/udev/rules.d/10-neuca-persistent-fe163e006db0.rules" (dp2): the first pass replaces it, and renames nothing
  "/etc/udev/rules.d/20-neuca-persistent-fe163e006dae.rules" (mgmt): the first pass replaces it, and renames nothing
  "/var/lib/neuca/bootscript": this script has run, and is not run again
  "/var/lib/neuca/storage/disk1": not used any more, and may hold a CHAP secret: delete it
  "/var/log/neuca/neuca-agent.log": not written any more; see "journalctl -u neuca-guest-tools"
  "/usr/local/bin/neuca-get": hides /usr/bin/neuca-get: delete it
"""
# Version 1.7, neuca_guest_tools/__init__.py and its sample configuration.
OPTIONS = """set-loopback-hostname loopback-address dataplane-macs-to-ignore state-directory pid-directory pid-file command-timeout
    pidfile-timeout testing udev-directory udev-substring data-udev-priority mgmt-udev-priority log-directory log-file log-level
    log-retain log-size log-file-size""".split()


def test_an_upgrade_keeps_the_options_and_says_what_becomes_of_the_rest(own_root, deb):
    said = own_root(QUIET + OLD_PACKAGE + UPGRADE + "cat /tmp/stopped /etc/neuca/config\n", deb)
    assert REPORT in said
    assert "the old neucad: stop\n" in said
    assert "loopback-address = 127.255.255.7\n" in said


def test_the_first_pass_replaces_the_rules_and_renames_nothing(own_root, deb):
    said = own_root(
        QUIET
        + OLD_PACKAGE
        + SILENTLY
        + NICS
        + """
        names > /tmp/before; neucad --once > /tmp/log 2>&1 || true; names | diff /tmp/before - && echo same names
        cat /tmp/before; ls /etc/udev/rules.d | grep neuca
        cat /etc/udev/rules.d/*-neuca-* | sed -n 's/.*address}=="\\(.*\\)", ENV.*NAME:="\\(.*\\)"/\\1 \\2/p'
        grep -c 'generated udev persistent' /etc/udev/rules.d/*neuca* || true
        ip -br address show dev dp1 | awk '{ print $3 }'
        neuca plan; neucad --guest > /dev/null 2>&1 || true; cat /tmp/ran 2> /dev/null || echo not run again
        grep -v '^$' /etc/hosts
        """,
        deb,
    )
    assert said.splitlines() == [
        "same names",
        "dp1 fe:16:3e:00:6d:af",
        "dp2 fe:16:3e:00:6d:b0",
        "mgmt fe:16:3e:00:6d:ae",
        "mine fe:16:3e:00:6d:b9",
        "10-neuca-persistent-fe163e006daf.rules",
        "10-neuca-persistent-fe163e006db0.rules",
        "20-neuca-persistent-fe163e006dae.rules",
        "fe:16:3e:00:6d:af dp1",
        "fe:16:3e:00:6d:b0 dp2",
        "fe:16:3e:00:6d:ae mgmt",
        "/etc/udev/rules.d/10-neuca-persistent-fe163e006daf.rules:0",
        "/etc/udev/rules.d/10-neuca-persistent-fe163e006db0.rules:0",
        "/etc/udev/rules.d/20-neuca-persistent-fe163e006dae.rules:0",
        "172.16.0.1/24",
        "nothing to do",
        "left alone: mine: it is on the list of NICs to ignore",
        "not run again",
        "# BEGIN neuca-guest-tools: what is between these two lines is written anew",
        "127.255.255.7\tNode0",
        "# END neuca-guest-tools",
        "127.0.0.1 localhost",
    ]


def test_an_image_is_cleaned_of_what_version_1_7_left(own_root, deb):
    said = own_root(
        QUIET
        + OLD_PACKAGE
        + SILENTLY
        + "neuca clean > /dev/null; find /var/lib/neuca /var/log/neuca /etc/udev/rules.d -name '*neuca*' -o -type f -path '*neuca*'\n",
        deb,
    )
    left = [line for line in said.splitlines() if not line.endswith(("/neuca", "/host-keys"))]
    assert left == []


def test_a_first_installation_says_nothing_of_version_1_7(own_root, deb):
    assert "1.7" not in own_root(INSTALL.replace("> /dev/null", "2>&1"), deb)


def test_every_option_of_version_1_7_is_in_the_table():
    page = (ROOT / "docs" / "MIGRATING.md").read_text()
    table = page.partition("## Options, side by side")[2].partition("\n## ")[0]
    assert set(OPTIONS) <= set(re.findall(r"`([a-z-]+)", table))
