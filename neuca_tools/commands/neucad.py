"""The entry point of `neucad`: notifies systemd early if possible, then imports and runs the agent.

Importing the agent takes longer than starting Python, so this module imports as little as it can.
"""

# SPDX-License-Identifier: MIT
# Importing pathlib alone takes as long as starting Python.
# ruff: noqa: PTH110, PTH112, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import sys

from neuca_tools.commands import collect_rarely

STATE_DIRECTORY, DOCUMENT, CONFIG = "/var/lib/neuca", "document.json", "/etc/neuca/config"
WAITING = "READY=1\nSTATUS=waiting for the first document"


def main(arguments: list[str] | None = None) -> int:
    """Run the agent, or one step of it. The exit code of `--once` is that of `neuca status`."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or (len(given) == 2 and given[0] == "--config"):
        ready_ahead(os.environ.get("NOTIFY_SOCKET", ""), given[1] if given else CONFIG)

    if arguments is None:
        collect_rarely()
    from neuca_tools.commands.agent import main as run

    return run(given)


def ready_ahead(address: str, config: str) -> None:
    """Send READY=1 to the socket `address` (sd_notify(3)) if there is no last good document.

    The boot need not wait for the first pass then. Only built-in modules are imported: `socket`
    alone takes as long as starting Python. Errors are ignored; the agent notifies systemd too.
    """
    import _socket

    try:
        if address[:1] not in ("/", "@"):
            return
        if os.path.exists(os.path.join(_state_directory(config), DOCUMENT)):
            return
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        sender.settimeout(1.0)
        if address[0] == "@":
            address = "\0" + address[1:]
        sender.sendto(WAITING.encode(), address)
        sender.close()
    except OSError:
        return


def _state_directory(config: str) -> str:
    """The last absolute `state-directory` in the configuration files, which are not validated."""
    found = STATE_DIRECTORY
    drop_ins = _drop_ins(os.path.join(os.path.dirname(config), "config.d"))
    for path in filter(os.path.exists, [config, *drop_ins]):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition("=")
                value = value.partition(" ;")[0].strip()
                if name.strip().lower() == "state-directory" and value[:1] == "/":
                    found = value
    return found


def _drop_ins(directory: str) -> list[str]:
    if not os.path.isdir(directory):
        return []
    names = [name for name in sorted(os.listdir(directory)) if name.endswith(".conf")]
    return [os.path.join(directory, name) for name in names if not name.startswith(".")]


if __name__ == "__main__":
    sys.exit(main())
