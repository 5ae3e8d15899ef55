"""open-iscsi: initiator name, discovery, login and logout; sessions are read from sysfs.

A CHAP secret is written to the record of its target, which only root can read: the alternative is
an argument of iscsiadm, which every user can see.
"""

# SPDX-License-Identifier: MIT

import re
import select
import socket
import time
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import NamedTuple, Optional, Union

from neuca_tools.errors import ApplyError
from neuca_tools.files import observed_content, readable_paths, text_of, write_files
from neuca_tools.guest import programs

MARK = b"# Written by neucad, as the user-data asks.\n"
# RFC 7143, 4.2.7, and "_", which is used in practice.
IQN = re.compile(
    r"iqn\.[0-9]{4}-(?:0[1-9]|1[0-2])\.[A-Za-z0-9.:_-]{1,200}"
    r"|eui\.[0-9A-Fa-f]{16}|naa\.(?:[0-9A-Fa-f]{16}|[0-9A-Fa-f]{32})"
)
# A portal with the tag of its group, 16 bits, and a target.
_OFFER = re.compile(rf"\s*(?P<portal>\S+),(?P<tag>[0-9]{{1,5}})\s+(?P<name>{IQN.pattern})\s*")
INITIATOR = Path("/etc/iscsi/initiatorname.iscsi")
SERVICES = ("open-iscsi.service", "iscsi.service")  # Debian's, Fedora's
RECORDS = (Path("/etc/iscsi/nodes"), Path("/var/lib/iscsi/nodes"))  # Debian's, Fedora's
SYSFS = Path("/sys/class")
# iscsid gives up a login after 120 s (node.conn[0].timeo.login_timeout times
# initial_login_retry_max).
ISCSIADM_SECONDS = 150.0
DISK_SECONDS = 20.0  # from a login until the disk exists
UEVENT = 15  # NETLINK_KOBJECT_UEVENT, linux/netlink.h
END = "# END RECORD"
AUTH = "node.session.auth"
AUTH_KEYS = ("authmethod", "username", "password", "username_in", "password_in")
# What `with_credentials` replaces in a record.
OURS = ("node.startup", *(f"{AUTH}.{key}" for key in AUTH_KEYS))
Credentials = tuple[str, str]  # user and secret; both empty for none


class Target(NamedTuple):
    """One target behind one portal."""

    name: str
    ip: str
    port: int

    @property
    def portal(self) -> str:
        return portal_text(self.ip, self.port)

    def command(self, *options: str, tag: str = "") -> list[str]:
        """iscsiadm for this target; `tag` is that of its portal group."""
        place = f"{self.portal},{tag}" if tag else self.portal
        words = ["iscsiadm", "--mode", "node", "--targetname", self.name, "--portal", place]
        return [*words, *options]

    def run(self, what: str, *options: str, tag: str = "") -> None:
        """Run that command. Raises ApplyError."""
        programs.run_program(what, self.command(*options, tag=tag), ISCSIADM_SECONDS)


def portal_text(ip: Union[str, IPv4Address, IPv6Address], port: int) -> str:
    """
    >>> portal_text("fd00::1", 3260)
    '[fd00::1]:3260'
    """
    return f"[{ip}]:{port}" if ":" in str(ip) else f"{ip}:{port}"


def set_initiator_name(iqn: str) -> None:
    """Set the initiator name, for new sessions. Raises ApplyError, ObserveError."""
    content = f"InitiatorName={iqn}\n".encode()
    lines = [line.strip() for line in (observed_content(INITIATOR) or b"").splitlines()]
    if [line for line in lines if line and not line.startswith(b"#")] == [content.strip()]:
        return
    write_files({INITIATOR: MARK + content}, 0o600)
    if programs.SYSTEMD_DIRECTORY.is_dir():
        restart = ["systemctl", "try-restart", "iscsid.service"]
        programs.run_program("restart iscsid", restart, ISCSIADM_SECONDS)
    elif Path("/etc/init.d/iscsid").exists():
        programs.run_program("restart iscsid", ["/etc/init.d/iscsid", "restart"], ISCSIADM_SECONDS)


def is_ours(path: Path) -> bool:
    """Whether `set_initiator_name` wrote this file. Raises ObserveError."""
    return (observed_content(path) or b"").startswith(MARK)


def discover_targets(ip: str, port: int) -> dict[Target, str]:
    """The targets that a portal offers at its own address, each with the tag of its portal group.

    open-iscsi keeps no record of them, since some hosts log in to all recorded targets at boot.
    Raises ApplyError, also for a portal that does not respond.
    """
    portal = portal_text(ip, port)
    words = "iscsiadm --mode discovery --type sendtargets --op nonpersistent --portal".split()
    what = f"query the targets of {portal}"
    output = programs.run_program(what, [*words, portal], ISCSIADM_SECONDS)
    return parse_targets(output, ip, port)


