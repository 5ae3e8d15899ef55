"""The identity of an InfiniBand port: its GUID, and the forms that other programs write it in.

The hardware address of an IPoIB interface has 20 bytes (RFC 4391, 9.1.1): flags and queue pair
number (4), subnet prefix (8) and port GUID (8). The first twelve change with the driver and the
subnet manager; the GUID does not. `neuca_tools` writes it as `ec:0d:9a:03:00:15:e2:c1`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable

INFINIBAND = 32  # ARPHRD_INFINIBAND, linux/if_arp.h
ADDRESS_BYTES, GUID_BYTES = 20, 8  # INFINIBAND_ALEN, linux/if_infiniband.h; InfiniBand spec., 4.1
GUID_LENGTH = len("00:00:00:00:00:00:00:00")


def guid(address: bytes) -> str:
    """The GUID in an address of 20 bytes; empty for another length, and for a port without one.

    >>> guid(bytes.fromhex("80000208fe80000000000000ec0d9a030015e2c1"))
    'ec:0d:9a:03:00:15:e2:c1'
    """
    last = address[-GUID_BYTES:]
    return last.hex(":") if len(address) == ADDRESS_BYTES and any(last) else ""


def is_guid(text: str) -> bool:
    """Whether the identity of a NIC is a GUID, and not a MAC address."""
    return len(text) == GUID_LENGTH and " " not in text


def short_guid(identity: str) -> str:
    """The GUID in six bytes, as OpenStack and Ironic write it; empty if it is no GUID.

    They leave out the two bytes in the middle, which are those that a GUID made of a MAC address
    has in addition (cloud-init, net.get_ib_interface_hwaddr).

    >>> short_guid("ec:0d:9a:03:00:15:e2:c1")
    'ec:0d:9a:15:e2:c1'
    """
    return f"{identity[:8]}:{identity[-8:]}" if is_guid(identity) else ""


def identity_forms(identities: Iterable[str]) -> frozenset[str]:
    """The identities of these NICs, and the short forms of those that are GUIDs."""
    macs = {*identities}
    return frozenset(macs | {*filter(None, map(short_guid, macs))})
