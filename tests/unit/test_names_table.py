"""A boot without Python: what the table has of a host, what restore-names makes of it, and when there is a table at all."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest
from worlds import mac

from neuca_tools.agent.names_table import Places, is_quiet, table_of
from neuca_tools.model import NicRecord, Record
from neuca_tools.model.stored import StoredDocument
from neuca_tools.sources import directories, hypervisors, nocloud
from neuca_tools.state.records import save_document, save_record

SCRIPT = (Path(__file__).parents[2] / "packaging" / "restore-names").read_text()
NICS = {"eth0": mac(9), "eth1": mac(1), "eth2": mac(2)}
RECORD = Record(
    nics={
        mac(9): NicRecord(name="eth0", role="management"),
        mac(1): NicRecord(name="eth1", role="dataplane"),
        mac(2): NicRecord(name="eth2", role="dataplane"),
    }
)
DOCUMENT = f"[interface {mac(1)}]\nname = eth1\nmtu = 1400\n"
PLACES = r"/(?=var/lib/neuca|var/lib/cloud|etc/(?:neuca|udev)|run/|sys/|proc/|dev/lxd|config-drive|usr/bin/neucad)"


def rule(address: str) -> str:
    """The file of the udev rule for the NIC with this MAC."""
    return f"etc/udev/rules.d/10-neuca-persistent-{address.replace(':', '')}.rules"


class Host:
    """A root directory in which restore-names runs, with what it reads and calls."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = Places(
            self / "etc/neuca/config",
            self / "var/lib/neuca",
            self / "run/neuca",
            self / "etc/udev/rules.d",
        )
        self.write(
            "etc/neuca/config",
            f"[runtime]\nstate-directory = {self.places.state}\nrun-directory = {self.places.run}\n"
            f"[linux]\nudev-directory = {self.places.rules}\n",
        )
        self.write("etc/neuca/config.d/b.conf", "[metadata]\npoll-interval = 60\n")
        self.write("etc/neuca/config.d/a.conf", "")
        self.write("proc/cmdline", "root=/dev/vda quiet\n")
        self.write("sys/class/dmi/id/product_serial", "\n")
        for name, address in NICS.items():
            self.plug(name, address)
            self.write(rule(address), f'NAME:="{name}"\n')
        self.plug("lo", "00:00:00:00:00:00", kind=772, device=False)
        self.plug("br0", mac(1), device=False)
        self.program("bin/udevadm", f'echo "$@" > {self / "waited"}')
        self.program("usr/bin/neucad", f'echo "$@" > {self / "python"}')
        self.program(
            "restore-names",
            re.sub(PLACES, f"{root}/", SCRIPT).replace("PATH=", f"PATH={root}/bin:", 1),
        )
        (self / "run/udev").mkdir(parents=True)
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind(str(self / "run/udev/control"))
        self.save(RECORD)

    def __truediv__(self, path: str) -> Path:
        return self.root / path

    def write(self, path: str, text: str) -> None:
        (self / path).parent.mkdir(parents=True, exist_ok=True)
        (self / path).write_text(text)

    def program(self, path: str, text: str) -> None:
        self.write(path, text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        (self / path).chmod(0o755)

    def plug(self, name: str, address: str, kind: int = 1, device: bool = True) -> None:
        self.write(f"sys/class/net/{name}/type", f"{kind}\n")
        self.write(f"sys/class/net/{name}/address", f"{address}\n")
        if device:
            (self / f"sys/class/net/{name}/device").mkdir()

    def save(self, record: Record, text: str = DOCUMENT) -> None:
        """The state and, if there is nothing to do about these NICs, the table that a pass leaves."""
        save_record(self.places.state, record)
        save_document(self.places.state, StoredDocument("ec2", "0", "now", text, ""))
        (self.places.state / "names").unlink(missing_ok=True)
        if is_quiet(self.places, [*NICS.items()]):
            self.table = table_of(self.places.decisive_files(), [*NICS.items()])

    @property
    def table(self) -> bytes:
        return (self.places.state / "names").read_bytes()

    @table.setter
    def table(self, content: bytes) -> None:
        (self.places.state / "names").write_bytes(content)

    def boot(self, shell: tuple[str, ...] = (), **environment: str) -> str:
        """The arguments with which Python was started, empty if it was not."""
        (self / "python").unlink(missing_ok=True)
        program = [*shell, self / "restore-names"]
        subprocess.run(program, check=True, timeout=60, env=environment)
        return (self / "python").read_text().strip() if (self / "python").exists() else ""


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def test_python_is_not_started_if_nothing_has_changed(host):
    assert host.table.startswith(b"neuca-names 2\n")
    assert host.table.endswith(f"eth0 {mac(9)}\neth1 {mac(1)}\neth2 {mac(2)}\nend\n".encode())
    assert host.boot() == ""


CHANGES = {
    "another configuration": lambda host: host.write("etc/neuca/config", ""),
    "no configuration": lambda host: (host / "etc/neuca/config").unlink(),
    "another drop-in": lambda host: host.write("etc/neuca/config.d/b.conf", ""),
    "a new drop-in": lambda host: host.write("etc/neuca/config.d/c.conf", ""),
    "a drop-in less": lambda host: (host / "etc/neuca/config.d/a.conf").unlink(),
    "a drop-in that is a directory": lambda host: (host / "etc/neuca/config.d/c.conf").mkdir(),
    "another record": lambda host: host.write("var/lib/neuca/record.json", "{}"),
    "no record": lambda host: (host / "var/lib/neuca/record.json").unlink(),
    "another document": lambda host: host.write("var/lib/neuca/document.json", "{}"),
    "no document": lambda host: (host / "var/lib/neuca/document.json").unlink(),
    "another rule of udev": lambda host: host.write(rule(mac(1)), 'NAME:="eth7"\n'),
    "no rule of udev": lambda host: (host / rule(mac(1))).unlink(),
    "a rule for another NIC": lambda host: host.write(rule(mac(5)), 'NAME:="eth7"\n'),
    "an unfinished trial": lambda host: host.write("var/lib/neuca/trial.json", ""),
    "what could not be saved": lambda host: (host / "run/neuca/unsaved").mkdir(parents=True),
    "a volume": lambda host: (host / "run/neuca/drives").mkdir(parents=True),
    "a config drive in the image": lambda host: (host / "config-drive").mkdir(),
    "a seed": lambda host: (host / "var/lib/cloud/seed/nocloud").mkdir(parents=True),
    "LXD": lambda host: host.write("dev/lxd/sock", ""),
    "a seed on the command line": lambda host: host.write("proc/cmdline", "a ds=nocloud;h=x b"),
    "a quoted one": lambda host: host.write("proc/cmdline", 'a ds="nocloud-net" b\n'),
    "a seed in the firmware": lambda host: host.write("sys/class/dmi/id/product_serial", "ds=nocloud;i=x\n"),
    "names exchanged": lambda host: (
        host.plug("eth1", mac(2), device=False),
        host.plug("eth2", mac(1), device=False),
    ),
    "a name of the kernel": lambda host: (host / "sys/class/net/eth1").rename(host / "sys/class/net/eth7"),
    "a NIC replaced": lambda host: host.plug("eth2", mac(5), device=False),
    "a NIC more": lambda host: host.plug("eth3", mac(3)),
    "a NIC less": lambda host: (host / "sys/class/net/eth2/device").rmdir(),
    "two NICs with one MAC": lambda host: host.plug("eth3", mac(2)),
    "an InfiniBand port": lambda host: host.plug("ib0", "80:00" + ":00" * 18, kind=32),
    "a NIC that has just gone": lambda host: (host / "sys/class/net/eth2/address").unlink(),
    "no udev": lambda host: (host / "run/udev/control").unlink(),
    "no table": lambda host: (host / "var/lib/neuca/names").unlink(),
    "an empty table": lambda host: host.write("var/lib/neuca/names", ""),
    "a table of another form": lambda host: setattr(host, "table", host.table.replace(b"names 2", b"names 1")),
    "no sha256sum": lambda host: host.program("bin/sha256sum", "exit 127"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_python_decides_at_the_slightest_difference(host, change):
    CHANGES[change](host)
    assert host.boot() == "--names"


def test_a_table_that_a_power_cut_has_shortened_counts_for_nothing(host):
    whole = host.table
    for length in range(0, len(whole) - 1, 7):
        host.table = whole[:length]
        assert host.boot() == "--names", length


DAMAGE = {
    "other line ends": lambda table: table.replace(b"\n", b"\r\n"),
    "megabytes more": lambda table: table + b"x" * 10_000_000,
    "another table after it": lambda table: table + table,
    "binary zeros": lambda table: bytes(len(table)),
    "binary zeros at its end": lambda table: table[:-40] + bytes(40),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_table_that_is_damaged_counts_for_nothing(host, damage):
    host.table = DAMAGE[damage](host.table)
    assert host.boot() == "--names"


@pytest.mark.parametrize("target", ["/", "names", "absent", "/proc/self/environ"])
def test_a_link_in_place_of_the_table_counts_for_nothing(host, target):
    (host / "var/lib/neuca/names").unlink()
    (host / "var/lib/neuca/names").symlink_to(target)
    assert host.boot() == "--names"


ODD = ("*", "?", "[a]", "$(x)", "`x`", "a;b", "-n", "%s", "a\\b", "~", '"', "'", "\u00e9")


def test_names_that_mean_something_to_a_shell_are_names(host):
    nics = {**NICS, **{name: mac(20 + number) for number, name in enumerate(ODD)}}
    for name in ODD:
        host.plug(name, nics[name])
        assert host.boot() == "--names"
    host.table = table_of(host.places.decisive_files(), [*nics.items()])
    assert host.boot() == ""


SHELLS = [
    shell
    for shell in (("dash",), ("bash",), ("bash", "--posix"), ("busybox", "sh"))
    if shutil.which(shell[0])
]
ENVIRONMENT = {
    "IFS": "0:e",
    "LC_ALL": "tr_TR.UTF-8",
    "PATH": "/nowhere",
    "table": "/dev/null",
    "nic": "x",
    "CDPATH": "/",
}


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_every_shell_decides_alike_whatever_its_environment(host, shell):
    shell = (shutil.which(shell[0]), *shell[1:])
    assert host.boot(shell, **ENVIRONMENT) == ""
    host.plug("eth3", mac(3))
    assert host.boot(shell, **ENVIRONMENT) == "--names"


def test_a_boot_does_not_wait_for_udev_if_every_nic_has_its_name(host):
    """Whether it has processed them or not: its rules keep their names."""
    assert host.boot() == ""
    assert not (host / "waited").exists()


def test_a_nic_that_is_still_missing_is_waited_for(host):
    late = host / "sys/class/net/eth2/device"
    late.rmdir()
    host.program("bin/udevadm", f'[ "$*" = "settle --timeout=20" ] && mkdir {late}')
    assert host.boot() == ""


def test_a_name_that_udev_is_still_to_give_is_waited_for(host):
    nic, renamed = host / "sys/class/net/eth2", host / "sys/class/net/ens5"
    nic.rename(renamed)
    host.program("bin/udevadm", f'[ "$*" = "settle --timeout=20" ] && mv {renamed} {nic}')
    assert host.boot() == ""


def test_python_sees_what_udev_has_left(host):
    """A NIC that appears meanwhile, in place of the one that was waited for, is a difference."""
    (host / "sys/class/net/eth2/device").rmdir()
    late = host / "sys/class/net/eth3"
    host.program(
        "bin/udevadm", f"mkdir -p {late}/device; cd {late}; echo 1 > type; echo {mac(3)} > address"
    )
    assert host.boot() == "--names"


def test_many_nics_are_in_the_same_order(host):
    """Of bytes, whatever the language of the host: eth10 is before eth2, Z before a."""
    nics = {
        **NICS,
        **{f"{name}{number}": mac(16 + number) for number in range(12) for name in ("eth1", "Z")},
    }
    for name in nics.keys() - NICS.keys():
        host.plug(name, nics[name])
    host.table = table_of(host.places.decisive_files(), [*nics.items()])
    assert host.boot() == ""


def test_every_place_of_a_local_document_is_looked_at():
    places = (*directories._DRIVES, *nocloud._SEEDS, hypervisors._LXD_SOCKET)
    assert {str(place) for place in places} <= set(re.findall(r"/[\w/-]+", SCRIPT))


# --- When there is a table ------------------------------------------------------------------------


def quiet(host, nics=None, text=None, record=RECORD, document=DOCUMENT):
    if text is not None:
        host.write("etc/neuca/config.d/z.conf", text)
    host.save(record, document)
    return is_quiet(host.places, [*(nics or NICS).items()])


def test_a_host_with_every_name_in_place_has_a_table(host):
    assert quiet(host)


def test_a_name_that_has_to_be_restored_means_no_table(host):
    assert not quiet(host, {"eth0": mac(9), "eth1": mac(2), "eth2": mac(1)})


def test_a_name_that_is_requested_and_not_there_means_no_table(host):
    assert not quiet(host, document=DOCUMENT.replace("eth1", "data1"))
    assert not quiet(host, text=f"[interface {mac(2)}]\nname = data2\n")


@pytest.mark.parametrize("address", [mac(1), mac(9)])
def test_a_nic_whose_name_no_rule_keeps_means_no_table(host, address):
    """udev could rename it after the look at it."""
    (host / rule(address)).unlink()
    assert not quiet(host)


def test_a_recorded_nic_that_is_absent_means_no_table(host):
    """A stranger that appears after the look could have its name."""
    assert not quiet(host, {name: nic for name, nic in NICS.items() if nic != mac(2)})


def test_a_nic_that_is_ignored_or_released_needs_no_rule(host):
    (host / rule(mac(2))).unlink()
    assert quiet(host, text=f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}\n")
    (host / "etc/neuca/config.d/z.conf").unlink()
    released = {**RECORD.nics, mac(2): NicRecord(name="eth2", role="dataplane", released=True)}
    assert quiet(host, record=Record(nics=released))


def test_a_volume_means_no_table(host):
    """The next boot looks before it is read."""
    (host / "run/neuca/drives").mkdir(parents=True)
    assert not quiet(host)


def test_a_first_boot_and_a_foreign_machine_mean_no_table(host):
    assert not quiet(host, record=Record(), document="")
    assert not quiet(host, {"eth7": mac(7)})


def test_a_nic_that_managers_have_not_been_kept_off_means_no_table(host):
    """`neucad --names` writes the files of managers for it."""
    nics = {one: nic for one, nic in RECORD.nics.items() if one != mac(1)}
    assert not quiet(host, record=Record(nics=nics))


@pytest.mark.parametrize(
    "text",
    [
        "[metadata]\nsources = file:/etc/document\n",
        "[metadata]\nsources = ec2, nocloud=/seed\n",
        "[metadata]\nsources = configdrive=/drive\n",
        "[metadata]\nsources = lxd=/sock\n",
        "[linux]\nmanagers = none\n",
        "[runtime]\nstate-directory = /var/lib/other\n",
        "[runtime]\nrun-directory = /run/other\n",
        "[linux]\nudev-directory = /etc/other\n",
        "[linux]\nudev-substring = other\n",
    ],
)
def test_what_restore_names_does_not_look_at_means_no_table(host, text):
    assert not quiet(host, text=text)


@pytest.mark.parametrize("sources", ["auto", "ec2, openstack=http://10.0.0.1", "none"])
def test_sources_over_the_network_make_no_difference(host, sources):
    assert quiet(host, text=f"[metadata]\nsources = {sources}\n")


def test_a_configuration_that_cannot_be_read_means_no_table(host):
    (host / "etc/neuca/config").unlink()
    (host / "etc/neuca/config").mkdir()
    assert not is_quiet(host.places, [*NICS.items()])


def test_a_damaged_record_means_no_table(host):
    host.write("var/lib/neuca/record.json", "{")
    assert not is_quiet(host.places, [*NICS.items()])


def test_a_state_that_is_not_on_the_disk_yet_means_no_table(host):
    host.write("run/neuca/unsaved/record.json", "{}")
    assert not is_quiet(host.places, [*NICS.items()])
