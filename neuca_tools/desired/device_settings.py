"""Settings of the device behind a link: which of them the device supports, and what has to be set.

A document requests groups (`rings = rx 256 tx 512`). Here every value is separate (`rings.rx`), as
a driver may support one and not the other. A qdisc that is the kernel's default is written "default
KIND".
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional

from neuca_tools.documents.neuca import link_settings
from neuca_tools.model import LinkKey
from neuca_tools.model.device_settings import (
    USUAL_TXQUEUELEN,
    Declined,
    DeviceSettings,
    Effect,
    Note,
)

# They have limits of their own (net/sched: only the fifo kinds and htb read tx_queue_len).
WITHOUT_TXQUEUELEN = ("fq", "fq_codel", "cake", "codel", "fq_pie", "sfq")


def flat_settings(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The groups of a document as separate values.

    >>> flat_settings([("rings", "rx 256 tx 512"), ("qdisc", "fq maxrate 2gbit")])
    {'rings.rx': '256', 'rings.tx': '512', 'qdisc': 'fq maxrate 2gbit'}
    """
    values: dict[str, str] = {}
    for group, value in settings:
        words = value.split()
        if link_settings.SETTINGS[group].named:
            values.update((f"{group}.{name}", word) for name, word in zip(words[::2], words[1::2]))
        else:
            values[group] = value
    return values


def group_text(values: Mapping[str, Optional[str]]) -> str:
    """Values of one group for people: `rx 256 tx 512`."""
    known = sorted(name for name in values if values[name] is not None)
    words = (f"{name.partition('.')[2]} {values[name]}".strip() for name in known)
    return " ".join(filter(None, words))


def is_same(setting: str, present: Optional[str], wanted: str) -> bool:
    """Whether the device has the value already."""
    row = link_settings.row_of(setting)
    if row is None or present is None:
        return present == wanted
    return row.same(present, wanted)


def to_do(
    present: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Each group with something to set: its name, the known present values, and the new ones."""
    differing = sorted(
        name for name, value in wanted.items() if not is_same(name, present.get(name), value)
    )
    groups = {*map(link_settings.group_of, differing)}
    for group in filter(groups.__contains__, link_settings.SETTINGS):
        names = [name for name in differing if link_settings.group_of(name) == group]
        before = {name: present[name] for name in names if name in present}
        yield group, before, {name: wanted[name] for name in names}


def restorable_values(observed: Mapping[str, str]) -> dict[str, str]:
    """The values to set so that the device has the observed ones again."""
    rows = {name: link_settings.row_of(name) for name in observed}
    restored = {name: row.restored(observed[name]) for name, row in rows.items() if row}
    return {**observed, **restored}


@dataclass
class DeviceResolver:
    """Device settings requested for a link: `wanted` has those to set, `notes` why others are not.

    `observed` is None if the link does not exist yet. Only its qdisc and its place are known then;
    the other settings follow once it exists. `master` is the kind of its requested bond or bridge,
    empty for none; `is_in_master`: it is there already, so that what was declined counts.
    """

    key: LinkKey
    asked: Mapping[str, str]
    observed: Optional[DeviceSettings]
    declined: Mapping[str, Declined]
    master: str = ""
    is_in_master: bool = False
    wanted: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)

    def note(self, setting: str, reason: str, effect: Effect = "not applicable") -> None:
        self.notes.append(Note(setting, effect, reason, self.key))

    def resolve(self) -> None:
        for setting, value in self.asked.items():
            possible = self._possible(setting, value)
            before = self.declined.get(setting)
            if possible is None:
                continue
            # A setting of the place in a bond or bridge cannot have been tried outside of it.
            is_tried = self.is_in_master or not link_settings.is_of_place(setting)
            if before is not None and before.value == possible and is_tried:
                self.note(setting, f'"{possible}" was tried: {before.reason}', before.effect)
            else:
                self.wanted[setting] = possible

    def _possible(self, setting: str, value: str) -> Optional[str]:
        """The value to set for the requested one; None if the device cannot have the setting."""
        place = link_settings.SETTINGS[link_settings.group_of(setting)].master
        if place != self.master and place:
            self.note(setting, f"it is in no {place} that neucad created")
            return None
        if place and not self.is_in_master:
            return value
        if self.observed is None:
            return value if setting == "qdisc" else None
        return self._supported(setting, value, self.observed)

    def _supported(self, setting: str, value: str, observed: DeviceSettings) -> Optional[str]:
        group = link_settings.group_of(setting)
        reason = observed.missing.get(setting) or observed.missing.get(group)
        if reason is not None and observed.values.get(setting) != value:
            is_unsupported = group in observed.unsupported
            self.note(setting, reason, "unsupported" if is_unsupported else "not applicable")
        elif not link_settings.SETTINGS[group].named:
            return self._cpus(setting, value, observed)
        elif setting not in observed.values:
            self.note(setting, "the driver has no such setting")
        elif setting in observed.maximums:
            return self._at_most(setting, value, int(observed.maximums[setting]))
        else:
            return value
        return None

    def _cpus(self, setting: str, value: str, observed: DeviceSettings) -> Optional[str]:
        """The value; of CPUs, one list where all queues have the same."""
        every = observed.maximums.get(setting)
        if setting not in ("rps", "xps") or every is None:
            return value
        lists = [every if part == "all" else part for part in value.split(" / ")]
        queues = int(observed.maximums[f"{setting}.queues"])
        absent = sorted(
            set().union(*map(link_settings.cpu_numbers, lists)) - link_settings.cpu_numbers(every)
        )
        if absent:
            self.note(setting, f"there is no CPU {absent[0]}: the CPUs are {every}")
        elif len(lists) not in (1, queues):
            self.note(setting, f"{len(lists)} lists of CPUs, but {queues} queues")
        else:
            return lists[0] if len(set(lists)) == 1 else " / ".join(lists)
        return None

    def _at_most(self, setting: str, value: str, most: int) -> str:
        if value != "max" and int(value) <= most:
            return value
        if value != "max":
            text = f"{value} requested, but the device supports at most {most}, which is set"
            self.note(setting, text)
        return str(most)

    def queue(self, txqueuelen: Optional[int], asks: bool, kind: str, packets: int) -> None:
        """Apply the length of the transmit queue to the qdisc.

        It is the limit of a `pfifo`; most other qdiscs do not use it. `txqueuelen` is the length to
        set, in packets. `asks`: the document requests it. `kind` is the present root qdisc,
        `packets` the present length, 0 if there is none.
        """
        observed = self.observed.values.get("qdisc", "") if self.observed else ""
        present = _without_default(observed)
        if self.wanted.get("qdisc") == "pfifo":
            self.wanted["qdisc"] = f"pfifo limit {txqueuelen or packets or USUAL_TXQUEUELEN}"
        elif asks and "qdisc" not in self.asked and present.startswith("pfifo limit"):
            self.wanted["qdisc"] = f"pfifo limit {txqueuelen}"
        if asks:
            wanted = _without_default(self.wanted.get("qdisc", ""))
            self._note_unused(next(filter(None, (wanted, present)), kind))

    def _note_unused(self, qdisc: str) -> None:
        """Note that this qdisc makes no use of a txqueuelen, if so."""
        name = qdisc.partition(" ")[0]
        if name == "noqueue":
            self.note("txqueuelen", 'the qdisc is "noqueue", which has no queue')
        elif name in WITHOUT_TXQUEUELEN:
            self.note("txqueuelen", f'the qdisc is "{name}", which has a limit of its own')


def _without_default(qdisc: str) -> str:
    return qdisc.removeprefix(link_settings.DEFAULT_QDISC).strip()
