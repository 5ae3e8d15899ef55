"""Storage: what may be formatted and what may not, by the real programs on files; secrets; what the kernel's sysfs says."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from neuca_tools.config import Config
from neuca_tools.documents import parse
from neuca_tools.documents.neuca import filesystems
from neuca_tools.errors import ApplyError, ObserveError
from neuca_tools.guest import blockdev, iscsi, storage
from neuca_tools.guest.base import Finding, Guest
from neuca_tools.guest.iscsi import Target

MIB = 1 << 20
TARGET = Target("iqn.2026-11.org.example:a", "192.0.2.1", 3260)
LINE = "iscsi:192.0.2.1:3260:1:joe:hush-hush:yes:ext4::yes:/mnt/one"
TEXT = f"[global]\niscsi_initiator_iqn = iqn.2026-11.org.example:me\n[storage]\ndev1 = {LINE}\n"


@pytest.fixture
def disk(tmp_path):
    """A file of 16 MiB in place of a disk."""
    path = tmp_path / "disk"
    path.write_bytes(b"")
    os.truncate(path, 16 * MIB)
    return path


def test_a_disk_of_zeros_carries_nothing(disk):
    assert blockdev.read_signatures(disk) == {}


def test_a_file_system_is_made_and_found_with_its_uuid(disk):
    blockdev.make_file_system(disk, "ext4", "-F -b 2048")
    found = blockdev.read_signatures(disk)
    assert (found["TYPE"], len(found["UUID"]), found["BLOCK_SIZE"]) == ("ext4", 36, "2048")


@pytest.mark.parametrize("program", ["mkfs.ext4 -q -F", "mkfs.ext2 -q -F", "mkswap"])
def test_whatever_a_program_has_put_there_is_found(disk, program):
    blockdev.programs.run_program("make it", [*program.split(), str(disk)], 60.0)
    assert blockdev.read_signatures(disk) != {}


def test_a_partition_table_is_found(disk):
    partition = (
        bytes([0, 0, 2, 0, 0x83, 0, 0, 0])
        + (2048).to_bytes(4, "little")
        + (4096).to_bytes(4, "little")
    )
    with disk.open("r+b") as stream:
        stream.seek(446)
        stream.write(partition + bytes(48) + b"\x55\xaa")
    assert blockdev.read_signatures(disk)["PTTYPE"] == "dos"


@pytest.mark.parametrize(("offset", "magic"), [(4086, b"SWAPSPACE2"), (0, b"LUKS\xba\xbe\x00\x02"), (512, b"EFI PART"),
                                               (0x10040, b"_BHRfS_M")])  # fmt: skip
def test_what_only_one_of_two_programs_takes_for_a_signature_is_one(disk, offset, magic):
    """Damaged, or half overwritten: wipefs looks less closely than blkid."""
    with disk.open("r+b") as stream:
        stream.seek(offset)
        stream.write(magic)
    said = [
        blockdev.programs.run_program("look", ["wipefs", "-n", str(disk)], 60.0),
        blockdev.programs.run_program("look", ["blkid", "-p", str(disk)], 60.0, accepted=(0, 2)),
    ]
    assert bool(blockdev.read_signatures(disk)) is any(said)


def test_a_disk_that_cannot_be_read_is_not_taken_for_a_blank_one(tmp_path):
    with pytest.raises(ApplyError) as caught:
        blockdev.read_signatures(tmp_path / "none")
    assert caught.value.text == f"read {tmp_path}/none: No such file or directory"


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("ext4", "-F /dev/vda", 'its options: "/dev/vda" is not an option'),
        ("ext4", "'/dev/vda'", 'its options: "/dev/vda" is not an option'),
        ("ext4", "-- /dev/vda", 'its options: "/dev/vda" is not an option'),
        ("ext4", "-L x /dev/sda", 'its options: "/dev/sda" is not an option'),
        ("ext4", "-F dev/vda", 'its options: "dev/vda" is not an option'),
        ("ext4", "-J device=/dev/vda", 'its options: "device=/dev/vda" is refused for -J'),
        ("ext4", "-Jsize=4,device=UUID=1", 'its options: "size=4,device=UUID=1" is refused for -J'),
        ("ext4", "-b x", 'its options: "x" is refused for -b'),
        ("ext4", "-d /etc", "its options: option -d not recognized"),
        ("ext4", "-z /etc/passwd", "its options: option -z not recognized"),
        ("ext4", "-l /etc/shadow", "its options: option -l not recognized"),
        ("ext4", "-n", "its options: option -n not recognized"),
        ("ext4", "-b", "its options: option -b requires argument"),
        ("ext4", "'", "its options: No closing quotation"),
        ("ext4", "-L " + "x" * 1024, "its options are longer than 1024 characters"),
        ("xfs", "-l logdev=/dev/vda", 'its options: "logdev=/dev/vda" is refused for -l'),
        ("xfs", "-d name=/dev/vda", 'its options: "name=/dev/vda" is refused for -d'),
        ("xfs", "-d file,size=1g", 'its options: "file,size=1g" is refused for -d'),
        ("xfs", "-r rtdev=/dev/vda", "its options: option -r not recognized"),
        ("xfs", "-p /etc/passwd", "its options: option -p not recognized"),
        ("btrfs", "--rootdir /etc", "its options: option --rootdir not recognized"),
        ("btrfs", "-f /dev/vda", 'its options: "/dev/vda" is not an option'),
        ("vfat", "-C", "its options: option -C not recognized"),
        (
            "cramfs",
            "/etc",
            '"cramfs" is not one of the types ext2, ext3, ext4, xfs, btrfs, vfat',
        ),
        (
            "../x",
            "",
            '"../x" is not one of the types ext2, ext3, ext4, xfs, btrfs, vfat',
        ),
    ],
)
def test_an_option_that_names_another_device_or_a_file_is_refused(disk, kind, options, why):
    with pytest.raises(blockdev.RefusedError) as caught:
        blockdev.make_file_system(disk, kind, options)
    assert caught.value.text == f"create a file system of type {kind} on {disk}: {why}"
    assert blockdev.read_signatures(disk) == {}


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("ext4", "", []),
        ("ext4", "-Fb4096 -m 1", ["-F", "-b", "4096", "-m", "1"]),
        ("ext4", "-L '/a b'", ["-L", "/a b"]),
        ("ext3", "-J size=4 -O ^huge_file", ["-J", "size=4", "-O", "^huge_file"]),
        ("ext4", "-E nodiscard,stride=4", ["-E", "nodiscard,stride=4"]),
        ("xfs", "-f -m reflink=1 -l size=64m", ["-f", "-m", "reflink=1", "-l", "size=64m"]),
        ("btrfs", "--label=x -d single", ["--label=x", "-d", "single"]),
        ("vfat", "-F 32 -n DATA", ["-F", "32", "-n", "DATA"]),
    ],
)
def test_what_only_changes_the_new_file_system_is_allowed(kind, text, words):
    assert filesystems.mkfs_options(kind, text) == words


@pytest.mark.parametrize(
    "place",
    ["/", "/etc", "/etc/ssh", "/usr/local", "/var", "/var/lib", "/root/.ssh", "/var/run/x",
     "/var/spool", "/var/spool/cron/crontabs", "/var/lib/cloud/seed/nocloud", "/var/lib/dpkg"],
)  # fmt: skip
def test_nothing_is_mounted_over_the_system(place):
    with pytest.raises(blockdev.RefusedError) as caught:
        blockdev.check_mount_point(place)
    real = os.path.realpath(place)
    assert (
        caught.value.text == f"nothing is mounted at {place}: {real} is a directory of the system"
    )


@pytest.mark.parametrize(
    "place",
    "/bin /boot /dev /lib /lib32 /lib64 /libx32 /proc /root /run /sbin /sys /usr /var/lib/neuca"
    " /var/lib/rpm /var/lib/systemd /var/log".split(),
)
def test_nothing_is_mounted_over_the_system_where_it_is_not_merged_into_usr(place, monkeypatch):
    monkeypatch.setattr(blockdev, "real_path", str)
    with pytest.raises(blockdev.RefusedError):
        blockdev.check_mount_point(place)


@pytest.mark.parametrize("place", ["/mnt/one", "/srv", "/home", "/opt/x", "/var/lib/postgresql"])
def test_something_may_be_mounted_elsewhere(place):
    blockdev.check_mount_point(place)


def test_a_link_to_a_directory_of_the_system_is_no_way_round(tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(blockdev.RefusedError) as caught:
        blockdev.check_mount_point(f"{tmp_path}/link/x")
    text = f"nothing is mounted at {tmp_path}/link/x: /etc/x is a directory of the system"
    assert caught.value.text == text


def test_a_link_that_was_put_there_while_the_file_system_was_made_leads_nowhere(tmp_path):
    """A local user to whom a directory on the way belongs has that long for it."""
    place = tmp_path / "place"
    place.mkdir()
    blockdev.check_mount_point(str(place))
    place.rmdir()
    place.symlink_to("/etc/neuca-nonesuch")
    with pytest.raises(blockdev.RefusedError) as caught:
        blockdev.mount_by_uuid({"UUID": "0"}, "nonesuch", str(place))
    text = f"nothing is mounted at {place}: /etc/neuca-nonesuch is a directory of the system"
    assert (caught.value.text, Path("/etc/neuca-nonesuch").exists()) == (text, False)


REFUSALS = {
    errno.EACCES: "",
    errno.EROFS: "",
    errno.EBUSY: "busy",
    errno.ENODEV: 'the kernel has no file system "ext4"',
}


@pytest.mark.parametrize(("refusal", "text"), REFUSALS.items())
def test_a_write_protected_disk_is_mounted_read_only(tmp_path, monkeypatch, refusal, text):
    """As mount(8) does, for these errors alone; the kernel's flags are 1, 2 and 4."""
    flags = []

    def mount(*arguments):
        flags.append(arguments[4])
        if len(flags) == 1:
            raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(blockdev, "call", mount)
    with pytest.raises(OSError, match=text) if text else nullcontext():
        blockdev._mount_at("/dev/nonesuch", "ext4", str(tmp_path.resolve()))
    assert flags == [6] + [7] * (not text)


