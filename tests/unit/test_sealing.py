"""Sealing an image: what goes, what stays, what is kept with a word about it; interrupted, repeated, planted with links."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_schemas import validated

from neuca_tools.agent import image_clean
from neuca_tools.commands import neuca
from neuca_tools.commands.clean import capture_image, clean_root
from neuca_tools.config import Config, load_config
from neuca_tools.errors import ApplyError, NeucaError, ObserveError
from neuca_tools.files import locked
from neuca_tools.guest import iscsi, users

ROOT = Path(__file__).parents[2]
ID = b"0123456789abcdef0123456789abcdef\n"
RULE = "neuca-persistent-fe163e006daf.rules"
OURS = (
    f"udev/10-{RULE} udev/15-{RULE} udev/10-{RULE}.neuca-new nm/neuca.conf networkd/05-neuca-nics.network"
    " networkd/04-neuca-dhcp-fe163e006daf.network"
    " networkd/05-neuca-vlans.network sysctl/neuca.conf sysctl/neuca.conf.neuca-new log/neuca-agent.log log/neuca-agent.log.1"
    " log/neuca-agent.log.2.gz log/neucad.out state/record.json state/journal.json state/document.json"
    " state/document.json.neuca-new state/machine.json state/names state/scripts/first-0 state/scripts/first-0.json"
    f" state/set-aside/record.json state/set-aside/10-{RULE} log/script-first-0.log state/generated-files"
    " run/document.json run/last-look.json run/last-pass.json run/volumes.json state/guest-users.json run/guest-due run/guest-ran"
    " run/guest-begun run/guest-hostname.json log/neuca-guest.out state/guest-storage.json"
    " state/selftest-20261122T200000Z.json state/selftests.jsonl state/selftests.jsonl.1 state/selftests.lock"
).split()
# What of these is read, and not only removed.
CONTENTS = {
    "state/guest-users.json": b'{"version": 1, "logins": []}',
    "state/guest-storage.json": b'{"version": 1, "disks": {}}',
}
OTHERS = (
    "udev/70-persistent-net.rules udev/10-neuca-persistent-notes.rules nm/mine.conf networkd/10-mine.network"
    " networkd/04-neuca-dhcp-notes.network"
    " sysctl/90-mine.conf log/neuca-agent.log.old log/another.log state/mine run/mine"
).split()
IDENTITY = (
    "etc/machine-id var/lib/dbus/machine-id var/lib/systemd/random-seed var/lib/systemd/credential.secret"
    " var/lib/urandom/random-seed var/lib/NetworkManager/secret_key var/lib/NetworkManager/internal-1-eth0.lease"
    " var/lib/dhcp/dhclient.eth0.leases var/lib/dhcp/dhclient6.eth0.leases~ var/lib/dhclient/dhclient.leases"
    " var/lib/dhcpcd/duid var/lib/dhcpcd/secret var/lib/dhcpcd/eth0.lease6"
).split()
KEYS = [
    f"etc/ssh/ssh_host_{kind}_key{end}"
    for kind in ("ecdsa", "ed25519", "rsa")
    for end in ("", ".pub", "-cert.pub")
]
NOT_IDENTITY = (
    "etc/hostname etc/ssh/sshd_config etc/ssh/ssh_host_notes var/lib/dhcp/dhcpd.leases var/lib/systemd/timesync"
    " var/lib/NetworkManager/NetworkManager.state etc/NetworkManager/system-connections/lan.nmconnection"
).split()


def fill(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(CONTENTS.get(name, ID))


def files(folder):
    """Every file and link below, but for the locks."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if (path.is_symlink() or not path.is_dir())
        and path.name not in ("lock", "neucad.lock", "guest.lock")
    }


@pytest.fixture
def host(tmp_path):
    """A host that has met a document, among whatever else is on it; its next boot makes new host keys."""
    fill(tmp_path / "own", [*OURS, *OTHERS])
    fill(tmp_path / "root", [image_clean.METRICS, *IDENTITY, *KEYS, *NOT_IDENTITY])
    (tmp_path / "root/etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    (
        tmp_path / "root/etc/systemd/system/multi-user.target.wants/neuca-host-keys.service"
    ).symlink_to("/nowhere")
    return Host(tmp_path)


class Host:
    """Its configuration, and what `clean` does to it."""

    def __init__(self, folder):
        self.own, self.root = folder / "own", folder / "root"
        own = self.own
        self.config = Config(
            state_directory=own / "state",
            run_directory=own / "run",
            log_directory=own / "log",
            udev_directory=own / "udev",
            networkmanager_directory=own / "nm",
            networkd_directory=own / "networkd",
            sysctl_directory=own / "sysctl",
        )

    def clean(self, with_identity=True, dry_run=False):
        return clean_root(self.config, self.root, with_identity, dry_run)

    @property
    def left(self):
        return files(self.own), files(self.root)


