"""User-data through systemd's metadata service (`imds`), where the agent itself reaches no metadata."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from imdsd import Imdsd
from lab import MANAGEMENT_MAC, mac

DOCUMENT = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n"


@pytest.fixture
def service(tmp_path_factory):
    """Set up before `lab`, whose last pass after the test asks it too."""
    path = tmp_path_factory.mktemp("imdsd") / "socket"
    with Imdsd(path, {"userdata": DOCUMENT.encode()}) as imdsd:
        yield imdsd


def test_the_service_is_asked_for_the_management_nic_alone(service, lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.configure(sources=f"imds={service.path}")
    done = lab.once()
    assert (done.code, lab.problems()) == (0, []), done
    assert (lab.role(MANAGEMENT_MAC), lab.role(mac(1))) == ("management", "dataplane")
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    interfaces = {call["parameters"]["interface"] for call in service.calls}
    assert interfaces == {lab.index("mgmt0")}
