"""What `make test` sees of real guests: of Debian 12, Debian 13 and sid, each from its first boot on.

Each boot serves several tests of the other modules, which `make test-all` runs one by one and in
all their variants.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import mac
from steps import DOCUMENT, LEAN, in_force, names, serve
from test_machine_boot import boot_without_metadata, first_boot
from test_machine_crash import ANOTHER, converges
from test_machine_plug import come_and_go, with_more

pytestmark = pytest.mark.chosen

# Begins a pass, and ends as soon as its journal is there, or with it.
BEGIN = "neuca apply > /dev/null 2>&1 & while kill -0 $! 2> /dev/null && ! test -e /var/lib/neuca/journal.json; do :; done"


@pytest.mark.parametrize("image", ["A"])
def test_a_guest_with_networkmanager_over_plugs_and_a_power_cut_and_permuted_slots(guests, image):
    guest = guests(image, arguments=LEAN)
    first_boot(guest)
    known = names(guest)
    serve(guest, with_more(1)[0], "degraded")
    come_and_go(guest, known, 1)
    guest.unplug(mac(4))
    guest.serve(ANOTHER)
    guest.run(BEGIN, 600)
    guest.power_cut()
    guest.permute((0x11, 0x12, 0x13, 0x10))
    converges(guest, known)


@pytest.mark.parametrize("image", ["C"])
def test_a_guest_with_networkd_over_permuted_slots_and_no_metadata(guests, image):
    guest = guests(image, arguments=LEAN)
    first_boot(guest)
    known = names(guest)
    guest.shut_down()
    guest.permute((0x13, 0x12, 0x11, 0x10))
    guest.serve(None)
    boot_without_metadata(guest, known)
    assert guest.reachable()
    guest.serve(DOCUMENT)
    assert in_force(guest, DOCUMENT)["document"]["stale"] is False
    assert names(guest) == known


@pytest.mark.parametrize("image", ["S"])
def test_a_guest_of_the_next_debian(guests, image):
    first_boot(guests(image, arguments=LEAN))
