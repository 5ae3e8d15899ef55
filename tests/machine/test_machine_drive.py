"""Config drives and NoCloud volumes: which are read, at a boot and later, and which are not."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from guest import MANAGEMENT, iso9660, mac
from steps import DOCUMENT, STATUS, assert_left_alone, dataplane, in_force, names

ADDRESSES = {mac(1): {"10.1.0.1/24"}, mac(2): {"10.2.0.1/24"}, mac(3): set()}
UNITS = {"vfat": "neuca-drive@vdb1.service", "iso9660": "neuca-drive@sr0.service"}
# Seconds. A busy emulated processor may need several starts of a unit that has 30 s for each.
PATIENCE = 1800
SEED = f"""network:
  version: 2
  ethernets:
    management: {{match: {{macaddress: "{MANAGEMENT}"}}, dhcp4: true}}
    one: {{match: {{macaddress: "{mac(1)}"}}, set-name: data1, mtu: 1400, addresses: [10.1.0.1/24]}}
    two: {{match: {{macaddress: "{mac(2)}"}}, mtu: 1400, addresses: [10.2.0.1/24]}}
"""


def config_drive(folder, uuid="i", net=""):
    """As OpenStack fills one: the management NIC with DHCP, two others static."""
    links = [{"id": "m", "type": "ovs", "ethernet_mac_address": MANAGEMENT, "mtu": None}]
    networks = [{"id": "nm", "link": "m", "type": "ipv4_dhcp"}]
    for number in (1, 2):
        links.append(
            {"id": f"l{number}", "type": "phy", "ethernet_mac_address": mac(number), "mtu": 1400}
        )
        networks.append(
            {
                "id": f"n{number}",
                "link": f"l{number}",
                "type": "ipv4",
                "ip_address": f"10.{net}{number}.0.1",
                "netmask": "255.255.255.0",
                "routes": [],
            }
        )
    place = folder / "openstack" / "latest"
    place.mkdir(parents=True)
    (place / "meta_data.json").write_text(json.dumps({"uuid": uuid, "hostname": "node0"}))
    (place / "network_data.json").write_text(
        json.dumps({"links": links, "networks": networks, "services": []})
    )


def seed(folder):
    """As a hypervisor of one's own fills one."""
    folder.mkdir()
    for name, text in {
        "user-data": "",
        "meta-data": "instance-id: i\n",
        "network-config": SEED,
    }.items():
        (folder / name).write_text(text)


FILL = {"config-2": config_drive, "cidata": seed}
SOURCE = {"config-2": "configdrive", "cidata": "nocloud"}


def as_the_volume_says(guest, label):
    def fits(done):
        return (
            done.output.startswith("{")
            and done.json["document"]["source"] == SOURCE[label]
            and done.json["state"] == "ok"
        )

    status = guest.eventually(STATUS, fits, PATIENCE).json
    assert {
        nic: found & {"10.1.0.1/24", "10.2.0.1/24"} for nic, found in dataplane(guest).items()
    } == ADDRESSES
    assert (
        next(one["role"] for one in status["interfaces"] if one["mac"] == MANAGEMENT)
        == "management"
    )
    assert guest.check("cat /proc/[0-9]*/mounts 2>/dev/null | grep -E 'vfat|iso9660' || true") == ""
    assert set(guest.check(f"find /run/neuca/drives/{label} -type f -printf '%m '").split()) == {
        "600"
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("image", "label", "kind"),
    [
        ("A", "config-2", "vfat"),
        ("C", "config-2", "iso9660"),
        ("A", "cidata", "iso9660"),
        ("C", "cidata", "vfat"),
    ],
)
def test_a_volume_is_read_when_it_appears_and_at_a_boot(guests, tmp_path, image, label, kind):
    guest = guests(image)
    guest.boot()
    FILL[label](tmp_path / "volume")
    guest.insert(tmp_path / "volume", label, kind)
    as_the_volume_says(guest, label)
    called = names(guest)
    guest.reboot()
    as_the_volume_says(guest, label)
    assert names(guest) == called
    assert called[mac(1)] == ("data1" if label == "cidata" else "eth1")
    assert (
        guest.check("systemctl list-units --plain --no-legend --all 'neuca-drive@*'").split()[0]
        == UNITS[kind]
    )
    assert_left_alone(guest, mac(3))
    assert guest.reachable()


# --- volumes that do not count --------------------------------------------------------------------------------------

YOURS = 'its instance id is "j", and that of this instance is "i"'
STARTED = "systemctl list-units --plain --no-legend --all 'neuca-drive@*'"


def not_used(guest, volume, why, patience=PATIENCE):
    """The status, once it has a line about this volume."""

    def fits(done):
        return done.output.startswith("{") and line in done.json["notes"]

    line = f'volume "{volume}" is not used: {why}'
    return guest.eventually(STATUS, fits, patience).json


