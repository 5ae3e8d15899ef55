"""Users without the host: who is wanted, which names and keys are none, what a file of keys may be, what is remembered."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import pwd
import re
import resource
import stat
from pathlib import Path

import pytest

from neuca_tools import libc
from neuca_tools.config import Config
from neuca_tools.config.options import LOGIN
from neuca_tools.documents import parse
from neuca_tools.documents.platform.combined import parse as parse_platform
from neuca_tools.documents.platform.combined import reduce_documents
from neuca_tools.documents.platform.ec2 import NAME as EC2
from neuca_tools.documents.platform.instance import NOCLOUD, OPENSTACK
from neuca_tools.errors import ApplyError
from neuca_tools.files import NEW
from neuca_tools.guest import authorized_keys, blocks, programs, users
from neuca_tools.guest.base import FEATURES, Finding, Guest
from neuca_tools.model.rows import User

KEY, OTHER = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK01 a@b",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC02 c@d",
)
ALICE = f"[users]\nalice = yes:{KEY}\n"
BEGIN, END = blocks.BEGIN.decode(), blocks.END.decode()


def with_platform(text, name, content):
    return parse(text)._replace(platform=parse_platform(reduce_documents({name: content})))


# --- Who is wanted --------------------------------------------------------------------------------------------------


def test_the_users_of_the_document_are_wanted():
    document = parse(f"[users]\nalice = yes:{KEY}\nbob = no\n")
    assert users.requested_users(Config(), document) == [
        User("alice", True, (KEY,)),
        User("bob", False),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            OPENSTACK,
            b'{"public_keys": {"one": "%s\\n", "two": "%s"}}' % (KEY.encode(), OTHER.encode()),
        ),
        (NOCLOUD, b"public-keys:\n- %s\n- %s\n" % (KEY.encode(), OTHER.encode())),
        (NOCLOUD, b"public-keys:\n  a: [%s]\n  b: %s\n" % (KEY.encode(), OTHER.encode())),
        (NOCLOUD, b"public-keys:\n  a:\n  - %s\n  - %s\n" % (KEY.encode(), OTHER.encode())),
        (NOCLOUD, b"public-keys: |\n  %s\n  %s\n" % (KEY.encode(), OTHER.encode())),
        (EC2, b'{"public-keys": ["%s", "%s"]}' % (KEY.encode(), OTHER.encode())),
    ],
    ids=[
        "openstack",
        "nocloud list",
        "nocloud names",
        "nocloud list of a name",
        "nocloud text",
        "ec2",
    ],
)
def test_the_platforms_keys_are_for_the_login_of_the_configuration_alone(name, content):
    document = with_platform("[users]\n" + f"alice = yes:{KEY}\n", name, content)
    assert users.requested_users(Config(), document) == [User("alice", True, (KEY,))]
    found = users.requested_users(Config(guest_login="debian"), document)
    assert found == [User("alice", True, (KEY,)), User("debian", False, (KEY, OTHER))]
    assert users.requested_users(Config(guest_login="alice"), document) == [
        User("alice", True, (KEY, KEY, OTHER))
    ]


def test_a_login_without_any_key_of_the_platform_makes_no_user():
    assert (
        users.requested_users(Config(guest_login="debian"), parse("[global]\nrouter = user\n"))
        == []
    )


def test_users_are_asked_for_by_a_document_or_by_a_login_with_a_platform():
    asked = FEATURES["users"].is_requested
    assert asked(Config(), parse("[users]\nalice = no\n"))
    assert not asked(Config(guest_login="debian"), parse("[global]\nrouter = user\n"))
    assert asked(
        Config(guest_login="debian"),
        with_platform("[global]\nrouter = user\n", OPENSTACK, b'{"uuid": "x"}'),
    )


# --- Names and keys that are none -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "login",
    [
        "-rf",
        "--root=/x",
        "../x",
        "a/b",
        "x y",
        "x$",
        "x;id",
        "x%",
        "ALL",
        "7up",
        "x.y",
        "",
        "a" * 33,
        "x\n",
        "é",
    ],
)
def test_what_is_no_login_gets_nothing(login, tmp_path):
    config = Config(state_directory=tmp_path)
    found = list(
        users.set_up_users(
            Guest(
                config,
                parse("[global]\nrouter = user\n")._replace(users=(User(login, True, (KEY,)),)),
            )
        )
    )
    assert [(one.state, one.text) for one in found] == [
        ("refused", f'"{login}" cannot be the name of a user')
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("login", ["alice", "_apt", "a-b_c9", "a" * 32])
def test_what_is_a_login(login):
    assert re.fullmatch(LOGIN, login)


def test_a_sudo_file_has_a_name_that_sudo_reads_and_one_half_written_has_not(tmp_path):
    assert (
        users.sudo_file("alice", tmp_path).name == "neuca-alice"
    )  # sudoers(5): none with a dot, nor with a tilde at its end
    assert "." in f"{users.sudo_file('alice')}{NEW}"
    assert users.sudo_rule("alice").splitlines()[1:] == ["alice ALL=(ALL:ALL) NOPASSWD: ALL"]


def test_the_sudo_file_of_somebody_else_is_neither_written_nor_removed(tmp_path):
    for content in (b"# mine\n", b"alice ALL=(ALL:ALL) NOPASSWD: ALL\n"):
        users.sudo_file("alice", tmp_path).write_bytes(content)
        with pytest.raises(ApplyError) as caught:
            users.grant_sudo("alice", 10.0, tmp_path)
        assert caught.value.text == (
            f'let "alice" use sudo: "{tmp_path}/neuca-alice" was not written by neuca-guest-tools, and'
            " is left alone"
        )
        assert not users.revoke_sudo("alice", tmp_path)
        assert users.sudo_file("alice", tmp_path).read_bytes() == content


def test_our_sudo_file_is_removed(tmp_path):
    users.sudo_file("alice", tmp_path).write_text(users.sudo_rule("alice"))
    assert users.revoke_sudo("alice", tmp_path)
    assert not users.revoke_sudo("alice", tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- The file of keys, as its user ----------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path):
    tmp_path.chmod(0o755)
    return tmp_path


def keys_of(home):
    return home / ".ssh" / "authorized_keys"


def test_the_file_and_its_directory_are_made_for_their_user_alone(home):
    assert authorized_keys.edit_keys(str(home), [KEY, OTHER]) == ""
    assert keys_of(home).read_text() == f"{BEGIN}\n{KEY}\n{OTHER}\n{END}\n"
    assert [
        stat.S_IMODE(path.stat().st_mode) for path in (keys_of(home).parent, keys_of(home))
    ] == [0o700, 0o600]


def test_what_is_there_stays_to_the_byte_with_its_modes(home):
    keys_of(home).parent.mkdir(mode=0o750)
    keys_of(home).write_bytes(b"# mine\r\n" + OTHER.encode())
    keys_of(home).chmod(0o640)
    for keys in ([KEY], [OTHER], []):
        assert authorized_keys.edit_keys(str(home), keys) == ""
    assert keys_of(home).read_bytes() == b"# mine\r\n" + OTHER.encode()
    assert [
        stat.S_IMODE(path.stat().st_mode) for path in (keys_of(home).parent, keys_of(home))
    ] == [0o750, 0o640]


def test_a_second_edit_writes_nothing(home):
    authorized_keys.edit_keys(str(home), [KEY])
    before = keys_of(home).stat()
    authorized_keys.edit_keys(str(home), [KEY])
    assert (keys_of(home).stat().st_ino, keys_of(home).stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )


def test_a_user_without_keys_gets_no_directory(home):
    assert authorized_keys.edit_keys(str(home), []) == ""
    assert list(home.iterdir()) == []


def _linked(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


PLANTED = {
    "a link to a directory": (
        lambda home: _linked(home / ".ssh", home.parent),
        ".ssh",
        "it is a symbolic link, which is not followed",
    ),
    "a link to a file": (
        lambda home: _linked(keys_of(home), "/etc/passwd"),
        ".ssh/authorized_keys",
        "it is a symbolic link, which is not followed",
    ),
    "a link to nothing": (
        lambda home: _linked(keys_of(home), "/nowhere"),
        ".ssh/authorized_keys",
        "it is a symbolic link, which is not followed",
    ),
    "a file": (lambda home: (home / ".ssh").touch(), ".ssh", "it is not a directory"),
    "a directory": (
        lambda home: keys_of(home).mkdir(parents=True),
        ".ssh/authorized_keys",
        "it is not a regular file",
    ),
    "a pipe": (
        lambda home: (keys_of(home).parent.mkdir(), os.mkfifo(keys_of(home))),
        ".ssh/authorized_keys",
        "it is not a regular file",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_neither_followed_nor_waited_for(home, name):
    plant, where, why = PLANTED[name]
    plant(home)
    before = sorted(path.lstat().st_ino for path in home.rglob("*"))
    with pytest.raises(ApplyError) as caught:
        authorized_keys.edit_keys(str(home), [KEY])
    assert caught.value.text == f'"{home}/{where}": {why}'
    assert sorted(path.lstat().st_ino for path in home.rglob("*")) == before


def test_what_a_crash_or_a_user_left_beside_it_is_not_written_through(home):
    keys_of(home).parent.mkdir()
    (home / "foreign").write_text("mine")
    keys_of(home).with_name("authorized_keys.neuca-new").symlink_to("../foreign")
    authorized_keys.edit_keys(str(home), [KEY])
    assert (home / "foreign").read_text() == "mine"
    assert sorted(path.name for path in keys_of(home).parent.iterdir()) == ["authorized_keys"]


def test_a_home_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(ApplyError) as caught:
        authorized_keys.edit_keys(f"{tmp_path}/nobody", [KEY])
    assert caught.value.text == f'"{tmp_path}/nobody": No such file or directory'


def test_without_a_home_there_are_no_keys_to_remove(tmp_path):
    assert authorized_keys.edit_keys(f"{tmp_path}/nobody", ()) == ""
    (tmp_path / "nobody").write_text("")
    assert authorized_keys.edit_keys(f"{tmp_path}/nobody", ()) == ""


def test_a_child_edits_the_keys_and_reports_errors_and_why_they_are_ignored(home):
    user = pwd.struct_passwd(("root", "x", os.getuid(), os.getgid(), "", str(home), "/bin/sh"))
    assert authorized_keys.edit_as(user, [KEY]) == ""
    assert keys_of(home).read_text() == f"{BEGIN}\n{KEY}\n{END}\n"
    home.chmod(0o775)
    assert authorized_keys.edit_as(user, [KEY]).startswith("sshd ignores the keys: ")
    keys_of(home).write_text(f"{BEGIN}\n")
    with pytest.raises(ApplyError, match="its marked lines are damaged"):
        authorized_keys.edit_as(user, [KEY])


@pytest.mark.skipif(
    os.geteuid() != 0, reason="these tests do not run as root, and have no other user to become"
)
def test_the_child_is_the_user_alone(tmp_path, monkeypatch):
    """With a group of root's it could read, and by a link pass on, what is not the user's."""
    user = pwd.struct_passwd(("nobody", "x", 4711, 4712, "", "/home", "/bin/sh"))

    def ids(*_):
        return f"{os.getresuid()} {os.getresgid()} {os.getgroups()} {os.umask(0):o} {Path.cwd()}"

    monkeypatch.setattr(authorized_keys, "edit_keys", ids)
    monkeypatch.chdir(tmp_path)
    assert authorized_keys.edit_as(user, [KEY]) == (
        "(4711, 4711, 4711) (4712, 4712, 4712) [4712] 77 /"
    )


@pytest.mark.parametrize(
    "result",
    [b"", b"[" * 60000, b"{}", b'["", ""', b"7"],
    ids=["nothing", "nested", "an object", "cut off", "a number"],
)
def test_a_result_of_the_child_that_is_none_is_an_error(home, monkeypatch, result):
    """It runs as the user, who may interfere with it."""

    def interfere(_user, _keys, parent):
        parent.send(result)
        os._exit(0)

    monkeypatch.setattr(authorized_keys, "_run_as_user", interfere)
    user = pwd.struct_passwd(("root", "x", os.getuid(), os.getgid(), "", str(home), "/bin/sh"))
    with pytest.raises(ApplyError, match="ended without a result"):
        authorized_keys.edit_as(user, [KEY])


def test_a_host_without_descriptors_cannot_start_the_child(home):
    user = pwd.struct_passwd(("root", "x", os.getuid(), os.getgid(), "", str(home), "/bin/sh"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        reason = authorized_keys.edit_as(user, [KEY])
    except ApplyError as error:
        reason = error.text
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert reason == "start the child that edits them: Too many open files"


def test_a_place_that_others_may_write_to_is_one_that_sshd_ignores(home):
    home.chmod(0o775)
    assert authorized_keys.edit_keys(str(home), [KEY]) == (
        f'sshd ignores the keys: "{home}" is writable by users other than its owner'
    )


# --- What is remembered ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"logins": 7}',
        b'{"logins": ["alice", 7]}',
        b'{"logins": ["../x"]}',
        b"\xff",
    ],
)
def test_a_record_that_cannot_be_used_is_an_error_and_not_nobody(tmp_path, content):
    """Else those who are in it would keep their keys and their sudo for ever, in the clones of an image too."""
    path = tmp_path / users.RECORD
    path.write_bytes(content)
    config = Config(state_directory=tmp_path)
    for ask in (
        users.recorded_logins,
        users.users_to_withdraw,
        users.own_files,
        lambda config: list(users.set_up_users(Guest(config, parse(ALICE)))),
    ):
        with pytest.raises(ApplyError) as caught:
            ask(config)
        assert (
            caught.value.text
            == f'read the list of managed keys and sudo files "{path}": it is not what neucad wrote'
        )
    assert path.read_bytes() == content


def test_a_record_that_cannot_be_read_is_an_error_and_not_nobody(tmp_path):
    (tmp_path / users.RECORD).mkdir()
    with pytest.raises(ApplyError) as caught:
        users.recorded_logins(Config(state_directory=tmp_path))
    assert (
        caught.value.text
        == f'read the list of managed keys and sudo files "{tmp_path}/{users.RECORD}": Is a directory'
    )


def test_without_a_record_nobody_has_anything_of_ours(tmp_path):
    assert users.recorded_logins(Config(state_directory=tmp_path)) == set()
    assert users.users_to_withdraw(Config(state_directory=tmp_path)) == []


def test_whose_sudo_files_are_ours_is_in_the_record(tmp_path):
    (tmp_path / users.RECORD).write_text('{"version": 1, "logins": ["bob", "alice"]}')
    config = Config(state_directory=tmp_path)
    assert list(map(str, users.own_files(config))) == [
        "/etc/sudoers.d/neuca-alice",
        "/etc/sudoers.d/neuca-bob",
    ]
    assert [one.text for one in users.users_to_withdraw(config)] == [
        'remove the keys of "alice"',
        'remove the keys of "bob"',
    ]


def test_an_account_that_cannot_be_created_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "PATH", str(tmp_path))
    guest = Guest(Config(state_directory=tmp_path), parse(f"[users]\nneuca-nobody = no:{KEY}\n"))
    (finding,) = users.set_up_users(guest)
    assert (finding.state, finding.needs_retry) == ("failed", True)
    assert finding.text.endswith("useradd is not installed")


class DeadNameService:
    """A libc whose name service has no answer: glibc returns the errno, the pwd module drops it."""

    def __init__(self, number):
        self.getpwnam_r = lambda *_: number


def test_a_user_of_a_name_service_that_does_not_respond_is_neither_created_nor_forgotten(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(libc, "_LIBC", DeadNameService(errno.ECONNREFUSED))
    monkeypatch.setattr(programs, "PATH", str(tmp_path))
    config = Config(state_directory=tmp_path)
    why = "a name service does not respond: Connection refused"
    said = Finding("failed", f'look up the user "neuca-nobody": {why}', "neuca-nobody", True)
    for text in (f"[users]\nneuca-nobody = no:{KEY}\n", "[global]\nrouter = user\n"):
        assert list(users.set_up_users(Guest(config, parse(text)))) == [said]
        assert users.recorded_logins(config) == {"neuca-nobody"}


def test_a_name_service_that_is_not_set_up_has_no_users(tmp_path, monkeypatch):
    monkeypatch.setattr(libc, "_LIBC", DeadNameService(errno.ENOENT))
    monkeypatch.setattr(programs, "PATH", str(tmp_path))
    guest = Guest(Config(state_directory=tmp_path), parse(f"[users]\nneuca-nobody = no:{KEY}\n"))
    (finding,) = users.set_up_users(guest)
    assert finding.text.endswith("useradd is not installed")


class NameServices:
    """A libc of which getpwnam_r(3) has the result of the last service, as that of glibc has."""

    def __init__(self, errors):
        self.errors, self.line = errors, b" ".join(errors)

    def getpwnam_r(self, *_):
        return self.errors[self.line.split()[-1]]

    def __getattr__(self, name):
        assert name == "__nss_configure_lookup"
        return lambda _, line: setattr(self, "line", line)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({b"files": 0, b"sss": errno.ECONNREFUSED, b"systemd": 0}, errno.ECONNREFUSED),
        ({b"sss": errno.ECONNREFUSED, b"files": 0}, errno.ECONNREFUSED),
        ({b"sss": errno.ENOENT, b"files": 0, b"systemd": 0}, 0),
        ({b"files": 0, b"sss": errno.ENOENT}, errno.ENOENT),
        ({b"files": 0, b"systemd": 0}, 0),
    ],
)
def test_each_name_service_is_asked_and_not_the_last_alone(tmp_path, monkeypatch, errors, expected):
    services = NameServices(errors)
    monkeypatch.setattr(libc, "_LIBC", services)
    monkeypatch.setattr(users, "NSSWITCH", tmp_path / "nsswitch.conf")
    line = " [!UNAVAIL=return] ".join(service.decode() for service in errors)
    users.NSSWITCH.write_text(f"# passwd: x\ngroup: files\npasswd:  {line} # mine\n")
    if expected:
        with pytest.raises(ApplyError, match=os.strerror(expected)):
            users.find_account("neuca-nobody")
    else:
        assert users.find_account("neuca-nobody") is None
    assert services.line in (line.encode(), b" ".join(errors))


def test_a_user_whom_every_name_service_denies_is_absent():
    assert libc.user_lookup_error("neuca-nobody") == 0
    assert users.find_account("neuca-nobody") is None
