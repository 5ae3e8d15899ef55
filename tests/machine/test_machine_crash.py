"""Power cuts at boot and in the midst of a pass, and an upgrade while it runs: nothing half written, nothing lost."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import select

import images
import pytest
from guest import mac, nics
from steps import ADDRESSES, DOCUMENT, addresses, dataplane, in_force, names

ANOTHER = DOCUMENT.replace("172.16.0.1", "172.16.0.2") + f"""
[interface {mac(1)}]
mtu = 4000
[vlan {mac(1)}.1445]
addresses = 10.14.45.1/24, fd00:1445::1/64
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
"""
# Every file of ours: JSON that can be read, no temporary file, text with a line's end.
WHOLE = """cd /; python3 - <<'EOF'
import json, pathlib
places = "/var/lib/neuca /etc/udev/rules.d /etc/NetworkManager/conf.d /etc/systemd/network /etc/sysctl.d".split()
for path in (path for place in places for path in pathlib.Path(place).rglob("*")):
    if path.is_file() and ("neuca" in str(path)):
        data = path.read_bytes()
        print(path, len(data))
        assert data and (b"\\0" not in data), path
        if path.suffix == ".json": json.loads(data)
        elif "/etc/" in str(path): assert data.endswith(b"\\n"), path
        assert not path.name.endswith((".tmp", ".new")), path
EOF"""


def long(*seconds):
    return [pytest.param(one, marks=pytest.mark.long) for one in seconds]


@pytest.mark.parametrize("after", [0.5, *long(0.0, 0.25, 1.0, 1.5, 2.0, 3.0, 5.0)])
def test_a_power_cut_in_the_midst_of_a_pass_is_made_good(guests, prepared, after):
    before = prepared("A")
    guest = guests("A", nics(3), after=before)
    guest.serve(ANOTHER)
    guest.power_on()
    guest.cloud.wait_for(1, 300)  # the answer to this begins the pass
    select.select([], [], [], after)
    guest.power_cut()
    _converges(guest, before)


@pytest.mark.parametrize("after", [12, *long(2, 4, 6, 8, 10, 15, 20, 25, 30)])
def test_a_power_cut_in_the_midst_of_a_boot_is_made_good(guests, prepared, after):
    before = prepared("A")
    guest = guests("A", nics(3), after=before)
    guest.permute((0x11, 0x12, 0x13, 0x10))
    guest.serve(ANOTHER)
    guest.power_on()
    select.select([], [], [], after)
    guest.power_cut()
    _converges(guest, before)


def _converges(guest, before):
    guest.boot()
    in_force(guest, ANOTHER)
    guest.check(WHOLE)
    assert names(guest) == before.names
    vlan = f"{before.names[mac(1)]}.1445"
    assert addresses(guest)[vlan] == {"10.14.45.1/24", "fd00:1445::1/64"}
    assert guest.reachable()


@pytest.mark.parametrize("image", ["A", *long("D")])
def test_an_upgrade_keeps_every_name_and_address(guests, prepared, image, tmp_path):
    before = prepared(image)
    guest = guests(image, nics(3), after=before)
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    guest.put("/root/newer.deb", images.newer(images.package(), tmp_path).read_bytes())
    guest.check("nohup ip monitor link address route > /root/monitor 2>&1 & sleep 1")
    guest.check("DEBIAN_FRONTEND=noninteractive dpkg --install /root/newer.deb", 300)
    installed = guest.check("dpkg-query --show --showformat '${Version} ${Status}' neuca-guest-tools")
    assert installed.endswith("+lab1 install ok installed")
    guest.cloud.wait_for(2)
    in_force(guest, DOCUMENT)
    assert [line for line in guest.check("cat /root/monitor").splitlines() if "eth" in line and "Deleted" in line] == []
    assert names(guest) == before.names
    assert dataplane(guest) == ADDRESSES
