"""Operations on routes and rules."""

# SPDX-License-Identifier: MIT

from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.desired.routes import ROUTE_METRIC
from neuca_tools.model import Hop, Route
from neuca_tools.model.routing import MAIN_TABLE, POLICY_ROUTING, ROUTE_PROTOCOL, ROUTES_OF, Rule
from neuca_tools.plan.operation import Operation, Phase, Target, Value, Writer

# Deletes the route whatever its rtm_protocol is.
ANY_PROTOCOL = 0


@dataclass(frozen=True)
class _RouteOperation(Operation):
    """An operation on one route. `on` are the links of its next hops; empty without a device."""

    on: tuple[Target, ...]
    hop: Hop

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.on

    @property
    def target(self) -> str:
        return self.on[0].name if self.on else str(self.hop.to)

    @property
    def value(self) -> Value:
        return _route_text(self.hop, self.on)

    @property
    def handles(self) -> frozenset[str]:
        if self.hop.traits.table == MAIN_TABLE and not self.hop.shadow:
            names = (*self.domains, self.hop.to)
            return super().handles | {f"{ROUTES_OF}{name}" for name in names}
        return super().handles | {POLICY_ROUTING}

    def route(self, writer: Writer) -> Route:
        """The route with the present indexes of its devices."""
        first, *others = [writer.index(target) for target in self.on] or [0]
        return Route(
            self.hop.to,
            first,
            self.hop.via,
            self.hop.metric,
            ROUTE_PROTOCOL if self.hop.ours else ANY_PROTOCOL,
            traits=self.hop.traits,
            others=tuple((index, via) for index, (_, via) in zip(others, self.hop.others)),
        )


@dataclass(frozen=True)
class ReplaceRoute(_RouteOperation):
    """Set a route in place of `before`, ours with the same identity, through `on_before`."""

    kind = "replace-route"
    on_before: tuple[Target, ...] = ()
    before: Optional[Hop] = None
    phase: Phase = Phase.ROUTE

    @property
    def domains(self) -> frozenset[str]:
        return super().domains | {target.key.mac for target in self.on_before}

    @property
    def change(self) -> tuple[Value, Value]:
        return _route_text(self.before, self.on_before) if self.before else None, self.value

    @property
    def text(self) -> str:
        old, new = self.change
        if old:
            return f"replace the route to {self.hop.to} {old} with {new}"
        return f"route {self.hop.to} {new}"

    def run(self, writer: Writer) -> None:
        writer.replace_route(self.route(writer))


@dataclass(frozen=True)
class RestoreRoute(_RouteOperation):
    """Set a route of another program again, as it was `seen` (CLOCK_MONOTONIC).

    `indexes` are those of its devices in the `message`.
    """

    kind = "restore-route"
    spares_others = True
    form = "restore the route to {0.hop.to} {0.value}"
    message: bytes = field(default=b"", repr=False)
    indexes: tuple[int, ...] = ()
    seen: float = 0.0
    phase: Phase = Phase.ROUTE

    @property
    def handles(self) -> frozenset[str]:
        return self.domains | {str(target.key) for target in self.on}

    def run(self, writer: Writer) -> None:
        present = map(writer.index, self.on)
        writer.restore_route(self.message, dict(zip(self.indexes, present)), self.seen)


@dataclass(frozen=True)
class DeleteRoute(_RouteOperation):
    kind = "delete-route"
    form = "delete the route to {0.hop.to} {0.value}"
    is_removal = True
    phase: Phase = Phase.SHRINK

    def run(self, writer: Writer) -> None:
        writer.links.delete_route(self.route(writer))


def _route_text(hop: Hop, on: tuple[Target, ...]) -> str:
    traits = hop.traits
    words: list[str] = [traits.kind] if traits.kind != "unicast" else []
    hops = zip(on, (hop.via, *(via for _, via in hop.others)))
    texts = [f"via {via} on {target.name}" if via else f"on {target.name}" for target, via in hops]
    words += [" and ".join(texts)] if on else []
    if traits.table != MAIN_TABLE:
        words.append(f"in table {traits.table}")
    if hop.ours and hop.metric != ROUTE_METRIC:
        words.append(f"with metric {hop.metric}")
    return " ".join(words)


@dataclass(frozen=True)
class _RuleOperation(Operation):
    """An operation on one rule; its failure does not affect the link that it is for (`on`)."""

    spares_others = True
    value_form = "{0.rule.text}"
    on: Optional[Target]
    rule: Rule

    @property
    def targets(self) -> tuple[Target, ...]:
        return (self.on,) if self.on else ()

    @property
    def handles(self) -> frozenset[str]:
        return super().handles | {POLICY_ROUTING}


class AddRule(_RuleOperation):
    kind = "add-rule"
    form = "add the rule {0.rule.text}"
    phase = Phase.RULE

    def run(self, writer: Writer) -> None:
        if self.on:
            writer.index(self.on)
        writer.links.add_rule(self.rule)


@dataclass(frozen=True)
class DeleteRule(_RuleOperation):
    kind = "delete-rule"
    form = "delete the rule {0.rule.text}"
    is_removal = True
    phase: Phase = Phase.SHRINK

    def run(self, writer: Writer) -> None:
        writer.links.delete_rule(self.rule)
