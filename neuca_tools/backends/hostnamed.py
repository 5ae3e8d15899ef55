"""The host name through systemd-hostnamed, so that whoever listens to it hears of the change."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.backends.bus import Bus

NAME, PATH = "org.freedesktop.hostname1", "/org/freedesktop/hostname1"
ANSWER = 20.0  # seconds: it may have to be started first, on a machine that is busy booting


def set_hostname(hostname: str) -> None:
    """Set the static host name, which the kernel's follows; hostnamed is started for it. Raises ManagerError."""
    with Bus(ANSWER, 2 * ANSWER) as bus:
        what = f'ask systemd-hostnamed for the host name "{hostname}"'
        bus.call(
            what, bus.start(NAME) or NAME, PATH, f"{NAME}.SetStaticHostname", "sb", hostname, False
        )