def test_a_disk_cannot_make_anybody_root():
    assert blockdev.OPTIONS.split(",") == ["_netdev", "nosuid", "nodev"]


def test_no_shell_reads_the_options(disk, tmp_path):
    blockdev.make_file_system(disk, "ext4", f'-F -L "a$(touch{tmp_path})"')
    assert blockdev.read_signatures(disk)["LABEL"].startswith("a\\$(touch")


@pytest.mark.parametrize("carries", ["", "ext2"])
@pytest.mark.parametrize(("is_requested", "kind"), [(True, "ext4"), (True, ""), (False, "ext4")])
def test_only_a_blank_disk_is_formatted_and_only_on_request(disk, carries, is_requested, kind):
    if carries:
        blockdev.make_file_system(disk, carries, "-F")
    before = disk.read_bytes()
    row = parse(TEXT).storage[0]._replace(format=is_requested, fs_type=kind)
    is_due = is_requested and kind and not carries
    # What uses it is asked first; that cannot be read of what is no disk.
    with pytest.raises(ApplyError, match="inspect none: ") if is_due else nullcontext():
        assert storage._format_blank_disk(row, "none", disk).get("TYPE", "") == carries
    assert disk.read_bytes() == before


def test_a_kernel_without_swap_is_no_bug(tmp_path, monkeypatch):
    monkeypatch.setattr(blockdev, "SYSFS", tmp_path)
    monkeypatch.setattr(blockdev, "SWAPS", tmp_path / "swaps")
    (tmp_path / "none").mkdir()
    (tmp_path / "none/dev").write_text("0:0\n")
    why = "it cannot be opened exclusively: No such file or directory"
    assert blockdev.in_use("none") == why


