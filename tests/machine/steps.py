"""What most tests of a guest do: wait for a document to be in force, read names and addresses, start from a disk that met it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import images
from guest import MANAGEMENT, Guest, mac, nics

STATUS = "neuca status --json"
# A manager that does not answer in time, and the calls that are not made after that.
SLOW = re.compile(r"no response within|did not respond in time")
DOCUMENT = f"""[interfaces]
{mac(1)} = up:ipv4:172.16.0.1/24
{mac(2)} = up:ipv6:fd00:16::1/64
{mac(3)} = up:ipv4:172.18.0.1/24
"""
ADDRESSES = {mac(1): {"172.16.0.1/24"}, mac(2): {"fd00:16::1/64"}, mac(3): {"172.18.0.1/24"}}

# For `arguments`: without what an emulated processor is busy with, where no test is about it.
LEAN = " ".join(
    f"systemd.mask={unit}"
    for unit in (
        "systemd-logind.service systemd-binfmt.service systemd-update-utmp.service systemd-random-seed.service"
        " systemd-sysusers.service e2scrub_reap.service ssh.service serial-getty@ttyS0.service dpkg-db-backup.timer fstrim.timer"
        " e2scrub_all.timer modprobe@drm.service modprobe@fuse.service modprobe@efi_pstore.service modprobe@configfs.service"
        " modprobe@loop.service modprobe@dm_mod.service neuca-selftest.timer lab-monitor.service systemd-journal-flush.service"
    ).split()
)


def bare(mac):
    return mac.replace(":", "")


def in_force(guest: Guest, document: str, state: str = "ok", patience: float = 1800.0):
    """The status, once this document is the one in force and the state is as wanted."""
    sha256 = hashlib.sha256(document.encode()).hexdigest()

    def fits(done):
        return (
            done.output.startswith("{")
            and done.json["document"]["sha256"] == sha256
            and done.json["state"] == state
        )

    # Cheap to ask for: a whole status takes an emulated processor five seconds.
    guest.eventually("test -e /run/neuca/last-pass.json", lambda done: done.code == 0, patience)
    return guest.eventually(STATUS, fits, patience).json


def serve(guest: Guest, document: str, state: str = "ok"):
    """Give it this document, and wait until it is as asked."""
    guest.serve(document)
    guest.check("neuca apply || true", 600)  # rather than to wait for the next look at the metadata
    return in_force(guest, document, state)


def links(guest: Guest):
    """Every interface but the loopback, as `ip -j -d address` has it, by name."""
    return {
        one["ifname"]: one
        for one in json.loads(guest.check("ip -j -d address"))
        if one["link_type"] != "loopback"
    }


def names(guest: Guest) -> Mapping[str, str]:
    """Permanent MAC to name, of the NICs."""
    return {
        one.get("permaddr", one["address"]): name
        for name, one in links(guest).items()
        if is_nic(one)
    }


def is_nic(link) -> bool:
    """No VLAN, bond or their kind; a bond's member has a `linkinfo` too."""
    return "info_kind" not in link.get("linkinfo", {})


def addresses(guest: Guest) -> Mapping[str, set[str]]:
    """Name to addresses, of every interface, but for those that IPv6 makes itself."""

    def of(one):
        kept = (address for address in one["addr_info"] if not address["local"].startswith("fe80:"))
        return {f"{address['local']}/{address['prefixlen']}" for address in kept}

    return {name: of(one) for name, one in links(guest).items()}


def dataplane(guest: Guest) -> Mapping[str, set[str]]:
    """Permanent MAC to addresses, of the dataplane NICs that are there."""
    found = addresses(guest)
    return {nic: found[name] for nic, name in names(guest).items() if nic != MANAGEMENT}


def managers(guest: Guest) -> Mapping[str, str]:
    """Name to what the guest's network manager says of it; empty where it has none."""
    if guest.run("systemctl is-active --quiet NetworkManager").code == 0:
        lines = guest.check("nmcli --terse --fields DEVICE,STATE device").splitlines()
        found = dict(line.replace("\\:", ":").rsplit(":", 1) for line in lines)
    elif guest.run("systemctl is-active --quiet systemd-networkd").code == 0:
        lines = [
            line.split()
            for line in guest.check("networkctl list --no-legend --no-pager").splitlines()
        ]
        found = {words[1]: words[4] for words in lines if len(words) >= 5}
    else:
        found = {}
    return {name: state for name, state in found.items() if name != "lo"}


def assert_left_alone(guest: Guest, *unlisted: str) -> None:
    """The guest's manager keeps off all but the management NIC, and has that; and NICs that no document names are its own."""
    known = names(guest)
    said, management = managers(guest), known[MANAGEMENT]
    if said:
        assert "unmanaged" not in [said.pop(known[one]) for one in unlisted]
        assert said.pop(management) in ("connected", "configured")
        assert set(said.values()) == {"unmanaged"}, said


def assert_nothing_odd(guest: Guest) -> None:
    """No warning of ours in this boot; and the services' /run is read-only but for their own part of it.

    A manager that is slow to answer is this machine's doing, and no test's: whether it was asked again is in the status.
    """
    if guest.run("test -d /run/systemd/system").code:
        assert (
            guest.check(
                "cat /var/log/neuca/neucad.out | grep -iE 'error|fail|no such|traceback|ignoring' | grep -v ' 0 failed' || true"
            )
            == ""
        )
        return
    services = "--unit=neuca-names --unit=neuca-guest-tools"
    warnings = guest.check(
        f"journalctl --boot --no-pager --quiet --output=cat --priority=warning {services}"
    ).splitlines()
    assert [line for line in warnings if not SLOW.search(line)] == []
    inside = (
        "nsenter --mount --target=$(systemctl show --property=MainPID --value neuca-guest-tools)"
    )
    assert guest.check(
        f"{inside} sh -c '! touch /run/odd 2>&1; touch /run/neuca/even && rm /run/neuca/even'"
    ).endswith("Read-only file system\n")


@dataclass(frozen=True)
class Prepared:
    """A disk whose guest has met DOCUMENT and was switched off as it should be; and the names of then."""

    image: images.Image
    disk: Path
    names: Mapping[str, str]


def prepare(name: str, folder: Path) -> Prepared:
    """Boot a new guest, let it have DOCUMENT, switch it off."""
    guest = Guest(images.image(name), folder, nics(3))
    try:
        guest.serve(DOCUMENT)
        guest.boot()
        in_force(guest, DOCUMENT)
        found = names(guest)
        guest.shut_down()
    finally:
        guest.close()
    return Prepared(guest.image, guest.disk, found)
