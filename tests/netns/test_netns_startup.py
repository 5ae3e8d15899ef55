"""What a command loads, since a start is most of what a command takes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from lab import ROOT, mac

LOADED = """import sys
sys.path.insert(0, sys.argv[1])
sys.argv = sys.argv[2:]
from neuca_tools.commands.{module} import main
try:
    main(sys.argv[1:])
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""
DOCUMENT = (
    f"[interface {mac(1)}]\nmtu = 1400\ntxqueuelen = 500\naddresses = 172.16.1.1/24\nstate = up\n"
)
LIBRARIES = {"pyroute2", "pyudev", "dbus", "yaml", "systemd"}
SLOW = {"asyncio", "concurrent", "decimal", "email", "subprocess"}
# Of a lock that another process has, and of sources over the network.
UNUSED = {"neuca_tools.sources.http", "neuca_tools.sources.service"}


def loaded(guest, module, *words):
    """The modules that a fresh interpreter has loaded when the command has ended."""
    command = ("--config", str(guest.config_file))
    script = LOADED.format(module=module)
    done = guest.run(
        sys.executable, "-B", "-c", script, str(ROOT), module, *words, *command, check=False
    )
    return set(done.err.splitlines()[-1].split())


POLL = """import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from neuca_tools.agent.worker import Job, do_job
from neuca_tools.config import load_config
from neuca_tools.state.active_document import last_good
config = load_config(Path(sys.argv[2]))
do_job(Job(config, fetch=True, sha256=last_good(config.state).stored.sha256))
print(*sorted(sys.modules), file=sys.stderr)
"""

DAEMON = """import sys
from neuca_tools.commands.neucad import main
try:
    main(sys.argv[-2:])
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.fixture
def configured(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.document(DOCUMENT)
    return lab


def test_only_a_pass_that_changes_the_network_loads_pyroute2(configured):
    first = loaded(configured, "neucad", "--once")
    assert "172.16.1.1/24" in configured.addresses("dp1")
    assert first & LIBRARIES == {"pyroute2"}
    assert loaded(configured, "neucad", "--once") & (LIBRARIES | SLOW | UNUSED) == set()
    assert loaded(configured, "neucad", "--names") & (LIBRARIES | SLOW) == set()


@pytest.mark.parametrize("words", ["status", "plan", "explain dp1", "show document --json"])
def test_what_only_reads_needs_no_library(configured, words):
    configured.once()
    assert loaded(configured, "neuca", *words.split()) & (LIBRARIES | SLOW) == set()


def test_a_poll_without_news_loads_no_module_of_a_pass(configured):
    """The daemon has what a poll needs, and its child loads nothing more for it."""
    configured.once()
    words = (sys.executable, "-B", "-c", POLL, str(ROOT), str(configured.config_file))
    found = set(configured.run(*words).err.splitlines()[-1].split())
    packages = {one.split(".")[1] for one in found if one.startswith("neuca_tools.")}
    assert packages & {"apply", "guest", "plan", "status"} == set()
    assert "neuca_tools.agent.reconcile" not in found


def test_the_idle_daemon_has_no_library_of_a_pass(configured):
    daemon = configured.start(sys.executable, "-B", "-c", DAEMON)
    configured.wait("dp1 has its address", lambda: configured.addresses("dp1"))
    assert daemon.stop() == 0
    found = set(daemon.log().splitlines()[-1].split())
    assert "neuca_tools.agent.daemon" in found
    assert found & (LIBRARIES | SLOW) == set(), daemon.log()


def test_the_daemon_has_once_what_each_poll_of_a_service_needs(lab):
    """Its children load nothing for one, and it stays below 24 MiB; there is no https."""
    lab.management()
    lab.veth("dp1", 1)
    lab.service(DOCUMENT)
    lab.configure(sources="ec2")
    daemon = lab.start(sys.executable, "-B", "-c", DAEMON)
    lab.wait("dp1 has its address", lambda: lab.addresses("dp1"))
    lab.metadata.wait_for(2)
    resident = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{daemon.pid}/status").read_text())
    assert daemon.stop() == 0
    found = set(daemon.log().splitlines()[-1].split())
    needed = {"http.client", "neuca_tools.sources.race", "neuca_tools.agent.metadata_access"}
    assert found & (needed | LIBRARIES | {"ssl"}) == needed
    assert int(resident[1]) < 24 * 1024
