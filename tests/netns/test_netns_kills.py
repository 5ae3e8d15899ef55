"""Passes killed at random moments, and starts over damaged state files, against the real kernel.

`NEUCA_KILLS=1000` and `NEUCA_STARTS=1000` make so many of them; `NEUCA_SEED` says which.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from random import Random

import pytest
from damage import damaged
from lab import MANAGEMENT_MAC, mac

KILLS = int(os.environ.get("NEUCA_KILLS", "12"))
STARTS = int(os.environ.get("NEUCA_STARTS", "12"))
SEED = int(os.environ.get("NEUCA_SEED", "1"))
EVERY = 50  # rounds from one look at everything foreign to the next
NICS, MADE = (1, 2, 3), (7, 8, 9)
FOLDERS = ("state", "run")
LOOKS = ("address", "-4 route", "-6 route")


def document(last, mtu, macvlans):
    """Every NIC with its name, addresses, MTU and a sysctl, a route, and macvlans on the first."""
    text = "".join(
        f"[interface {mac(number)}]\nname = data{number}\nmtu = {mtu}\ntxqueuelen = {mtu}\n"
        f"addresses = 172.16.{number}.{last}/24, fd00:{number}::{last}/64\n"
        f"sysctl.net.ipv4.conf.{{interface}}.rp_filter = {last}\n"
        for number in NICS
    )
    text += "".join(
        f"[macvlan tag{made}]\nparent = {mac(1)}\naddresses = 172.17.{made}.{last}/24\n"
        for made in macvlans
    )
    return f"{text}[routes]\n10.1.0.0/16 = 172.16.1.25{last}\n"


DOCUMENTS = [
    (last, mtu, macvlans)
    for last, mtu, macvlans in (
        (1, 1400, ()),
        (2, 1500, (7,)),
        (1, 1450, (8, 9)),
        (2, 1400, (7, 9)),
    )
]


class Guest:
    """A guest with a management NIC and three of the dataplane."""

    def __init__(self, lab):
        self.lab = lab
        lab.management()
        for number in NICS:
            lab.veth(f"dp{number}", number)
        lab.foreign.may_make(*(f"tag{made}" for made in MADE))
        lab.foreign.remember()
        self.before, *_ = self.look()

    def look(self):
        """The management NIC, the other links, and the routes of the dataplane: one command for all of it."""
        done = self.lab.run("sh", "-c", "; echo ,; ".join(f"ip -j {words}" for words in LOOKS))
        links, *routes = json.loads(f"[{done.out}]")
        found = {
            one["ifname"]: (one["mtu"], one["txqlen"], "UP" in one["flags"], sorted(
                f"{each['local']}/{each['prefixlen']}" for each in one["addr_info"]
                if not each["local"].startswith("fe80:")
            ))
            for one in links
        }  # fmt: skip
        found.pop("lo")
        hops = sorted(
            (one["dev"], one["dst"], one.get("gateway"), one.get("metric"), one.get("protocol"))
            for family in routes
            for one in family
            if not one["dst"].startswith("fe80:")
        )
        name = next(one["ifname"] for one in links if one["address"] == MANAGEMENT_MAC)
        own = [hop for hop in hops if hop[0] == name]
        return (name, found.pop(name), own), found, [hop for hop in hops if hop[0] != name]

    def check(self, last, mtu, macvlans):
        """Everything of this document is in force, and nothing of another; the management NIC is as it was.

        A second pass writes nothing.
        """
        wanted = {
            f"data{number}": (
                mtu,
                mtu,
                True,
                [f"172.16.{number}.{last}/24", f"fd00:{number}::{last}/64"],
            )
            for number in NICS
        }
        management, found, hops = seen = self.look()
        tags = {name: found[name][3] for name in found if name.startswith("tag")}
        assert {name: one for name, one in found.items() if name not in tags} == wanted
        assert tags == {f"tag{made}": [f"172.17.{made}.{last}/24"] for made in macvlans}
        ours = [hop for hop in hops if hop[4] == "110"]
        assert ours == [("data1", "10.1.0.0/16", f"172.16.1.25{last}", 20, "110")]
        assert management == self.before
        files = self.lab.files()
        assert self.lab.once().code == 0
        assert (self.lab.files(), self.look()) == (files, seen)


@pytest.fixture
def guest(lab):
    return Guest(lab)


def killed(lab, seconds):
    """`neucad --once` in a process that is killed after so long. Whether it was."""
    words = ["--once", "--config", str(lab.config_file)]
    lab.applied = True
    code, _, err = lab.warm.run(lab.guest.pid, "neucad", words, seconds)
    assert "Traceback" not in err
    return code == -9


def test_a_pass_killed_at_a_random_moment_leaves_nothing_half_applied_after_the_next(lab, guest):
    chance, seen = Random(SEED), Counter()
    took = 0.2  # seconds that a pass lately took
    for number in range(KILLS):
        asked = chance.choice(DOCUMENTS)
        lab.document(document(*asked))
        seen["killed"] += killed(lab, chance.uniform(0, 1.2 * took))
        seen["with a journal"] += (lab.folder / "state" / "journal.json").exists()
        if chance.random() < 0.5:  # what the next start finds may be another document
            asked = chance.choice(DOCUMENTS)
            lab.document(document(*asked))
        began = time.monotonic()
        done = lab.once()
        took = 0.8 * took + 0.2 * (time.monotonic() - began)
        assert (done.code, "Traceback" in done.err) == (0, False), (number, done)
        guest.check(*asked)
        if number % EVERY == 0:
            lab.foreign.check()
            print(f"seed {SEED}: {number + 1} passes: {dict(seen)}", flush=True)
    print(f"seed {SEED}: {KILLS} passes: {dict(seen)}")
    assert not (lab.folder / "state" / "journal.json").exists()
    assert not list(lab.folder.rglob("*.neuca-new"))


def start_over_damage(lab, guest, chance):
    """One start over damaged files; the kinds of damage, and how the start ended."""
    files = [path for name in FOLDERS for path in sorted((lab.folder / name).rglob("*.json"))]
    others = [path.read_bytes() for path in files]
    kinds = []
    for path in chance.sample(files, min(len(files), chance.randint(1, 3))):
        content, kind = damaged(path.read_bytes(), chance, others)
        path.write_bytes(content)
        kinds.append(f"{kind} {path.relative_to(lab.folder)}")
    done = lab.once()
    assert "Traceback" not in done.err, (kinds, done)
    assert guest.look()[0] == guest.before, (kinds, done)
    for words in (("status",), ("status", "--json"), ("plan",)):
        said = lab.neuca(*words)
        assert "Traceback" not in said.err + said.out, (kinds, said)
    names = lab.command("neucad", "--names", "--config", lab.config_file)
    assert "Traceback" not in names.err, (kinds, names)
    assert guest.look()[0] == guest.before, (kinds, names)
    return kinds, done


@pytest.mark.long
def test_a_start_with_damaged_state_logs_no_traceback_and_keeps_foreign_settings(lab, guest):
    chance, seen = Random(SEED), Counter()
    for number in range(STARTS):
        asked = chance.choice(DOCUMENTS)
        lab.document(document(*asked))
        seen["killed before"] += killed(lab, chance.uniform(0, 0.3))
        kinds, done = start_over_damage(lab, guest, chance)
        seen.update(kind.partition(" ")[0] for kind in kinds)
        named = "state/record.json" in done.err and done.code == 1
        seen["named" if named else "a pass"] += 1
        if named:  # as its hint says; what it no longer knows to be ours is taken away by hand
            (lab.folder / "state" / "record.json").unlink()
        for made in MADE:
            lab.run("ip", "link", "del", f"tag{made}", check=False)
        for dev in NICS:
            lab.run("ip", "address", "flush", "dev", f"data{dev}", check=False)
            lab.run("ip", "route", "flush", "proto", "110", check=False)
        for name in FOLDERS:
            shutil.rmtree(lab.folder / name, ignore_errors=True)
        done = lab.once()
        assert done.code == 0, (number, kinds, done)
        guest.check(*asked)
        if number % EVERY == 0:
            lab.foreign.check()
            print(f"seed {SEED}: {number + 1} starts: {dict(seen)}", flush=True)
    print(f"seed {SEED}: {STARTS} starts: {dict(seen)}")