def parse_targets(output: str, ip: str, port: int) -> dict[Target, str]:
    """Parse the output of iscsiadm.

    >>> said = "192.0.2.1:3260,1 iqn.2026-11.org.example:a"
    >>> parse_targets(f"{said}\\n192.0.2.2:3260,1 iqn.2026-11.org.example:a\\n", "192.0.2.1", 3260)
    {Target(name='iqn.2026-11.org.example:a', ip='192.0.2.1', port=3260): '1'}
    """
    tag_by_target = {}
    for line in sorted(output.splitlines()):
        match = _OFFER.fullmatch(line)
        if match and match["portal"] == portal_text(ip, port):
            tag_by_target[Target(match["name"], ip, port)] = match["tag"]
    return tag_by_target


def create_record(target: Target, tag: str) -> None:
    """Make the record of a target, which a login needs. Raises ApplyError."""
    if not record_paths(target):
        target.run(f"create a record of {target.name}", "--op", "new", tag=tag)


def write_credentials(target: Target, chap: Credentials, mutual_chap: Credentials) -> None:
    """Write the credentials to the records of a target. Raises ApplyError, ObserveError.

    This host logs in with `chap`; the target has to prove that it knows `mutual_chap`.
    """
    for path in record_paths(target):
        text = (observed_content(path) or b"").decode("utf-8", "replace")
        write_files({path: with_credentials(text, chap, mutual_chap).encode()}, 0o600)


def with_credentials(text: str, chap: Credentials, mutual_chap: Credentials = ("", "")) -> str:
    """The text of a record with these credentials, and without automatic login at boot.

    Raises ApplyError for credentials that would begin another line of the record.
    """
    if not "".join((*chap, *mutual_chap)).isprintable():
        raise ApplyError("write the record of an iSCSI target: a credential has control characters")
    settings = {"node.startup": "manual", f"{AUTH}.authmethod": "None"}
    if any(chap):
        settings[f"{AUTH}.authmethod"] = "CHAP"
        settings[f"{AUTH}.username"], settings[f"{AUTH}.password"] = chap
    if any(mutual_chap):
        settings[f"{AUTH}.username_in"], settings[f"{AUTH}.password_in"] = mutual_chap
    lines = [line for line in text.splitlines() if line.partition("=")[0].strip() not in OURS]
    end = lines.index(END) if END in lines else len(lines)
    lines[end:end] = [f"{key} = {value}" for key, value in settings.items()]
    return "\n".join(lines) + "\n"


def record_paths(target: Target) -> list[Path]:
    """The records of a target: `TARGET/IP,PORT,TAG`, in new versions with `/INTERFACE`."""
    paths: list[Path] = []
    for root in RECORDS:
        for place in readable_paths(root / target.name, f"{target.ip},{target.port},*"):
            paths += sorted(filter(Path.is_file, place.iterdir())) if place.is_dir() else [place]
    return paths


def log_in(target: Target) -> None:
    """Raises ApplyError."""
    target.run(f"log in to {target.name} at {target.portal}", "--login")
    # The service logs out at shutdown, after unmounting. It was not started at boot if there was
    # no record then.
    if programs.SYSTEMD_DIRECTORY.is_dir():
        start = ["systemctl", "start", "--no-block", *SERVICES]
        programs.run_program("start open-iscsi", start, ISCSIADM_SECONDS, accepted=range(256))


# --- What the kernel says -------------------------------------------------------------------------


def find_session(target: Target) -> Optional[Path]:
    """The session of a target in sysfs; None if there is none."""
    for place in readable_paths(SYSFS / "iscsi_session", "session*"):
        number = place.name[len("session") :]
        connections = readable_paths(SYSFS / "iscsi_connection", f"connection{number}:*")
        if text_of(place / "targetname") == target.name and any(
            text_of(connection / "persistent_address").strip("[]") == target.ip
            and text_of(connection / "persistent_port") == str(target.port)
            for connection in connections
        ):
            return place
    return None


def disks_by_lun(target: Target) -> dict[int, str]:
    """The kernel names of the disks of a target's session, by LUN."""
    place = find_session(target)
    if place is None:
        return {}
    links = place.glob("device/target*/*:*:*:*/block/*")
    return {int(disk.parts[-3].rpartition(":")[2]): disk.name for disk in links}


def wait_for_disk(target: Target, lun: int) -> str:
    """The kernel name of a disk that appears within DISK_SECONDS seconds. Raises ApplyError."""
    deadline = time.monotonic() + DISK_SECONDS
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, UEVENT) as events:
        events.bind((0, 1))
        while not (name := disks_by_lun(target).get(lun)):
            if not select.select([events], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ApplyError(f"find LUN {lun} of {target.name}: no such disk appeared")
            with suppress(OSError):  # an overflow means: look again
                events.recv(65536)
    settle = ["udevadm", "settle", "--timeout=10"]
    programs.run_program("wait for udev", settle, DISK_SECONDS, accepted=(0, 1))
    return name
