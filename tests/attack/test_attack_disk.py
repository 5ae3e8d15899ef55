"""Somebody fills the disk, or it becomes read-only: the network comes up all the same, and `status` says why it suffers."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

DOCUMENT = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\nmtu = 1400\n"
OTHER = f"{DOCUMENT}[interface {mac(2)}]\naddresses = 172.16.2.1/24\n"


@pytest.fixture
def host(guest):
    """A guest whose state directory is a small disk of its own."""
    guest.veth("dp1", 1)
    guest.veth("dp2", 2)
    state = guest.folder / "state"
    state.mkdir()
    guest.run("mount", "-t", "tmpfs", "-o", "size=256k", "none", state)
    return guest


def fill(host):
    where = host.folder / "state" / "filler"
    host.run("dd", "if=/dev/zero", f"of={where}", "bs=4096", check=False)
    host.run("sh", "-c", f"echo x > {host.folder}/state/probe", check=False)


def free(host):
    host.run("rm", "-f", host.folder / "state" / "filler", host.folder / "state" / "probe")


def read_only(host, on):
    host.remount(host.folder / "state", "ro" if on else "rw")


def boots(host):
    """As after a reboot: NICs without their settings, and an empty run directory."""
    for number in (1, 2):
        host.ip(f"link del dp{number}")
        host.veth(f"dp{number}", number)
    host.run("sh", "-c", f"rm -rf {host.folder}/run")


WAYS = {
    "full": (fill, free, "No space left on device"),
    "read-only": (
        lambda host: read_only(host, True),
        lambda host: read_only(host, False),
        "Read-only file system",
    ),
}


@pytest.mark.parametrize(("damage", "repair", "why"), WAYS.values(), ids=WAYS)
def test_the_dataplane_comes_up_after_a_reboot_and_status_says_what_is_wrong(
    host, damage, repair, why
):
    assert host.once(DOCUMENT).code == 0
    damage(host)
    boots(host)
    host.once(DOCUMENT)
    assert host.addresses("dp1") == {"172.16.1.1/24"}
    assert host.link("dp1")["mtu"] == 1400
    said = host.neuca("status").out.splitlines()
    assert any("degraded" in line and why in line for line in said[:3]), said
    repair(host)
    assert host.once(DOCUMENT).code == 0
    assert "degraded" not in host.neuca("status").out
    record = host.run("cat", host.folder / "state" / "record.json").out
    assert mac(1) in record


@pytest.mark.parametrize(("damage", "repair", "why"), WAYS.values(), ids=WAYS)
def test_a_new_document_is_applied_without_room_for_its_record(host, damage, repair, why):
    assert host.once(DOCUMENT).code == 0
    damage(host)
    host.once(OTHER)
    assert host.addresses("dp2") == {"172.16.2.1/24"}
    assert any(why in line for line in host.neuca("status").out.splitlines()[:3])
    repair(host)
    assert host.once(DOCUMENT).code == 0
    assert host.addresses("dp2") == set()


CONTENTS = {
    "deep list": "[" * 100_000,
    "deep object": '{"a":' * 50_000,
    "zeros": "\0" * 4096,
    "newer": '{"version": 99}',
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", ["record.json", "journal.json", "document.json", "machine.json"])
def test_no_content_of_a_state_file_ends_in_a_traceback(guest, name, content):
    guest.veth("dp1", 1)
    assert guest.once(DOCUMENT).code == 0
    place = guest.folder / "state" / name
    before = place.read_text() if place.exists() else None
    place.write_text(content)
    for done in (guest.once(DOCUMENT), guest.neuca("status"), guest.neuca("plan")):
        assert "Traceback" not in done.out + done.err
    assert guest.addresses("dp1") == {"172.16.1.1/24"}
    place.unlink(missing_ok=True)
    if before is not None:
        place.write_text(before)
    guest.once(DOCUMENT)
