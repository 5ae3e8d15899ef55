"""User accounts: one that is missing is made with useradd; one that is there is never changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError
from neuca_tools.guest import programs

SHELLS = ("/bin/bash", "/bin/sh")


def find(login: str) -> Optional[pwd.struct_passwd]:
    """The account, wherever the host's name services have it; None where there is none."""
    try:
        return pwd.getpwnam(login)
    except KeyError:
        return None


def make(login: str, seconds: float) -> pwd.struct_passwd:
    """A new account with a home directory, and without a password: nobody can log in with one. Raises ApplyError.

    The password is `*` and not useradd's `!`, which some servers take for a locked account and refuse keys for (sshd(8)).
    """
    shell = next((shell for shell in SHELLS if Path(shell).exists()), SHELLS[-1])
    what = f'make the user "{login}"'
    programs.run(
        what,
        ["useradd", "--create-home", "--shell", shell, "--password", "*", "--", login],
        seconds,
    )
    made = find(login)
    if made is None:
        raise ApplyError(f"{what}: useradd says that it is done, and there is no such user")
    return made
