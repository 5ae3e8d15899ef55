"""open-iscsi: who we are, what a portal offers, logging in and out; what is logged in is read from the kernel itself.

The secret goes into the record of its target, a file of root's, since iscsiadm takes it from nowhere but that and its arguments,
which everybody sees.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import select
import socket
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple, Optional, Union

from neuca_tools.errors import ApplyError
from neuca_tools.files import read_bytes, write_files
from neuca_tools.guest import programs

MARK = b"# Written by neucad, as the user-data asks.\n"
# RFC 7143, 4.2.7. "_" is not in it, but in use.
IQN = re.compile(
    r"iqn\.[0-9]{4}-(?:0[1-9]|1[0-2])\.[A-Za-z0-9.:_-]{1,200}"
    r"|eui\.[0-9A-Fa-f]{16}|naa\.(?:[0-9A-Fa-f]{16}|[0-9A-Fa-f]{32})"
)
_TAG = re.compile(r"[0-9]{1,5}")  # of a portal group: 16 bits
INITIATOR = Path("/etc/iscsi/initiatorname.iscsi")
SERVICES = ("open-iscsi.service", "iscsi.service")  # Debian's, Fedora's
RECORDS = (Path("/etc/iscsi/nodes"), Path("/var/lib/iscsi/nodes"))  # Debian's, Fedora's
SYSFS = Path("/sys/class")
BOOTED = Path("/run/systemd/system")  # sd_booted(3)
ASKING = 150.0  # seconds: iscsid itself gives up a login after 120 (node.conn[0].timeo.login_timeout, initial_login_retry_max)
APPEARS = 20.0  # seconds from a login to its disk
UEVENT = 15  # NETLINK_KOBJECT_UEVENT, linux/netlink.h
END = "# END RECORD"
OURS = (
    "node.startup",
    "node.session.auth.authmethod",
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
)
Credentials = tuple[str, str]  # user and secret; both empty for none


class Target(NamedTuple):
    """One target behind one portal."""

    name: str
    ip: str
    port: int

    @property
    def portal(self) -> str:
        return portal(self.ip, self.port)

    @property
    def words(self) -> list[str]:
        return ["iscsiadm", "--mode", "node", "--targetname", self.name, "--portal", self.portal]


def portal(ip: Union[str, IPv4Address, IPv6Address], port: int) -> str:
    """
    >>> portal("fd00::1", 3260)
    '[fd00::1]:3260'
    """
    return f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}"


def introduce(iqn: str) -> None:
    """Be called so from now on. A session under way keeps the name that it has. Raises ApplyError."""
    content = f"InitiatorName={iqn}\n".encode()
    before = [
        line.strip()
        for line in (read_bytes(INITIATOR) or b"").splitlines()
        if not line.lstrip().startswith(b"#")
    ]
    if [line for line in before if line] == [content.strip()]:
        return
    write_files({INITIATOR: MARK + content}, 0o600)
    if BOOTED.is_dir():
        programs.run("restart iscsid", ["systemctl", "try-restart", "iscsid.service"], ASKING)
    elif Path("/etc/init.d/iscsid").exists():
        programs.run("restart iscsid", ["/etc/init.d/iscsid", "restart"], ASKING)


def is_ours(path: Path) -> bool:
    """Whether this file with a name of an initiator is one that `introduce` has written. Raises ApplyError."""
    try:
        return (read_bytes(path) or b"").startswith(MARK)
    except OSError as error:
        raise ApplyError(f'read "{path}": {error.strerror}', error.errno or 0) from error


def discover(ip: str, port: int) -> dict[Target, str]:
    """The targets that this portal offers behind itself, each with the tag of its portal group.

    open-iscsi keeps no record of them: some hosts log in at boot to whatever has one. Raises ApplyError, also for a portal that
    does not answer.
    """
    words = [
        "iscsiadm",
        "--mode",
        "discovery",
        "--type",
        "sendtargets",
        "--op",
        "nonpersistent",
        "--portal",
        portal(ip, port),
    ]
    said = programs.run(f"ask {portal(ip, port)} for its targets", words, ASKING)
    return targets(said, ip, port)


def targets(said: str, ip: str, port: int) -> dict[Target, str]:
    """Out of what iscsiadm prints.

    >>> targets("192.0.2.1:3260,1 iqn.2026-11.org.example:a\\n192.0.2.2:3260,1 iqn.2026-11.org.example:a\\n", "192.0.2.1", 3260)
    {Target(name='iqn.2026-11.org.example:a', ip='192.0.2.1', port=3260): '1'}
    """
    found = {}
    for words in sorted(line.split() for line in said.splitlines()):
        place, _, tag = words[0].rpartition(",") if len(words) == 2 else ("", "", "")
        if place == portal(ip, port) and IQN.fullmatch(words[1]) and _TAG.fullmatch(tag):
            found[Target(words[1], ip, port)] = tag
    return found


def remember(target: Target, tag: str) -> None:
    """Have a record of it, which a login needs. Raises ApplyError."""
    if not records(target):
        words = [
            "iscsiadm",
            "--mode",
            "node",
            "--targetname",
            target.name,
            "--portal",
            f"{target.portal},{tag}",
            "--op",
            "new",
        ]
        programs.run(f"make a record of {target.name}", words, ASKING)


def trust(target: Target, own: Credentials, its: Credentials) -> None:
    """Put the credentials into the target's record, if there is one. Raises ApplyError.

    With `own` this host logs in; `its` are those that the target has to show (mutual CHAP).
    """
    for path in records(target):
        text = (read_bytes(path) or b"").decode("utf-8", "replace")
        write_files({path: with_credentials(text, own, its).encode()}, 0o600)


def with_credentials(text: str, own: Credentials, its: Credentials = ("", "")) -> str:
    """The text of a record with these credentials and no others. At boot it is for us to log in, and for nobody else.

    Raises ApplyError for one that would begin another line of the record.
    """
    if not "".join((*own, *its)).isprintable():
        raise ApplyError("write the record of an iSCSI target: a credential has control characters")
    ours = {"node.startup": "manual", "node.session.auth.authmethod": "None"}
    if any(own):
        ours["node.session.auth.authmethod"] = "CHAP"
        ours["node.session.auth.username"], ours["node.session.auth.password"] = own
    if any(its):
        ours["node.session.auth.username_in"], ours["node.session.auth.password_in"] = its
    lines = [line for line in text.splitlines() if line.partition("=")[0].strip() not in OURS]
    end = lines.index(END) if END in lines else len(lines)
    return (
        "\n".join(
            [*lines[:end], *(f"{key} = {value}" for key, value in ours.items()), *lines[end:]]
        )
        + "\n"
    )


def records(target: Target) -> list[Path]:
    """What open-iscsi knows of it: `TARGET/IP,PORT,TAG/INTERFACE`; with old versions the second of these is a file itself."""
    found = []
    for root in RECORDS:
        for place in sorted(root.joinpath(target.name).glob(f"{target.ip},{target.port},*")):
            found += (
                [path for path in sorted(place.iterdir()) if path.is_file()]
                if place.is_dir()
                else [place]
            )
    return found


def log_in(target: Target) -> None:
    """Raises ApplyError."""
    programs.run(f"log in to {target.name} at {target.portal}", [*target.words, "--login"], ASKING)
    # At boot it had nothing to log in to, and was not started; at a shutdown it logs out, once nothing is mounted any more.
    if BOOTED.is_dir():
        programs.run(
            "start open-iscsi",
            ["systemctl", "start", "--no-block", *SERVICES],
            ASKING,
            accepted=range(256),
        )


def look_again(target: Target) -> None:
    """For disks that the target has got since the login. Raises ApplyError."""
    programs.run(f"look for new disks of {target.name}", [*target.words, "--rescan"], ASKING)


def log_out(target: Target) -> None:
    """Raises ApplyError."""
    programs.run(
        f"log out of {target.name} at {target.portal}", [*target.words, "--logout"], ASKING
    )


def forget(target: Target) -> None:
    """Its record goes, and the secret with it. Raises ApplyError."""
    if records(target):
        programs.run(f"forget {target.name}", [*target.words, "--op", "delete"], ASKING)


# --- What the kernel says -------------------------------------------------------------------------------------------


def session(target: Target) -> Optional[Path]:
    """Its session in sysfs, None where there is none."""
    for place in sorted((SYSFS / "iscsi_session").glob("session*")):
        number = place.name[len("session") :]
        connections = (SYSFS / "iscsi_connection").glob(f"connection{number}:*")
        if _text(place / "targetname") == target.name and any(
            (_text(one / "persistent_address").strip("[]"), _text(one / "persistent_port"))
            == (target.ip, str(target.port))
            for one in connections
        ):
            return place
    return None


def disks(target: Target) -> dict[int, str]:
    """The kernel names of the disks behind its session, by LUN."""
    place = session(target)
    found: dict[int, str] = {}
    for disk in place.glob("device/target*/*:*:*:*/block/*") if place else ():
        found[int(disk.parts[-3].rpartition(":")[2])] = disk.name
    return found


def wait_for_disk(target: Target, lun: int) -> str:
    """The kernel name of this disk, once the kernel has found it. Raises ApplyError where it does not."""
    deadline = time.monotonic() + APPEARS
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, UEVENT) as events:
        events.bind((0, 1))
        while lun not in disks(target):
            if not select.select([events], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ApplyError(f"find LUN {lun} of {target.name}: no such disk has come")
            with suppress(OSError):  # an overflow means: look again
                events.recv(65536)
    programs.run("wait for udev", ["udevadm", "settle", "--timeout=10"], APPEARS, accepted=(0, 1))
    return disks(target)[lun]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