def test_every_mount_has_its_place_and_its_device():
    number = Path("/proc").stat().st_dev
    assert (
        blockdev.Mount(f"{os.major(number)}:{os.minor(number)}", "/proc") in blockdev.read_mounts()
    )


def test_a_mount_of_a_user_with_another_line_end_in_its_path_hides_none(tmp_path, monkeypatch):
    """The kernel escapes space, tab, newline and backslash only (show_mountinfo)."""
    monkeypatch.setattr(blockdev, "MOUNTS", tmp_path / "mountinfo")
    blockdev.MOUNTS.write_bytes(
        b"36 25 0:40 / /home/u/a\x0c\r\xc2\x85\\040b rw shared:1 - fuse.sshfs x rw\n"
        b"37 25 8:16 / /mnt/\xff - ext4 /dev/sdb rw\n"
    )
    assert blockdev.read_mounts() == [
        blockdev.Mount("0:40", "/home/u/a\x0c\r\x85 b"),
        blockdev.Mount("8:16", "/mnt/\udcff"),
    ]


def test_an_initiator_name_that_cannot_be_read_is_no_bug(tmp_path, monkeypatch):
    monkeypatch.setattr(iscsi, "INITIATOR", tmp_path)
    with pytest.raises(ObserveError, match=f'read "{tmp_path}": Is a directory'):
        iscsi.set_initiator_name("iqn.2026-11.org.example:a")


