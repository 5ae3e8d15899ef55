"""A guest in namespaces of its own, made and used within one process: its NICs, commands, pictures and the kernel's reports."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from seq_documents import NICS, mac
from seq_faults import LIBC, inject

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds, for what never takes so long
SEQUENCE_SECONDS = 400.0  # for a sequence in a guest
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000  # linux/sched.h
MANAGEMENT, IGNORED = "mgmt0", "other0"
MANAGEMENT_MAC, IGNORED_MAC = "02:00:00:00:00:99", "02:00:00:00:00:98"
COMMANDS = ("neuca", "neucad", "change", "look", "data", "logs", "context", "trial", "tune")
SETTINGS = (
    "rp_filter",
    "promote_secondaries",
    "accept_dad",
    "accept_ra",
)  # 0: as the kernel has them, no delays
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1  # linux/sockios.h, linux/if.h
MS_PRIVATE_ALL = 0x44000  # MS_REC | MS_PRIVATE
CONFIG = """[runtime]
state-directory = {folder}/state
run-directory = {folder}/run
pid-directory = {folder}/pid
hosts-file = {folder}/hosts
dataplane-macs-to-ignore = {ignored}
[logging]
log-directory = {folder}/log
[linux]
udev-directory = {folder}/udev
networkmanager-directory = {folder}/nm
networkmanager-profiles = {folder}/profiles.nm
networkd-directory = {folder}/networkd
sysctl-directory = {folder}/sysctl
[metadata]
sources = file:{folder}/user-data
poll-interval = 1
[tuning]
profile = {profile}
profile-directory = {folder}/profiles
"""
PROFILE = "fast"
PROFILE_TEXT = "[link]\nmtu = 2000\ntxqueuelen = 3000\n"


class Done(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def load() -> None:
    """Import what commands need, once for all of them."""
    sys.path.insert(0, str(ROOT))
    for name in ("pyroute2", "http.client", "gzip", *(f"neuca_tools.commands.{one}" for one in COMMANDS)):  # fmt: skip
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a child copies no page for it


def isolated(function, *arguments, seconds=SEQUENCE_SECONDS):
    """The result of the function in a process with network and mount namespaces of its own."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        os.setpgid(0, 0)
        os.close(ours)
        try:
            if LIBC.unshare(CLONE_NEWNET | CLONE_NEWNS):
                raise OSError(ctypes.get_errno(), "unshare")
            answer = {"result": function(*arguments)}
        except BaseException:  # noqa: BLE001 - reported to the parent
            answer = {"error": traceback.format_exc()}
        with os.fdopen(theirs, "w") as stream:
            stream.write(json.dumps(answer) + "\n")
        os._exit(0)
    os.close(theirs)
    answer = _answer(ours, time.monotonic() + seconds)
    _end_group(child)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def _answer(stream, deadline):
    content = b""
    with os.fdopen(stream, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = file.read(1 << 20)
            if not part:
                return json.loads(content or b'{"error": "the process has ended"}')
            content += part
            if content.endswith(b"\n"):  # what it started may keep the pipe open
                return json.loads(content)
    return {"error": "the process did not end in time"}


def _end_group(leader):
    """Everything that the process started has its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    os.waitpid(leader, 0)


def write(path, text):
    """Write a file as if long ago: the agent waits until it is sure that nobody is still writing."""
    path.write_text(text)
    earlier = time.time() - 60
    os.utime(path, (earlier, earlier))


def _settings():
    """The settings of a new guest, whose /sys is that of its network namespace."""
    LIBC.mount(None, b"/", None, MS_PRIVATE_ALL, None)
    LIBC.mount(b"sysfs", b"/sys", b"sysfs", 0, None)
    for family in ("ipv4", "ipv6"):
        for key in ("all", "default"):
            for name in SETTINGS:
                path = Path(f"/proc/sys/net/{family}/conf/{key}/{name}")
                if path.exists():
                    path.write_text("0")


def _all_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        for _, name in socket.if_nameindex():
            request = struct.pack("16sh22x", name.encode(), 0)
            flags = struct.unpack_from("16sh", fcntl.ioctl(handle, SIOCGIFFLAGS, request))[1]
            fcntl.ioctl(handle, SIOCSIFFLAGS, struct.pack("16sh22x", name.encode(), flags | IFF_UP))


class Host:
    """A guest with a management NIC, an ignored NIC, and those of `present`; the network around it is in another namespace."""

    def __init__(self, present=NICS, ignored=(), profile="none"):
        self.folder = Path(tempfile.mkdtemp(prefix="neuca-sequence-"))
        self.outside = self._outside()
        self.peers = 0
        self.nics = {}  # the number of each NIC by its index
        _settings()
        self.document_file, self.config_file = self.folder / "user-data", self.folder / "config"
        self.configure(ignored, profile)
        (self.folder / "profiles").mkdir()
        write(self.folder / f"profiles/{PROFILE}.conf", PROFILE_TEXT)
        write(self.document_file, "[global]\n")
        lines = [
            "link set lo up",
            *self._nic(MANAGEMENT, MANAGEMENT_MAC),
            *self._nic(IGNORED, IGNORED_MAC),
        ]
        for number in present:
            lines += self._nic(f"dp{number}", mac(number), number)
        lines += [
            f"link set {MANAGEMENT} up", f"link set {IGNORED} up",
            f"address add 192.0.2.10/24 dev {MANAGEMENT}", f"address add 2001:db8:ffff::10/64 dev {MANAGEMENT} nodad",
            f"address add 198.51.100.1/24 dev {IGNORED}",
            "route add default via 192.0.2.1", "route add ::/0 via 2001:db8:ffff::1"]  # fmt: skip
        self.batch(lines)
        self.peers_up()

    def configure(self, ignored=(), profile="none"):
        """Write the configuration, which ignores these NICs too."""
        macs = ", ".join([IGNORED_MAC, *map(mac, ignored)])
        write(self.config_file, CONFIG.format(folder=self.folder, ignored=macs, profile=profile))

    def close(self):
        os.kill(self.outside, signal.SIGKILL)
        os.waitpid(self.outside, 0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _outside(self):
        """A process in the network namespace of the other ends, which brings them up when told."""
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            ours.close()
            LIBC.unshare(CLONE_NEWNET)
            theirs.send(b".")
            while theirs.recv(1):
                _all_up()
                theirs.send(b".")
            os._exit(0)
        theirs.close()
        ours.recv(1)
        self.other_side = ours
        return child

    def _nic(self, name, address, number=0):
        self.peers += 1
        self.nics[1000 + self.peers] = number
        return [
            f"link add name {name} index {1000 + self.peers} address {address} type veth peer name p{self.peers} netns {self.outside}"
        ]

    def peers_up(self):
        self.other_side.send(b".")
        self.other_side.recv(1)

    def plug(self, number):
        names = [name for _, name in socket.if_nameindex()]
        name = f"new{number}" if f"dp{number}" in names else f"dp{number}"  # another NIC has it
        self.batch(self._nic(name, mac(number), number))
        self.peers_up()

    # --- programs ---

    def batch(self, lines, force=False):
        """`ip` over these lines; whether all of them succeeded."""
        words = ["ip", *(["-force"] if force else []), "-batch", "-"]
        done = subprocess.run(words, input="\n".join(lines) + "\n", text=True, capture_output=True, check=False)  # fmt: skip
        if done.returncode and not force:
            raise RuntimeError(f"ip: {lines}: {done.stderr}")
        return done.returncode == 0

    def start(self, module, *words, faults=()):
        """A command as a child, with these faults: its process id and the descriptors of its output."""
        out, err = (os.memfd_create(name) for name in ("out", "err"))
        child = os.fork()
        if child == 0:
            _run(module, ["--config", str(self.config_file), *map(str, words)], (out, err), faults)
        return child, out, err

    def finish(self, started, kill_after=None):
        """Wait for the command, kill it once it has run for so many seconds."""
        child, out, err = started
        pidfd = os.pidfd_open(child)
        if not select.select([pidfd], [], [], PATIENCE if kill_after is None else kill_after)[0]:
            os.kill(child, signal.SIGKILL)
        os.close(pidfd)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return Done(code, _read(out), _read(err))

    def neuca(self, command, *words, faults=(), kill_after=None):
        """`neuca COMMAND`; `--config` follows the command. In this process if nothing happens to it: a guest forks slowly."""
        if faults or kill_after is not None:
            return self.finish(self.start("neuca", *words, command, faults=faults), kill_after)
        return self._inside("neuca", [command, "--config", str(self.config_file), *words])

    def once(self):
        """`neucad --once`."""
        return self._inside("neucad", ["--once", "--config", str(self.config_file)])

    @staticmethod
    def _inside(module, words):
        streams = [os.memfd_create(name) for name in ("out", "err")]
        kept = [os.dup(number) for number in (1, 2)]
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
        try:
            code = _main(module, words)
        finally:
            for number, stream in enumerate(kept, 1):
                os.dup2(stream, number)
                os.close(stream)
        return Done(code, *map(_read, streams))


def _main(module, words):
    """The exit code of a program in this process."""
    code = 1
    sys.argv = [module, *words]
    try:
        code = sys.modules[f"neuca_tools.commands.{module}"].main()
    except SystemExit as wanted:
        code = wanted.code
    except BaseException:  # noqa: BLE001 - what an interpreter would do with it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code or 0


def _read(descriptor):
    with os.fdopen(descriptor, "rb") as stream:
        stream.seek(0)
        return stream.read().decode(errors="replace")


def _run(module, words, streams, faults):
    """The program in a child, which ends with it."""
    try:
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir("/")
        inject(faults)
        command = [words.pop()] if module == "neuca" else []
        os._exit(_main(module, [*command, *words]))
    finally:
        os._exit(1)


def kinds():
    """The kinds of links that the kernel of this machine has; called in a namespace of its own."""
    words = {
        "bridge": "add name probe type bridge",
        "vxlan": "add name probe type vxlan id 1 dstport 4789",
        "macvlan": "add name probe link lo type macvlan",
        "vlan": "add link lo name probe type vlan id 2",
        "bond": "add name probe type bond",
        "vrf": "add name probe type vrf table 9",
    }
    available = []
    for kind, line in words.items():
        done = subprocess.run(
            f"ip link {line}".split(), capture_output=True, text=True, check=False
        )
        subprocess.run("ip link del probe".split(), capture_output=True, check=False)
        if "Unknown device type" not in done.stderr:
            available.append(kind)
    return available


# --- what the kernel reports ---

GROUPS = (
    1,
    5,
    7,
    8,
    9,
    11,
    19,
)  # RTNLGRP_LINK, _IPV4_IFADDR, _IPV4_ROUTE, _IPV4_RULE, _IPV6_IFADDR, _IPV6_ROUTE, _IPV6_RULE
NAMES = {
    16: "new link",
    17: "delete link",
    20: "new address",
    21: "delete address",
    24: "new route",
    25: "delete route",
    32: "new rule",
    33: "delete rule",
}


class Reports:
    """Changes of the network as the kernel reports them: (what, index of the link, process id of the sender)."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        with contextlib.suppress(PermissionError):  # older kernels, in a user namespace
            self.socket.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
        self.socket.bind((0, 0))
        for group in GROUPS:
            self.socket.setsockopt(270, 1, group)  # SOL_NETLINK, NETLINK_ADD_MEMBERSHIP

    def read(self):
        """Those since the last call; a lost one is reported as "lost"."""
        reports = []
        while True:
            try:
                content = self.socket.recv(1 << 18)
            except BlockingIOError:
                return reports
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                reports.append(("lost", 0, 0))
                continue
            while len(content) >= 16:
                size, kind, _, _, sender = struct.unpack_from("=IHHII", content)
                index = struct.unpack_from("=i", content, 20)[0] if kind < 24 else 0
                reports.append((NAMES.get(kind, str(kind)), index, sender))
                content = content[(size + 3) & ~3 :]
