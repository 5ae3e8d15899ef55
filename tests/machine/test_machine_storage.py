"""iSCSI disks of a real target: late, with a wrong secret, with data on them, across a reboot, in use, and taken away again."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import Done
from steps import serve

SECRET, WRONG = "hush-hush-hush-1", "wrong-wrong-wrong"
MUTUAL = "mine-mine-mine-1"  # what the target shows
TARGET = "iqn.2026-11.org.example:disks"
ME = "iqn.2026-11.org.example:me"


def target(*files, mutual=""):
    """The file of tgt for it: each of these is a LUN, from 1 on. `mutual` is a secret that it shows itself."""
    stores = "".join(
        f"    <backing-store /srv/{file}>\n        lun {lun}\n    </backing-store>\n"
        for lun, file in enumerate(files, 1)
    )
    users = f"    incominguser joe {SECRET}\n"
    users += f"    outgoinguser disks {mutual}\n" if mutual else ""
    return f"<target {TARGET}>\n{stores}{users}    initiator-name {ME}\n</target>\n"


# Blank; a file system with a file; a partition table, which is no file system but no blank disk either.
DISKS = """set -e; cd /srv && truncate -s 64M blank data odd later && mkfs.ext4 -q -F data && mkdir -p /tmp/at
mount -o loop data /tmp/at && echo precious > /tmp/at/file && umount /tmp/at
printf '\\125\\252' | dd of=odd bs=1 seek=510 conv=notrunc status=none
printf '\\0\\0\\2\\0\\203\\0\\0\\0\\0\\10\\0\\0\\0\\20\\0\\0' | dd of=odd bs=1 seek=446 conv=notrunc status=none
cksum data odd > sums"""
# What iscsiadm is called with, whoever calls it.
SPY = '#!/bin/sh\necho "$@" >> /var/tmp/arguments\nexec /usr/sbin/iscsiadm.real "$@"\n'
# What status goes by; to ask for a status takes an emulated processor five seconds.
SAID = "cd /run/neuca && test ! -e guest-due -a ! -e guest-begun && cat guest-storage.json"
MOUNTS = (
    "findmnt --real --list --noheadings --output SOURCE,TARGET,FSTYPE,OPTIONS | grep /mnt || true"
)
SESSIONS = "ls /sys/class/iscsi_session 2> /dev/null || true"
LEAKS = (
    "grep -rlF {} /run/neuca /var/log; grep -rlF {} /var/lib/neuca --exclude=document.json;"
    " journalctl --quiet --no-pager | grep -F {};"
    " neuca status --json | grep -F {}; grep -F {} /var/tmp/arguments; true"
)


def document(*disks, secret=SECRET, mutual=""):
    lines = [
        f"dev{lun} = iscsi:127.0.0.1:3260:{lun}:joe:{secret}:yes:ext4::yes:/mnt/{lun}\n"
        for lun in disks
    ]
    lines += [f"dev{lun}.mutual-chap = disks:{mutual}\n" for lun in disks if mutual]
    return f"[global]\niscsi_initiator_iqn = {ME}\n" + (
        "[storage]\n" + "".join(lines) if disks else ""
    )


def findings(done: Done):
    """Subject to state and text; empty while a run is due or under way."""
    feature = done.json if done.code == 0 else {"finished": None}
    return (
        {one["subject"]: (one["state"], one["text"]) for one in feature["findings"]}
        if feature["finished"]
        else {}
    )


def until(guest, wanted, patience=600.0):
    return findings(guest.eventually(SAID, lambda done: wanted(findings(done)), patience))


def give(guest, text):
    guest.serve(text)
    guest.check("neuca apply || true", 120)


def states(found):
    return {subject: state for subject, (state, _) in found.items()}


def with_disks(guests):
    """A guest whose target does not exist yet, and where whatever iscsiadm is called with is noted."""
    guest = guests("I")
    guest.boot()
    guest.put("/etc/tgt/conf.d/lab.conf", target("blank", "data", "odd"))
    guest.check(f"chmod 600 /etc/tgt/conf.d/lab.conf; {DISKS}", 120)
    guest.check("mv /usr/sbin/iscsiadm /usr/sbin/iscsiadm.real")
    guest.put("/usr/sbin/iscsiadm", SPY)
    guest.check("chmod 755 /usr/sbin/iscsiadm")
    return guest


def assert_no_leak(guest):
    """Whatever iscsiadm was called with is in /var/tmp/arguments, whatever the agent said in the journal."""
    assert "--login" in guest.check("cat /var/tmp/arguments")
    for secret in (SECRET, WRONG, MUTUAL):
        assert guest.check(LEAKS.replace("{}", secret), 120) == ""


MOUNTED = {"dev1": "ok", "dev2": "ok", "dev3": "refused"}


@pytest.mark.long
def test_after_a_reboot_disks_of_a_late_target_return_with_their_contents(
    guests,
):
    guest = with_disks(guests)
    give(guest, document(1, 2, 3))
    found = until(guest, lambda found: states(found) == dict.fromkeys(MOUNTED, "failed"))
    assert found["dev1"][1].startswith(
        "dev1: query the targets of 127.0.0.1:3260: iscsiadm ended with status "
    )
    assert guest.check(MOUNTS) == ""

    # It comes late, and nobody does anything else.
    guest.check("systemctl enable --now tgt.service", 120)
    found = until(guest, lambda found: states(found) == MOUNTED)
    assert found["dev3"][1].endswith('contains "dos" instead of "ext4": it is left alone')
    mounted = {line.split()[1]: line.split()[2] for line in guest.check(MOUNTS).splitlines()}
    assert mounted == {"/mnt/1": "ext4", "/mnt/2": "ext4"}
    assert guest.check("cat /mnt/2/file; ls /mnt/1").split() == ["precious", "lost+found"]
    guest.check("echo mine > /mnt/1/file; sync")
    assert guest.check("cd /srv; cksum odd") == guest.check("grep odd /srv/sums")

    # The target gets a disk more, under the session that there is.
    guest.check(
        "tgtadm --lld iscsi --op new --mode logicalunit --tid 1 --lun 4 --backing-store /srv/later"
    )
    guest.put("/etc/tgt/conf.d/lab.conf", target("blank", "data", "odd", "later"))
    give(guest, document(1, 2, 3, 4))
    until(guest, lambda found: states(found) == {**MOUNTED, "dev4": "ok"})
    guest.check("echo more > /mnt/4/file; sync")

    # A reboot: the same disks at the same places, and nothing made anew.
    guest.reboot()
    until(guest, lambda found: states(found) == {**MOUNTED, "dev4": "ok"})
    assert guest.check("cat /mnt/1/file /mnt/2/file /mnt/4/file").split() == [
        "mine",
        "precious",
        "more",
    ]
    assert guest.check("stat -c %a $(find /etc/iscsi/nodes -type f)").split() == ["600"]
    assert_no_leak(guest)


@pytest.mark.long
def test_a_wrong_secret_is_reported_but_not_shown_and_a_disk_in_use_stays(guests):
    guest = with_disks(guests)
    guest.check("systemctl enable --now tgt.service", 120)
    give(guest, document(1, secret=WRONG))
    found = until(guest, lambda found: states(found) == {"dev1": "failed"})
    assert found["dev1"][1].startswith(
        f"dev1: log in to {TARGET} at 127.0.0.1:3260: iscsiadm ended with status 24"
    )
    assert guest.check(SESSIONS) == ""

    give(guest, document(1, 3))
    until(guest, lambda found: states(found) == {"dev1": "ok", "dev3": "refused"})
    own = "/dev/disk/by-path/*-lun-3-part1"
    guest.check(f"mkfs.ext2 -q {own} && mkdir /tmp/own && mount {own} /tmp/own")
    guest.check(
        "echo mine > /mnt/1/file; systemd-run --quiet --unit=holder --working-directory=/mnt/1 sleep infinity"
    )

    # No longer asked for, but somebody is at /mnt/1; then a partition of the user's is all that is in use.
    give(guest, document())
    found = until(guest, lambda found: states(found) == {"dev1": "failed", "dev3": "ok"})
    assert found["dev1"][1].startswith("dev1: unmount /mnt/1: umount ended with status 32")
    assert "/mnt/1" in guest.check(MOUNTS)
    guest.check("systemctl stop holder")
    found = until(guest, lambda found: "log out" in found.get("dev1", ("", ""))[1], 120)
    assert found["dev1"][1].startswith(f"dev1: log out of {TARGET}: /dev/sd")
    assert found["dev1"][1].endswith(
        " is in use: it cannot be opened exclusively: Device or resource busy"
    )
    assert (guest.check(MOUNTS), guest.check("ls /tmp/own").strip()) == ("", "lost+found")
    guest.check("umount /tmp/own")
    guest.eventually(SESSIONS, lambda done: done.output == "", 120)
    guest.eventually("find /etc/iscsi/nodes -type f", lambda done: done.output == "", 120)

    # Asked for again, it has what it had; and an image of this guest has neither secret nor name.
    give(guest, document(1))
    until(guest, lambda found: states(found) == {"dev1": "ok"})
    assert guest.check("cat /mnt/1/file") == "mine\n"
    assert_no_leak(guest)
    assert guest.check(
        f"grep -rlF {SECRET} /etc/iscsi/nodes; grep -h Name= /etc/iscsi/initiatorname.iscsi"
    ).split()[1:] == [f"InitiatorName={ME}"]
    guest.check("neuca clean", 120)
    assert guest.check("find /etc/iscsi -type f").split() == ["/etc/iscsi/iscsid.conf"]


@pytest.mark.long
def test_with_mutual_chap_only_the_target_that_knows_its_secret_is_logged_in_to(guests):
    guest = with_disks(guests)
    guest.put("/etc/tgt/conf.d/lab.conf", target("blank", mutual=WRONG))
    guest.check("systemctl enable --now tgt.service", 120)
    give(guest, document(1, mutual=MUTUAL))
    found = until(guest, lambda found: states(found) == {"dev1": "failed"})
    assert found["dev1"][1].startswith(
        f"dev1: log in to {TARGET} at 127.0.0.1:3260: iscsiadm ended with status "
    )
    assert (guest.check(SESSIONS), guest.check(MOUNTS)) == ("", "")

    # A target that shows nothing is none of ours either.
    guest.put("/etc/tgt/conf.d/lab.conf", target("blank"))
    guest.check("systemctl restart tgt.service; systemctl restart neuca-guest.service", 120)
    until(guest, lambda found: states(found) == {"dev1": "failed"})
    assert guest.check(SESSIONS) == ""

    guest.put("/etc/tgt/conf.d/lab.conf", target("blank", mutual=MUTUAL))
    guest.check("systemctl restart tgt.service", 120)
    until(guest, lambda found: states(found) == {"dev1": "ok"})
    assert guest.check(MOUNTS).split()[1] == "/mnt/1"
    options = guest.check(MOUNTS).split()[3].split(",")
    assert {"nosuid", "nodev"} <= set(options)
    assert guest.check("stat -c %a $(find /etc/iscsi/nodes -type f)").split() == ["600"]
    assert_no_leak(guest)


@pytest.mark.long
def test_without_open_iscsi_there_is_a_problem_and_nothing_else(guests):
    guest = guests("A")
    guest.boot()
    status = serve(guest, document(1), "failed")
    assert [problem["text"] for problem in status["problems"]] == [
        "storage: iscsiadm is not installed (open-iscsi): no storage is attached"
    ]
    assert guest.check("ls /var/lib/neuca | grep storage || true") == ""