MAKER = "etc/systemd/system/multi-user.target.wants/neuca-host-keys.service"


def test_a_clean_is_one_json_document_too(host, capsys):
    assert clean_root(host.config, host.root, True, True, as_json=True) == 0
    planned = validated("clean", json.loads(capsys.readouterr().out))
    assert clean_root(host.config, host.root, True, False, as_json=True) == 0
    assert json.loads(capsys.readouterr().out) == {**planned, "dry_run": False}
    assert clean_root(host.config, host.root, True, False, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["items"] == []


def test_a_dry_capture_tells_what_the_copy_would_not_have_and_writes_nothing(
    host, tmp_path, capsys
):
    assert capture_image(host.config, host.root, tmp_path / "copy.tar", dry_run=True) == 0
    told = capsys.readouterr().out
    assert f'in the copy: empty "{host.root}/etc/machine-id"\n' in told
    assert f"{host.root}/run/" not in told  # of which the copy has nothing
    assert [one.name for one in tmp_path.glob("copy*")] == []


def test_a_capture_without_proc_is_an_error(host, tmp_path, monkeypatch):
    monkeypatch.setattr("neuca_tools.guest.blockdev.MOUNTS", tmp_path / "none")
    with pytest.raises(ApplyError, match=r"list the file systems .*: No such file or directory"):
        capture_image(host.config, host.root, tmp_path / "copy.tar", dry_run=True)


def test_what_is_ours_and_the_identity_go_and_everything_else_stays(host, capsys):
    assert host.clean() == 0
    assert host.left == (set(OTHERS), {*NOT_IDENTITY, MAKER, "etc/machine-id"})
    assert (host.root / "etc/machine-id").read_bytes() == b""
    said = capsys.readouterr()
    assert said.err == ""
    gone = [host.own / name for name in OURS] + [
        host.root / name for name in (image_clean.METRICS, *IDENTITY[1:], *KEYS)
    ]
    lines = [f'empty "{host.root}/etc/machine-id"', *(f'remove "{path}"' for path in gone)]
    assert sorted(said.out.splitlines()) == sorted(lines)


def test_a_second_time_does_nothing(host, capsys):
    host.clean()
    before = {
        path: path.lstat().st_mtime_ns
        for folder in (host.own, host.root)
        for path in folder.rglob("*")
    }
    capsys.readouterr()
    assert host.clean() == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    assert {
        path: path.lstat().st_mtime_ns
        for folder in (host.own, host.root)
        for path in folder.rglob("*")
    } == before


def test_a_dry_run_prints_the_same_and_changes_nothing(host, capsys):
    before = host.left
    assert host.clean(dry_run=True) == 0
    would = capsys.readouterr().out
    assert (host.left, (host.root / "etc/machine-id").read_bytes()) == (before, ID)
    host.clean()
    assert capsys.readouterr().out == would


def test_the_name_that_a_document_has_given_to_the_initiator_goes_and_no_other(host, capsys):
    name = host.root / "etc/iscsi/initiatorname.iscsi"
    name.parent.mkdir()
    name.write_text("# mine\nInitiatorName=iqn.2026-11.org.example:me\n")
    assert (host.clean(), name.exists()) == (0, True)
    name.write_bytes(iscsi.MARK + b"InitiatorName=iqn.2026-11.org.example:me\n")
    assert (host.clean(with_identity=False), name.exists()) == (0, True)
    capsys.readouterr()
    assert (host.clean(), name.exists(), capsys.readouterr().out) == (
        0,
        False,
        f'remove "{name}"\n',
    )


def test_the_identity_is_kept_if_it_is_to_be(host, capsys):
    assert host.clean(with_identity=False) == 0
    assert host.left == (set(OTHERS), {*NOT_IDENTITY, *IDENTITY, *KEYS, MAKER})
    assert "machine-id" not in capsys.readouterr().out


def test_a_host_where_nothing_ever_was_has_nothing_to_remove(tmp_path, capsys):
    assert Host(tmp_path).clean() == 0
    assert capsys.readouterr().out == "nothing to remove\n"


@pytest.mark.parametrize(
    "steps", [0, 1, 5, len(OURS), len(OURS) + 3, len(OURS) + len(IDENTITY) + 1]
)
def test_after_an_interruption_the_next_time_does_the_rest(host, steps):
    """Each file goes by itself: what was done before it died is not there to be done again."""
    for trace in image_clean.find_traces(host.config, host.root, True).traces[:steps]:
        trace.run()
    assert host.clean() == 0
    assert host.left == (set(OTHERS), {*NOT_IDENTITY, MAKER, "etc/machine-id"})


# --- SSH host keys --------------------------------------------------------------------------------------------------


def test_host_keys_stay_where_nothing_would_make_new_ones(host, capsys):
    (host.root / MAKER).unlink()
    assert host.clean() == 4
    assert host.left == (set(OTHERS), {*NOT_IDENTITY, *KEYS, "etc/machine-id"})
    said = capsys.readouterr()
    assert said.err == (
        f'neuca: keep the SSH host keys in "{host.root}/etc/ssh": nothing generates new ones at the next boot\n'
        "       enable neuca-host-keys.service; if something else generates them, remove them by hand\n"
    )
    assert "ssh_host" not in said.out


def test_a_script_of_sysv_makes_host_keys_too(host):
    (host.root / MAKER).unlink()
    fill(host.root, ["etc/rc2.d/S01neuca-host-keys"])
    assert host.clean() == 0
    assert not any("ssh_host_rsa" in name for name in host.left[1])


def test_where_there_are_no_keys_none_are_missed(host, capsys):
    (host.root / MAKER).unlink()
    for name in KEYS:
        (host.root / name).unlink()
    assert (host.clean(), capsys.readouterr().err) == (0, "")


# --- the machine id -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"uninitialized\n"])
def test_a_machine_id_that_is_none_is_left_as_it_is(host, content):
    (host.root / "etc/machine-id").write_bytes(content)
    host.clean()
    assert (host.root / "etc/machine-id").read_bytes() == content


def test_a_machine_id_that_is_not_there_is_not_made(host):
    (host.root / "etc/machine-id").unlink()
    assert host.clean() == 0
    assert not (host.root / "etc/machine-id").exists()


def test_a_machine_id_keeps_its_file_and_its_mode(host):
    path = host.root / "etc/machine-id"
    path.chmod(0o644 if os.geteuid() else 0o444)  # a user, unlike root, could not empty it
    before = path.stat()
    host.clean()
    after = path.stat()
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, 0)


