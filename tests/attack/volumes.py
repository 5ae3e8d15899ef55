"""Images of config drives and NoCloud volumes, made as a hypervisor or a co-tenant makes them; and as directories."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import subprocess

CONFIG_DRIVE, SEED = "config-2", "cidata"


def config_drive(user_data="", instance="i-attacker", **files):
    """The files of a config drive."""
    meta = json.dumps({"uuid": instance, "hostname": "node0"})
    made = {"meta_data.json": meta, "user_data": user_data, **files}
    return {f"openstack/latest/{name}": text for name, text in made.items() if text}


def seed(user_data="", instance="i-attacker", **files):
    """The files of a NoCloud volume; `network_config=` for network-config."""
    more = {name.replace("_", "-"): text for name, text in files.items()}
    return {"user-data": user_data, "meta-data": f"instance-id: {instance}\n", **more}


def label_of(files):
    return CONFIG_DRIVE if any(name.startswith("openstack/") for name in files) else SEED


def directory(place, files):
    """For unit tests and for `neuca read-drive DIRECTORY`: what would be mounted."""
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def image(folder, files, kind="iso9660", label=""):
    """An image of that file system (`iso9660` or `vfat`) with the label that the files call for."""
    place, made = directory(folder / "content", files), folder / f"{kind}.img"
    label = label or label_of(files)
    if kind == "iso9660":
        _quietly("xorriso", "-as", "mkisofs", "-r", "-J", "-V", label, "-o", made, place)
        return made
    with made.open("wb") as stream:
        stream.truncate(8 << 20)
    _quietly("mkfs.vfat", "-n", label, made)
    _quietly("mcopy", "-s", "-i", made, *sorted(place.iterdir()), "::")
    return made


def _quietly(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True, timeout=60)


def label(made):
    """What blkid, and so udev, takes for the label of an image."""
    words = ["blkid", "--probe", "--output", "value", "--match-tag", "LABEL", made]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()
