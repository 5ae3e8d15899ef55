"""Parse the policy routing keys of a link section: `gateway`, `policy-routing` and `table`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model.routing import CHOICES, MAIN_TABLE, Choice, NicRouting


def _gateways(text: str) -> NicRouting:
    """One address, or one of each family. The key has no other use, so `auto` stands for `yes`."""
    found = tuple(values.next_hop(part) for part in text.split(",") if part.strip())
    if len({gateway.version for gateway in found}) < len(found):
        raise UnusableError("two gateways of the same family")
    return NicRouting(gateways=found, implied=True)


def _choice(text: str) -> NicRouting:
    return NicRouting(choice=cast(Choice, values.word(text, CHOICES)))


def _table(text: str) -> NicRouting:
    number = values.table(text)
    if number == MAIN_TABLE:
        raise UnusableError("the main table cannot be that of one link")
    return NicRouting(table=number)


READERS: Mapping[str, Callable[[str], NicRouting]] = {
    "gateway": _gateways,
    "policy-routing": _choice,
    "table": _table,
}


def shown(routing: NicRouting) -> dict[str, str]:
    """The values that are set, by key, for display."""
    values_of = {
        "gateway": ", ".join(map(str, routing.gateways)),
        "policy-routing": routing.choice or "",
        "table": str(routing.table or ""),
    }
    return {key: value for key, value in values_of.items() if value}
