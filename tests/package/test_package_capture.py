"""`neuca image capture` of a small root with everything that a copy can lose, on the real kernel: the copy is clean and whole."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
import tarfile

import pytest
from packages import ENVIRONMENT, ROOT

from neuca_tools.guest.blocks import BEGIN, END
from neuca_tools.state.store import save_state

KEYS = "ssh-ed25519 AAAA own\n"
CAPABILITY = bytes.fromhex("0100000200040000000000000000000000000000")  # cap_net_raw=ep
# As the command does it, but for a root that is not this machine's. A tmpfs is mounted below it.
CAPTURE = """
import signal, subprocess, sys
from pathlib import Path
from neuca_tools.commands import clean, common
from neuca_tools.config import load_config

root, destination = Path(sys.argv[1]), Path(sys.argv[2])
subprocess.run(["mount", "-t", "tmpfs", "none", root / "mnt"], check=True)
(root / "mnt" / "foreign").write_text("of another file system")
config = load_config(root / "etc/neuca/config")
sys.exit(common.run_guarded(lambda _: clean.capture_image(config, root, destination), None))
"""
MOVED = """[runtime]
state-directory = {0}/var/lib/neuca
run-directory = {0}/run/neuca
[linux]
udev-directory = {0}/etc/udev/rules.d
networkmanager-directory = {0}/etc/NetworkManager/conf.d
networkmanager-profiles = {0}/etc/NetworkManager/system-connections
networkd-directory = {0}/etc/systemd/network
sysctl-directory = {0}/etc/sysctl.d
[logging]
log-directory = {0}/var/log/neuca
"""
RULE = "etc/udev/rules.d/10-neuca-persistent-fe163e006daf.rules"
FOREIGN_RULE = "etc/udev/rules.d/70-persistent-net.rules"
GONE = (RULE, "var/lib/neuca/record.json", "etc/ssh/ssh_host_rsa_key", "var/lib/systemd/random-seed", "mnt/foreign",
        "run/left", "tmp/left")  # fmt: skip


@pytest.fixture
def root(tmp_path):
    top = tmp_path / "root"
    for name in ("mnt", "var/lib/neuca", "home/a b", "bin", "srv"):
        (top / name).mkdir(parents=True, exist_ok=True)
    texts = {**dict.fromkeys(GONE[:4], "left"), "run/left": "", "tmp/left": "", FOREIGN_RULE: "mine",
             "etc/neuca/config": MOVED.format(top), "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
             "etc/systemd/system/multi-user.target.wants/neuca-host-keys.service": "", "bin/ping": "a program",
             "home/a b/new\nline \\ and \\n": "odd", "srv/acl": "x", "srv/one": "linked", "var/lib/neuca/mine": "kept"}  # fmt: skip
    for name, text in texts.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "etc/machine-id").chmod(0o444)
    (top / "bin/ping").chmod(0o4755)
    os.setxattr(top / "bin/ping", "security.capability", CAPABILITY)
    os.setxattr(top / "srv", "user.note", b"\x00\xff")
    os.setxattr(top / "etc/machine-id", "security.neuca", b"label")
    _run("setfacl", "--modify", "user:12345:rwx", top / "srv/acl")
    _run("setfacl", "--default", "--modify", "group:54321:r", top / "srv")
    os.link(top / "srv/one", top / "bin/two")
    with (top / "srv/sparse").open("wb") as stream:
        stream.seek(64 << 20)
        stream.write(b"end")
    (top / "srv/link").symlink_to("/etc/shadow")
    os.mkfifo(top / "srv/pipe", 0o640)
    os.mknod(top / "srv/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.chown(top / "srv/one", 12345, 54321)
    return top


def _run(*words):
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=600)


def _start(root, destination):
    command = ["unshare", "--mount", sys.executable, "-c", CAPTURE, root, destination]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def captured(root, destination):
    process = _start(root, destination)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def contents(root):
    """All that there is below a root, without the times of access."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        digest = (
            hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        )
        attributes = {
            name: os.getxattr(path, name, follow_symlinks=False)
            for name in os.listxattr(path, follow_symlinks=False)
        }
        link = str(path.readlink()) if path.is_symlink() else ""
        owner = (status.st_uid, status.st_gid, status.st_mode, status.st_rdev)
        where = (status.st_nlink, status.st_mtime_ns)
        found[str(path.relative_to(root))] = (owner, where, attributes, digest, link)
    return found


