"""What is read of a lease that systemd-networkd or NetworkManager has stored."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os

import pytest

from neuca_tools.backends.leases import Lease, read

# As systemd 252 writes it.
TEXT = """# This is private data. Do not parse.
ADDRESS=10.9.0.51
NETMASK=255.255.255.0
ROUTER=10.9.0.1
SERVER_ADDRESS=10.9.0.1
T1=1800
T2=3150
LIFETIME=3600
"""


def stored(tmp_path, text):
    (tmp_path / "2").write_bytes(text)
    os.utime(tmp_path / "2", (1700000000, 1700000000))
    return read(2, tmp_path, tmp_path / "none")


def test_address_server_and_end_of_a_lease(tmp_path):
    found = stored(tmp_path, TEXT.encode())
    assert found == [Lease("10.9.0.51", "10.9.0.1", "2023-11-14T23:13:20Z")]


@pytest.mark.parametrize(
    ("text", "lease"),
    [
        (TEXT.replace("LIFETIME=3600", "LIFETIME=4294967295"), Lease("10.9.0.51", "10.9.0.1")),
        (TEXT.replace("LIFETIME=3600", "LIFETIME=-1"), Lease("10.9.0.51", "10.9.0.1")),
        ("ADDRESS=10.9.0.51\n", Lease("10.9.0.51")),
        ("ADDRESS=10.9.0.51\nSERVER_ADDRESS=\x1b[31m\n", Lease("10.9.0.51")),
    ],
)
def test_what_is_not_known_is_left_out(tmp_path, text, lease):
    assert stored(tmp_path, text.encode()) == [lease]


@pytest.mark.parametrize("text", [b"", b"ADDRESS=x\n", b"\xff\xfe\0"])
def test_a_file_without_an_address_is_no_lease(tmp_path, text):
    assert stored(tmp_path, text) == []


def test_no_file_is_no_lease(tmp_path):
    assert read(2, tmp_path, tmp_path) == []


# As NetworkManager 1.42 writes it.
DEVICE = """[device]
managed=true
connection-uuid=6e657563-ac1c-544e-9df9-4ca8d17af69a

[dhcp4]
dhcp4.dhcp_lease_time=120
dhcp4.dhcp_server_identifier=10.9.0.1
dhcp4.expiry=1700003600
dhcp4.ip_address=10.9.0.51
"""


@pytest.mark.parametrize(
    ("text", "leases"),
    [
        (DEVICE, [Lease("10.9.0.51", "10.9.0.1", "2023-11-14T23:13:20Z")]),
        (DEVICE.replace("=120", "=4294967295"), [Lease("10.9.0.51", "10.9.0.1")]),
        (DEVICE.replace("1700003600", "9" * 30), [Lease("10.9.0.51", "10.9.0.1")]),
        (
            DEVICE.replace("10.9.0.1\n", "\x1b[31m\n"),
            [Lease("10.9.0.51", "", "2023-11-14T23:13:20Z")],
        ),
        ("[device]\nmanaged=true\n", []),
    ],
)
def test_a_lease_of_networkmanager(tmp_path, text, leases):
    (tmp_path / "2").write_text(text)
    assert read(2, tmp_path / "none", tmp_path) == leases
