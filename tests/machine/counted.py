"""A guest whose clock counts instructions, for what compares throughputs; and agents in it that have all files in one folder."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import images
from guest import Guest

# Of an agent in a network namespace: {0} is its folder.
CONFIGURATION = """[runtime]
state-directory = {0}/state
run-directory = {0}/run
pid-directory = {0}/pid
hosts-file = {0}/hosts
[logging]
log-directory = {0}/log
[linux]
managers = none
udev-directory = {0}/udev
networkmanager-directory = {0}/networkmanager
networkd-directory = {0}/networkd
sysctl-directory = {0}/sysctl
[metadata]
sources = file:{0}/document
[tuning]
profile = none
profile-directory = {0}/profiles
"""


@contextlib.contextmanager
def counted(folder: Path, memory: int) -> Iterator[Guest]:
    """Boot it, with its disk in `folder` and so many MiB; it ends with the block."""
    guest = Guest(images.image("T"), folder, (), memory=memory, counted=True)
    try:
        guest.boot()
        yield guest
    finally:
        guest.close()
