"""User accounts: a missing one is created with useradd, an existing one is never changed."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Optional

from neuca_tools.errors import ApplyError
from neuca_tools.guest import programs

SHELLS = ("/bin/bash", "/bin/sh")


def find(login: str) -> Optional[pwd.struct_passwd]:
    """The account, from any name service of the host (nsswitch.conf(5)); None if there is none."""
    try:
        return pwd.getpwnam(login)
    except KeyError:
        return None


def make(login: str, seconds: float) -> pwd.struct_passwd:
    """Create an account with a home directory and no valid password. Raises ApplyError.

    The password is `*` rather than useradd's default `!`: some SSH servers take `!` for a locked
    account, and refuse its keys too (sshd(8)).
    """
    shell = next((shell for shell in SHELLS if Path(shell).exists()), SHELLS[-1])
    what = f'create the user "{login}"'
    command = ["useradd", "--create-home", "--shell", shell, "--password", "*", "--", login]
    programs.run(what, command, seconds)
    made = find(login)
    if made is None:
        raise ApplyError(f"{what}: useradd reported success, but there is no such user")
    return made
