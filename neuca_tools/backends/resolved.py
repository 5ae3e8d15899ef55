"""The DNS servers and search domains of single links, through systemd-resolved over D-Bus.

Nothing is set for the whole host: none of our links is a default route for names, so the servers of
a link are asked only for names in its search domains. See org.freedesktop.resolve1(5).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Any

from neuca_tools.backends.bus import RefusedError, Service
from neuca_tools.backends.routing import FAMILIES
from neuca_tools.documents.neuca.link_settings import NO_DNS
from neuca_tools.errors import ApplyError, ManagerError
from neuca_tools.model.device_settings import DeviceSettings, missing_groups

NAME, PATH = "org.freedesktop.resolve1", "/org/freedesktop/resolve1"
_MANAGER, _LINK = f"{NAME}.Manager", f"{NAME}.Link"
_GET = "org.freedesktop.DBus.Properties.Get"
ABSENT = "systemd-resolved is not running, and nothing else sets the DNS of a single link"
# Behind the servers of a link that names in no domain of another link are looked up through.
DEFAULT_ROUTE = "default-route"


class Resolved(Service):
    """The running systemd-resolved."""

    title = "systemd-resolved"
    name = NAME

    def read(self, indexes: Iterable[int], groups: Collection[str]) -> dict[int, DeviceSettings]:
        """The servers and search domains of these links; without resolved, none has any."""
        try:
            if self.absent():
                none = dict.fromkeys(groups, NO_DNS)
                return {
                    index: DeviceSettings(none, missing=dict.fromkeys(groups, ABSENT))
                    for index in indexes
                }
            servers, domains = self._read_property("DNS"), self._read_property("Domains")
            settings = {}
            for index in indexes:
                own = (domain[1:] for domain in domains if domain[0] == index)
                search = _joined_words(f"~{name}" if routes else str(name) for name, routes in own)
                nameservers = self._servers_of(index, servers)
                settings[index] = DeviceSettings({"nameservers": nameservers, "search": search})
            return settings
        except ManagerError as error:
            return {index: missing_groups(groups, error.text) for index in indexes}

    def write(self, index: int, group: str, value: str) -> None:
        """Set the servers or search domains of a link. Raises ApplyError."""
        try:
            if self.absent():
                raise ApplyError("systemd-resolved is not running", errno.ENOENT)
            self._write_words(index, group, [word for word in value.split() if word != NO_DNS])
        except RefusedError as error:
            raise ApplyError(error.text, errno.EPERM) from error
        except ManagerError as error:
            raise ApplyError(error.text) from error

    def _write_words(self, index: int, group: str, words: Collection[str]) -> None:
        others = "Domains" if group == "nameservers" else "DNS"
        if not words and index not in [entry[0] for entry in self._read_property(others)]:
            self._call_manager("RevertLink", "i", index)
        elif group == "nameservers":
            hosts = [ip_address(word) for word in words if word != DEFAULT_ROUTE]
            # Before the servers are set, the link stops to be a default route for names.
            self._call_manager("SetLinkDefaultRoute", "ib", index, DEFAULT_ROUTE in words)
            entries = [(FAMILIES[host.version], list(host.packed)) for host in hosts]
            self._call_manager("SetLinkDNS", "ia(iay)", index, entries)
        else:
            self._set_domains(index, words)

    def _set_domains(self, index: int, words: Collection[str]) -> None:
        for other, domain, _ in self._read_property("Domains"):
            taken = [word for word in words if _domains_overlap(str(domain), word.lstrip("~"))]
            # The domains of the whole host, from resolved.conf(5), have the index 0.
            if other != index and taken and (not other or self._is_default(int(other))):
                owner = "another link" if other else "the host"
                text = f'the domain "{taken[0]}" overlaps "{domain}" of {owner}'
                raise ApplyError(text, errno.EPERM)
        entries = [(word.lstrip("~"), word.startswith("~")) for word in words]
        self._call_manager("SetLinkDomains", "ia(sb)", index, entries)

    def _servers_of(self, index: int, entries: Any) -> str:
        servers = [str(ip_address(bytes(entry[2]))) for entry in entries if entry[0] == index]
        if servers and self._is_default(index):
            servers.append(DEFAULT_ROUTE)
        return _joined_words(servers)

    def _is_default(self, index: int) -> bool:
        """Whether names in no domain of another link are looked up through this one."""
        path = self._call_manager("GetLink", "i", index)
        what = "asked systemd-resolved whether a link is a default route"
        return bool(self._ask(what, str(path), _GET, "ss", _LINK, "DefaultRoute"))

    def _read_property(self, name: str) -> Any:
        what = f"asked systemd-resolved for its {name}"
        return self._ask(what, PATH, _GET, "ss", _MANAGER, name)

    def _call_manager(self, member: str, signature: str, *arguments: object) -> Any:
        what = f"asked systemd-resolved for {member}"
        return self._ask(what, PATH, f"{_MANAGER}.{member}", signature, *arguments)


def _domains_overlap(domain: str, other_domain: str) -> bool:
    """Whether one domain is the other or in it; the root, which has all names, does not count."""
    first, second = f".{domain}".lower().rstrip("."), f".{other_domain}".lower().rstrip(".")
    return bool(first and second) and (first.endswith(second) or second.endswith(first))


def _joined_words(words: Iterable[str]) -> str:
    return " ".join(words) or NO_DNS
