"""Sequences of documents and events: how they are drawn, what each step does, and the promises that hold after it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

from seq_documents import NICS, Section, draw, mac, text_of
from seq_host import IGNORED, MANAGEMENT, Host, Reports, isolated, write
from seq_picture import difference, files, look, names_of, picture, places, protected

ACTIONS = (
    "apply", "apply", "once", "refuse", "refuse", "disable", "kill", "trial", "confirm", "daemon")  # fmt: skip
SECONDS = 60.0  # for the daemon to use a document, far more than it takes
QUIET = 0.6  # seconds without a pass: the daemon is done
MAX_PASSES = 6  # of the daemon for one new document, those of its events included


@dataclass
class Step:
    """Events by hand, then a document in one of several ways. `number` says which operation or moment."""

    action: str
    sections: list[Section]
    events: list[str] = field(default_factory=list)
    number: int = 0

    @classmethod
    def load(cls, data):
        sections = [Section(each["header"], each["lines"]) for each in data["sections"]]
        return cls(data["action"], sections, data["events"], data["number"])

    def dump(self):
        return asdict(self)


class Broken(Exception):
    """A promise that did not hold: its name, and what was seen."""

    def __init__(self, promise, *details):
        super().__init__(promise)
        self.promise, self.details = promise, [str(one) for one in details]


def draw_sequence(seed, kinds):
    """Five to seven steps."""
    chance = Random(f"sequence {seed}")
    with_events = chance.random() < 0.5
    steps = []
    for _ in range(chance.randint(5, 7)):
        events = draw_events(chance) if with_events else []
        step = Step(chance.choice(ACTIONS), draw(chance, kinds), events, chance.randint(1, 40))
        if steps and chance.random() < 0.25:  # a small change of the document before
            step.sections = _changed(chance, steps[-1].sections)
        steps.append(step)
    return steps


def _changed(chance, sections):
    """The same sections without one of those that nothing else can depend on, or with another order."""
    kept = [Section(one.header, list(one.lines)) for one in sections]
    loose = [one for one in kept if one.header.startswith(("[routes]", "[macvlan", "[vxlan"))]
    if loose and not any(
        "vxlan" in line or "macvlan" in line for one in kept for line in one.lines
    ):
        kept.remove(chance.choice(loose))
    else:
        chance.shuffle(kept)
    return kept


EVENTS = ("address", "route", "mtu", "down", "release", "delete address", "unplug", "plug")


def draw_events(chance):
    return [f"{chance.choice(EVENTS)} {chance.choice(NICS)}" for _ in range(chance.choice((0, 0, 1, 2)))]  # fmt: skip


class Play:
    """One sequence on one host. Raises Broken."""

    def __init__(self, by_hand=""):
        """`by_hand` is a command that is run after each pass, in place of a defect."""
        self.by_hand = by_hand.split()
        self.host = Host()
        self.reports = Reports()
        self.present = set(NICS)
        self.has_manual_mtu = False
        self._settle()
        self.reports.read()
        self.protected = protected(picture(self.host.nics))
        self.indexes = {self._index(name) for name in (MANAGEMENT, IGNORED)}

    def close(self):
        self.host.close()

    @staticmethod
    def _index(name):
        return socket.if_nametoindex(name)

    def _settle(self):
        return settled(self.host)

    # --- a step ---

    def play(self, steps):
        for place, step in enumerate(steps):
            try:
                self.step(step)
            except Broken as broken:
                broken.details.insert(0, f"in step {place + 1} ({step.action} {step.number})")
                raise

    def step(self, step):
        for event in step.events:
            self.event(*event.rsplit(" ", 1))
        self.reports.read()
        text = text_of(step.sections)
        getattr(self, f"do_{step.action}")(text, step.number)
        final = self.check_pass()
        if self.by_hand:
            subprocess.run(self.by_hand, check=True)
        facts = self.check_second_pass()
        self.check_convergence(text, final, facts)

    def event(self, kind, number):
        """A change by hand; one that the kernel refuses, as the NIC is absent or in a bond, is none."""
        number = int(number)
        name = self.name_of(number)
        lines = {
            "address": f"address add 10.200.{number}.1/24 dev {name}",
            "route": f"route add 10.201.{number}.0/24 via 10.200.{number}.9",
            "mtu": f"link set {name} mtu {1400 + number}",
            "down": f"link set {name} down",
            "release": f"link set {name} nomaster",
            "delete address": f"address flush dev {name} scope global",
        }
        if kind == "unplug" and number in self.present:
            self.present.remove(number)
            self.host.batch([f"link del {name}"], force=True)
        elif kind == "plug" and number not in self.present:
            self.present.add(number)
            self.host.plug(number)
        elif kind in lines and number in self.present:
            self.has_manual_mtu |= kind == "mtu"
            self.host.batch([lines[kind]], force=True)

    def name_of(self, number):
        """The name of the NIC with this number now."""
        return names_of(look()[0], self.host.nics).get(number, f"dp{number}")

    # --- ways of applying a document ---

    def write(self, text):
        new = self.host.folder / "user-data.new"
        write(new, text)
        new.replace(self.host.document_file)

    def do_apply(self, text, _):
        self.write(text)

    def do_once(self, text, _):
        self.write(text)
        self.good(self.host.once())

    def do_kill(self, text, number):
        self.write(text)
        self.host.neuca("apply", kill_after=number / 400)

    def do_refuse(self, text, number):
        """One change of the network is refused: what failed is as it was before, and works afterwards."""
        self.write(text)
        self.failing(refuse=number)

    def do_disable(self, text, number):
        """IPv6 is disabled on a NIC while the document is applied; what that kept is set by the next pass."""
        self.write(text)
        self.disable_ipv6(number, 1)
        self.good(self.host.neuca("apply", "--json"))
        self.disable_ipv6(number, 0)
        self.good(self.host.once())

    def disable_ipv6(self, number, value):
        path = Path("/proc/sys/net/ipv6/conf", self.name_of(1 + number % 4), "disable_ipv6")
        with contextlib.suppress(OSError):  # the NIC is absent, or its MTU too small for IPv6
            path.write_text(str(value))

    def failing(self, **how):
        """A pass with a failure, if what fails is tried at all."""
        before = self._settle()
        done = self.good(self.host.neuca("apply", "--json", **how))
        if done.code != 1:
            return
        after = self._settle()
        status = json.loads(self.good(self.host.neuca("status", "--json")).out)
        placed = places(look()[0], self.host.nics)
        failed = {
            placed(one["name"])
            for one in status["interfaces"]
            if one["name"] and any(each["code"] == "failed" for each in one["problems"])
        }
        changes = [
            line for line in difference(before, after)
            if failed & set(re.findall(r"^. (?:link|address|sysctl) (\S+)", line))
        ]  # fmt: skip
        if changes:
            raise Broken("a failure leaves the NIC as before", *changes, done.out, done.err)

    def do_trial(self, text, _):
        """A trial that is interrupted leaves everything as it was."""
        before = self._settle()
        had_plan = self.plan()["operations"]
        self.try_(text, signal.SIGINT)
        changes = difference(before, self._settle())
        if changes and not had_plan:
            raise Broken("an unconfirmed trial changes nothing", *changes, *self.trial)
        plan = self.plan()["operations"]
        if plan and not had_plan:
            raise Broken("an unconfirmed trial changes nothing", *texts(plan), *self.trial)
        self.write(text)

    def do_confirm(self, text, _):
        self.try_(text, None)
        self.write(text)

    def try_(self, text, interrupt):
        other = self.host.folder / "other"
        write(other, text)
        child = self.host.start("neuca", "--source", f"file:{other}", "--try", "600", "apply")
        deadline = time.monotonic() + 20
        while b"on trial" not in os.pread(child[1], 65536, 0) and time.monotonic() < deadline:
            if os.waitid(os.P_PID, child[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.01)
        if interrupt:
            os.kill(child[0], interrupt)
        else:
            self.good(self.host.neuca("confirm"))
        self.trial = self.good(self.host.finish(child))
        if interrupt and self.trial.code != 1:
            raise Broken("exit codes are those that are documented", *self.trial)

    def do_daemon(self, text, number):
        """The daemon finds the new document; it may make a pass for its own events, but not for ever."""
        child = self.host.start("neucad")
        self.passes(0)
        is_other = text != self.host.document_file.read_text()
        self.write(text)
        passes = self.passes(int(is_other))
        os.kill(child[0], signal.SIGKILL if number % 2 else signal.SIGTERM)
        done = self.good(self.host.finish(child))
        with (self.host.folder / "run/lock").open("a") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)  # a pass that was started goes on without the daemon
        if passes > MAX_PASSES:
            raise Broken("the daemon makes few passes", f"{passes} passes", done.err)

    def passes(self, least):
        """How many reports of passes were written until the daemon was quiet."""
        report = self.host.folder / "run/last-pass.json"
        times, begin = [_time(report)], time.monotonic()
        last, is_new = begin, False
        document = self.host.document_file.read_text()
        while True:
            time.sleep(0.01)
            now = time.monotonic()
            if _time(report) != times[-1]:
                times.append(_time(report))
                last = now
            is_new = is_new or self.knows(document)
            if is_new and now - last > QUIET and len(times) > least:
                return len(times) - 1
            if now - begin > SECONDS:
                raise Broken("the daemon uses a new document")

    def knows(self, document):
        """Whether this is the active document."""
        try:
            return document == json.loads((self.host.folder / "state/document.json").read_text())["text"]  # fmt: skip
        except (OSError, ValueError):
            return False

    # --- promises ---

    def good(self, done):
        """A program that ended with a documented exit code and without a traceback."""
        if "Traceback" in done.err or "Traceback" in done.out:
            raise Broken("no program crashes", done.out, done.err)
        if done.code not in (0, 1, 3, 4, 78, -9):
            raise Broken("exit codes are those that are documented", *done)
        return done

    def plan(self):
        done = self.good(self.host.neuca("plan", "--json"))
        try:
            return {**json.loads(done.out), "code": done.code}
        except ValueError:
            raise Broken("the state record can be read", done.out, done.err) from None

    def check_protected(self, facts):
        changes = difference(self.protected, protected(facts))
        if changes:
            raise Broken("protected NICs and default routes never change", *changes)
        touched = [
            what for what, index, sender in self.reports.read() if sender and index in self.indexes
        ]
        if touched:
            raise Broken("protected NICs and default routes never change", *touched)

    def check_pass(self):
        """A pass does what the plan shows, with the exit code of the plan."""
        plan = self.plan()
        done = self.good(self.host.neuca("apply", "--json"))
        try:
            report = json.loads(done.out)
        except ValueError:
            raise Broken("the state record can be read", done.out, done.err) from None
        if done.code != 1 and sorted(texts(plan["operations"])) != sorted(report["changed"]):
            raise Broken("a pass does what the plan shows", *difference(texts(plan["operations"]), report["changed"]))  # fmt: skip
        if done.code != 1 and plan["code"] != done.code:
            raise Broken(
                "a pass does what the plan shows",
                f"exit code {plan['code']} of plan, {done.code} of apply",
            )
        return report, done

    def check_second_pass(self):
        """The picture of the host, which a second pass does not change."""
        path = self.host.folder / "run/last-pass.json"
        has_failed = json.loads(path.read_text())["problems"]  # what failed is tried again
        before, written = picture(self.host.nics), files(self.host.folder)
        self.check_protected(before)
        if has_failed:
            return before
        self.reports.read()
        self.good(self.host.once())
        sent = [f"{what} {index}" for what, index, sender in self.reports.read() if sender]
        now, changed = files(self.host.folder), json.loads(path.read_text())["changed"]
        writes = [name for name in {*written, *now} if written.get(name) != now.get(name)]
        if sent or changed or writes:
            raise Broken("a second pass does nothing", *changed, *sent, *writes, *difference(before, self._settle()))  # fmt: skip
        return before

    def check_convergence(self, text, final, facts):
        """The host is as one that has seen this document only.

        What is on an absent NIC is kept if it is there ("absent" is not "delete"), and not made if it is not.
        """
        absent = [mac(number) for number in NICS if number not in self.present]
        if any(re.search(rf"(members|parent) = .*{one}|{one}\.\d", text) for one in absent):
            return
        try:
            self.compare(text, final, facts)
        except Broken:  # the kernel may not have done yet what follows from the changes
            self.compare(text, final, self._settle(), settled)

    def compare(self, text, final, facts, look_at=None):
        report, done = final
        other = isolated(alone, text, sorted(self.present), look_at)
        if done.code == 1 and other["code"] != 1:
            raise Broken("what works alone works afterwards", done.out, done.err)
        # 78: a line of the document cannot be used, and it removes nothing.
        if {1, 78} & {done.code, other["code"]}:
            return
        kept = f" {'mtu' if self.has_manual_mtu else '-'} "
        named = {mac(number) for number in NICS if mac(number) in text}
        changes = [
            line
            for line in difference(other["picture"], facts)
            if kept not in line and " name " not in line and not self.is_users(line, named)
        ]
        if changes:
            said = [f"alone: {one['text']}" for one in other["report"]["problems"]]
            said += [f"here: {one['text']}" for one in report["problems"]]
            raise Broken("the order of documents does not matter", *changes, *said)
        problems = difference(_problems(other["report"]), _problems(report))
        if problems and not self.has_manual_mtu:
            raise Broken("the order of documents does not matter", *problems)

    def is_users(self, line, named):
        """The state of a NIC that the document does not name."""
        match = re.match(r". link dp(\d) state ", line)
        return bool(match) and mac(int(match[1])) not in named


def settled(host):
    """A picture once two of them are the same: the kernel has done what follows from the changes so far."""
    before, deadline = picture(host.nics), time.monotonic() + 5
    while time.monotonic() < deadline:
        time.sleep(0.02)
        after = picture(host.nics)
        if before == after:
            return after
        before = after
    return before


def _time(path):
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def texts(operations):
    return [one["text"] for one in operations]


def _problems(report):
    """Those that the document alone decides: a NIC keeps the name that another one has given it."""
    return [f"{one['link']} {one['code']}" for one in report["problems"] if one["code"] != "name"]


def alone(text, present, look_at):
    """The exit code, report and picture of a host on which only this document was applied."""
    host = Host(present)
    try:
        write(host.document_file, text)
        done = host.neuca("apply", "--json")
        report = json.loads(done.out or "null")
        return {
            "code": done.code,
            "report": report,
            "picture": look_at(host) if look_at else picture(host.nics),
        }
    finally:
        host.close()