def unpacked(archive, place):
    place.mkdir()
    _run("tar", "--extract", f"--file={archive}", f"--directory={place}", "--acls", "--xattrs", "--xattrs-include=*",
         "--numeric-owner", "--same-permissions")  # fmt: skip
    return place


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_the_copy_has_every_attribute_and_is_clean_and_the_host_is_as_before(
    root, tmp_path, ending
):
    before = contents(root)
    destination = tmp_path / f"image{ending}"
    code, out, err = captured(root, destination)
    assert (code, err) == (0, "")
    assert contents(root) == before
    assert [path.stat().st_mode & 0o777 for path in tmp_path.glob("image*")] == [0o600] * 3
    files = out.splitlines()
    assert f'in the copy: remove "{root / RULE}"' in files
    assert f'in the copy: empty "{root}/etc/machine-id"' in files
    copy = unpacked(destination, tmp_path / "copy")
    after = contents(copy)
    machine_id = after.pop("etc/machine-id")
    expected = {name: one for name, one in before.items() if name not in GONE}
    # Its time is that of its last change: machine-id was added to it after all other files.
    assert after.pop("etc")[0] == expected.pop("etc")[0]
    was = expected.pop("etc/machine-id")
    assert after == expected
    assert (machine_id[0], machine_id[2]) == (was[0], was[2])
    assert machine_id[3] == hashlib.sha256(b"").hexdigest()
    assert (copy / "bin/two").stat().st_ino == (copy / "srv/one").stat().st_ino
    assert (copy / "srv/sparse").stat().st_blocks * 512 < 1 << 20
    assert "system.posix_acl_access" in after["srv/acl"][2]
    assert "system.posix_acl_default" in after["srv"][2]


def test_a_hard_link_to_a_symbolic_link_is_copied(root, tmp_path):
    os.link(root / "srv/link", root / "bin/link", follow_symlinks=False)
    before = contents(root / "bin")
    code, _, err = captured(root, tmp_path / "image.tar")
    assert (code, err) == (0, "")
    assert contents(unpacked(tmp_path / "image.tar", tmp_path / "copy") / "bin") == before


def test_attributes_that_tar_does_not_keep_are_named(root, tmp_path):
    _run("chattr", "+i", root / "srv/one")
    _run("chattr", "+d", root / "home/a b")
    try:
        code, out, err = captured(root, tmp_path / "image.tar")
    finally:
        _run("chattr", "-i", root / "srv/one")
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if "chattr" in line] == [
        'not captured: the attributes of "/home/a b" that chattr sets',
        'not captured: the attributes of "/srv/one" that chattr sets',
    ]


