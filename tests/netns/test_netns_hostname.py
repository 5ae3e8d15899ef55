"""The host name: real sethostname in a UTS namespace, and the hosts file."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.guest import blocks

ROOT = Path(__file__).parents[2]
BEGIN, END = blocks.BEGIN.decode(), blocks.END.decode()
HOSTS = b"127.0.0.1\tlocalhost\n\n# mine, with a trailing blank \n::1 ip6-localhost\r\n\xff\xfe no text\nlast line without an end"
# What hostnamed would do is done by the agent itself: there is no bus at that address.
PROGRAM = """
import os, sys
from pathlib import Path
from neuca_tools.config import Config
from neuca_tools.documents import parse
from neuca_tools.guest.base import Guest
from neuca_tools.guest.hostname import apply_hostname
from neuca_tools.model import PlatformDocument
folder = Path(sys.argv[1])
os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={folder}/no-bus"
config = Config(hosts_file=folder / "hosts", set_loopback_hostname=sys.argv[3] == "yes")
document = parse(sys.argv[2])
if sys.argv[4]:
    document = document._replace(hostname=sys.argv[4], platform=PlatformDocument(hostname=sys.argv[4]))
for finding in apply_hostname(Guest(config, document), folder / "hostname"):
    print(finding.state, finding.text)
print(os.uname().nodename)
"""


@pytest.fixture
def named(tmp_path):
    """Runs the feature for a document in a UTS namespace where the host is called `before`."""
    users = ["--user", "--map-root-user"] if os.geteuid() else []

    def inside(text, loopback="yes", platform=""):
        command = [
            "unshare",
            *users,
            "--uts",
            "sh",
            "-c",
            'hostname before && exec "$@"',
            "sh",
            sys.executable,
            "-c",
            PROGRAM,
            tmp_path,
            text,
            loopback,
            platform,
        ]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
        )
        return [*done.stdout.splitlines(), *done.stderr.splitlines()[-1:]]

    return inside


def test_the_name_is_set_now_for_the_next_boot_and_in_the_hosts_file(named, tmp_path):
    (tmp_path / "hosts").write_bytes(HOSTS)
    assert named("[global]\nhost_name = Node/0\n") == ['ok the host name is "Node-0"', "Node-0"]
    assert (tmp_path / "hostname").read_text() == "Node-0\n"
    assert (
        tmp_path / "hosts"
    ).read_bytes() == f"{BEGIN}\n127.255.255.1\tNode-0\n{END}\n".encode() + HOSTS


def test_a_second_run_writes_nothing(named, tmp_path):
    (tmp_path / "hosts").write_bytes(HOSTS)
    named("[global]\nhost_name = before\n")
    files = [tmp_path / "hosts", tmp_path / "hostname"]
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in files]
    assert named("[global]\nhost_name = before\n") == [
        'ok the host name is "before", as it was',
        "before",
    ]
    assert [(path.stat().st_ino, path.stat().st_mtime_ns) for path in files] == before


def test_a_document_without_a_name_changes_nothing(named, tmp_path):
    (tmp_path / "hosts").write_bytes(HOSTS)
    assert named("[global]\nrouter = user\n") == ["before"]
    assert [path.name for path in tmp_path.iterdir()] == ["hosts"]
    assert (tmp_path / "hosts").read_bytes() == HOSTS


def test_without_the_loopback_line_the_hosts_file_is_as_it_was(named, tmp_path):
    (tmp_path / "hosts").write_bytes(HOSTS)
    named("[global]\nhost_name = node0\n")
    assert named("[global]\nhost_name = node0\n", "no")[-1] == "node0"
    assert (tmp_path / "hosts").read_bytes() == HOSTS


def test_a_hosts_file_that_cannot_be_edited_does_not_cost_the_name(named, tmp_path):
    (tmp_path / "hosts").mkdir()
    (tmp_path / "hostname").write_text("old\n")
    said = named("[global]\nhost_name = node0\n")
    assert said[0] == 'ok the host name is "node0"'
    assert said[1].endswith(f'edit "{tmp_path}/hosts": it is not a regular file')
    assert (tmp_path / "hostname").read_text() == "node0\n"


def test_the_platforms_host_name_is_set_unless_only_its_domain_differs(named, tmp_path):
    assert named("[global]\nrouter = user\n", platform="before.novalocal") == [
        'ok the host name is "before", and the platform calls it "before.novalocal"',
        "before",
    ]
    assert list(tmp_path.iterdir()) == []
    assert named("[global]\nrouter = user\n", platform="other.novalocal")[-1] == "other.novalocal"