# --- what is judged -------------------------------------------------------------------------------------------------


def judged(found, at=(), **more):
    one = parse(
        TEXT.replace("/mnt/one", more.get("place", "/mnt/one")).replace(
            ":yes:/", f":{more.get('format', 'yes')}:/"
        )
    )
    with pytest.raises(ApplyError) as caught:
        storage._check_mountable(one.storage[0], Path("/dev/sdb"), found, list(at))
    return caught.value.text


def test_what_is_not_for_us_to_mount():
    assert (
        judged({}, format="no")
        == "/dev/sdb contains no file system, and the document does not request formatting"
    )
    assert judged({"TYPE": "xfs"}) == '/dev/sdb contains "xfs" instead of "ext4": it is left alone'
    assert (
        judged({"PTTYPE": "gpt"}) == '/dev/sdb contains "gpt" instead of "ext4": it is left alone'
    )
    assert judged({"TYPE": "ext4"}, ["/srv"]) == "/dev/sdb is mounted at /srv instead of /mnt/one"
    assert judged({"TYPE": "ext4"}, place="/") == "another file system is mounted at /"
    assert judged({"TYPE": "ext4"}, place="/proc") == "another file system is mounted at /proc"


def test_what_is_not_for_us_is_refused_and_not_tried_again_before_the_next_boot():
    def refusing():
        storage._check_mountable(parse(TEXT).storage[0], Path("/dev/sdb"), {"TYPE": "xfs"}, [])
        yield Finding("ok", "never")

    text = 'dev1: /dev/sdb contains "xfs" instead of "ext4": it is left alone'
    assert list(storage._findings_of_disk("dev1", refusing())) == [
        Finding("refused", text, "dev1", needs_retry=False)
    ]


# --- open-iscsi -----------------------------------------------------------------------------------------------------

NODE = """# BEGIN RECORD 2.1.8
node.name = iqn.2026-11.org.example:a
node.startup = automatic
node.session.auth.authmethod = None
node.session.timeo.replacement_timeout = 120
# END RECORD
"""


def test_the_credentials_go_into_the_record_once():
    own = ("joe", "hush # = hush")
    text = iscsi.with_credentials(NODE, own)
    assert text.splitlines()[-5:] == [
        "node.startup = manual",
        "node.session.auth.authmethod = CHAP",
        "node.session.auth.username = joe",
        "node.session.auth.password = hush # = hush",
        "# END RECORD",
    ]
    assert iscsi.with_credentials(text, own) == text
    assert "hush" not in iscsi.with_credentials(text, ("", ""))
    assert iscsi.with_credentials(text, ("", "")).splitlines()[-2:] == [
        "node.session.auth.authmethod = None",
        "# END RECORD",
    ]