def test_the_link_that_dbus_has_in_place_of_an_id_stays(host):
    link = host.root / "var/lib/dbus/machine-id"
    link.unlink()
    link.symlink_to("../../../etc/machine-id")
    assert host.clean() == 0
    assert link.is_symlink()


# --- links ----------------------------------------------------------------------------------------------------------


def test_a_link_goes_and_what_it_leads_to_stays(host, tmp_path):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    links = [
        host.own / OURS[0],
        host.own / "state/record.json",
        host.root / KEYS[0],
        host.root / IDENTITY[2],
    ]
    for link in links:
        link.unlink()
        link.symlink_to(precious)
    assert host.clean() == 0
    assert (precious.read_bytes(), [link for link in links if link.is_symlink()]) == (
        b"precious",
        [],
    )


def test_a_machine_id_that_is_a_fifo_is_not_waited_for(host):
    path = host.root / "etc/machine-id"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ObserveError) as caught:
        host.clean()
    assert caught.value.text == f'read "{path}": it is not a regular file'


def test_a_machine_id_behind_a_link_is_not_touched_and_is_a_failure(host, tmp_path, capsys):
    elsewhere = tmp_path / "id"
    elsewhere.write_bytes(ID)
    (host.root / "etc/machine-id").unlink()
    (host.root / "etc/machine-id").symlink_to(elsewhere)
    assert host.clean() == 1
    assert elsewhere.read_bytes() == ID
    assert (
        capsys.readouterr().err
        == f'neuca: empty "{host.root}/etc/machine-id": it is a symbolic link, which is not followed\n'
    )
    assert host.left[0] == set(OTHERS)


# --- failures -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_removed_costs_only_itself(host, capsys):
    odd = host.own / "state/document.json"
    odd.unlink()
    odd.mkdir()
    assert host.clean() == 1
    assert capsys.readouterr().err == f'neuca: remove "{odd}": Is a directory\n'
    assert host.left == (set(OTHERS), {*NOT_IDENTITY, MAKER, "etc/machine-id"})


