"""What a config drive and a NoCloud seed hold, and a directory filled with it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from platforms import SAMPLES

META, NETWORK = SAMPLES["openstack.meta_data.json"][1], SAMPLES["openstack.network_data.json"][1]
DRIVE = {
    "openstack/latest/meta_data.json": META,
    "openstack/latest/network_data.json": NETWORK,
    "openstack/latest/user_data": b"[global]\n",
}
SEED = {
    "user-data": b"[global]\n",
    "meta-data": b"instance-id: i\n",
    "network-config": b"version: 2\n",
}


def fill(place, files):
    for name, data in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place
