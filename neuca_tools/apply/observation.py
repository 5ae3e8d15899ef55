"""What a pass has to read (`Interest`), and what was read (`Observation`).

No later stage reads from the host.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from neuca_tools.desired.common_settings import OF_EACH_LINK
from neuca_tools.desired.router_advertisements import forwarding
from neuca_tools.documents.neuca.link_settings import SETTINGS, group_of, through
from neuca_tools.documents.platform import BY_NAME
from neuca_tools.model import OWN, Document, Host, LinkKey, LinkRequest, Record, World
from neuca_tools.model.ports import is_guid, short
from neuca_tools.model.topology import METADATA_HOSTS, above, below, key_of
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.layer import TuningInputs

ANY_LINK = LinkKey("")
"""The key of requests for NICs by a name pattern, which may be about any NIC."""


class Interest(NamedTuple):
    """What has to be read for one decision.

    `hosts`: addresses whose route is requested. `sysctls`: paths of settings of the whole host.
    `templates`: for each link the settings of its own, with `{interface}` in their keys. `groups`:
    for each link the groups of device settings. `queued`: links that are requested to have a
    txqueuelen. `advertised`: whether it matters which devices take router advertisements.
    """

    hosts: tuple[Host, ...] = METADATA_HOSTS
    sysctls: frozenset[str] = frozenset()
    templates: Mapping[LinkKey, frozenset[str]] = {}
    groups: Mapping[LinkKey, frozenset[str]] = {}
    queued: frozenset[LinkKey] = frozenset()
    advertised: bool = False
    choice: Choice = Choice()

    @staticmethod
    def _applying(table: Mapping[LinkKey, frozenset[str]], key: LinkKey) -> frozenset[str]:
        asked = (table[one] for one in (*_names_of(key), ANY_LINK) if one in table)
        return frozenset().union(*asked)

    def sysctls_of(self, world: World) -> set[str]:
        """The paths to read, those of links by the names that their devices have now."""
        return {*self.sysctls, *self.sysctls_on(world, world.devices)}

    def sysctls_on(self, world: World, indexes: Iterable[int]) -> set[str]:
        """The paths of the settings of these devices."""
        paths: set[str] = set()
        for index in indexes:
            name = world.devices[index].name
            templates = self._applying(self.templates, key_of(world.devices[index], world))
            paths.update(template.replace(OWN, name) for template in templates)
        return paths

    def groups_of(self, world: World) -> dict[int, set[str]]:
        """The groups of device settings to read, by the index of the device."""
        found = {}
        for index, device in world.devices.items():
            is_queue = device.qdisc in ("mq", "pfifo")
            if not (is_queue or self.groups):
                continue
            key = key_of(world.devices[index], world)
            groups = set(self._applying(self.groups, key))
            if is_queue and not self.queued.isdisjoint(_names_of(key)):
                groups.add("qdisc")
            if groups:
                found[index] = groups
        return found


class Earlier(NamedTuple):
    """A look before some operations: what those were not about need not be read again.

    `links` are the indexes of the devices, `files` the paths that they were about.
    """

    world: World
    links: frozenset[int]
    files: frozenset[str]

    def changed(self, world: World) -> frozenset[int]:
        """The devices whose own settings may be others now.

        Those that the operations were about or that show any change, with what is above and below.
        """
        before = self.world.devices
        found = {index for index, device in world.devices.items() if before.get(index) != device}
        found |= self.links & world.devices.keys()
        return (above(world, found) | below(world, found)) & world.devices.keys()


class Observation(NamedTuple):
    """One complete look at the host. `tuning` is what the profiles are judged by."""

    world: World
    tuning: TuningInputs = TuningInputs()


def _names_of(key: LinkKey) -> tuple[LinkKey, ...]:
    """The keys by which a document may name a link: also the short form of a GUID."""
    if not is_guid(key.mac):
        return (key,)
    return (key, LinkKey(short(key.mac), key.vlan_id))


def interest(
    document: Optional[Document],
    links: Iterable[LinkRequest],
    record: Record,
    hosts: Iterable[Host] = (),
    choice: Optional[Choice] = None,
) -> Interest:
    """What has to be read to decide about this document, these configured links and this record."""
    requests = [*_requests(document), *links]
    templates, groups = _settings_of(requests, record)
    host_sysctls = {path for paths in templates.values() for path in paths if OWN not in path}
    for key in templates:
        if key.rank:  # a new virtual link takes its own from these
            host_sysctls.update(path.replace(OWN, "default") for path in templates[key])
    router = document.router if document else "user"
    return Interest(
        hosts=(*hosts, *METADATA_HOSTS),
        sysctls=frozenset({*host_sysctls, *record.original_sysctls, *forwarding(router)}),
        templates={key: frozenset(filter(_is_own, paths)) for key, paths in templates.items()},
        groups={key: frozenset(names) for key, names in groups.items() if names},
        queued=frozenset(one.key for one in requests if one.txqueuelen is not None),
        advertised=router == "true",
        choice=choice or Choice(),
    )


def _is_own(path: str) -> bool:
    """Whether a sysctl is one of a link."""
    return OWN in path


def _settings_of(
    requests: Iterable[LinkRequest], record: Record
) -> tuple[dict[LinkKey, set[str]], dict[LinkKey, set[str]]]:
    """The sysctls and device setting groups of each link, requested now or before."""
    templates: dict[LinkKey, set[str]] = defaultdict(set)
    groups: dict[LinkKey, set[str]] = defaultdict(set)
    for request in requests:
        key = ANY_LINK if request.key.mac.startswith(BY_NAME) else request.key
        templates[key].update(template for template, _ in request.sysctls)
        templates[key].update(OF_EACH_LINK)
        templates[key.nic].update(OF_EACH_LINK)
        groups[key].update(group for group, _ in request.device)
        if request.dns == "per-link":
            groups[key].update(through("resolved", SETTINGS))
    for key, original in record.originals.items():
        templates[key].update(original.sysctls)
        groups[key].update(map(group_of, original.device))
    for key, link in record.made.items():
        templates[key].update(link.sysctls)
        groups[key].update(map(group_of, link.device))
    return templates, groups


def _requests(document: Optional[Document]) -> tuple[LinkRequest, ...]:
    if document is None:
        return ()
    beside = document.platform.links if document.platform else ()
    return (*document.links, *beside)
