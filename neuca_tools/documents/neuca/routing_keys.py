"""Parse the keys of a link section for policy routing, DHCP and router advertisements."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Automatic
from neuca_tools.model.links import LinkKey
from neuca_tools.model.routing import CHOICES, MAIN_TABLE, Choice, NicRouting


def _read_gateways(text: str) -> NicRouting:
    """One address, or one of each family. The key has no other use, so `auto` stands for `yes`."""
    gateways = tuple(values.next_hop(part) for part in text.split(",") if part.strip())
    if len({gateway.version for gateway in gateways}) < len(gateways):
        raise UnusableError("two gateways of the same family")
    return NicRouting(gateways=gateways, implied=True)


def _read_table(text: str) -> NicRouting:
    number = values.table(text)
    if number == MAIN_TABLE:
        raise UnusableError("the main table cannot be that of one link")
    return NicRouting(table=number)


READERS: Mapping[str, Callable[[str], NicRouting]] = {
    "gateway": _read_gateways,
    "policy-routing": lambda text: NicRouting(choice=cast(Choice, values.word(text, CHOICES))),
    "table": _read_table,
}


def shown_values(routing: NicRouting) -> dict[str, str]:
    """The values that are set, by key, for display."""
    values_of = {
        "gateway": ", ".join(map(str, routing.gateways)),
        "policy-routing": routing.choice or "",
        "table": str(routing.table or ""),
    }
    return {key: value for key, value in values_of.items() if value}


# The keys that set the fields of `Automatic` with these names.
AUTOMATIC = ("dhcp4", "dhcp6", "accept-ra")
_WORDS = {"yes": True, "no": False}


def read_automatic(link: LinkKey, key: str, text: str) -> tuple[Automatic, str]:
    """The request of one line, and its value for display. Raises UnusableError."""
    if link.kind == "vrf":
        raise UnusableError("a VRF can have neither DHCP nor router advertisements")
    word = values.word(text, _WORDS)
    changes: dict[str, Any] = {key.replace("-", "_"): _WORDS[word]}
    return Automatic(**changes), word
