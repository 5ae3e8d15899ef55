"""`neuca trust`: an administrator vouches for the NIC through which metadata is requested."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse

from neuca_tools.apply.host import host
from neuca_tools.commands.common import require_root
from neuca_tools.commands.context import configuration
from neuca_tools.commands.links import find_nic
from neuca_tools.config import Config
from neuca_tools.errors import EXIT_OK, NeucaError
from neuca_tools.files import locked
from neuca_tools.model import NicRecord
from neuca_tools.state import records
from neuca_tools.state.active_document import last_good
from neuca_tools.state.store import demand_room


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    require_root(arguments.command)
    mac = _nic(config, arguments.link)
    _record(config, mac)
    print(f"{arguments.link} ({mac}) is the management NIC: neucad requests metadata through it")
    return EXIT_OK


def _nic(config: Config, link: str) -> str:
    """The MAC of the NIC with this name or MAC. Raises UsageError."""
    with host(config, last_good(config.state)) as handles:
        survey = handles.survey()
    mac = find_nic("trust", link, survey)
    role = survey.resolution.roles.role(mac)
    if role in ("dataplane", "ignored"):
        raise NeucaError(f'trust "{link}": its role is {role}')
    return mac


def _record(config: Config, mac: str) -> None:
    """Record the NIC as a management NIC, without a doubt. Raises NeucaError."""
    with locked(config.run_directory / "lock", config.command_timeout):
        demand_room(config.state)
        record = records.load_record(config.state)
        nic = record.nics.get(mac, NicRecord())._replace(role="management", doubtful=())
        records.save_record(config.state, record._replace(nics={**record.nics, mac: nic}))