def test_what_a_record_lists_and_cannot_be_removed_is_not_forgotten(host, monkeypatch, capsys):
    sudo_file = host.own / "sudoers.d/neuca-neuca-nobody"
    monkeypatch.setattr(users, "sudo_file", lambda *_: sudo_file)
    sudo_file.mkdir(parents=True)
    record = host.own / "state/guest-users.json"
    record.write_text('{"version": 1, "logins": ["neuca-nobody"]}')
    assert [host.clean(), host.clean()] == [1, 1]
    why = [f'neuca: {verb} "{sudo_file}": Is a directory' for verb in ("read", "remove")]
    assert capsys.readouterr().err.splitlines() == 2 * why
    assert host.left[0] == {*OTHERS, "state/guest-users.json", "state/guest-storage.json"}
    sudo_file.rmdir()
    assert host.clean() == 0
    assert host.left[0] == set(OTHERS)


def test_a_place_that_cannot_be_listed_is_not_an_empty_one(host):
    path = host.own / "udev-loop"
    path.symlink_to(path)
    config = host.config._replace(udev_directory=path)
    with pytest.raises(ObserveError) as caught:
        image_clean.find_traces(config, host.root, True)
    assert caught.value.text == f'list "{path}": Too many levels of symbolic links'


def test_a_wrong_configuration_is_named_by_the_exit_code(host, tmp_path):
    (tmp_path / "config").write_text("[runtime]\ncommand-timeout = soon\n")
    faults = load_config(tmp_path / "config").faults
    host.config = host.config._replace(faults=faults)
    assert host.clean() == 78
    assert host.left[0] == set(OTHERS)


def test_it_is_for_root_alone_even_to_look(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert neuca.main(["clean", "--dry-run"], "neuca") == 1
    assert capsys.readouterr() == (
        "",
        "neuca: clean: only root may do this\n       run it as root, or with sudo\n",
    )


# --- the agent ------------------------------------------------------------------------------------------------------

HOLD = """import signal, sys
from pathlib import Path
from neuca_tools.files import locked
if sys.argv[2:]: signal.signal(signal.SIGTERM, signal.SIG_IGN)
with locked(Path(sys.argv[1]), 5):
    print("held", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(host):
    """A function: a process that holds one of the locks, as the daemon or a pass does."""
    running = []

    def hold(name, *words):
        process = subprocess.Popen([sys.executable, "-c", HOLD, host.config.run_directory / name, *words],
                                   stdout=subprocess.PIPE, text=True, cwd=ROOT)  # fmt: skip
        running.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in running:
        process.kill()
        process.wait(60)
        process.stdout.close()


def test_a_running_daemon_is_stopped_and_none_can_start_meanwhile(host, holder):
    daemon = holder("neucad.lock")
    with image_clean.hold_all_locks(host.config) as process:
        assert process == daemon.pid
        assert daemon.wait(60) == -signal.SIGTERM
        another = [
            sys.executable,
            "-c",
            HOLD.replace(", 5)", ", 0.1)"),
            host.config.run_directory / "neucad.lock",
        ]
        refused = subprocess.run(
            another, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False
        )
    assert "another pass has held it for 0.1 s" in refused.stderr


def test_the_daemon_that_is_stopped_is_named_and_a_dry_run_lets_it_be(host, holder, capsys):
    daemon = holder("neucad.lock")
    assert host.clean(dry_run=True) == 0
    assert daemon.poll() is None
    line = f"stop neucad, process {daemon.pid}: it starts again at the next boot"
    assert capsys.readouterr().out.splitlines()[0] == line
    assert host.clean() == 0
    assert capsys.readouterr().out.splitlines()[0] == line
    assert daemon.wait(60) == -signal.SIGTERM


def test_a_daemon_that_does_not_stop_costs_nothing(host, holder, monkeypatch):
    daemon = holder("neucad.lock", "deaf")
    monkeypatch.setattr(image_clean, "STOP_SECONDS", 0.1)
    before = host.left
    with pytest.raises(NeucaError) as caught:
        host.clean()
    assert caught.value.text == f"stop neucad, process {daemon.pid}: it still runs after 0.1 s"
    assert host.left == before


def test_a_pass_under_way_is_waited_for(host, holder):
    holder("lock")
    host.config = host.config._replace(command_timeout=0.1)
    before = host.left
    with pytest.raises(ApplyError) as caught:
        host.clean()
    assert (
        caught.value.text
        == f'lock "{host.config.run_directory}/lock": another pass has held it for 0.1 s'
    )
    assert host.left == before


def test_a_daemon_that_has_died_is_not_there_to_be_stopped(host, holder):
    daemon = holder("neucad.lock")
    descriptor = os.pidfd_open(daemon.pid)
    daemon.kill()
    assert select.select([descriptor], [], [], 10)[0]
    os.close(descriptor)
    assert image_clean.running_daemon(host.config) == 0
    with locked(host.config.run_directory / "neucad.lock", 1):
        pass
