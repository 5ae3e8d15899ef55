"""A captured guest, written to a new disk, boots as a new host with every attribute intact."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from guest import MANAGEMENT, mac
from qemu import Nic
from steps import ADDRESSES, DOCUMENT, dataplane, in_force, names

SIZE = 3 << 30  # bytes of the new disk, which is sparse
PLANT = """
import os, struct
os.makedirs("/srv/kept/dir", mode=0o2750)
open("/srv/kept/file", "w").write("content")
os.chown("/srv/kept/file", 1234, 4321)
os.link("/srv/kept/file", "/srv/kept/dir/same")
os.symlink("nowhere", "/srv/kept/link")
os.mkfifo("/srv/kept/pipe", 0o600)
with open("/srv/kept/sparse", "wb") as sparse:
    sparse.seek(64 << 20)
    sparse.write(b"end")
os.setxattr("/srv/kept/file", "user.origin", b"\\x00\\xff")
os.setxattr("/srv/kept/file", "trusted.note", b"root only")
# Version 2 of an ACL, with read access for user 1000 (acl(5), <linux/posix_acl_xattr.h>).
entries = ((1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF))
acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
os.setxattr("/srv/kept/file", "system.posix_acl_access", acl)
os.setxattr("/srv/kept/dir", "system.posix_acl_default", acl)
# cap_net_raw, effective and permitted (<linux/capability.h>, version 2).
open("/srv/kept/program", "w").write("#!/bin/true")
os.setxattr("/srv/kept/program", "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
os.utime("/srv/kept/file", ns=(1, 1_234_567_890_123_456_789))
"""
ATTRIBUTES = """
import hashlib, os, stat
found = sorted(os.path.join(top, name) for top, dirs, files in os.walk("/srv/kept") for name in dirs + files)
for path in [*found, "/usr/bin/ping", "/usr/bin/sudo", "/etc/shadow"]:
    if not os.path.lexists(path):
        continue
    one = os.lstat(path)
    print(path, oct(one.st_mode), one.st_uid, one.st_gid, one.st_mtime_ns, one.st_blocks < 1 << 12, end=" ")
    if not stat.S_ISDIR(one.st_mode):
        print(one.st_nlink, one.st_size, end=" ")
    for name in sorted(os.listxattr(path, follow_symlinks=False)):
        print(f"{name}={os.getxattr(path, name, follow_symlinks=False).hex()}", end=" ")
    if stat.S_ISREG(one.st_mode):
        print(hashlib.sha256(open(path, "rb").read()).hexdigest()[:16], end="")
    print()
"""
RESTORE = """set -e
mkfs.ext4 -q /dev/vdb
mount /dev/vdb /mnt
tar --extract --file=/root/image.tar --directory=/mnt --numeric-owner --preserve-permissions --acls --xattrs --xattrs-include='*'
umount /mnt"""


@pytest.mark.long
def test_a_captured_guest_boots_from_a_new_disk_as_a_new_host(guests, tmp_path):
    guest, disk = guests("A"), tmp_path / "disk.img"
    without_the_disk = guest.image
    with disk.open("wb") as new:
        new.truncate(SIZE)
    drive = f"file={disk},if=none,id=new,format=raw,discard=unmap"
    guest.equip("-drive", drive, "-device", "virtio-blk-pci,drive=new,addr=0x1f")
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    guest.check("python3 -", 300, PLANT.encode())
    kept = guest.check("python3 -", 300, ATTRIBUTES.encode())
    identity = guest.check("cat /etc/machine-id /etc/ssh/ssh_host_*_key.pub")
    before = guest.check("cd /var/lib/neuca && sha256sum *.json")
    guest.check("neuca image capture /root/image.tar", 3600)
    assert guest.check("cd /var/lib/neuca && sha256sum *.json") == before
    guest.check("cd /root && sha256sum --check image.tar.sha256", 600)
    guest.check(RESTORE, 3600)
    guest.shut_down()

    image = replace(without_the_disk, folder=tmp_path)
    for path in (guest.image.kernel, guest.image.initrd):
        (tmp_path / path.name).symlink_to(path)
    other = [
        Nic("52:54:00:00:00:77", 0x10, management=True),
        *(Nic(mac(n), n + 16) for n in (7, 8)),
    ]
    copy = guests("A", other, of=image)
    document = f"[interfaces]\n{mac(7)} = up:ipv4:172.16.0.7/24\n"
    copy.serve(document)
    copy.boot()
    status = in_force(copy, document)
    assert {one["mac"]: one["role"] for one in status["interfaces"]} == {
        "52:54:00:00:00:77": "management",
        mac(7): "dataplane",
        mac(8): "unlisted",
    }
    found = copy.check("python3 -", 300, ATTRIBUTES.encode())
    assert found == kept
    assert "user.origin=00ff" in found
    copy.eventually("systemctl is-active ssh.service", lambda done: done.output == "active\n")
    lines = copy.check("cat /etc/machine-id /etc/ssh/ssh_host_*_key.pub").splitlines()
    assert len(lines) == len(identity.splitlines())
    assert not {*lines} & {*identity.splitlines()}
    known = names(copy)
    assert not known.keys() & {MANAGEMENT, *ADDRESSES}
    assert dataplane(copy)[mac(7)] == {"172.16.0.7/24"}
    assert copy.reachable()
