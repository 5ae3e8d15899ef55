"""Sets the host name through systemd-hostnamed, which notifies interested services."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.backends.bus import Bus

NAME, PATH = "org.freedesktop.hostname1", "/org/freedesktop/hostname1"
ANSWER = 20.0  # seconds: it may have to be started first, during a busy boot


def set_hostname(hostname: str) -> None:
    """Set the static and so the kernel's host name, starting hostnamed. Raises ManagerError."""
    with Bus(ANSWER, 2 * ANSWER) as bus:
        what = f'ask systemd-hostnamed for the host name "{hostname}"'
        bus.call(
            what, bus.start(NAME) or NAME, PATH, f"{NAME}.SetStaticHostname", "sb", hostname, False
        )
