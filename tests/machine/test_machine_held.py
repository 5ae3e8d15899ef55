"""How long the agent's unit holds up a boot on which no metadata service answers, beside units that start Python and no more."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import statistics

import pytest

EXIT_PENDING = 3
UNIT = "neuca-guest-tools.service"
BARE, BOXED = "lab-bare.service", "lab-boxed.service"  # without the agent's sandbox, and with it
DIRECTORY = "/etc/systemd/system"
ROUNDS = 7
OWN = re.compile(
    r"^(Type|ExecStart|ExecReload|Restart\w*|WatchdogSec|Description|Documentation|After|Before)="
)
HEAD = (
    "[Unit]\nAfter=neuca-names.service network-pre.target\nBefore=network-online.target {unit}\n\n"
)


def units(guest):
    """What starts Python alone: as it is, and in all that systemd does for the agent's unit before it starts that."""
    service = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/python3 -c pass\n"
    end = "\n[Install]\nWantedBy=multi-user.target\n"
    lines = (
        guest.check(f"systemctl cat {UNIT}")
        .partition("[Service]\n")[2]
        .partition("[Install]")[0]
        .splitlines()
    )
    sandbox = "\n".join(line for line in lines if not OWN.match(line))
    guest.put(f"{DIRECTORY}/{BARE}", HEAD.format(unit=f"{UNIT} {BOXED}") + service + end)
    guest.put(f"{DIRECTORY}/{BOXED}", HEAD.format(unit=UNIT) + service + sandbox + end)
    guest.check(f"systemctl daemon-reload && systemctl enable {BARE} {BOXED}")


def held(guest, unit):
    """Seconds from the unit's start to its being active, which is what others wait for."""
    said = guest.check(
        f"systemctl show {unit} -p InactiveExitTimestampMonotonic -p ActiveEnterTimestampMonotonic -p ActiveState"
    )
    found = dict(line.split("=") for line in said.split())
    assert found["ActiveState"] == "active", said
    return (
        int(found["ActiveEnterTimestampMonotonic"]) - int(found["InactiveExitTimestampMonotonic"])
    ) / 1e6


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "C"])
def test_a_boot_without_an_answer_is_held_no_longer_than_python_takes_to_start(guests, image):
    guest = guests(image)
    guest.cloud.mode = "hang"
    guest.boot()
    units(guest)
    guest.reboot()
    guest.check("systemctl is-system-running --wait || true", 300)
    assert guest.run("neuca status").code == EXIT_PENDING
    at_boot = {unit: held(guest, unit) for unit in (UNIT, BOXED, BARE)}
    guest.cloud.wait_for(1)
    later = {unit: [] for unit in (UNIT, BOXED, BARE)}
    for _ in range(ROUNDS):
        for unit, found in later.items():
            guest.check(f"systemctl restart {unit}")
            found.append(held(guest, unit))
            if unit == UNIT:  # what it does once it is active is none of the next one's time
                guest.cloud.wait_for(1)
    middle = {unit: statistics.median(found) for unit, found in later.items()}
    for title, found in (("boot", at_boot), (f"median of {ROUNDS} restarts", middle)):
        print(
            f"{image}: {title}: the agent's unit {found[UNIT]:.2f} s, a bare Python {found[BARE]:.2f} s, in the same sandbox"
            f" {found[BOXED]:.2f} s: ratios {found[UNIT] / found[BARE]:.2f}, {found[UNIT] / found[BOXED]:.2f}",
            flush=True,
        )
    assert middle[UNIT] <= 1.25 * middle[BOXED]
