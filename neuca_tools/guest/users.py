"""The users that the document asks for: an account, public keys, the right to use sudo.

Of a user that was there before, only the marked lines of keys and the sudo file are ours; of one that is no longer asked for,
the same goes, and nothing else.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from neuca_tools.config import Config
from neuca_tools.config.options import LOGIN
from neuca_tools.documents.neuca.tables import is_public_key
from neuca_tools.documents.platform.instance import PUBLIC_KEYS
from neuca_tools.errors import ApplyError, RecordError
from neuca_tools.guest import accounts, authorized_keys, sudoers
from neuca_tools.guest.base import Finding, Guest
from neuca_tools.model import Document
from neuca_tools.model.rows import User
from neuca_tools.state.store import read, remove, save

RECORD = "guest-users.json"  # in the state directory: the logins that have something of ours


def run(guest: Guest) -> Iterator[Finding]:
    """Who is asked for first, then who is not any more."""
    config, asked = (
        guest.config,
        {user.login: user for user in wanted(guest.config, guest.document)},
    )
    held = recorded(config)
    _remember(config, {*held, *asked})
    for user in asked.values():
        yield from _user(user, config.command_timeout)
    if guest.document.complete:
        left = set()
        for login in sorted(held - asked.keys()):
            try:
                withdraw(login)
                yield Finding(
                    "ok",
                    f'"{login}" is no longer asked for: its keys and its sudo file are taken back',
                    login,
                )
            except ApplyError as error:
                left.add(login)
                yield Finding("failed", error.text, login, again=True)
        _remember(config, left | asked.keys())


def wanted(config: Config, document: Document) -> list[User]:
    """The users of the document, and the platform's keys for the login of the configuration."""
    users = {user.login: user for user in document.users}
    login, keys = config.guest_login, tuple(platform_keys(document))
    if login and keys:
        user = users.get(login, User(login, False))
        users[login] = User(login, user.sudo, (*user.keys, *keys))
    return list(users.values())


def platform_keys(document: Document) -> Iterator[str]:
    """One line may be all that a cloud gives, or several in one text."""
    for item in document.platform.items if document.platform else ():
        if item.section == PUBLIC_KEYS:
            yield from filter(None, (" ".join(line.split()) for line in item.value.splitlines()))


def _user(user: User, seconds: float) -> Iterator[Finding]:
    login = user.login
    if not LOGIN.fullmatch(login):
        yield Finding("refused", f'"{login}" cannot be the name of a user', login)
        return
    keys = tuple(dict.fromkeys(key for key in user.keys if is_public_key(key)))
    odd = sum(not is_public_key(key) for key in user.keys)
    if odd:
        yield Finding(
            "refused",
            f'"{login}": {_count(odd, "text")} in the place of a public key',
            f"{login} keys",
        )
    try:
        found = accounts.find(login)
        account = found or accounts.make(login, seconds)
    except ApplyError as error:
        yield Finding("failed", error.text, login, again=True)
        return
    made = "" if found else "made, "
    try:
        ignored = authorized_keys.edit_as(account, keys)
        yield Finding(
            "failed" if ignored else "ok",
            f'"{login}": {made}{ignored or _count(len(keys), "key")}',
            login,
        )
    except ApplyError as error:
        yield Finding("failed", f'"{login}": {made}keys: {error.text}', login, again=True)
    try:
        if user.sudo:
            sudoers.grant(login, seconds)
            yield Finding("ok", f'"{login}" may use sudo', f"{login} sudo")
        else:
            sudoers.revoke(login)
    except ApplyError as error:
        yield Finding("failed", error.text, f"{login} sudo", again=True)


def withdraw(login: str) -> None:
    """Take back what is ours of this user. An account that is gone has nothing. Raises ApplyError."""
    if not LOGIN.fullmatch(login):
        return
    sudoers.revoke(login)
    account = accounts.find(login)
    try:
        if account:
            authorized_keys.edit_as(account, ())
    except ApplyError as error:
        raise ApplyError(f'take back the keys of "{login}": {error.text}') from None


def recorded(config: Config) -> set[str]:
    """The logins that have something of ours. Raises ApplyError where that is not known, which is not "nobody"."""
    path = config.state_directory / RECORD
    try:
        data = read(config.state_directory, RECORD)
        return set() if data is None else {_login(one) for one in data["logins"]}
    except (RecordError, ValueError, TypeError, KeyError) as error:
        path, cause = config.state_directory / RECORD, error.__cause__
        why = cause.strerror if isinstance(cause, OSError) else "it is not what neucad wrote"
        raise ApplyError(f'read whose keys and sudo files are ours from "{path}": {why}') from error


def _login(value: object) -> str:
    if isinstance(value, str) and LOGIN.fullmatch(value):
        return value
    raise ValueError


@dataclass(frozen=True)
class Leaving:
    """A user whose keys the clones of an image must not let in."""

    login: str

    @property
    def text(self) -> str:
        return f'take back the keys of "{self.login}"'

    def run(self) -> None:
        """Raises ApplyError."""
        withdraw(self.login)


def leaving(config: Config) -> list[Leaving]:
    """Every user that has something of ours. Raises ApplyError where that is not known."""
    return [Leaving(login) for login in sorted(recorded(config))]


def own_files(config: Config) -> list[Path]:
    """What `grant` has written. Raises ApplyError where that is not known."""
    return [sudoers.path(login) for login in sorted(recorded(config))]


def _remember(config: Config, logins: Iterable[str]) -> None:
    """On disk before anything is done. Raises ApplyError."""
    logins = sorted(login for login in logins if LOGIN.fullmatch(login))
    if set(logins) == recorded(config):
        return
    if logins:
        save(config.state_directory, RECORD, {"logins": logins}, 0o600)
    else:
        remove(config.state_directory, RECORD)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
