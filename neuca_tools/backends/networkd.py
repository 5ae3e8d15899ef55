"""systemd-networkd over D-Bus: queries which interfaces it manages, and reloads its files."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.backends.bus import Manager, RefusedError

_PATH = "/org/freedesktop/network1"
_MANAGER = "org.freedesktop.network1.Manager"
# link_state_table in networkd-link.c, without the undecided `pending` and `initialized`.
_WORDS = {
    "unmanaged": "unmanaged",
    "configuring": "managed",
    "configured": "managed",
    "failed": "managed",
}


class Networkd(Manager):
    """The running systemd-networkd."""

    title = "systemd-networkd"
    name = "org.freedesktop.network1"
    unit = "systemd-networkd.service"

    def states(self) -> dict[str, str]:
        links = self._ask("asked systemd-networkd for its links", _PATH, f"{_MANAGER}.ListLinks")
        return {str(name): self._state(str(name), str(path)) for _, name, path in links}

    def reload(self) -> None:
        """Reload the .network files. Links that become unmanaged lose what networkd configured."""
        what = "asked systemd-networkd to reload its files"
        self._ask(what, _PATH, f"{_MANAGER}.Reload", work=True)

    def _state(self, name: str, path: str) -> str:
        """The state of one link. Describe, which covers all links at once, needs systemd 249."""
        try:
            state = self._ask(
                f'asked systemd-networkd for the state of "{name}"',
                path,
                "org.freedesktop.DBus.Properties.Get",
                "ss",
                "org.freedesktop.network1.Link",
                "AdministrativeState",
            )
        except RefusedError:
            # The link has disappeared since ListLinks.
            return "unknown"
        return _WORDS.get(str(state), "unknown")
