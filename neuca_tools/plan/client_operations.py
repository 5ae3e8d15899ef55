"""Starting and stopping the DHCP clients of links that no network manager serves."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass

from neuca_tools.desired.dhcp_files import BESIDE
from neuca_tools.model import LinkKey
from neuca_tools.plan.operation import Operation, Phase, Value, Writer

_TITLES = {"": "DHCP client", "dhcp6": "DHCPv6 client", "ra": "autoconfiguration"}


@dataclass(frozen=True)
class ClientOperation(Operation):
    """A change of one client of a link; `label` is one of `desired.dhcp_files.client_labels`.

    Its failure is none of the link, and a roll-back leaves clients alone.
    """

    key: LinkKey
    label: str

    @property
    def target(self) -> str:
        return str(self.key)

    @property
    def protocol(self) -> str:
        """Empty for DHCPv4."""
        return self.label.partition(BESIDE)[2]

    @property
    def handles(self) -> frozenset[str]:
        return frozenset({self.key.mac, str(self.key), self.label})


@dataclass(frozen=True)
class StartClient(ClientOperation):
    """Start the client, or start it again with another request."""

    kind = "start-dhcp"
    phase = Phase.CLIENT
    request: str
    name: str

    @property
    def target(self) -> str:
        return self.name

    @property
    def fate(self) -> frozenset[str]:
        return frozenset({self.key.mac})

    @property
    def change(self) -> tuple[Value, Value]:
        return None, self.request

    @property
    def text(self) -> str:
        return f"start the {_TITLES.get(self.protocol, '')} of {self.name}"

    def run(self, writer: Writer) -> None:
        writer.start_client(self.label, self.request)


@dataclass(frozen=True)
class StopClient(ClientOperation):
    """End the client, and remove what its lease has set."""

    kind = "stop-dhcp"
    phase = Phase.MARK
    request: str

    @property
    def change(self) -> tuple[Value, Value]:
        return self.request, None

    @property
    def text(self) -> str:
        given = "remove its addresses" if self.protocol == "ra" else "release its lease"
        return f"stop the {_TITLES.get(self.protocol, '')} of {self.key}, and {given}"

    def run(self, writer: Writer) -> None:
        writer.stop_client(self.label)
