"""The DHCP clients that the agent starts on links that no network manager serves."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class OwnClients(NamedTuple):
    """The DHCP clients that the agent starts, one process for each link and protocol.

    `program` is the path of dhcpcd, empty if it may not be used or is not installed;
    `forced`: the configuration names it, and no network manager is to do it. `expected`: a network
    manager is enabled that may still start. `requests` has what each client was started with, by
    its label (`dhcp_files.client_labels`); those that are `alive` run. `helper` is the program
    that they tell of leases. `refused`: interface indices, with why something leased is not used.
    """

    program: str = ""
    helper: str = ""
    forced: bool = False
    expected: bool = False
    requests: Mapping[str, str] = {}
    alive: frozenset[str] = frozenset()
    refused: tuple[tuple[int, str], ...] = ()