def test_sha256sum_accepts_the_manifest_and_notices_a_change(root, tmp_path):
    destination = tmp_path / "image.tar"
    captured(root, destination)
    copy = unpacked(destination, tmp_path / "copy")
    check = ["sha256sum", "--check", "--strict", "--quiet"]
    subprocess.run([*check, "image.tar.sha256"], cwd=tmp_path, check=True)
    command = [*check, tmp_path / "image.tar.manifest"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    files = [path for path in copy.rglob("*") if path.is_file() and not path.is_symlink()]
    manifest = (tmp_path / "image.tar.manifest").read_text().splitlines()
    assert len(manifest) == len(files)
    (copy / "bin/two").write_text("changed")
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
    assert set(done.stdout.splitlines()) == {"./bin/two: FAILED", "./srv/one: FAILED"}


def test_a_destination_inside_the_source_is_not_in_itself(root):
    destination = root / "home" / "image.tar"
    code, _, err = captured(root, destination)
    assert (code, err) == (0, "")
    with tarfile.open(destination) as archive:
        assert [name for name in archive.getnames() if "image.tar" in name] == []
    assert sorted(path.name for path in (root / "home").iterdir()) == [
        "a b", "image.tar", "image.tar.manifest", "image.tar.sha256",
    ]  # fmt: skip


def test_a_full_destination_is_an_error_that_leaves_nothing(root, tmp_path):
    (root / "srv/large").write_bytes(os.urandom(1 << 20))
    place = tmp_path / "small"
    place.mkdir()
    _run("mount", "-t", "tmpfs", "-o", "size=256k", "none", place)
    try:
        code, _, err = captured(root, place / "image.tar")
        assert code == 1
        assert err.splitlines()[-1] == (
            f'neuca: write "{place}/image.tar": No space left on device'
        )
        assert list(place.iterdir()) == []
    finally:
        _run("umount", place)


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_an_interrupted_capture_is_no_image_and_the_next_one_is_whole(root, tmp_path, signal_):
    (root / "srv/large").write_bytes(os.urandom(24 << 20))  # takes xz many seconds
    destination = tmp_path / "image.tar.xz"
    process = _start(root, destination)
    while process.poll() is None and not list(tmp_path.glob("image*")):
        os.sched_yield()
    if signal_ == signal.SIGINT:  # as from a terminal
        os.killpg(process.pid, signal_)
    else:
        process.send_signal(signal_)
    process.communicate(timeout=600)  # also tar and xz, which write to the same pipes
    is_killed = signal_ == signal.SIGKILL
    assert process.returncode == (-signal_ if is_killed else 128 + signal_)
    assert not destination.exists()
    if not is_killed:
        assert list(tmp_path.glob("image*")) == []
    (root / "srv/large").unlink()
    before = contents(root)
    code, _, err = captured(root, destination)
    assert (code, err, contents(root)) == (0, "", before)
    assert sorted(path.name for path in tmp_path.glob("image*")) == [
        "image.tar.xz", "image.tar.xz.manifest", "image.tar.xz.sha256",
    ]  # fmt: skip


def _with_keys(root, content):
    """The one user that every machine has was requested by a document."""
    (root / "root/.ssh").mkdir(parents=True)
    keys = root / "root/.ssh/authorized_keys"
    keys.write_text(content)
    keys.chmod(0o600)
    save_state(root / "var/lib/neuca", "guest-users.json", {"logins": ["root"]}, 0o600)
    return keys


def test_keys_of_a_requested_user_are_not_in_the_copy(root, tmp_path):
    keys = _with_keys(root, f"{BEGIN.decode()}\nssh-rsa BBBB\n{END.decode()}\n{KEYS}")
    before = contents(root)
    code, out, err = captured(root, tmp_path / "image.tar")
    assert (code, err) == (0, "")
    assert 'in the copy: remove the keys of "root"' in out.splitlines()
    assert contents(root) == before
    copied = unpacked(tmp_path / "image.tar", tmp_path / "copy") / "root/.ssh/authorized_keys"
    assert copied.read_text() == KEYS
    assert copied.stat().st_mode == keys.stat().st_mode


def test_no_link_that_a_user_has_planted_is_followed(root, tmp_path):
    _with_keys(root, KEYS)
    (root / "root/.ssh").rename(root / "root/elsewhere")
    (root / "root/.ssh").symlink_to("elsewhere")
    code, _, err = captured(root, tmp_path / "image.tar")
    assert (code, list(tmp_path.glob("image*"))) == (1, [])
    assert (
        err
        == f'neuca: leave out the keys of "root": "{root}/root/.ssh": it is a symbolic link, which is not followed\n'
    )


def test_damaged_records_of_users_stop_the_capture(root, tmp_path):
    (root / "var/lib/neuca/guest-users.json").write_text("garbage")
    code, _, err = captured(root, tmp_path / "image.tar")
    assert code == 1
    assert err.startswith("neuca: read the list of managed keys and sudo files ")
    assert list(tmp_path.glob("image*")) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("image.zip", '"{0}": the name must end in .tar, .tar.gz or .tar.xz'),
        ("nowhere/image.tar", '"{0}": its directory does not exist'),
        ("there.tar", '"{0}": "{0}" exists'),
    ],
)
def test_a_destination_that_cannot_be_used_is_refused_at_once(root, tmp_path, name, problem):
    (tmp_path / "there.tar").write_text("mine")
    destination = tmp_path / name
    code, out, err = captured(root, destination)
    assert (code, out) == (2, "")
    assert err == f"neuca: capture into {problem.format(destination)}\n"
    assert (tmp_path / "there.tar").read_text() == "mine"