def test_with_mutual_chap_the_record_says_what_the_target_has_to_show():
    own = ("joe", "hush-hush-hush")
    text = iscsi.with_credentials(NODE, own, ("disks", "other-secret"))
    assert text.splitlines()[-7:] == [
        "node.startup = manual",
        "node.session.auth.authmethod = CHAP",
        "node.session.auth.username = joe",
        "node.session.auth.password = hush-hush-hush",
        "node.session.auth.username_in = disks",
        "node.session.auth.password_in = other-secret",
        "# END RECORD",
    ]
    assert "_in" not in iscsi.with_credentials(text, own)


@pytest.mark.parametrize("bad", ["a\nnode.startup = automatic", "a\r", "\x85", "\u2028"])
def test_no_credential_begins_another_line_of_the_record(bad):
    for own, its in ((("joe", bad), ("", "")), (("joe", "a"), (bad, "b"))):
        with pytest.raises(ApplyError) as caught:
            iscsi.with_credentials(NODE, own, its)
        text = "write the record of an iSCSI target: a credential has control characters"
        assert caught.value.text == text


@pytest.mark.parametrize("tag", ["", "x", "1,2", "123456", "-1"])
def test_a_portal_group_is_a_number(tag):
    said = f"192.0.2.1:3260,{tag} {TARGET.name}\n"
    assert iscsi.parse_targets(said, "192.0.2.1", 3260) == {}


@pytest.mark.parametrize("layout", ["192.0.2.1,3260,1/default", "192.0.2.1,3260,1"])
def test_the_record_is_for_root_only(tmp_path, monkeypatch, layout):
    monkeypatch.setattr(iscsi, "RECORDS", (tmp_path / "none", tmp_path))
    path = tmp_path / TARGET.name / layout
    assert iscsi.record_paths(TARGET) == []
    path.parent.mkdir(parents=True)
    path.write_text(NODE)
    path.chmod(0o644)
    iscsi.write_credentials(TARGET, ("joe", "hush"), ("", ""))
    assert (path.stat().st_mode & 0o777, "auth.password = hush" in path.read_text()) == (
        0o600,
        True,
    )


def test_no_word_of_a_command_is_the_secret():
    assert TARGET.command("--login") == [
        "iscsiadm",
        "--mode",
        "node",
        "--targetname",
        TARGET.name,
        "--portal",
        "192.0.2.1:3260",
        "--login",
    ]


@pytest.mark.parametrize(
    "iqn", ["iqn.2026-11.org.example:me", "eui.02004567A425678D", "naa.52004567BA64678D"]
)
def test_iscsi_names(iqn):
    assert iscsi.IQN.fullmatch(iqn)
    assert not iscsi.IQN.fullmatch(f"{iqn}\nInitiatorName=x")
    assert not iscsi.IQN.fullmatch(f"{iqn} x")


@pytest.mark.parametrize(
    "name",
    ["iqn.2026-13.org.example:a", "iqn.2026-00.a", "eui.0200", "naa.5", "naa.52004567BA64678G"],
)
def test_what_is_no_iscsi_name(name):
    assert not iscsi.IQN.fullmatch(name)


