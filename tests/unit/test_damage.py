"""Starts over damaged state files, on the model kernel: one clear line, or a pass that spares the management NIC.

`NEUCA_STARTS=10000` makes so many of them; `NEUCA_SEED` says which.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from damage import damaged
from worlds import Agent, key, mac, machine, nic

from neuca_tools.errors import NeucaError, RecordError
from neuca_tools.guest import outcome
from neuca_tools.guest.base import FEATURES, Finding
from neuca_tools.model import LinkKey, Problem
from neuca_tools.model.machine import Machine, renewed_reason, updated_machine
from neuca_tools.model.rows import StoredDocument
from neuca_tools.plan.plan import plan_operations
from neuca_tools.state import intentions, records, updates
from neuca_tools.state.active_document import Intake, keep_document, last_confirmed
from neuca_tools.state.store import StateDirectories, save_unsaved_files, unsaved_reason
from neuca_tools.status.report import read_report, report_now, write_report
from neuca_tools.tuning.choice import Choice

STARTS = int(os.environ.get("NEUCA_STARTS", "400"))
SEED = int(os.environ.get("NEUCA_SEED", "1"))
MANAGEMENT = 1
LONGEST_LINE = 500
TEXTS = (
    f"""[interface {mac(2)}]
name = data2
mtu = 4000
addresses = 10.0.2.1/24, fd00:2::1/64
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
sysctl.net.core.rmem_max = 7
""",
    f"""[interface {mac(2)}]
addresses = 10.0.2.2/24
[vlan {mac(3)}.7]
addresses = 10.0.7.1/24
[routes]
10.20.0.0/16 = 10.0.2.9
""",
    f"[interface {mac(3)}]\nname = data3\n[interface {mac(4)}]\naddresses = 10.0.4.1/24\n",
)


class Host:
    """A machine with its state files, as they are at some step of a pass."""

    def __init__(self, folder, chance):
        self.chance = chance
        self.state, self.run = folder / "state", folder / "run"
        self.place = StateDirectories(self.state, self.run)
        self.kernel = machine(*(nic(index, max_mtu=9216) for index in range(1, 5)), mgmt=MANAGEMENT)
        self.agent = Agent(self.kernel)
        for _ in range(chance.randint(0, 2)):
            self.ask(chance.choice(TEXTS))
            self.agent.run()
            self.save()
        self.ask(chance.choice(TEXTS))
        self.die()

    def ask(self, text):
        self.agent.ask(text)
        stored = StoredDocument("file:/x", "00", "2026-11-20T19:00:00Z", text)
        keep_document(Intake(self.agent.document, stored), self.place, self.run)
        before = records.load_machine(self.place)
        records.save_machine(self.place, updated_machine(before, Machine("m", "u"), "ec2:i-1"))

    def save(self):
        records.save_record(self.place, self.agent.record)
        problem = Problem("failed", "it failed", key(2, 7))
        write_report(self.place, report_now(0.1, ("add it",), (problem,), rolled_back=False))
        records.save_choice(self.run, Choice(("bdp",), 10**9, 0.01))
        outcome.save_outcome(
            self.run, outcome.Outcome("hostname", (Finding("ok", "it is so"),)).ended()
        )

    def die(self):
        """A pass that is killed after so many of its operations."""
        survey = self.agent.survey()
        survey = survey._replace(record=updates.remember_nics(survey.record, survey.resolution))
        operations = survey.plan()
        if self.chance.random() < 0.3:
            self.agent.run()
            self.save()
            return
        self.agent.record = intentions.record_intentions(survey.record, operations)
        self.save()
        before = survey.observed._replace(files={}, sysctls={})
        records.save_journal(self.place, before, survey.world.boot_id)
        self.agent.carry_out(survey, operations[: self.chance.randint(0, len(operations))])

    def damage(self):
        """One to three files; a third of them as copies of what could not be saved."""
        files = sorted(path for path in self.state.parent.rglob("*") if path.is_file())
        others = [path.read_bytes() for path in files]
        kinds = []
        for path in self.chance.sample(files, self.chance.randint(1, min(3, len(files)))):
            content, kind = damaged(path.read_bytes(), self.chance, others)
            if path.parent == self.state and self.chance.random() < 0.3:
                path = self.place.spare / path.name
                path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            kinds.append(kind)
        return kinds

    def start(self):
        """What a start reads, and its pass. Raises RecordError where nothing is done."""
        unsaved_reason(self.place)
        save_unsaved_files(self.place)
        renewed_reason(_machine(self.place), "ec2:i-1")
        read_report(self.run)
        records.load_choice(self.run)
        for name in FEATURES:
            outcome.load_outcome(self.run, name)
        intake = last_confirmed(self.place, self.run)
        self.agent.document = intake.document or self.agent.document
        self.agent.record = records.load_record(self.place)
        died = records.load_journal(self.place, self.kernel.boot_id)
        if died:  # what an undo would do
            survey = self.agent.survey()
            before = survey.observed._replace(
                links={**survey.observed.links, **died.links}, files={}
            )
            everything = self.agent.record.owned._replace(routes=True)
            for operation in plan_operations(
                survey.observed, before, everything, scope={mac(2), mac(3)}
            ):
                assert operation.text
        _, result, _ = self.agent.run()
        records.save_record(self.place, self.agent.record)
        records.remove_journal(self.place)
        return result

    def try_start(self):
        """Why nothing is done; empty after a pass."""
        try:
            self.start()
        except NeucaError as error:
            return error.text
        return ""

    def management(self):
        world = self.kernel.world()
        routes = [route for route in world.routes if route.index == MANAGEMENT]
        return world.devices[MANAGEMENT], world.addresses[MANAGEMENT], routes


def _machine(place):
    with suppress(RecordError):
        return records.load_machine(place)
    return Machine()


def start_over_damage(folder, seed):
    """The kinds of damage, and how the start ended."""
    host = Host(folder, Random(seed))
    kinds, before = host.damage(), host.management()
    refused = []
    while line := host.try_start():
        assert line.isprintable()
        assert len(line) < LONGEST_LINE
        path = Path(line.split('"')[1])
        assert path == host.state / "record.json" or path.parent == host.place.spare
        assert path not in refused
        refused.append(path)
        path.unlink()  # as its hint says
    assert host.management() == before
    assert [one.text for one in host.agent.plan()] == []
    saved = (host.state / "record.json").stat().st_ino
    assert host.start().done == ()
    assert (host.state / "record.json").stat().st_ino == saved
    assert LinkKey(mac(MANAGEMENT)) not in {link for link, _ in host.agent.record.owned.addresses}
    return [*kinds, "named" if refused else "a pass"]


PARTS, CHOSEN = 20, 5  # `make test` runs this many of them


@pytest.mark.parametrize(
    "part",
    [
        *range(CHOSEN),
        *(pytest.param(part, marks=pytest.mark.long) for part in range(CHOSEN, PARTS)),
    ],
)
def test_a_start_over_damaged_state_files_says_so_or_spares_the_management_nic(tmp_path, part):
    seen = Counter()
    for number in range(part, STARTS, PARTS):
        try:
            ended = start_over_damage(tmp_path / str(number), SEED * 1000000 + number)
        except Exception as error:
            raise AssertionError(f"seed {SEED * 1000000 + number}") from error
        seen.update(ended)
    print(dict(seen))
