"""Sets up the users of the document: an account, public keys, the right to use sudo.

An account is created with useradd if it is missing, and never changed or removed. Each user with
sudo has a file in sudoers.d; the file sudoers is never changed. When the document no longer has the
user, the agent's lines in the file of keys and its sudo file are removed, and nothing else.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import os
import pwd
import re
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple, Optional

from neuca_tools.config import Config
from neuca_tools.config.options import LOGIN
from neuca_tools.documents.neuca.tables import is_public_key
from neuca_tools.documents.platform.instance import PUBLIC_KEYS
from neuca_tools.errors import ApplyError, RecordError
from neuca_tools.files import as_apply_error, read_bytes, text_of, write_files
from neuca_tools.guest import authorized_keys, programs
from neuca_tools.guest.base import Finding, Guest
from neuca_tools.libc import user_lookup_error
from neuca_tools.model import Document
from neuca_tools.model.printable import counted
from neuca_tools.model.rows import User
from neuca_tools.state.store import read_state, remove_state, save_state

# In the state directory: the users who have, or may have, our keys or sudo file.
RECORD = "guest-users.json"
# sudo ignores files with a dot in their names (sudoers(5)), such as those that are being written.
SUDOERS = Path("/etc/sudoers.d")
NSSWITCH = Path("/etc/nsswitch.conf")
MARK = "# Written by neuca-guest-tools: this user may use sudo as long as the user-data says so.\n"
SHELLS = ("/bin/bash", "/bin/sh")


def set_up_users(guest: Guest) -> Iterator[Finding]:
    """Set up the users of the document, then withdraw those that it no longer has."""
    config = guest.config
    requested = {user.login: user for user in requested_users(config, guest.document)}
    recorded = recorded_logins(config)
    _record_logins(config, {*recorded, *requested})
    for user in requested.values():
        yield from _set_up_user(user, config.command_timeout)
    if guest.document.is_complete:
        yield from _withdraw_others(config, recorded, requested.keys())


def _withdraw_others(
    config: Config, recorded: set[str], requested: AbstractSet[str]
) -> Iterator[Finding]:
    """Withdraw users who are no longer requested; one for whom that fails stays recorded."""
    still_recorded = set()
    for login in sorted(recorded - requested):
        try:
            withdraw_user(login)
        except ApplyError as error:
            still_recorded.add(login)
            yield Finding("failed", error.text, login, needs_retry=True)
        else:
            text = f'"{login}" is no longer requested: its keys and its sudo file are removed'
            yield Finding("ok", text, login)
    _record_logins(config, still_recorded | requested)


def requested_users(config: Config, document: Document) -> list[User]:
    """The users of the document, and the platform's keys for the login of the configuration."""
    users = {user.login: user for user in document.users}
    login, keys = config.guest_login, []
    for item in document.platform.items if document.platform else ():
        if item.section == PUBLIC_KEYS:  # one key, or on some platforms several lines
            words_of_lines = map(str.split, item.value.splitlines())
            keys += [" ".join(words) for words in words_of_lines if words]
    if login and keys:
        user = users.get(login, User(login, sudo=False))
        users[login] = User(login, user.sudo, (*user.keys, *keys))
    return list(users.values())


def _set_up_user(user: User, timeout_seconds: float) -> Iterator[Finding]:
    login = user.login
    if not re.fullmatch(LOGIN, login):
        yield Finding("refused", f'"{login}" cannot be the name of a user', login)
        return
    unusable_keys = sum(not is_public_key(key) for key in user.keys)
    if unusable_keys:
        text = f'"{login}": {counted(unusable_keys, "unusable public key")}'
        yield Finding("refused", text, f"{login} keys")
    try:
        existing = _existing_account(login)
        account = existing or create_account(login, timeout_seconds)
    except ApplyError as error:
        yield Finding("failed", error.text, login, needs_retry=True)
        return
    yield _write_keys(user, account, "" if existing else "created, ")
    yield from _set_sudo(user, timeout_seconds)


def _write_keys(user: User, account: pwd.struct_passwd, prefix: str) -> Finding:
    """Write the user's keys. `prefix` begins the text, such as `created, `."""
    login = user.login
    keys = tuple(dict.fromkeys(key for key in user.keys if is_public_key(key)))
    try:
        reason_ignored = authorized_keys.edit_as(account, keys)
    except ApplyError as error:
        return Finding("failed", f'"{login}": {prefix}keys: {error.text}', login, needs_retry=True)
    if reason_ignored:
        return Finding("failed", f'"{login}": {prefix}{reason_ignored}', login)
    return Finding("ok", f'"{login}": {prefix}{counted(len(keys), "key")}', login)


def _set_sudo(user: User, timeout_seconds: float) -> Iterator[Finding]:
    login, subject = user.login, f"{user.login} sudo"
    try:
        if user.sudo:
            grant_sudo(login, timeout_seconds)
            yield Finding("ok", f'"{login}" may use sudo', subject)
        else:
            revoke_sudo(login)
    except ApplyError as error:
        yield Finding("failed", error.text, subject, needs_retry=True)


def withdraw_user(login: str) -> None:
    """Remove the agent's keys and sudo file of a recorded user. Raises ApplyError."""
    revoke_sudo(login)
    account = find_account(login)
    try:
        if account:
            authorized_keys.edit_as(account, ())
    except ApplyError as error:
        raise ApplyError(f'remove the keys of "{login}": {error.text}') from None