def equip_with(guest, folder, label, bus):
    """A volume that is there when the machine starts, as hypervisors have it."""
    if bus == "ide":
        image = iso9660(folder, label)
        node = f"driver=file,node-name=own,filename={image},read-only=on"
        guest.equip("-blockdev", node, "-device", "ide-cd,drive=own,bus=ide.1")
    else:
        node = f"driver=vvfat,node-name=own,dir={folder},label={label},read-only=on"
        guest.equip("-blockdev", node, "-device", "virtio-blk-pci,drive=own,addr=0x1c")


@pytest.mark.long
@pytest.mark.parametrize(("image", "bus", "later"), [("A", "ide", "vdb1"), ("C", "virtio", "vdc1")])
def test_a_volume_that_appears_later_does_not_take_the_place_of_the_instance_s_own(
    guests, tmp_path, image, bus, later
):
    guest = guests(image)
    config_drive(tmp_path / "ours")
    equip_with(guest, tmp_path / "ours", "config-2", bus)
    guest.boot()
    as_the_volume_says(guest, "config-2")
    sha256 = guest.check("sha256sum /run/neuca/drives/config-2/openstack/latest/*.json")

    config_drive(tmp_path / "yours", uuid="j", net="9")
    guest.insert(tmp_path / "yours", "config-2", "vfat", "yours")
    not_used(guest, later, YOURS)
    unit = f"neuca-drive@{later}.service"
    assert f"is not used: {YOURS}" in guest.check(f"journalctl -b --no-pager -u {unit}")
    assert guest.run(f"systemctl is-failed {unit}").output != "failed\n"

    image_file = iso9660(tmp_path / "yours", "config-2").read_bytes()
    guest.put("/root/volume.iso", image_file)
    loop = guest.check("modprobe loop; losetup --find --show --read-only /root/volume.iso").strip()
    not_used(guest, loop[len("/dev/") :], "it is a loop device")
    sectors = len(image_file) // 512
    guest.check(f'dmsetup create --readonly volume --table "0 {sectors} linear {loop} 0"')
    not_used(guest, "dm-0", "it is a device-mapper device")
    started = guest.check(STARTED)
    assert (unit in started, "loop" in started, "dm-0" in started) == (True, False, False)
    journal = "journalctl -b --no-pager -u neuca-guest-tools"
    guest.eventually(journal, lambda done: "a device-mapper device" in done.output)
    assert guest.check(journal).count(f'"{later}" is not used') == 1
    assert guest.check("sha256sum /run/neuca/drives/config-2/openstack/latest/*.json") == sha256

    guest.reboot()
    not_used(guest, later, YOURS)
    as_the_volume_says(guest, "config-2")
    assert guest.check("sha256sum /run/neuca/drives/config-2/openstack/latest/*.json") == sha256
    assert guest.reachable()


@pytest.mark.long
def test_a_volume_does_not_take_the_place_of_a_metadata_service(guests, tmp_path):
    guest = guests("A")
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    config_drive(tmp_path / "volume")
    guest.insert(tmp_path / "volume", "config-2")

    answered = 'the metadata service "ec2" has responded for this instance'
    not_used(guest, "vdb1", answered)
    seen = guest.cloud.seen()
    guest.eventually("true", lambda _: guest.cloud.seen() >= seen + 2)
    in_force(guest, DOCUMENT)
    guest.reboot()
    not_used(guest, "vdb1", answered)
    in_force(guest, DOCUMENT)
    assert guest.run("find /run/neuca/drives -type f 2> /dev/null").output == ""


@pytest.mark.long
def test_a_usb_stick_is_not_read_even_on_a_first_boot(guests, tmp_path):
    guest = guests("R")  # the kernel of the others has no USB
    guest.equip("-device", "qemu-xhci,id=xhci,addr=0x1b")
    guest.boot()
    config_drive(tmp_path / "volume")
    guest.insert(tmp_path / "volume", "config-2", "usb")
    status = not_used(guest, "sda1", "it is a USB device")
    assert (status["document"]["source"], guest.check(STARTED)) == (None, "")
    guest.reboot()
    status = not_used(guest, "sda1", "it is a USB device")
    assert (status["document"]["source"], guest.check(STARTED)) == (None, "")
    config_drive(tmp_path / "disk")
    guest.insert(tmp_path / "disk", "config-2", "vfat", "fixed")
    as_the_volume_says(guest, "config-2")


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C"])
def test_the_rule_is_one_that_udev_understands(guests, image):
    guest = guests(image)
    guest.boot()
    rule = "/usr/lib/udev/rules.d/90-neuca-drives.rules"
    version = int(guest.check("udevadm --version"))
    if version >= 254:  # systemd's NEWS: "udevadm verify"
        assert "Success: 1" in guest.check(f"udevadm verify {rule} 2>&1")
    said = guest.check("udevadm test --action=change /sys/class/block/vda 2>&1")
    assert f"{rule}:" not in said
