"""Parse the lines of `[interfaces]`: `MAC = state[:family[:cidr[:order]]]`."""

# SPDX-License-Identifier: MIT

from neuca_tools.documents.neuca import links, values
from neuca_tools.documents.neuca.ini import Line
from neuca_tools.documents.neuca.links import Draft
from neuca_tools.documents.neuca.values import UnusableError
from neuca_tools.model import Fault, LinkKey

_FAMILIES = {"ipv4": 4, "ipv6": 6}
# Those of ip(8). Version 1.7 took every word.
_SYNONYMS = {"inet": "ipv4", "inet6": "ipv6"}
_HIGHEST_ORDER = 99999


def key(line: Line) -> LinkKey:
    """The NIC of a line; raises UnusableError."""
    return LinkKey(values.nic(line.key))


def read(line: Line) -> tuple[Draft, list[Fault]]:
    """Parse a line; only its state if a later part is unusable. A bad key raises UnusableError."""
    draft = Draft(key(line))
    word, _, rest = line.value.partition(":")
    draft.unusable.add("state")  # until it is set
    try:
        draft.set_field(line, "state", links.link_state(word))
        return draft, _read_network(draft, line, rest)
    except UnusableError as reason:
        return draft, [line.fault(str(reason), unknown=reason.unknown)]


def _read_network(draft: Draft, line: Line, text: str) -> list[Fault]:
    word, _, rest = text.partition(":")
    family = ""
    if not values.is_absent(word):
        family = values.word(_SYNONYMS.get(word.strip().lower(), word), _FAMILIES)
    cidr, order = _split_order(rest, family)
    faults: list[Fault] = []
    number = address = None
    if not values.is_absent(cidr):
        address, faults = links.read_address(line, cidr)
        if family and address.version != _FAMILIES[family]:
            raise UnusableError(f'"{address}" is not an address of the family {family}')
    if not values.is_absent(order):
        number = values.integer(order, 0, _HIGHEST_ORDER, "the order")
    if address is not None:
        draft.set_field(line, "addresses", (address,))
    if number is not None:
        draft.set_field(line, "name", f"eth{number}")
    return faults


def _split_order(text: str, family: str) -> tuple[str, str]:
    """The CIDR and the order. As IPv6 addresses contain `:`, the order follows the prefix length.

    >>> _split_order("fd00:16::1/64:3", "ipv6")
    ('fd00:16::1/64', '3')
    >>> _split_order(":3", "ipv6")
    ('', '3')
    """
    text = text.strip()
    if text.startswith(":") and not text.startswith("::"):
        return "", text[1:]
    if "/" in text:
        ip, _, rest = text.partition("/")
        length, _, order = rest.partition(":")
        return f"{ip}/{length}", order
    if family == "ipv6" or text.count(":") > 1:
        return text, ""
    cidr, _, order = text.partition(":")
    return cidr, order