def recorded_logins(config: Config) -> set[str]:
    """The users that have, or may have, our keys or sudo file. Raises ApplyError if unknown."""
    try:
        data = read_state(config.state_directory, RECORD)
        logins = [] if data is None else data["logins"]
        if not all(isinstance(login, str) and re.fullmatch(LOGIN, login) for login in logins):
            raise ValueError
        return {*logins}
    except (RecordError, ValueError, TypeError, KeyError) as error:
        path, cause = config.state_directory / RECORD, error.__cause__
        why = cause.strerror if isinstance(cause, OSError) else "it is not what neucad wrote"
        raise ApplyError(f'read the list of managed keys and sudo files "{path}": {why}') from error


class UserWithdrawal(NamedTuple):
    """A user whose keys must not give access to the clones of an image."""

    login: str

    @property
    def text(self) -> str:
        return f'remove the keys of "{self.login}"'

    def run(self) -> None:
        """Raises ApplyError."""
        withdraw_user(self.login)


def users_to_withdraw(config: Config) -> list[UserWithdrawal]:
    """Every user that has our keys or sudo file. Raises ApplyError if unknown."""
    return [UserWithdrawal(login) for login in sorted(recorded_logins(config))]


def own_files(config: Config) -> list[Path]:
    """The sudo files that the agent wrote. Raises ApplyError if that is unknown."""
    return [sudo_file(login) for login in sorted(recorded_logins(config))]


def _record_logins(config: Config, logins: Iterable[str]) -> None:
    """Record the users that are about to have keys or a sudo file. Raises ApplyError."""
    logins = sorted(login for login in logins if re.fullmatch(LOGIN, login))
    if set(logins) == recorded_logins(config):
        return
    if logins:
        save_state(config.state_directory, RECORD, {"logins": logins}, 0o600)
    else:
        remove_state(config.state_directory, RECORD)


# --- Accounts and sudo ----------------------------------------------------------------------------


def find_account(login: str) -> Optional[pwd.struct_passwd]:
    """The account from any name service; None for none. Raises ApplyError if that is unknown."""
    try:
        return pwd.getpwnam(login)
    except KeyError:
        lines = (line.partition("#")[0].split() for line in text_of(NSSWITCH).splitlines())
        services = (" ".join(words[1:]) for words in lines if words[:1] == ["passwd:"])
        error = user_lookup_error(login, next(services, ""))
        if not error:
            return None
        text = f'look up the user "{login}": a name service does not respond: {os.strerror(error)}'
        raise ApplyError(text, error) from None


def _existing_account(login: str) -> Optional[pwd.struct_passwd]:
    """The same for a user to create, with no account in a name service that is not set up.

    One without a socket (ENOENT) has never been started, and useradd ignores it, too.
    """
    try:
        return find_account(login)
    except ApplyError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


def create_account(login: str, timeout_seconds: float) -> pwd.struct_passwd:
    """Create an account with a home directory and no valid password. Raises ApplyError.

    The password is `*` rather than useradd's default `!`: some SSH servers take `!` for a locked
    account, and refuse its keys too (sshd(8)).
    """
    shell = next((shell for shell in SHELLS if Path(shell).exists()), SHELLS[-1])
    what = f'create the user "{login}"'
    command = ["useradd", "--create-home", "--shell", shell, "--password", "*", "--", login]
    programs.run_program(what, command, timeout_seconds)
    made = find_account(login)
    if made is None:
        raise ApplyError(f"{what}: useradd reported success, but there is no such user")
    return made


def sudo_file(login: str, directory: Path = SUDOERS) -> Path:
    return directory / f"neuca-{login}"


def sudo_rule(login: str) -> str:
    """The rule for a user, which needs no password because the user has none."""
    return f"{MARK}{login} ALL=(ALL:ALL) NOPASSWD: ALL\n"


def grant_sudo(login: str, timeout_seconds: float, directory: Path = SUDOERS) -> bool:
    """Write the file, checked by visudo; returns whether it changed. Raises ApplyError."""
    purpose = f'let "{login}" use sudo'
    file, content = sudo_file(login, directory), sudo_rule(login).encode()
    present = _file_content(file)
    if present and not _is_ours(present):
        reason = f'"{file}" was not written by neuca-guest-tools, and is left alone'
        raise ApplyError(f"{purpose}: {reason}")
    if present == content and file.stat().st_mode & 0o777 == 0o440:
        return False
    command = ["visudo", "--check", "--quiet", "--file=-"]
    programs.run_program(purpose, command, timeout_seconds, content)
    write_files({file: content}, 0o440)
    return True


def revoke_sudo(login: str, directory: Path = SUDOERS) -> bool:
    """Remove the file if the agent wrote it. Returns whether it was removed. Raises ApplyError."""
    file = sudo_file(login, directory)
    if not _is_ours(_file_content(file)):
        return False
    write_files({file: None})
    return True


def _file_content(file: Path) -> bytes:
    """The content of a sudo file; empty if there is none, and not ours for a symbolic link."""
    with as_apply_error(f'read "{file}"'):
        return b"a link" if file.is_symlink() else read_bytes(file) or b""


def _is_ours(content: bytes) -> bool:
    return content.startswith(MARK.encode())
