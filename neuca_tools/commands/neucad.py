"""`neucad`: READY at once where there is nothing that anybody could wait for, then the agent, which takes longer to import."""

# SPDX-License-Identifier: MIT
# pathlib alone takes as long to import as Python to start.
# ruff: noqa: PTH110, PTH112, PTH118, PTH120, PTH123, PTH208

from __future__ import annotations

import os
import sys

STATE_DIRECTORY, DOCUMENT, CONFIG = "/var/lib/neuca", "document.json", "/etc/neuca/config"
WAITING = "READY=1\nSTATUS=waiting for the first document"


def main(arguments: list[str] | None = None) -> int:
    """Run the agent, or one pass of it. The exit code of `--once` is that of `neuca status`."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or (len(given) == 2 and given[0] == "--config"):
        ready_ahead(os.environ.get("NOTIFY_SOCKET", ""), given[1] if given else CONFIG)

    from neuca_tools.commands.agent import main as run

    return run(given)


def ready_ahead(address: str, config: str) -> None:
    """Tell systemd at this address, if there is no last good document that a boot could wait for the first pass over.

    Nothing is imported but what Python has itself: `socket` alone takes as long as Python to start. What cannot be read or
    said here is left to the agent.
    """
    import _socket

    try:
        if address[:1] not in ("/", "@") or os.path.exists(
            os.path.join(_state_directory(config), DOCUMENT)
        ):
            return
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        sender.settimeout(1.0)
        sender.sendto(WAITING.encode(), "\0" + address[1:] if address[0] == "@" else address)
        sender.close()
    except OSError:
        return


def _state_directory(config: str) -> str:
    """`state-directory` as the files of the configuration have it, the last one of several, without reading what they mean."""
    found = STATE_DIRECTORY
    for path in [config, *_drop_ins(os.path.join(os.path.dirname(config), "config.d"))]:
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition("=")
                    value = value.partition(" ;")[0].strip()
                    found = (
                        value
                        if name.strip().lower() == "state-directory" and value[:1] == "/"
                        else found
                    )
    return found


def _drop_ins(directory: str) -> list[str]:
    names = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    return [
        os.path.join(directory, name)
        for name in names
        if name.endswith(".conf") and not name.startswith(".")
    ]


if __name__ == "__main__":
    sys.exit(main())
