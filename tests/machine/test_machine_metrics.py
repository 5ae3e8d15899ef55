"""The timer that writes metrics for the node exporter, in the sandbox that systemd puts around it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import nics
from steps import DOCUMENT, in_force

FOLDER = "/var/lib/prometheus/node-exporter"
FILE = f"{FOLDER}/neuca.prom"
RESULT = "systemctl show --property=Result,ExecMainStatus neuca-metrics.service"


def lasting(text):
    """The lines that two looks at an unchanged host have in common."""
    return [line for line in text.splitlines() if "seconds" not in line]


@pytest.mark.long
def test_the_timer_writes_what_status_prints_outside_of_its_sandbox(guests, prepared):
    guest = guests("A", nics(3), after=prepared("A"))
    guest.serve(DOCUMENT)
    guest.boot()
    in_force(guest, DOCUMENT)
    guest.check("systemctl start neuca-metrics.service")
    assert guest.run(f"ls {FOLDER}").code != 0  # no node exporter, nothing to write for
    guest.check(f"mkdir -p {FOLDER} && systemctl enable --now neuca-metrics.timer")
    written = guest.eventually(f"cat {FILE}", lambda done: done.code == 0).output
    assert lasting(written) == lasting(guest.check("neuca status --prometheus"))
    assert guest.check(f"stat --format='%U %a' {FILE}") == "root 644\n"
    assert guest.check(RESULT) == "Result=success\nExecMainStatus=0\n"

    # Another state is told by the metrics, and is no failure of the unit.
    guest.check("ip link set eth1 down")
    guest.check("systemctl start neuca-metrics.service")
    changed = guest.check(f"cat {FILE}")
    assert lasting(changed) != lasting(written)
    assert lasting(changed) == lasting(guest.run("neuca status --prometheus").output)
    assert "Result=success" in guest.check(RESULT)
    guest.reboot()
    in_force(guest, DOCUMENT)
    guest.eventually(f"cat {FILE}", lambda done: lasting(done.output) == lasting(written))
    assert guest.check("systemctl is-active neuca-metrics.timer") == "active\n"
