"""Find the link that a user means."""

# SPDX-License-Identifier: MIT

from collections.abc import Iterable
from typing import Optional

from neuca_tools.apply.decide import Decision
from neuca_tools.commands.common import LISTED
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.documents.neuca.values import nic as nic_of
from neuca_tools.errors import UsageError
from neuca_tools.model import LinkKey
from neuca_tools.model.ports import identity_forms


def find_link(text: str, survey: Decision, absent: Iterable[str] = ()) -> Optional[LinkKey]:
    """The link with this name, this MAC in any notation, or this `MAC.VLAN_ID`, if any.

    A current name takes precedence over a requested one, both over a MAC, and a MAC over the GUID
    that it may be the short form of. `absent`: MACs of NICs that may be neither here nor requested.
    """
    by_name = _key_by_name(survey)
    resolution = survey.resolution
    macs = {*resolution.roles.by_mac, *absent}
    known = {*by_name.values(), *resolution.requests, *map(LinkKey, macs)}
    by_text = {str(key): key for key in known}
    mac, _, vlan = text.rpartition(".")
    candidates = [by_name.get(text), by_text.get(text), _key_of_mac(text, None)]
    if vlan.isdecimal() and len(vlan) <= 4:
        candidates.append(_key_of_mac(mac, int(vlan)))
    ports = _ports_of(candidates, known)
    return next((key for key in (*candidates, *ports) if key in known), None)


def _ports_of(candidates: Iterable[Optional[LinkKey]], known: Iterable[LinkKey]) -> list[LinkKey]:
    """The InfiniBand ports among the known links of which a candidate has the short form."""
    meant = {key.mac for key in candidates if key is not None and not key.rank}
    return sorted(key for key in known if not key.rank and identity_forms([key.mac]) & meant)


def _key_by_name(survey: Decision) -> dict[str, LinkKey]:
    """The links by their requested and their current names, of which the latter take precedence."""
    resolution = survey.resolution
    by_name = {link.name: link.key for link in resolution.shown_links if link.name}
    by_name.update({name: key for key, name in resolution.names.items()})
    by_name.update({link.name: key for key, link in survey.observed.links.items() if link.name})
    return by_name


def _key_of_mac(mac: str, vlan_id: Optional[int]) -> Optional[LinkKey]:
    """None if the text is not a MAC."""
    try:
        return LinkKey(nic_of(mac), vlan_id)
    except UnusableError:
        return None


def find_nic(command: str, text: str, survey: Decision, absent: Iterable[str] = ()) -> str:
    """The MAC of the NIC with this name or MAC (`find_link`). Raises UsageError."""
    key = find_link(text, survey, absent)
    if key is None or key.rank:
        raise UsageError(f'{command} "{text}": no NIC has this name or MAC', LISTED)
    return key.mac