def sysfs(root, number, target, address, port, luns):
    connection, session = (
        root / f"iscsi_connection/connection{number}:0",
        root / f"iscsi_session/session{number}",
    )
    for path, text in (
        (session / "targetname", target),
        (connection / "persistent_address", address),
        (connection / "persistent_port", port),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    for lun, disk in luns.items():
        (session / f"device/target{number}:0:0/{number}:0:0:{lun}/block/{disk}").mkdir(parents=True)


def test_a_disk_is_found_by_target_portal_and_lun(tmp_path, monkeypatch):
    monkeypatch.setattr(iscsi, "SYSFS", tmp_path)
    assert (iscsi.find_session(TARGET), iscsi.disks_by_lun(TARGET)) == (None, {})
    sysfs(tmp_path, 2, TARGET.name, "192.0.2.9", 3260, {1: "sda"})
    sysfs(tmp_path, 3, "iqn.2026-11.org.example:b", TARGET.ip, 3260, {1: "sdb"})
    assert iscsi.disks_by_lun(TARGET) == {}
    sysfs(tmp_path, 12, TARGET.name, TARGET.ip, 3260, {1: "sdc", 11: "sdd"})
    assert iscsi.disks_by_lun(TARGET) == {1: "sdc", 11: "sdd"}
    sysfs(tmp_path, 13, TARGET.name, "[fd00::1]", 3260, {1: "sde"})
    assert iscsi.disks_by_lun(Target(TARGET.name, "fd00::1", 3260)) == {1: "sde"}


def test_a_disk_that_disappears_at_once_is_no_bug(tmp_path, monkeypatch):
    """Whatever is done with it next says so."""
    monkeypatch.setattr(iscsi, "SYSFS", tmp_path / "sys")
    monkeypatch.setattr(iscsi.programs, "PATH", f"{tmp_path}:{iscsi.programs.PATH}")
    (tmp_path / "udevadm").write_text(f"#!/bin/sh\nrm -r {tmp_path}/sys\n")
    (tmp_path / "udevadm").chmod(0o755)
    sysfs(tmp_path / "sys", 12, TARGET.name, TARGET.ip, 3260, {1: "sdc"})
    assert iscsi.wait_for_disk(TARGET, 1) == "sdc"
    assert iscsi.disks_by_lun(TARGET) == {}


OTHER = Target("iqn.2026-11.org.example:b", "192.0.2.1", 3260)


@pytest.fixture
def offers(tmp_path, monkeypatch):
    """In the place of iscsiadm, for no unit test has a portal: it offers what the test says."""
    monkeypatch.setattr(storage.programs, "PATH", f"{tmp_path}:{storage.programs.PATH}")

    def put(*targets):
        lines = "".join(f"{target.portal},1 {target.name}\n" for target in targets)
        (tmp_path / "iscsiadm").write_text(f"#!/bin/sh\nprintf '{lines}'\n")
        (tmp_path / "iscsiadm").chmod(0o755)

    return put


def found(before=None):
    return storage._target_of_disk(
        parse(TEXT).storage[0], before and storage.AttachedDisk(*before, 1)
    )


def test_the_only_target_of_a_portal_is_meant_under_whatever_name(offers):
    offers(TARGET)
    assert (found(), found(OTHER)) == ((TARGET, "1"), (TARGET, "1"))


def test_of_several_targets_that_which_was_attached_before_is_meant_and_else_none(offers):
    offers(TARGET, OTHER)
    assert found(OTHER) == (OTHER, "1")
    with pytest.raises(ApplyError) as caught:
        found()
    assert caught.value.text == (
        f"192.0.2.1:3260 offers 2 targets ({TARGET.name}, {OTHER.name}), and the document does not say"
        " which one is meant"
    )


def test_a_portal_without_a_target_for_us_is_an_error(offers):
    offers()
    with pytest.raises(ApplyError) as caught:
        found()
    assert caught.value.text == "192.0.2.1:3260 offers 0 targets to this host"


# --- a run ----------------------------------------------------------------------------------------------------------


def run(tmp_path, text):
    return list(storage.set_up_storage(Guest(Config(state_directory=tmp_path), parse(text))))


def test_without_storage_nothing_is_said(tmp_path):
    assert (
        run(tmp_path, "[global]\nhost_name = a\n")
        == run(tmp_path, TEXT.replace(":yes:ext4", ":no:ext4"))
        == []
    )


def test_without_open_iscsi_it_is_a_problem_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(storage.programs, "PATH", str(tmp_path))
    assert run(tmp_path, TEXT) == [
        Finding("failed", "iscsiadm is not installed (open-iscsi): no storage is attached")
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "why"), [("", "is absent"), ("iscsi_initiator_iqn = me", "is not an iSCSI name")]
)
def test_without_a_name_for_the_initiator_nothing_is_attached(tmp_path, monkeypatch, line, why):
    (tmp_path / "iscsiadm").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "iscsiadm").chmod(0o755)
    monkeypatch.setattr(storage.programs, "PATH", str(tmp_path))
    text = TEXT.replace("iscsi_initiator_iqn = iqn.2026-11.org.example:me", line)
    assert run(tmp_path, text) == [
        Finding("refused", f'no storage is attached: "iscsi_initiator_iqn" of [global] {why}')
    ]


