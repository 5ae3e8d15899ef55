"""An unprivileged local user wants root's files, root's programs, or a word with the daemon."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from lab import ROOT, mac

from neuca_tools.files import locked

NOBODY = 65534
as_root = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="these tests do not run as root, and have no other user to become",
)
WORD = "Sesame-66"
TEXT = f"""[global]
management_token = {WORD}
[interface {mac(1)}]
addresses = 172.16.1.1/24
[scripts]
bootscript = #!/bin/sh
    echo {WORD}; echo {WORD} >&2
"""


@pytest.fixture
def host(guest):
    guest.veth("dp1", 1)
    return guest


def files(host):
    return [path for path in host.folder.rglob("*") if path.is_file() and not path.is_symlink()]


def readable(path):
    return path.stat().st_mode & 0o044


def test_no_file_that_others_can_read_has_a_secret(host):
    assert host.once(TEXT).code == 0
    done = host.command("neucad", "--guest", "--config", host.config_file)
    assert done.code == 0
    assert WORD not in done.out + done.err  # without systemd this goes to a file of the init script
    kept = [path for path in files(host) if WORD.encode() in path.read_bytes()]
    assert kept
    assert [path for path in kept if readable(path) and path != host.document_file] == []


def test_collected_logs_have_no_output_of_a_script(host):
    """Whatever the log directory holds: also what an older version left there for everybody to read."""
    assert host.once(TEXT).code == 0
    host.command("neucad", "--guest", "--config", host.config_file)
    log = host.folder / "log"
    log.mkdir(exist_ok=True)
    for name in ("neuca-guest.out", "script-bootscript-old.log"):
        (log / name).write_text(f"{WORD}\n")
        (log / name).chmod(0o644)
    packed = host.folder / "logs.tar.gz"
    host.neuca("collect-logs", "--output", packed)
    with tarfile.open(packed) as tar:
        parts = {name: tar.extractfile(name).read() for name in tar.getnames()}
    assert [name for name, text in parts.items() if WORD.encode() in text] == []


def test_nobody_else_may_write_where_the_agent_does(host):
    """Under the umask of a careless caller too."""
    host.document(TEXT)
    before = os.umask(0)
    try:
        assert host.run(*program("--once"), "--config", host.config_file).code == 0
    finally:
        os.umask(before)
    places = [path for path in (host.folder / "state", host.folder / "run") if path.exists()]
    made = [path for place in places for path in (place, *place.rglob("*"))]
    assert made
    loose = [path for path in made if path.stat().st_mode & 0o022 and not path.is_symlink()]
    assert loose == []


def program(*words, flags=()):
    main = "import sys; from neuca_tools.commands.neucad import main; sys.exit(main())"
    return [sys.executable, *flags, "-c", main, *words]


def test_a_planted_link_in_the_run_directory_leads_nowhere(host):
    """Of a directory that somebody could write to once, as on an image that was shared."""
    victim = host.folder / "victim"
    victim.write_text("untouched\n")
    for place in ("run", "state"):
        (host.folder / place).mkdir(exist_ok=True)
        for name in ("last-pass.json", "document.json", "record.json", "journal.json", "lock"):
            (host.folder / place / name).symlink_to(victim)
    host.once(TEXT)
    assert victim.read_text() == "untouched\n"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o644
    for place in ("run", "state"):
        for path in (host.folder / place).iterdir():
            if path.is_symlink():
                path.unlink()
    assert host.once(TEXT).code == 0


@as_root
@pytest.mark.parametrize("command", [("apply",), ("plan",), ("release",), ("revert",), ("clean",),
                                     ("read-drive", "/tmp"), ("collect-logs",)], ids=lambda one: one[0])  # fmt: skip
def test_another_user_changes_nothing(host, command):
    assert host.once(TEXT).code == 0
    for path in (host.folder, *host.folder.parents):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    host.let_others_read_the_code()
    before, addresses = host.files(), host.addresses("dp1")
    main = "import sys; from neuca_tools.commands.neuca import main; sys.exit(main())"
    words = ["setpriv", "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all",
             "--bounding-set=-all", sys.executable, "-c", main, command[0], "--config",
             host.config_file, *command[1:]]  # fmt: skip
    done = host.run(*words, check=False, cwd="/")
    assert WORD not in done.out + done.err
    assert "Traceback" not in done.err
    assert (host.files(), host.addresses("dp1")) == (before, addresses)


@as_root
def test_the_secret_file_of_somebody_else_is_refused(host, tmp_path):
    assert host.once(TEXT).code == 0
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    os.chown(secret, NOBODY, NOBODY)
    main = (
        "import sys; from neuca_tools.commands.selftest import main; sys.exit(main(sys.argv[1:]))"
    )
    done = host.run(sys.executable, "-c", main, "--config", host.config_file, "--secret-file", secret,
                    "--serve", "--for", "1", check=False)  # fmt: skip
    assert done.code != 0
    assert str(secret) in done.err


def test_the_services_take_no_code_from_the_environment_or_the_working_directory():
    """Each program of ours is started isolated or from "/", which only root writes to (python3(1), -P and -I)."""
    for unit in sorted((ROOT / "systemd").glob("*.service")):
        text = unit.read_text()
        assert "WorkingDirectory=" not in text, unit
        assert "PassEnvironment=" not in text, unit
        assert "EnvironmentFile=" not in text or "EnvironmentFile=-/etc/" in text, unit


EXCHANGE = """import ctypes, os
os.setgroups([])
os.setresgid(*[65534] * 3)
os.setresuid(*[65534] * 3)
rename = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while True:
    rename(-100, b"place", -100, b"link", 2)  # RENAME_EXCHANGE, renameat2(2)"""
