"""systemd-networkd over D-Bus: which interfaces it manages, and having it read its .network files again."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.backends.bus import Manager, RefusedError

_PATH = "/org/freedesktop/network1"
_MANAGER = "org.freedesktop.network1.Manager"
# link_state_table, networkd-link.c. Not here: `pending` (udev is not done) and `initialized` (not yet decided).
_WORDS = {
    "unmanaged": "unmanaged",
    "configuring": "managed",
    "configured": "managed",
    "failed": "managed",
}


class Networkd(Manager):
    """systemd-networkd as it runs now."""

    title = "systemd-networkd"
    name = "org.freedesktop.network1"
    unit = "systemd-networkd.service"

    def states(self) -> dict[str, str]:
        links = self._ask("asked systemd-networkd for its links", _PATH, f"{_MANAGER}.ListLinks")
        return {str(name): self._state(str(name), str(path)) for _, name, path in links}

    def reload(self) -> None:
        """Have systemd-networkd read its .network files again. A link that it must leave loses what it had put."""
        self._ask("asked systemd-networkd to read its files again", _PATH, f"{_MANAGER}.Reload")

    def _state(self, name: str, path: str) -> str:
        """One question for each link: Describe answers for all at once, but is newer (systemd 249) than some."""
        try:
            state = self._ask(
                f'asked systemd-networkd for the state of "{name}"',
                path,
                "org.freedesktop.DBus.Properties.Get",
                "ss",
                "org.freedesktop.network1.Link",
                "AdministrativeState",
            )
        except RefusedError:  # the link has gone since the list was made
            return "unknown"
        return _WORDS.get(str(state), "unknown")
