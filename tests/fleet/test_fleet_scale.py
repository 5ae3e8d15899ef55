"""The role neuca_mesh on many hosts: NEUCA_HOSTS of them, each a few namespaces of this machine, with real iperf3.

`make test-fleet ARGS='-k many_hosts -m long -s' NEUCA_HOSTS=200` prints how long 200 hosts take.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs import script

EXAMPLE = Path(__file__).parents[2] / "ansible" / "examples" / "three_hosts"
HOSTS = int(os.environ.get("NEUCA_HOSTS", "12"))
PARALLEL = 20  # hosts that Ansible works on at a time
CONFIG = """[metadata]
sources = none
[network]
management-macs = 02:16:3e:00:01:{number:02x}
"""
PREPARE = """set -e
mkdir -p /etc/neuca
printf %s "$1" > /etc/neuca/config
printf %s "$2" > /usr/bin/neuca-selftest
chmod 755 /usr/bin/neuca-selftest
ip address add 172.16.0.{number}/24 dev data0
ip link set data0 up
"""


@pytest.fixture
def lab(tmp_path):
    """Hosts h1, h2 …, each with the address 172.16.0.NUMBER on its dataplane NIC.

    They have this machine's files, and keep in memory what they change.
    """
    environment = {**os.environ, "NEUCA_LAB": str(tmp_path / "lab")}

    def call(*words):
        command = [EXAMPLE / "lab", *words]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=1800)

    call("up", str(HOSTS))
    for number in range(1, HOSTS + 1):
        words = ("sh", "-c", PREPARE.format(number=number), "sh")
        call("enter", f"h{number}", *words, CONFIG.format(number=number), script("selftest"))
    yield tmp_path / "lab"
    call("down")


def inventory():
    """The inventory of the documentation, with more hosts."""
    hosts = {f"h{number}": {"dataplane_address": f"172.16.0.{number}"} for number in range(1, HOSTS + 1)}  # fmt: skip
    variables = {
        "ansible_ssh_executable": str(EXAMPLE / "ssh"),
        "ansible_ssh_transfer_method": "piped",
        "ansible_pipelining": True,
        "ansible_python_interpreter": sys.executable,
        "neuca_mesh_address": "{{ dataplane_address }}",
        "neuca_mesh_rate": "2M",
        "neuca_mesh_time": 1,
        "neuca_mesh_rounds": 2,
        "neuca_mesh_secret": "only for hosts in namespaces",
        "neuca_mesh_accept": [],
    }
    return {"guests": {"hosts": hosts, "vars": variables}}


@pytest.mark.long
def test_the_role_tests_the_paths_between_many_hosts(ansible, lab, tmp_path):
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps(inventory()))
    began = time.monotonic()
    done = ansible(
        "ansible-playbook", "--forks", str(PARALLEL), "-i", file, EXAMPLE / "mesh.yml",
        "-e", json.dumps({"neuca_mesh_html": str(tmp_path / "report.html")}),
        NEUCA_LAB=str(lab),
    )  # fmt: skip
    print(f"\n{HOSTS} hosts by Ansible: {time.monotonic() - began:.0f} s")
    assert done.returncode == 0, done.stdout[-8000:]
    # No host is silent, and none is at fault.
    assert "MESH pass: " in done.stdout, done.stdout[-8000:]
    assert (tmp_path / "report.html").stat().st_size > 0
