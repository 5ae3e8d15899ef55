"""The tier of tests/netns once more, inside guests, whose kernels have 8021q, dummy and bonding."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import io
import tarfile

import images
import pytest

CHOSEN = "vlan or stack or vrf"
WHOLE = 3600  # seconds: it is emulated


def checkout() -> bytes:
    """The product and its tests, as they are here, in a tar."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in images.tracked("neuca_tools", "tests", "setup.cfg"):
            tar.add(images.ROOT / name, name)
    return packed.getvalue()


@pytest.mark.long
@pytest.mark.parametrize(("image", "chosen"), [("A", CHOSEN), ("C", CHOSEN), ("A", ""), ("C", "")])
def test_the_netns_tier_passes_inside_a_guest(guests, image, chosen):
    guest = guests(image, memory=1536)
    guest.boot()
    guest.check("systemctl stop neuca-guest-tools.service")
    guest.check("mkdir checkout && tar -xz -C checkout", 120, checkout())
    pytest_ = f"python3 -m pytest -p no:cacheprovider -q -k '{chosen}' tests/netns"
    done = guest.run(f"cd checkout && CI=true {pytest_}", WHOLE)
    assert done.code == 0, done.output[-8000:]
    assert "this kernel has no" not in done.output
    print(done.output.splitlines()[-1])
