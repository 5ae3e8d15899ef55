"""What the tests of both packages share: running programs, what the packages hold, and a root to install them in."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The tools of packages are in there, also where an ordinary user's PATH has no sbin. `home` of conftest adds HOME.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}

# All of the host's files, with changes to them in memory, and namespaces of its own for the network, mounts, processes and
# the host name: what a package's scripts start, stop, set and delete is never the host's. What an agent or a command has
# left on the host is hidden: a test finds the same root wherever it runs. `$3`: a directory whose files the host is to have
# too, or nothing.
OWN_ROOT = """set -eu
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root" "$1/more"
[ -z "$3" ] || cp -a "$3/." "$1/more"
mount -t overlay none -o "lowerdir=$1/more:/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for place in etc var/cache var/lib var/log; do
    [ ! -d "$1/root/$place" ] || find "$1/root/$place" -path '*/dpkg' -prune -o -name '*neuca*' -prune -exec rm -rf {} +
done
mount -t proc proc "$1/root/proc"
for directory in run tmp; do mount -t tmpfs none "$1/root/$directory"; done
mkdir "$1/root/run/lock"
mount --rbind /dev "$1/root/dev"
cat > "$1/root/tmp/script"
cp "$2"/* "$1/root/tmp/"
cd "$1/root"
exec chroot . /bin/bash -eu /tmp/script
"""

# For bash, and for whoever reads reports.
SHARED = {
    "/usr/lib/systemd/catalog/neuca.catalog",
    "/usr/share/bash-completion/completions/neuca",
    "/usr/share/bash-completion/completions/neucad",
    "/usr/share/bash-completion/completions/neuca-selftest",
    "/usr/share/neuca-guest-tools/schema/analyze-1.json",
    "/usr/share/neuca-guest-tools/schema/changes-1.json",
    "/usr/share/neuca-guest-tools/schema/check-1.json",
    "/usr/share/neuca-guest-tools/schema/clean-1.json",
    "/usr/share/neuca-guest-tools/schema/desired-1.json",
    "/usr/share/neuca-guest-tools/schema/explanation-2.json",
    "/usr/share/neuca-guest-tools/schema/observed-1.json",
    "/usr/share/neuca-guest-tools/schema/plan-1.json",
    "/usr/share/neuca-guest-tools/schema/report-1.json",
    "/usr/share/neuca-guest-tools/schema/scripts-1.json",
    "/usr/share/neuca-guest-tools/schema/section-1.json",
    "/usr/share/neuca-guest-tools/schema/selftest-comparison-1.json",
    "/usr/share/neuca-guest-tools/schema/selftest-history-1.json",
    "/usr/share/neuca-guest-tools/schema/selftest-mesh-1.json",
    "/usr/share/neuca-guest-tools/schema/selftest-paths-1.json",
    "/usr/share/neuca-guest-tools/schema/selftest-report-1.json",
    "/usr/share/neuca-guest-tools/schema/status-2.json",
    "/usr/share/neuca-guest-tools/schema/tuning-2.json",
    "/usr/share/neuca-guest-tools/schema/user-data-1.json",
}
# Behind `neuca-`; those of version 1.7 among them keep their names.
ALIASES = (
    "all-user-scripts distro get get-public-ip interfaces netconf routes run-scripts selftest storage user-data"
    " user-script users version"
).split()
UNITS = (
    "guest-tools.service",
    "guest.path",
    "host-keys.service",
    "names.service",
)  # that an installation enables
COMMANDS = {"neuca", "neucad", *(f"neuca-{alias}" for alias in ALIASES)}
MARKS = (
    "/etc/udev/rules.d/10-neuca-persistent-fe163e006daf.rules /etc/udev/rules.d/15-neuca-persistent-fe163e006dae.rules"
    " /etc/NetworkManager/conf.d/neuca.conf /etc/systemd/network/05-neuca-nics.network"
    " /etc/systemd/network/05-neuca-vlans.network /etc/sysctl.d/neuca.conf"
).split()
FOREIGN = (
    "/etc/udev/rules.d/70-persistent-net.rules /etc/udev/rules.d/10-neuca-persistent-notes.rules"
    " /etc/NetworkManager/conf.d/mine.conf /etc/systemd/network/10-mine.network /etc/sysctl.d/90-mine.conf"
).split()
WRITTEN = (
    "mkdir -p /var/lib/neuca /run/neuca /var/log/neuca\n"
    f"touch {' '.join([*MARKS, *FOREIGN])} /var/lib/neuca/record.json\n"
)
# Of a kind that no other program of this host has: "notes" is a foreign file with a name like ours.
LEFT = "find /etc /var/cache /var/lib /var/log /run /usr /opt /srv -name '*neuca*' -not -name '*-notes.rules' | sort\n"

# Nothing is started: there is no init in here. And man-db does not index all pages of the host.
QUIET = "printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d\n"
INSTALL_ALL = (
    QUIET + "rm -f /var/lib/man-db/auto-update\ndpkg --force-unsafe-io -i /tmp/*.deb > /dev/null\n"
)
# Compiling takes most of the time.
INSTALL = "rm -f /usr/bin/*py3compile\n" + INSTALL_ALL


def run(*words: object, fine: bool = True, **more: object) -> subprocess.CompletedProcess[str]:
    """Run a program with a plain environment; `fine`: it has to succeed."""
    given = {"env": ENVIRONMENT, "timeout": 1200, **more}
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, **given
    )
    assert done.returncode == 0 or not fine, f"{words}:\n{done.stdout}{done.stderr}"
    return done


def in_own_root(directory: Path, script: str, *files: Path, more: Path | None = None) -> str:
    """Run a script as root in a root of its own, with copies of the files in its /tmp.

    `more` is a directory whose files the host is to have too. Returns what the script says.
    """
    root, given = directory / "root", directory / "files"
    root.mkdir()
    given.mkdir()
    for file in files:
        (given / file.name).write_bytes(file.read_bytes())
    (given / "nothing").touch()
    users = [] if os.getuid() == 0 else ["--map-root-user"]
    return run(
        "unshare",
        *users,
        "--mount",
        "--net",
        "--uts",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        OWN_ROOT,
        "sh",
        root,
        given,
        more or "",
        input=script,
    ).stdout
