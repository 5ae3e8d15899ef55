"""The host of a transaction: look, decide, write, wait for changes, save the record."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Optional

from neuca_tools.apply.decide import Decision, Policies, decide_pass, what_to_read
from neuca_tools.apply.execute import GuardedWriter
from neuca_tools.apply.look import Managers, file_places, observe_host
from neuca_tools.apply.result import Result
from neuca_tools.backends import udev
from neuca_tools.backends.bus import Bus
from neuca_tools.backends.dhcpclients import PLACE, Clients, Units, runs_units
from neuca_tools.backends.linkwatch import Watch
from neuca_tools.backends.netlink import Netlink
from neuca_tools.config import Config
from neuca_tools.desired.outlets import is_overruled
from neuca_tools.desired.policy import Policy
from neuca_tools.desired.resolve import Settings
from neuca_tools.errors import RecordError
from neuca_tools.model import NetworkState, Record, messages
from neuca_tools.plan.link_operations import CreateLink
from neuca_tools.plan.operation import Operation, of_kind
from neuca_tools.plan.operations import Rename
from neuca_tools.sources import metadata_hosts
from neuca_tools.state import records, store
from neuca_tools.state.active_document import Intake
from neuca_tools.tuning.choice import Choice

log = logging.getLogger("neuca")

RENAME_SECONDS = 10.0  # for udev to process a rename
CREATION_SECONDS = 2.0  # for udev to process a new link, or the daemon makes another pass
# Seconds that the kernel gets to check an address for duplicates; it takes up to 2 (addrconf.c).
DUPLICATE_DETECTION_SECONDS = 3.0


class Host:
    """The kernel and the network managers of this host, for one document and one configuration.

    `choice` are the tuning profiles; None stands for those in force.
    """

    def __init__(
        self,
        config: Config,
        intake: Intake,
        netlink: Netlink,
        bus: Bus,
        choice: Optional[Choice] = None,
    ) -> None:
        self.config, self.intake, self._netlink, self._bus = config, intake, netlink, bus
        self.dad_seconds = DUPLICATE_DETECTION_SECONDS
        self._saved: Optional[Record] = None  # the record in its file, if that is known
        self.choice = choice or records.load_choice(config.run_directory) or config.choice

    def for_document(self, config: Config, intake: Intake) -> Host:
        """This host for another document and configuration."""
        return Host(config, intake, self._netlink, self._bus)

    def survey(self) -> Decision:
        """Look and decide, with the record as it was saved. Raises ObserveError, RecordError."""
        self._saved = records.load_record(self.config.state)
        return self.decide(self._saved)

    def save_record(self, record: Record) -> None:
        """Save the record, unless the file has it. Raises ApplyError."""
        if record != self._saved:
            records.save_record(self.config.state, record)
            self._saved = record

    def decide(self, record: Record) -> Decision:
        """Look at everything of interest and decide; change nothing. Raises ObserveError."""
        config, document = self.config, self.intake.document
        if document is not None:
            # What a faulty link section of the configuration requests is not known in full either.
            document = document._replace(faults=(*document.faults, *config.link_faults))
        addresses = metadata_hosts(config.sources, config.surroundings)
        hosts = tuple(host for host in addresses if not host.is_loopback)
        wanted = what_to_read(document, config.links, record, hosts, self.choice)
        seen = observe_host(wanted, self._netlink, self._managers(), config)
        settings = Settings(
            Policy(config.ignored_macs, config.management_macs, self._origin()),
            config.links,
            hosts,
            config.allow_default_route,
            router=config.guest_router,
            allow_sysctls=config.allow_sysctls,
            policy_routing=config.policy_routing,
        )
        policies = Policies(settings, file_places(config), self.choice)
        return decide_pass(seen, document, policies, record)

    def load_journal(self, boot_id: str) -> Optional[NetworkState]:
        """The links before a transaction that was interrupted; None if the last one completed."""
        return records.load_journal(self.config.state, boot_id)

    def save_journal(self, before: NetworkState, boot_id: str) -> None:
        """Raises ApplyError."""
        records.save_journal(self.config.state, before, boot_id)

    def remove_journal(self) -> None:
        """Raises ApplyError."""
        records.remove_journal(self.config.state)

    def unsaved_reason(self) -> str:
        """Why something could not be saved; empty if everything is."""
        return store.unsaved_reason(self.config.state)

    def _origin(self) -> str:
        """The NIC through which a metadata service answered for this instance; empty for none.

        That of the present answer is recorded by a pass only.
        """
        config = self.config
        try:
            origin = self.intake.origin or records.load_machine(config.state).origin
        except RecordError:
            return ""
        policy = Policy(config.ignored_macs, config.management_macs)
        configured = {request.key.mac for request in config.links}
        if origin is None or is_overruled(origin, policy, configured):
            return ""
        return origin.mac

    def writer(self, decision: Decision) -> GuardedWriter:
        """A writer for the unprotected links of this decision, and for no others."""
        links, roles = decision.observed.links, decision.resolution.roles
        allowed = {link.index for link in links.values()} - roles.guard.devices
        lowers = links.keys() & {key.nic for key in links if key.mac in roles.guard.vlans}
        carriers = {links[key].index for key in lowers}
        return GuardedWriter(self._netlink, self._managers(), allowed, carriers, self.dad_seconds)

    def watch(self) -> AbstractContextManager[Watch]:
        """A watch for changes of links and addresses."""
        return Watch()

    def wait_for_udev(self, done: Sequence[Operation]) -> None:
        """Let udev process the links that were renamed or created, whose settings it may change."""
        seconds = RENAME_SECONDS if of_kind(done, Rename) else CREATION_SECONDS
        if of_kind(done, Rename, CreateLink) and self._is_ours:
            udev.await_empty_queue(seconds)

    def processed_links(self, indexes: Iterable[int]) -> list[int]:
        """Those of the links that udev has processed; none if udev does not serve this host."""
        return [*filter(udev.is_initialised, indexes)] if self._is_ours else []

    @cached_property
    def _is_ours(self) -> bool:
        """`udev_is_ours`, called once because it takes time with many interfaces."""
        return udev_is_ours(self.config)

    def _managers(self) -> Managers:
        """Both managers; they are not contacted unless they belong to this network namespace."""
        config, is_ours = self.config, self._is_ours
        units = Units(self._bus) if is_ours and runs_units(config.run_directory) else None
        clients = Clients(config.run_directory / PLACE, config.dhcp_helper, units)
        return Managers(self._bus, is_ours, config.networkmanager_profiles, clients)


@contextmanager
def open_host(config: Config, intake: Intake, choice: Optional[Choice] = None) -> Iterator[Host]:
    """The host, with netlink and bus connections open for the duration of the context."""
    with Netlink() as netlink, Bus() as bus:
        yield Host(config, intake, netlink, bus, choice)


def survey_host(config: Config, intake: Intake, choice: Optional[Choice] = None) -> Decision:
    """Look at the host once and decide. Raises ObserveError, RecordError."""
    with open_host(config, intake, choice) as host:
        return host.survey()


def udev_is_ours(config: Config) -> bool:
    """Whether udev and the managers of this host are those of this network namespace."""
    return config.managers == "auto" and udev.serves_this_namespace()


def log_result(result: Result) -> None:
    """One line for each operation: the text that `neuca plan` prints, or why it failed."""
    is_plain = log.handlers and all(type(each) is logging.StreamHandler for each in log.handlers)
    if result.done and is_plain:  # the fields of messages are lost but in the journal
        log.info("%s", "\n".join([operation.text for operation in result.done]))  # in one write
    else:
        for operation in result.done:
            log.info("%s", operation.text, extra=journal_fields(messages.DONE, operation))
    for failure in result.reported_failures:
        fields = journal_fields(messages.FAILED, failure.operation, reason=failure.reason)
        log.error("%s", failure.text, extra=fields)


def journal_fields(message_id: str, operation: Operation, **more: object) -> dict[str, str]:
    """The fields of a journal message about one operation."""
    fields = {"operation": operation.kind, "interface": operation.target, **more}
    return messages.message_fields(message_id, **fields)
