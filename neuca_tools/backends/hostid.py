"""Reads the identity of this host: machine ID, hardware UUID and boot ID."""

# SPDX-License-Identifier: MIT

import time
from pathlib import Path

from neuca_tools.errors import ObserveError
from neuca_tools.files import text_of
from neuca_tools.model import machine

MACHINE_ID = Path("/etc/machine-id")
# The second is for Xen guests without firmware.
UUIDS = (Path("/sys/class/dmi/id/product_uuid"), Path("/sys/hypervisor/uuid"))
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MAX_ID_BYTES = 64


def read_machine() -> machine.Machine:
    """The identity, as far as it can be read: only root may read the UUID."""
    uuid = next(filter(None, (text_of(path, MAX_ID_BYTES) for path in UUIDS)), "")
    return machine.known_machine(text_of(MACHINE_ID, MAX_ID_BYTES), uuid)


def boot_id() -> str:
    """The boot ID of the kernel (random(4)). Raises ObserveError."""
    # Without it, a record would seem to be of another boot.
    try:
        with BOOT_ID.open(encoding="ascii") as stream:
            return stream.read(MAX_ID_BYTES).strip()
    except OSError as error:
        raise ObserveError(f'read "{BOOT_ID}": {error.strerror}') from error


def boot_age() -> float:
    """Seconds since the boot, including suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
