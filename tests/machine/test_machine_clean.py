"""Sealing an image: what `neuca clean` leaves behind comes up on other hardware as a host of its own, and is reached."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

import pytest
from guest import MANAGEMENT, mac
from qemu import Nic
from steps import ADDRESSES, DOCUMENT, STATUS, Prepared, dataplane, in_force, names

HOST = "52:54:00:00:00:77"
DATA = [mac(number).replace("fe:16:3e:00:00", "fe:16:3e:00:01") for number in (1, 2, 3)]
CARDS = [
    Nic(HOST, 0x10, management=True),
    *(Nic(address, 0x11 + number) for number, address in enumerate(DATA)),
]
# Every spelling of an address, wherever a file of the host may keep it; the journal tells what was, and stays.
MACS = "|".join(
    spelling
    for address in (MANAGEMENT, *ADDRESSES)
    for spelling in (address, address.replace(":", ""))
)
TRACES = f"grep -rliE '{MACS}' /etc /var/lib /run/neuca || true"


def identity(guest):
    """The machine id, and the keys that its SSH server shows."""
    shown = guest.eventually(
        "ssh-keyscan 127.0.0.1 2> /dev/null", lambda done: done.output.count(" ssh-") >= 2
    ).output
    return [
        guest.check("cat /etc/machine-id").strip(),
        *sorted(line for line in shown.splitlines() if line[0] != "#"),
    ]


@pytest.mark.long
def test_a_clone_of_a_sealed_image_is_a_host_of_its_own(guests):
    original = guests("A")
    original.serve(DOCUMENT)
    original.boot()
    in_force(original, DOCUMENT)
    was, named, addressed = identity(original), names(original), dataplane(original)
    assert original.check(TRACES) != ""
    would = original.check("neuca clean --dry-run")
    assert original.check("systemctl is-active neuca-guest-tools").strip() == "active"
    assert original.check("neuca clean") == would
    assert would.startswith("stop neucad, process ")
    assert {
        'empty "/etc/machine-id"',
        'remove "/etc/ssh/ssh_host_ed25519_key"',
        'remove "/var/lib/neuca/record.json"',
        'remove "/etc/udev/rules.d/10-neuca-persistent-fe163e000001.rules"',
    } <= set(would.splitlines())
    assert original.run("systemctl is-active neuca-guest-tools").output.strip() == "inactive"
    assert original.check(TRACES) == ""
    assert original.check("neuca clean") == "nothing to remove\n"
    assert (names(original), dataplane(original)) == (named, addressed)
    assert original.reachable()
    original.shut_down()

    clone = guests("A", CARDS, after=Prepared(original.image, original.disk, {}))
    clone.boot()
    assert clone.reachable()
    status = clone.eventually(STATUS, lambda done: done.code == 3).json
    assert (status["state"], status["document"]["sha256"], status["document"]["stale"]) == (
        "pending",
        None,
        False,
    )
    assert {one["mac"] for one in status["interfaces"]} == {HOST, *DATA}
    assert names(clone) == {
        HOST: "eth0",
        **{address: f"eth{number}" for number, address in enumerate(DATA, 1)},
    }
    assert clone.check(TRACES) == ""
    now = identity(clone)
    assert re.fullmatch("[0-9a-f]{32}", now[0])
    assert len(now) == len(was)
    assert set(now) & set(was) == set()
    document = DOCUMENT.replace("fe:16:3e:00:00", "fe:16:3e:00:01")
    clone.serve(document)
    in_force(clone, document)
    assert dataplane(clone) == {HOST: {"169.254.169.16/24"}, **dict(zip(DATA, ADDRESSES.values()))}
