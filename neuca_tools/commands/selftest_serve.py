"""`neuca-selftest serve`: serve tests to peers that have the secret, for a limited time."""

# SPDX-License-Identifier: MIT

import argparse
import errno
from collections.abc import Sequence
from typing import Optional

from neuca_tools.commands import selftest_options as options
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.selftest_agent import outlook_of
from neuca_tools.commands.selftest_parsers import log
from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.model import Device
from neuca_tools.model import Host as Address
from neuca_tools.selftest.codes import ExitCode
from neuca_tools.selftest.measure.helper.serve import Server, serve_pipes
from neuca_tools.selftest.measure.host import kernel
from neuca_tools.selftest.measure.host.planned import AgentPlan, check_scope


def run(arguments: argparse.Namespace) -> int:
    """Serve tests until the time is over. Raises UsageError and SelftestError."""
    config = load_configuration(arguments)
    if arguments.peers:
        raise UsageError("serve: it takes no PEER; any host with the secret can connect")
    planned = outlook_of(arguments, config)
    addresses = _addresses_to_serve(arguments.address or [], arguments.interface, planned)
    port = options.port_in_effect(arguments, config)
    try:
        if arguments.stdio:
            serve_pipes(addresses[0], port, arguments.period, log)
            return ExitCode.PASS
        key = options.read_secret(arguments, config)
        if key is None:
            needed = "--secret-file, or secret-file in [selftest]"
            hint = options.MAKE_SECRET.format(name=options.SECRET_FILE)
            raise UsageError(f"serve: a secret is required: {needed}", hint)
        server = Server(addresses, port, key, log)
    except OSError as error:
        hint = ""
        if error.errno == errno.EADDRINUSE:
            command = f"ss -ltnp sport = :{port + 1}"
            hint = f"{command} shows the program; or use another --port, for serve and for run"
        raise SelftestError(f"serve tests on port {port + 1}: {error.strerror}", hint) from error
    where = f"at {', '.join(map(str, addresses))}, ports {port} to {port + 2}"
    log(f"serving tests for {arguments.period:g} s {where}")
    server.run(arguments.period)
    return ExitCode.PASS


def _addresses_to_serve(
    requested: Sequence[Address], interface: Optional[str], planned: AgentPlan
) -> list[Address]:
    """The addresses to listen on: those requested, else all of the dataplane or of `interface`."""
    device_by_address = kernel.devices_by_address()
    for address in requested:
        check_servable(address, device_by_address.get(address), interface, planned)
    served = list(dict.fromkeys(requested)) or [
        address
        for address, device in device_by_address.items()
        if _is_served_by_default(address, device, interface, planned)
    ]
    if not served:
        hint = "name one with --address ADDRESS or --interface NAME"
        raise UsageError("serve: no dataplane interface has an address", hint)
    return served


def _may_serve(device: Device, interface: Optional[str], planned: AgentPlan) -> bool:
    """Whether a device is the named interface or, if none is named, may be of the dataplane."""
    if interface is not None:
        return device.name == interface
    return device.name != "lo" and device.index not in planned.reserved


def _is_served_by_default(
    address: Address, device: Device, interface: Optional[str], planned: AgentPlan
) -> bool:
    """If the agent manages any interface here, only managed ones or the named one are served."""
    if address.is_link_local or not device.up or not _may_serve(device, interface, planned):
        return False
    managed = {name for name, _ in planned.networks}
    return bool(interface) or not managed or device.name in managed


def check_servable(
    address: Address, device: Optional[Device], interface: Optional[str], planned: AgentPlan
) -> None:
    """Raise UsageError unless a requested address may be served."""
    check_scope("serve on", address)
    if device is None:
        raise UsageError(f"serve on {address}: this host has no such address")
    if _may_serve(device, interface, planned):
        return
    default = "another interface" if interface else "which is not on the dataplane"
    role = planned.reserved.get(device.index, default)
    hint = f"to serve there, add --interface {device.name}"
    raise UsageError(f"serve on {address}: it is on {device.name}, {role}", hint)
