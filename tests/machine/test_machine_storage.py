"""iSCSI disks of a real target: late, with a wrong secret, with data on them, across a reboot, and taken away again."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import Done
from steps import STATUS, serve

SWITCH = "mkdir -p /etc/neuca/config.d; printf '[guest]\\nstorage = on\\n' > /etc/neuca/config.d/storage.conf"
SECRET, WRONG = "hush-hush-hush-1", "wrong-wrong-wrong"
TARGET = "iqn.2026-11.org.example:disks"
TGT = f"""<target {TARGET}>
    <backing-store /srv/blank>
        lun 1
    </backing-store>
    <backing-store /srv/data>
        lun 2
    </backing-store>
    <backing-store /srv/odd>
        lun 3
    </backing-store>
    incominguser joe {SECRET}
    initiator-name iqn.2026-11.org.example:me
</target>
"""
# Blank; a file system with a file; a partition table, which is no file system but no blank disk either.
DISKS = """cd /srv && truncate -s 64M blank data odd && mkfs.ext4 -q -F data && mkdir -p /tmp/at && mount -o loop data /tmp/at
echo precious > /tmp/at/file && umount /tmp/at && printf '\\125\\252' | dd of=odd bs=1 seek=510 conv=notrunc status=none
printf '\\0\\0\\2\\0\\203\\0\\0\\0\\0\\10\\0\\0\\0\\20\\0\\0' | dd of=odd bs=1 seek=446 conv=notrunc status=none
cksum data odd > sums"""
# What iscsiadm is called with, whoever calls it: this is found before the real one.
SPY = "#!/bin/sh\necho \"$@\" >> /var/tmp/arguments\nexec /usr/bin/iscsiadm \"$@\"\n"
MOUNTS = "findmnt --real --noheadings --output SOURCE,TARGET,FSTYPE,OPTIONS | grep /mnt || true"
SESSIONS = "ls /sys/class/iscsi_session 2> /dev/null || true"
LEAKS = ("grep -rlF {} /run/neuca /var/log; grep -rlF {} /var/lib/neuca --exclude=document.json;"
         " journalctl --quiet --no-pager | grep -F {};"
         " neuca status --json | grep -F {}; grep -F {} /var/tmp/arguments; true")


def document(*disks, secret=SECRET):
    lines = [f"dev{lun} = iscsi:127.0.0.1:3260:{lun}:joe:{secret}:yes:ext4::yes:/mnt/{lun}\n" for lun in disks]
    return "[global]\niscsi_initiator_iqn = iqn.2026-11.org.example:me\n" + ("[storage]\n" + "".join(lines) if disks else "")


def findings(done: Done):
    """Subject to state and text; empty while a run is due or under way."""
    if not done.output.startswith("{"):
        return {}
    feature = next((one for one in done.json["guest"] if one["feature"] == "storage"), {"finished": None})
    return {one["subject"]: (one["state"], one["text"]) for one in feature["findings"]} if feature["finished"] else {}


def until(guest, wanted, patience=600.0):
    return findings(guest.eventually(STATUS, lambda done: wanted(findings(done)), patience))


def give(guest, text):
    guest.serve(text)
    guest.check("neuca apply || true", 120)


def states(found):
    return {subject: state for subject, (state, _) in found.items()}


@pytest.mark.long
def test_disks_of_a_target_that_comes_late_has_data_and_is_there_again_after_a_reboot(guests):
    guest = guests("I")
    guest.boot()
    guest.put("/usr/sbin/iscsiadm", SPY)
    guest.put("/etc/tgt/conf.d/lab.conf", TGT)
    guest.check(f"chmod 755 /usr/sbin/iscsiadm; chmod 600 /etc/tgt/conf.d/lab.conf; {DISKS}", 120)
    guest.check(f"{SWITCH}; systemctl restart neuca-guest-tools", 120)

    # No target answers yet.
    give(guest, document(1, 2, 3))
    found = until(guest, lambda found: states(found) == dict.fromkeys(("dev1", "dev2", "dev3"), "failed"))
    assert found["dev1"][1].startswith("dev1: ask 127.0.0.1:3260 for its targets: iscsiadm ended with status ")
    assert guest.check(MOUNTS) == ""

    # It comes late, and nobody does anything else.
    guest.check("systemctl enable --now tgt.service", 120)
    found = until(guest, lambda found: states(found) == {"dev1": "ok", "dev2": "ok", "dev3": "failed"})
    assert found["dev3"][1].endswith('carries "dos", and not "ext4": it is left alone')
    mounted = dict(line.split()[1:3] for line in guest.check(MOUNTS).splitlines())
    assert mounted == {"/mnt/1": "ext4", "/mnt/2": "ext4"}
    assert guest.check("cat /mnt/2/file; ls /mnt/1").split() == ["precious", "lost+found"]
    guest.check("echo mine > /mnt/1/file; sync")
    assert guest.check("cd /srv; cksum odd") == guest.check("grep odd /srv/sums")

    # A reboot: the same disks at the same places, and nothing made anew.
    guest.reboot()
    until(guest, lambda found: states(found) == {"dev1": "ok", "dev2": "ok", "dev3": "failed"})
    assert guest.check("cat /mnt/1/file /mnt/2/file").split() == ["mine", "precious"]
    assert guest.check("stat -c %a $(find /etc/iscsi/nodes -type f)").split() == ["600"]

    # No longer asked for, but in use: it stays. Then it goes, and the record with the secret.
    guest.check("systemd-run --quiet --unit=holder --working-directory=/mnt/1 sleep infinity")
    give(guest, document())
    found = until(guest, lambda found: found.get("dev1", ("",))[0] == "failed" and found.get("dev2", ("",))[0] == "ok")
    assert found["dev1"][1].startswith("dev1: unmount /mnt/1: umount ended with status 32")
    assert "/mnt/1" in guest.check(MOUNTS)
    guest.check("systemctl stop holder")
    guest.eventually(MOUNTS, lambda done: done.output == "", 300)
    guest.eventually(SESSIONS, lambda done: done.output == "", 120)
    guest.eventually("find /etc/iscsi/nodes -type f", lambda done: done.output == "", 120)

    # A wrong secret is named, and not told.
    give(guest, document(1, secret=WRONG))
    found = until(guest, lambda found: states(found) == {"dev1": "failed"})
    assert found["dev1"][1].startswith(f"dev1: log in to {TARGET} at 127.0.0.1:3260: iscsiadm ended with status 24")
    assert guest.check(SESSIONS) == ""
    give(guest, document(1))
    until(guest, lambda found: states(found) == {"dev1": "ok"})
    assert guest.check("cat /mnt/1/file") == "mine\n"
    for secret in (SECRET, WRONG):
        assert guest.check(LEAKS.replace("{}", secret)) == ""
    assert "--login" in guest.check("cat /var/tmp/arguments")


@pytest.mark.long
def test_without_open_iscsi_there_is_a_problem_and_nothing_else(guests):
    guest = guests("A")
    guest.boot()
    guest.check(f"{SWITCH}; systemctl restart neuca-guest-tools", 120)
    status = serve(guest, document(1), "failed")
    assert [problem["text"] for problem in status["problems"]] == [
        "storage: iscsiadm is not installed (open-iscsi): no storage is attached"]
    assert guest.check("ls /var/lib/neuca | grep storage || true") == ""
