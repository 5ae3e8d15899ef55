"""The purpose of a pass, as a transaction requests it: what to do, and what to remember."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Optional

from neuca_tools.apply.decide import Decision
from neuca_tools.apply.result import Result
from neuca_tools.apply.transaction import Purpose
from neuca_tools.model import Record
from neuca_tools.plan.operation import Operation
from neuca_tools.plan.operations import Tell
from neuca_tools.state import leftovers, updates


@dataclass(frozen=True)
class Pass(Purpose):
    """The purpose of a pass: set up the NICs in `scope` as the document asks; None: all NICs."""

    scope: Optional[Collection[str]] = None

    def operations(self, decision: Decision) -> tuple[Operation, ...]:
        """The plan."""
        return decision.plan(self.scope)

    def remember(self, decision: Decision, result: Result, held: Sequence[Operation]) -> Record:
        """What is ours, which request is active for each NIC, and what managers left behind."""
        resolution, have, world = decision.resolution, decision.have, decision.world
        record = updates.forget_restored(decision.record, resolution, have, world)
        record = updates.remember_nics(record, resolution)
        heard = {done.manager for done in result.done if isinstance(done, Tell)}
        record = leftovers.settled(record, have, world, decision.silent_managers, heard)
        record = leftovers.unserved(record, self._unanswered(decision))
        if any(isinstance(failure.operation, Tell) for failure in result.failures):
            record = leftovers.untold(record)
        undone = result.lost_nics.union(*(operation.domains for operation in held))
        undone |= result.early_nics | {key.mac for key in result.missing}
        return updates.record_applied(
            record, resolution, world, scope=self.scope, failed=undone, retry=result.to_retry
        )

    def _unanswered(self, decision: Decision) -> set[str]:
        """The NICs of this pass on which NetworkManager is to do DHCP, if it gave no answer."""
        if "networkmanager" not in decision.silent_managers:
            return set()
        found = {key.mac for key, link in decision.want.links.items() if link.profile}
        return found if self.scope is None else found & {*self.scope}