MOUNTS = """import ctypes, os, sys
from neuca_tools.guest.blockdev import _mount_at
home, victim = sys.argv[1:]
unmount, before, changes = ctypes.CDLL(None).umount2, None, 0
while changes < 30:  # how often the user has come in between
    try:
        _mount_at("none", "tmpfs", home + "/place")
        mounted = True
    except OSError:
        mounted = False
    assert not os.path.ismount(victim), "it covers the other directory"
    for name in ("/place", "/link"):
        unmount(os.fsencode(home + name), 8)  # UMOUNT_NOFOLLOW
    changes, before = changes + (mounted != before), mounted
"""


@as_root
def test_a_user_who_exchanges_a_mount_point_and_a_link_leads_root_nowhere(guest):
    home, victim = guest.folder / "home", guest.folder / "victim"
    for directory in (home, victim, home / "place"):
        directory.mkdir(0o700)
    os.chown(home, NOBODY, NOBODY)
    (home / "link").symlink_to(victim)
    words = [sys.executable, "-c", EXCHANGE]
    with subprocess.Popen(words, cwd=home, stdout=subprocess.PIPE) as user:
        try:
            assert user.stdout.readline() == b"ready\n"
            done = guest.run(sys.executable, "-c", MOUNTS, home, victim, check=False)
        finally:
            user.kill()
    assert (done.code, done.err) == (0, "")


INHERITED = """import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[1:]])"""


def inheriting(host, command, *words):
    """A command of root, in a process that has inherited an ignored and a blocked signal."""
    main = f"import sys; from neuca_tools.commands.{command} import main; sys.exit(main())"
    program_words = (sys.executable, "-c", INHERITED, main, *words, "--config", host.config_file)
    return host.run(*program_words, check=False)


def test_a_script_that_fails_has_failed_although_the_caller_ignores_its_children(host):
    host.configure("[linux]\nmanagers = none\n")
    assert host.once(f"{TEXT}    exit 3\n").code == 0
    inheriting(host, "neucad", "--guest")
    assert "bootscript: exit status 3 after" in host.neuca("status").out


def test_a_pass_waits_no_longer_for_another_although_the_caller_blocks_alarms(host):
    assert host.once(TEXT).code == 0
    host.configure("[runtime]\ncommand-timeout = 1\n")
    with locked(host.folder / "run" / "lock", 1.0):
        done = inheriting(host, "neuca", "apply")
    assert (done.code, "another pass has held it for 1 s" in done.err) == (1, True)
    host.configure()
