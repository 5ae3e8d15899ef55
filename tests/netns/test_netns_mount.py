"""A private mount: read-only and harmless for the process that made it, and there for nobody else."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys

# The kernels that these tests run on may have neither iso9660 nor vfat: the real ones are in tests/machine. What is shown here
# is the namespace and the flags, with a file system that every kernel has.
MOUNT = """
import sys
from pathlib import Path
from neuca_tools.backends import namespace
namespace.FILE_SYSTEMS = tuple(sys.argv[2:])
namespace.mount_privately(Path("none"), Path(sys.argv[1]))
print(*[line for line in open("/proc/self/mounts") if f" {sys.argv[1]} " in line], end="")
"""


def mounted(lab, *kinds):
    place = lab.folder / "place"
    place.mkdir(exist_ok=True)
    return place, lab.run(sys.executable, "-c", MOUNT, place, *kinds, check=False)


def test_a_mount_is_harmless_and_nobody_else_s(lab):
    place, done = mounted(lab, "nonesuch", "tmpfs")
    assert done.code == 0, done.err
    assert {"ro", "nosuid", "nodev", "noexec"} <= set(done.out.split()[3].split(","))
    assert str(place) not in lab.run("cat", "/proc/self/mounts").out


def test_a_file_system_that_is_none_of_these_is_an_error(lab):
    _, done = mounted(lab, "nonesuch")
    assert done.code == 1
    assert (
        'SourceError: mount "none": it is neither nonesuch, or the kernel has no module for it'
        in done.err
    )