def test_fields_that_a_line_leaves_out_are_absent_and_no_error():  # defect k of 1.7
    document = parse("[storage]\ndev1 = iscsi:192.0.2.1:3260:1:joe:hush:yes\n")
    assert document.faults == ()
    assert (
        document.storage[0].fs_type,
        document.storage[0].format,
        document.storage[0].mount_point,
    ) == ("", False, "")


def test_what_an_image_must_not_have_is_the_records_of_targets_that_are_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(iscsi, "RECORDS", (tmp_path / "nodes",))
    config = Config(state_directory=tmp_path)
    assert storage.own_files(config) == []
    kept = [
        tmp_path / "nodes" / target.name / "192.0.2.1,3260,1/default" for target in (TARGET, OTHER)
    ]
    for path in kept:
        path.parent.mkdir(parents=True)
        path.touch()
    record = storage._Record(tmp_path / storage.RECORD)
    for device, target, ours in (
        ("dev1", TARGET, True),
        ("dev2", TARGET, True),
        ("dev3", OTHER, False),
    ):
        record.keep(device, storage.AttachedDisk(*target, 1, ours))
    assert storage.own_files(config) == kept[:1]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"disks": {"dev1": {"lun": 1}}}', "\x00"])
def test_a_record_that_cannot_be_used_is_an_error_and_not_empty(tmp_path, content):
    """Else nobody would know which sessions are ours to end, and whose secrets are where."""
    (tmp_path / storage.RECORD).write_text(content)
    for ask in (
        storage.own_files,
        lambda config: list(storage.set_up_storage(Guest(config, parse(TEXT)))),
    ):
        with pytest.raises(ApplyError) as caught:
            ask(Config(state_directory=tmp_path))
        assert caught.value.text.startswith(
            f'read "{tmp_path}/{storage.RECORD}": it is not what neucad wrote: '
        )
    assert (tmp_path / storage.RECORD).read_text() == content


def test_the_record_tells_no_secret_and_goes_with_its_last_disk(tmp_path):
    record = storage._Record(tmp_path / storage.RECORD)
    record.keep("dev1", storage.AttachedDisk(*TARGET, 1, True, "/mnt/one"))
    text = (tmp_path / storage.RECORD).read_text()
    assert json.loads(text)["disks"]["dev1"] == {
        "target": TARGET.name,
        "ip": TARGET.ip,
        "port": 3260,
        "lun": 1,
        "ours": True,
        "mounted": "/mnt/one",
    }
    assert storage._Record(tmp_path / storage.RECORD).known == record.known
    record.keep("dev1", None)
    assert not (tmp_path / storage.RECORD).exists()


ISCSIADM = """#!/bin/sh
here=HERE
echo "$*" | sed "s/--mode node --targetname [^ ]* --portal //" >> $here/said
node=$here/nodes/iqn.2026-11.org.example:a
session=$here/sys/iscsi_session/session7 connection=$here/sys/iscsi_connection/connection7:0
case "$*" in
*discovery*) echo "192.0.2.1:3260,1 iqn.2026-11.org.example:a" ;;
*new*) mkdir -p $node/192.0.2.1,3260,1 && echo node.startup = automatic > $node/192.0.2.1,3260,1/default ;;
*--login*|*--rescan*) mkdir -p $session/device/target7:0:0/7:0:0:1/block/null $connection
    echo iqn.2026-11.org.example:a > $session/targetname
    echo 192.0.2.1 > $connection/persistent_address && echo 3260 > $connection/persistent_port ;;
*--logout*) rm -r $here/sys ;;
*delete*) rm -r $node ;;
esac
"""
DISK = TEXT.replace(":ext4::yes:/mnt/one", "")


