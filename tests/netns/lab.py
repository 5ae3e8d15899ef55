"""A laboratory: one guest and the network around it, each in a network namespace of its own, and the agent run in the guest."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from foreign import Foreign
from metadata import Metadata, listener
from monitor import Monitor
from running import Daemon

from neuca_tools.files import NEW as BEING_WRITTEN

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds, far more than anything takes on a busy machine: for what never comes
GATEWAY, GATEWAY6, SERVICE = "192.0.2.1", "2001:db8:ffff::1", "169.254.169.254"
MANAGEMENT_MAC = "02:00:00:00:00:99"
ABSENT = "203.0.113.9"
# The kernel does not take this address for a local one: see `refused_route`. No duplicate address detection: its end,
# a second later, would look like a write of somebody's.
GUEST = f"""mount -t sysfs sysfs /sys; ip link set lo up
ip address add {ABSENT}/32 dev lo scope host; ip route delete local {ABSENT} table local
for key in all default; do echo 0 > /proc/sys/net/ipv6/conf/$key/accept_dad; done
for key in all default; do echo 0 > /proc/sys/net/ipv6/conf/$key/accept_ra; done
for place in /etc /var /run; do mount --bind $place $place && mount -o remount,ro,bind $place; done 2>/dev/null
echo ready; exec cat"""
# Settings for IPv4 are those of the machine, and distributions differ: those of the kernel.
NEW = """for setting in rp_filter promote_secondaries; do
for key in all default; do echo 0 > /proc/sys/net/ipv4/conf/$key/$setting; done; done
"""
OUTSIDE = "ip link set lo up; echo ready; exec cat"


def mac(number):
    """The MAC of the NIC with this number, as the agent writes it."""
    return f"02:00:00:00:01:{number:02x}"


def has_ended(pid):
    """Whether a process is gone, or only waits for a parent, which process 1 of some containers never does."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")


