"""What a pass or a diagnosis costs grows with its links, addresses or phases, and no faster: calls are counted, no clock.

A call is one that code of ours makes, whatever it calls. What a pass costs without any link is left out, as two sizes are
subtracted.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import sys
from cProfile import Profile
from dataclasses import replace
from pathlib import Path
from pstats import Stats

import pytest
from kernel import refuse
from selftest_runs import PUBLISHED
from worlds import Agent, machine, nic, world

import neuca_tools
from neuca_tools.desired.first_nic import Belief, believed_nic
from neuca_tools.documents import parse
from neuca_tools.model.addresses import address_of
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.readers.documents import evidence_of
from neuca_tools.state.records import RECORD, load_record, save_record

OURS = str(Path(neuca_tools.__file__).parent)
EVEN = 0.1  # how much one link more may cost more, or less, among many links than among few


def calls(action, *arguments):
    """The number of calls that code of ours makes, and what the action returns."""
    count = 0

    def profile(frame, event, _):
        nonlocal count
        caller = {"call": frame.f_back, "c_call": frame}.get(event)
        if caller is not None and caller.f_code.co_filename.startswith(OURS):
            count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        found = action(*arguments)
    finally:
        sys.setprofile(before)
    return count, found


def mac(number):
    return f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"


def text(links, addresses=1):
    """A document for so many NICs with so many addresses each, in networks of their own."""
    lines = ["[interfaces]", *(f"{mac(number)} = up" for number in range(1, links + 1))]
    for number in range(1, links + 1):
        own = (f"10.{number >> 8}.{number & 255}.1/24", *_more(number, addresses - 1))
        lines += [f"[interface {mac(number)}]", f"addresses = {', '.join(own)}", "mtu = 9000"]
        lines += ["txqueuelen = 5000"]
    return "\n".join(lines)


def _more(number, count):
    return (f"fd00:{number:x}:0:{one:x}::1/64" for one in range(count))


class Host(Agent):
    """The model host, with its record in a file, as a pass keeps it."""

    def __init__(self, directory, links):
        named = ((number, mac(number)) for number in range(1, links + 2))
        devices = (nic(number, mac=own, permanent_mac=own) for number, own in named)
        super().__init__(machine(*devices, mgmt=links + 1))
        self.directory = directory

    def look_and_plan(self):
        decision = self.survey()
        return decision.plan(decision.changed())

    def save(self):
        save_record(self.directory, self.record)

    def load(self):
        self.record = load_record(self.directory)


def costs(directory, links, addresses):
    """The calls of each part of two passes: the second has nothing to do."""
    address_of.cache_clear()  # a pass is a process of its own
    (directory / RECORD).unlink(missing_ok=True)
    host, found = Host(directory, links), {}
    found["parse"], host.document = calls(parse, text(links, addresses))
    found["first pass"], (operations, result, _) = calls(host.run)
    assert len(operations) > (3 + addresses) * links
    assert not result.failures
    found["save"], _ = calls(host.save)
    found["load"], _ = calls(host.load)
    found["second pass"], (operations, _, _) = calls(host.run)
    found["poll"], changed = calls(host.look_and_plan)
    assert (operations, changed) == ((), ())
    return found


@pytest.fixture(autouse=True, scope="module")
def first_calls(tmp_path_factory):
    """What a process does once, such as to look at the types of records, is no cost of a link."""
    costs(tmp_path_factory.mktemp("first"), 1, 1)


def assert_even(sizes, found):
    """Each size has its costs, by part: one more costs the same late as early."""
    few, some, many = sizes
    uneven = {}
    for part in found[few]:
        early = (found[some][part] - found[few][part]) / (some - few)
        late = (found[many][part] - found[some][part]) / (many - some)
        if abs(late - early) > EVEN * early:
            uneven[part] = f"{early:.1f}, then {late:.1f} calls for one more"
    assert uneven == {}


# Calls for one more link: a tenth more than they are.
MAX_CALLS = {"parse": 380, "first pass": 1950, "second pass": 820, "poll": 755}
MAX_CALLS |= {"save": 18, "load": 73}


def test_a_link_costs_no_more_calls_than_before(tmp_path):
    costs(tmp_path, 3, 1)  # what a process does once
    few, many = (costs(tmp_path, links, 1) for links in (4, 12))
    assert {
        part: most for part, most in MAX_CALLS.items() if many[part] - few[part] > 8 * most
    } == {}


@pytest.mark.parametrize(
    "sizes", [(4, 12, 48), pytest.param((16, 64, 1024), marks=pytest.mark.long)], ids=str
)
def test_a_link_costs_the_same_among_many_as_among_few(tmp_path, sizes):
    assert_even(sizes, {links: costs(tmp_path, links, 1) for links in sizes})


def test_a_route_behind_a_direct_route_costs_the_same_among_many_as_among_few(tmp_path):
    sizes, found = (8, 32, 128), {}
    for size in sizes:
        routes = (
            f"10.200.{one}.0/24 = interface {mac(1)}\n10.201.{one}.0/24 = 10.200.{one}.9"
            for one in range(size)
        )
        host = Host(tmp_path, 1)
        host.ask("\n".join([text(1), "[routes]", *routes]))
        count, decision = calls(host.survey)
        assert len(decision.desired.hops) == 2 * size
        found[size] = {"decide": count}
    assert_even(sizes, found)


def test_the_first_nic_is_found_with_one_look_at_each_device():
    """Calls do not show it: a loop over all devices for each of them makes none."""
    lookups = {}
    for size in (500, 1000):
        nics = [
            nic(number, mac=mac(number), permanent_mac=mac(number)) for number in range(1, size + 1)
        ]
        host = replace(world(*nics), age=1000.0)
        counted = Counted(host.devices)
        belief = believed_nic(replace(host, devices=counted), set(map(mac, range(size + 1))))
        assert belief == Belief()
        lookups[size] = counted.iterations
    assert lookups[500] == lookups[1000]


class Counted(dict):
    """A mapping that counts how often all its values are walked through."""

    iterations = 0

    def values(self):
        self.iterations += 1
        return super().values()


def failing(directory, links, kernel_of):
    host = Host(directory, links)
    host.document = parse(text(links))
    kernel_of(host.kernel)
    cost, (_, result, _) = calls(host.run)
    assert len(result.failures) == links
    return {"pass": cost}


def refusing(kernel):
    """Each NIC is rolled back."""
    kernel.set_mtu = lambda *_: refuse(errno.EIO, "the driver says no")


def forgetful(kernel):
    """Verification finds it each time."""
    kernel.set_txqueuelen = lambda *_: None


@pytest.mark.parametrize("kernel_of", [refusing, forgetful])
def test_a_link_that_fails_costs_the_same_among_many_as_among_few(tmp_path, kernel_of):
    sizes = (4, 8, 24)
    assert_even(sizes, {links: failing(tmp_path, links, kernel_of) for links in sizes})


@pytest.mark.parametrize(
    "sizes", [(1, 8, 32), pytest.param((1, 32, 1024), marks=pytest.mark.long)], ids=str
)
def test_an_address_costs_the_same_among_many_as_among_few(tmp_path, sizes):
    assert_even(sizes, {addresses: costs(tmp_path, 2, addresses) for addresses in sizes})


@pytest.mark.parametrize("run", ["vm-tuned-tcp", "vm-untuned-udp-100M"])
def test_a_diagnosis_of_four_times_the_phases_costs_hardly_more_than_four_times_as_much(run):
    """Each phase is derived once; rules that compare phases ask each pair for a few numbers."""
    evidence = evidence_of(PUBLISHED[run], expect=1e12, rtt=0.02)
    few, many = (
        replace(evidence, phases=tuple(replace(evidence.phases[0]) for _ in range(count)))
        for count in (10, 40)
    )
    assert calls(diagnose, many)[0] < 7 * calls(diagnose, few)[0]


def test_a_diagnosis_costs_no_more_for_each_interval_of_a_longer_test():
    """Counted with the calls of the standard library, whose means take each rate."""
    row, totals = "[  5] {}.00-{}.00 sec  112 MBytes  {} Mbits/sec\n", []
    for count in (100, 400):
        rows = (row.format(at, at + 1, 941 - 400 * at // count) for at in range(count))
        evidence, profile = evidence_of("".join(rows).encode()), Profile()
        profile.runcall(diagnose, evidence)
        totals.append(Stats(profile).total_calls)
    assert totals[1] < 5 * totals[0]