@pytest.fixture
def initiator(tmp_path, monkeypatch):
    """An iscsiadm whose only disk is /dev/null, in which nothing is found; what it was told since the last call."""
    programs = {
        "iscsiadm": ISCSIADM.replace("HERE", str(tmp_path)),
        "udevadm": "",
        "blkid": "",
        "wipefs": "",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text or "#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(storage.programs, "PATH", f"{tmp_path}:{storage.programs.PATH}")
    monkeypatch.setattr(storage.programs, "SYSTEMD_DIRECTORY", tmp_path / "none")
    monkeypatch.setattr(blockdev, "SYSFS", tmp_path / "block")
    (tmp_path / "block/null/holders").mkdir(parents=True)
    (tmp_path / "block/null/dev").write_text("1:3\n")
    (tmp_path / "name").write_text("# by hand\nInitiatorName=iqn.2026-11.org.example:me\n")
    for name, path in (
        ("INITIATOR", tmp_path / "name"),
        ("SYSFS", tmp_path / "sys"),
        ("RECORDS", (tmp_path / "nodes",)),
    ):
        monkeypatch.setattr(iscsi, name, path)

    def told():
        (tmp_path / "said").touch()
        lines = (tmp_path / "said").read_text().splitlines()
        (tmp_path / "said").unlink()
        return [line.removeprefix("192.0.2.1:3260").strip() for line in lines]

    return told


def test_a_disk_is_attached_once_and_detached_when_it_is_no_longer_requested(tmp_path, initiator):
    attached = [
        Finding("pending", "dev1: is being attached", "dev1"),
        Finding("ok", "dev1: it is /dev/null", "dev1"),
    ]
    assert run(tmp_path, DISK) == attached
    discovery = "--mode discovery --type sendtargets --op nonpersistent --portal 192.0.2.1:3260"
    assert initiator() == [discovery, ",1 --op new", "--login"]
    (record,) = iscsi.record_paths(TARGET)
    assert record.read_text().splitlines()[0] == "node.startup = manual"
    assert storage._Record(tmp_path / storage.RECORD).known == {
        "dev1": storage.AttachedDisk(*TARGET, 1, ours=True)
    }
    assert (run(tmp_path, DISK), initiator()) == (attached, [])
    two = DISK + DISK.splitlines()[-1].replace("dev1", "dev2") + "\n"
    assert [finding.state for finding in run(tmp_path, two)] == ["pending", "ok"] * 2
    assert run(tmp_path, DISK.replace("dev1", "dev2"))[0] == Finding(
        "ok", "dev1: is no longer attached", "dev1"
    )
    assert initiator() == [discovery]
    assert run(tmp_path, "[global]\nhost_name = a\n") == [
        Finding("ok", "dev2: is no longer attached", "dev2")
    ]
    assert initiator() == ["--logout", "--op delete"]
    assert not (tmp_path / storage.RECORD).exists()


def test_a_session_of_another_program_gets_no_secret_and_is_left_to_it(tmp_path, initiator):
    sysfs(tmp_path / "sys", 7, TARGET.name, TARGET.ip, TARGET.port, {2: "other"})
    iscsi.create_record(TARGET, "1")
    assert initiator() == [",1 --op new"]
    assert run(tmp_path, DISK)[-1] == Finding("ok", "dev1: it is /dev/null", "dev1")
    assert initiator()[1:] == ["--rescan"]
    assert iscsi.record_paths(TARGET)[0].read_text() == "node.startup = automatic\n"
    run(tmp_path, "[global]\nhost_name = a\n")
    assert initiator() == []