class Done(NamedTuple):
    """What a program said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


def _chrooted():
    """What is missing in a chroot: a mount namespace has the root of a mount for its own."""
    mounted = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    if "/" in mounted:
        return ""
    return ": the root of this chroot is no mount point (before chroot: mount --bind DIR DIR)"


def refused_route(via):
    """A line of [routes] that the kernel refuses until the source address is a local one (`Lab.permit`)."""
    return f"198.51.100.0/25 = {via} src {ABSENT}\n"


class Namespace:
    """A network and mount namespace with a process that holds it; both end when its standard input is closed."""

    def __init__(self, script, within=()):
        user = ["--user", "--map-root-user"] if os.geteuid() and not within else []
        self._holder = subprocess.Popen(
            [*within, "unshare", *user, "--net", "--mount", "--propagation", "private", "sh", "-c", NEW + script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")  # fmt: skip
        if self._holder.stdout.readline() != "ready\n":
            pytest.fail(f"no network namespace can be made here{_chrooted()}", pytrace=False)
        self.pid = self._holder.pid
        entry = ["--user", "--preserve-credentials"] if os.geteuid() else []
        target = ["nsenter", "--target", str(self.pid)]
        # A mount namespace is entered at its own root: in a chroot, back to that of the holder.
        spaces = ["--net", "--mount", "--root", "--wd"]
        self.enter = [*target, *entry, *spaces]
        # From another namespace of the laboratory: its user namespace is the same one, which cannot be entered again.
        self.enter_from_inside = [*target, *spaces]

    def close(self):
        self._holder.stdin.close()
        self._holder.wait(PATIENCE)
        self._holder.stdout.close()


class Lab:
    """One guest. By-hand changes go through `ip`, `sysctl` and `by_hand`: what else of foreign things changes is a failure."""

    def __init__(self, folder: Path, warm=None):
        self.folder, self.warm = folder, warm
        self.guest = Namespace(GUEST)
        # A user's namespaces share one user namespace: only then may one move a device to another.
        self._within = self.guest.enter if os.geteuid() else ()
        self.outside = Namespace(OUTSIDE, self._within)
        self.hosts = []  # more namespaces, closed with the laboratory
        self.foreign = Foreign(self)
        self.metadata = self.daemon = None
        self.applied, self.peers = False, 0
        self.config_file, self.document_file = folder / "config", folder / "user-data"
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.configure()

    def host(self):
        """One more host around the guest, which ends with the laboratory."""
        host = Namespace(OUTSIDE, self._within)
        self.hosts.append(host)
        return host

    def let_others_read_the_code(self):
        """A checkout below /root is out of reach for other users: they get a copy."""
        if any(not path.stat().st_mode & 0o001 for path in (ROOT, *ROOT.parents)):
            shutil.copytree(ROOT / "neuca_tools", self.folder / "code" / "neuca_tools")
            self.environment["PYTHONPATH"] = str(self.folder / "code")

    def close(self):
        for part in (self.daemon, self.metadata, *self.hosts, self.outside, self.guest):
            if part is not None:
                part.close()

    # --- the host, by hand ---

    def run(self, *command, where=None, check=True, text=None, **more):
        """Run a program in the guest, or `where`."""
        words = [*(where or self.guest).enter, *map(str, command)]
        done = subprocess.run(words, capture_output=True, text=True, input=text, timeout=PATIENCE, check=False,
                              env=self.environment, **more)  # fmt: skip
        assert not check or done.returncode == 0, (
            f"{' '.join(map(str, command))}: {done.stderr or done.stdout}"
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def ip(self, words, check=True):
        """`ip` in the guest, as its user types it."""
        with self.foreign.changing():
            return self.run("ip", *words.split(), check=check)

    def permit(self):
        """From now on the kernel takes what `refused_route` asks for."""
        self.ip(f"address delete {ABSENT}/32 dev lo")
        self.ip(f"address add {ABSENT}/32 dev lo")

    def sysctl(self, path, value=None):
        """Read a setting below /proc/sys, or write it by hand."""
        if value is None:
            return " ".join(self.run("cat", f"/proc/sys/{path}").out.split())
        with self.foreign.changing():
            return self.run("sh", "-c", f"echo {value} > /proc/sys/{path}")

    def look(self, words):
        """The answer of `ip -j`, which changes nothing."""
        out = self.run("ip", "-j", "-d", *words.split()).out
        # Ubuntu's iproute2 6.1 prints this as text into the JSON of a vxlan.
        return json.loads(out.replace("fan-map ,", ",") or "[]")

    def link(self, name):
        """What `ip link` says of one device; None where there is none."""
        return next((one for one in self.look("link") if one.get("ifname") == name), None)

    def addresses(self, name):
        """The addresses of a device with their prefix length, link-local IPv6 ones left out."""
        found = self.run("ip", "-j", "address", "show", "dev", name, check=False)
        devices = json.loads(found.out or "[]") if found.code == 0 else []
        return {
            f"{one['local']}/{one['prefixlen']}"
            for device in devices
            for one in device.get("addr_info", ())
            if not one["local"].startswith("fe80:")
        }

    def routes(self, prefix, family=4):
        """The routes to a prefix, as (next hop, device, metric, protocol)."""
        found = self.look(f"-{family} route show {prefix}")
        return [
            (one.get("gateway"), one["dev"], one.get("metric", 0), one.get("protocol"))
            for one in found
        ]

    def remount(self, place, mode):
        """A file system of the guest read-only ("ro"), or writable again ("rw")."""
        # The owner that the kernel shows is a user of the machine, and none in a user namespace: only `mode` is set.
        words = ("mount", "--options-mode", "ignore", "-o", f"remount,{mode}", place)
        # It is busy while the daemon writes a file there.
        self.wait(f"{place} is {mode}", lambda: self.run(*words, check=False).code == 0)

    # --- its hardware ---

    def veth(self, name, number=0, up=False, address="", foreign=False, queues=0):
        """A NIC with its other end outside, which is up. `foreign`: nothing may change it. 0 `queues`: as the kernel likes."""
        # With one index on both sides the kernel takes a veth for no pair, and reports its carrier up to a second late.
        self.peers += 1
        several = f" numtxqueues {queues} numrxqueues {queues}" if queues else ""
        words = f"ip link add name {name}{several} address {address or mac(number)} type veth"
        words += f" peer index {1000 + self.peers} name {name} netns {self.outside.pid}"
        with self.foreign.changing():
            self.run(*words.split())
            self.run("ip", "link", "set", name, "up", where=self.outside)
            if up:
                self.run("ip", "link", "set", name, "up")
        if not foreign:
            self.foreign.may_change(self.index(name))
        return name

    def tap(self, name, number, foreign=False):
        """A tap device, which never has a carrier here."""
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            pytest.skip("no tap devices for this user (/dev/net/tun)")
        self.ip(f"tuntap add mode tap name {name}")
        self.ip(f"link set {name} address {mac(number)}")
        if not foreign:
            self.foreign.may_change(self.index(name))
        return name

    def index(self, name):
        return int(self.run("ip", "-o", "link", "show", "dev", name).out.split(":")[0])

    def management(self, name="mgmt0", default_route=True):
        """The NIC that the guest is reached through, with the metadata service behind it."""
        self.veth(name, address=MANAGEMENT_MAC, up=True, foreign=True)
        for address in (f"{GATEWAY}/24", f"{GATEWAY6}/64", f"{SERVICE}/32"):
            self.run("ip", "address", "add", address, "dev", name, where=self.outside)
        for words in ("address add 192.0.2.10/24 dev", "address add 2001:db8:ffff::10/64 dev"):
            self.ip(f"{words} {name}")
        if default_route:
            self.ip(f"route add default via {GATEWAY} dev {name}")
            self.ip(f"-6 route add default via {GATEWAY6} dev {name}")
        return name

    def firmware(self, **fields):
        """Fields of the guest's DMI tables, such as product_uuid: /sys/class has this directory besides that of the NICs."""
        sysfs = self.folder / "sysfs"
        sysfs.mkdir()
        self.run("mount", "--rbind", "/sys", sysfs)
        self.run("mount", "-t", "tmpfs", "tmpfs", "/sys/class")
        self.run("ln", "-s", sysfs / "class" / "net", "/sys/class/net")
        self.run("mkdir", "-p", "/sys/class/dmi/id")
        for name, text in fields.items():
            self.run("tee", f"/sys/class/dmi/id/{name}", text=text)

    def service(self, document="", address=SERVICE, port=80):
        """The metadata service, outside on the link-local address or another, or in the guest on 127.0.0.1."""
        where = self.guest if address.startswith("127.") else self.outside
        if where is self.outside and address != SERVICE:
            # It may be there already; without it, the service cannot listen.
            words = ["ip", "address", "add", address, "dev", "mgmt0", "nodad"]
            self.run(*words, where=where, check=False)
        if self.metadata:
            self.metadata.close()
        self.metadata = Metadata(listener(where.enter, address, port), document)
        return self.metadata

    # --- the agent ---

    def configure(self, text="", sources="", poll=1, timeout=10, profile="none"):
        """Write the configuration: every directory below the test's own; `text` is appended."""
        places = {
            name: self.folder / name
            for name in (
                "state",
                "run",
                "pid",
                "udev",
                "nm",
                "networkd",
                "sysctl",
                "log",
                "profiles.nm",
            )
        }
        self.config_file.write_text(
            f"[runtime]\nstate-directory = {places['state']}\nrun-directory = {places['run']}\n"
            f"pid-directory = {places['pid']}\nhosts-file = {self.folder}/hosts\n"
            f"[logging]\nlog-directory = {places['log']}\n"
            f"[linux]\nudev-directory = {places['udev']}\nnetworkmanager-directory = {places['nm']}\n"
            f"networkmanager-profiles = {places['profiles.nm']}\n"
            f"networkd-directory = {places['networkd']}\nsysctl-directory = {places['sysctl']}\n"
            f"[metadata]\nsources = {sources or f'file:{self.document_file}'}\npoll-interval = {poll}\n"
            f"timeout = {timeout}\n[tuning]\nprofile = {profile}\nprofile-directory = {self.folder}/profiles\n{text}\n"
        )

    def document(self, text):
        """What the source says from now on."""
        if self.metadata is not None:
            self.metadata.document = text
        self.document_file.write_text(text)

    def command(self, module, *arguments, prefix=()):
        """`neuca` or `neucad` in the guest: warm, or as a program of its own."""
        words = [str(argument) for argument in arguments]
        if self.warm and not prefix:
            return Done(*self.warm.run(self.guest.pid, module, words))
        main = f"import sys; from neuca_tools.commands.{module} import main; sys.exit(main())"
        return self.run(*prefix, sys.executable, "-c", main, *words, check=False)

    def neuca(self, *arguments, prefix=()):
        """`neuca SUBCOMMAND`; one that may write makes the test one that is checked at its end."""
        if arguments[0] in ("apply", "release", "revert", "tune"):
            self.applied = True
        self.foreign.remember()
        return self.command(
            "neuca", arguments[0], "--config", self.config_file, *arguments[1:], prefix=prefix
        )

    def once(self, document=None):
        """`neucad --once`, over a new document if one is given."""
        if document is not None:
            self.document(document)
        self.applied = True
        self.foreign.remember()
        return self.command("neucad", "--once", "--config", self.config_file)

    def start(self, *prefix, **environment):
        """The daemon as a process of its own, run by the program `prefix` if there is one."""
        self.applied = True
        self.foreign.remember()
        command = [
            *self.guest.enter,
            *prefix,
            sys.executable,
            "-m",
            "neuca_tools.commands.neucad",
            "--config",
            str(self.config_file),
        ]
        self.daemon = Daemon(
            command, {**self.environment, **environment}, self.folder / "daemon.log"
        )
        return self.daemon

    def start_failing(self, which):
        """The daemon, in which operations fail (`failing.py`) until the file that is returned is removed."""
        self.applied = True
        self.foreign.remember()
        cause = self.folder / "cause"
        cause.touch()
        words = map(
            str,
            (Path(__file__).with_name("failing.py"), which, "neucad", "--config", self.config_file),
        )
        environment = {**self.environment, "UNTIL_GONE": str(cause)}
        command = [*self.guest.enter, sys.executable, *words]
        self.daemon = Daemon(command, environment, self.folder / "daemon.log")
        return cause

    def plan(self):
        """The texts of `neuca plan`."""
        done = self.neuca("plan", "--json")
        assert done.out, done
        return [one["text"] for one in done.json["operations"]]

    def status(self, *arguments):
        """`neuca status --json` as (exit code, data)."""
        done = self.neuca("status", "--json", *arguments)
        assert done.out, done
        return done.code, done.json

    def problems(self, name=None):
        """The (code, text) of each problem of the host, or of one interface."""
        data = self.status()[1]
        holders = (
            [data]
            if name is None
            else [one for one in data["interfaces"] if one["name"] == name or one["mac"] == name]
        )
        return [
            (problem["code"], problem["text"])
            for holder in holders
            for problem in holder["problems"]
        ]

    def notes(self, name):
        """The (setting, effect, reason) of each note about one interface."""
        nics = [nic for nic in self.status()[1]["interfaces"] if nic["name"] == name]
        return [
            (note["setting"], note["effect"], note["reason"])
            for nic in nics
            for note in nic["notes"]
        ]

    def role(self, address):
        return next(
            (one["role"] for one in self.status()[1]["interfaces"] if one["mac"] == address), None
        )

    # --- waiting ---

    @contextlib.contextmanager
    def monitored(self):
        """`ip monitor` while the block runs: its lines are what the kernel saw being changed."""
        self.settle()
        monitor = Monitor(self.guest.enter)
        try:
            yield monitor
        finally:
            monitor.close()

    def wait(self, what, condition, seconds=PATIENCE):
        """Until the condition holds; it is asked again whenever the kernel reports a change, and a few times a second."""
        deadline = time.monotonic() + seconds
        if condition():
            return
        monitor = Monitor(self.guest.enter)
        try:
            while not condition():
                left = deadline - time.monotonic()
                log = self.daemon.log() if self.daemon else ""
                assert left > 0, f"{what}: not within {seconds:g} s\n{log}"
                monitor.stir(min(left, 0.2))
        finally:
            monitor.close()

    def settle(self):
        """Until the kernel has done what follows from the changes so far."""
        self.wait("all NICs have settled", self._settled)

    def _settled(self):
        """A moment after a NIC has come up the kernel notes its carrier, makes link-local addresses, and routes to its own."""
        up = all(
            one["operstate"] == "UP"
            for one in self.look("link")
            if {"UP", "LOWER_UP"} <= set(one["flags"])
            and one.get("linkinfo", {}).get("info_kind") in ("veth", "bridge", "macvlan")
        )
        there = {
            each["local"]
            for one in self.look("-6 address")
            if {"UP", "LOWER_UP"} <= set(one.get("flags", ()))
            for each in one["addr_info"]
            if not each.get("dadfailed")  # which the kernel does not use
        }
        # In every table: the routes of a VRF's member are in that of the VRF.
        return up and there <= {
            one["dst"] for one in self.look("-6 route show table all type local")
        }

    # --- the laws ---

    def files(self):
        """Each file of the agent with what tells a write: inode and time. The report of the last pass is written by each.

        A DHCP client writes its own files whenever it hears from its server; only the request is the agent's. What a
        daemon is about to rename or remove is no file yet, or none any more.
        """
        passing = {"last-pass.json", "lock", "neucad.lock", "daemon.log"}
        files = {}
        for directory, _, names in os.walk(self.folder):
            in_dhcp = Path(directory).name == "dhcp"
            for path in (Path(directory, name) for name in names if name not in passing):
                if path.suffix == BEING_WRITTEN or (in_dhcp and path.suffix != ".json"):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():
                        files[str(path)] = (path.stat().st_ino, path.stat().st_mtime_ns)
        return files

    def explain(self):
        """Print what the agent says about the guest, for a test that failed: pytest shows it under "teardown"."""
        for command in ("status", "plan"):
            done = self.neuca(command)
            print(f"# neuca {command}", done.out, done.err, sep="\n")
        if self.daemon is not None:
            print("# neucad", self.daemon.log(), sep="\n")

    def finish(self):
        """What holds after every test: nothing is left to do, a second pass writes nothing, nothing foreign has changed."""
        if self.daemon is not None and self.daemon.running:
            assert self.daemon.stop() == 0, self.daemon.log()
        self.foreign.check()
        assert self.plan() == []
        files = self.files()
        with self.monitored() as monitor:
            self.once()
            assert monitor.lines() == []
        assert self.files() == files
        self.foreign.check()
