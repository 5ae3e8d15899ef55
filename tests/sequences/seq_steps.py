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
from seq_faults import Fault
from seq_host import IGNORED, MANAGEMENT, PROFILE, Host, Reports, isolated, write
from seq_picture import difference, files, look, names_of, picture, places, protected

ACTIONS = (
    "apply", "apply", "once", "refuse", "roll_back", "roll_back", "disable", "kill", "crash", "full", "deaf", "trial", "confirm",
    "abandon", "disturb", "stuck", "daemon", "daemon", "daemon_fails", "daemon_fails", "replug", "replug")  # fmt: skip
UNFINISHED = ("roll_back", "crash", "kill", "full", "deaf", "abandon", "stuck", "daemon_fails")
SECONDS = 60.0  # for the daemon to use a document, far more than it takes
QUIET = 0.6  # seconds without a pass: the daemon is done
MAX_PASSES = 6  # of the daemon for one new document, those of its events included


@dataclass
class Step:
    """Events by hand, then a document in one of several ways. `number` says which operation or moment.

    A step that is not `checked` has no undisturbed pass at its end: the next one meets what it has left.
    """

    action: str
    sections: list[Section]
    events: list[str] = field(default_factory=list)
    number: int = 0
    checked: bool = True

    @classmethod
    def load(cls, data):
        sections = [Section(each["header"], each["lines"]) for each in data["sections"]]
        return cls(
            data["action"], sections, data["events"], data["number"], data.get("checked", True)
        )

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
    kinds_of_events, counts = chance.choice(
        (((), (0,)), (BY_HAND + COMMANDS, (0, 0, 1, 2)), (COMMANDS, (0, 3, 4, 5)))
    )
    steps = []
    for _ in range(chance.randint(5, 7)):
        events = draw_events(chance, kinds_of_events, counts)
        step = Step(chance.choice(ACTIONS), draw(chance, kinds), events, chance.randint(1, 40))
        if steps and chance.random() < 0.25:  # a small change of the document before
            step.sections = _changed(chance, steps[-1].sections)
        step.checked = step.action not in UNFINISHED or chance.random() < 0.5
        steps.append(step)
    steps[-1].checked = True
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


BY_HAND = ("address", "route", "mtu", "down", "nomaster", "delete address", "unplug", "plug", "swap names", "vlan",
           "edit", "delete link")  # fmt: skip
COMMANDS = ("release", "undo", "ignore", "heed", "revert", "tune", "untune")
EDITS = {
    1: "link set br0 type bridge forward_delay 700 ageing_time 5000",
    2: "link set bond0 type bond min_links 2",
    3: "link set mv0 type macvlan mode passthru",
    4: "link set br0 address 02:00:00:00:77:77",
}


def draw_events(chance, kinds, counts):
    return [f"{chance.choice(kinds)} {chance.choice(NICS)}" for _ in range(chance.choice(counts))]


class Play:
    """One sequence on one host. Raises Broken."""

    def __init__(self, by_hand=""):
        """`by_hand` is a command that is run after each pass, in place of a defect."""
        self.by_hand = by_hand.split()
        self.host = Host()
        self.reports = Reports()
        self.present = set(NICS)
        self.released, self.ignored, self.profile = set(), set(), ""
        self.foreign = {}  # the interface index of each VLAN that another program has made
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
        self.is_checked = step.checked
        getattr(self, f"do_{step.action}")(text, step.number)
        if not step.checked:
            self.check_protected(picture(self.host.nics))
            self.check_foreign()
            return
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
            "nomaster": f"link set {name} nomaster",
            "delete address": f"address flush dev {name} scope global",
            "edit": EDITS[number],
            "delete link": f"link del {('br0', 'bond0', 'vx0', 'mv0')[number - 1]}",
        }
        if kind in COMMANDS and self.knows(self.host.document_file.read_text()):
            getattr(self, f"command_{kind}")(number, name)
        elif kind == "swap names":
            self.swap_names(number, number % 4 + 1)
        elif kind == "vlan":
            self.add_vlan(number, name)
        elif kind == "unplug" and number in self.present:
            self.present.remove(number)
            self.host.batch([f"link del {name}"], force=True)
            self.foreign.pop(number, None)
        elif kind == "plug" and number not in self.present:
            self.present.add(number)
            self.host.plug(number)
        elif kind in lines and number in self.present:
            self.has_manual_mtu |= kind == "mtu"
            self.host.batch([lines[kind]], force=True)

    def name_of(self, number):
        """The name of the NIC with this number now."""
        return names_of(look()[0], self.host.nics).get(number, f"dp{number}")

    def swap_names(self, number, other):
        """Two NICs swap their names, as after a boot in another order."""
        if {number, other} <= self.present:
            first, second = self.name_of(number), self.name_of(other)
            lines = [
                f"{first} down",
                f"{second} down",
                f"{first} name swap",
                f"{second} name {first}",
                f"swap name {second}",
            ]
            self.host.batch([f"link set {line}" for line in lines], force=True)

    def add_vlan(self, number, name):
        """A VLAN of another program, which nothing may change."""
        if number not in self.present or number in self.foreign:
            return
        lines = [
            f"link add link {name} name other{number} type vlan id 99",
            f"address add 10.202.{number}.1/24 dev other{number}",
        ]
        if self.host.batch(lines, force=True):
            self.foreign[number] = self._index(f"other{number}")
            self.reports.read()

    # --- commands ---

    def command(self, *words):
        """A command, which does what its dry run shows; neuca status and neuca plan then agree."""
        shown = self.operations(
            self.good(self.host.neuca(words[0], "--json", "--dry-run", *words[1:]))
        )
        done = self.good(self.host.neuca(words[0], "--json", *words[1:]))
        report = json.loads(done.out) if done.out else {}
        if done.code == 1 or shown is None:
            return report
        changed = report["changed"] if "changed" in report else texts(report["operations"])
        if sorted(shown) != sorted(changed):
            raise Broken(
                "a command does what its dry run shows", *words, *difference(shown, changed)
            )
        self.check_status()
        return report

    @staticmethod
    def operations(done):
        return texts(json.loads(done.out)["operations"]) if done.out else None

    def command_release(self, number, name):
        if number in self.present - self.released - self.ignored:
            self.command("release", name)
            if self.is_released(number):
                self.released.add(number)

    def is_released(self, number):
        record = json.loads((self.host.folder / "state/record.json").read_text())
        return bool(record["nics"].get(mac(number), {}).get("released"))

    def command_undo(self, number, _):
        if number in self.released:
            self.command("release", "--undo", mac(number))
            self.released.remove(number)

    def command_ignore(self, number, _):
        self.ignored.add(number)
        self.host.configure(self.ignored)
        self.check_status()

    def command_heed(self, *_):
        self.ignored.clear()
        self.host.configure()
        self.check_status()

    def command_revert(self, *_):
        self.command("revert")
        left = self.operations(self.host.neuca("revert", "--json", "--dry-run"))
        if left:
            raise Broken("a second revert restores nothing", *left)

    def command_tune(self, *_):
        self.profile = PROFILE
        self.command("tune", "--profile", PROFILE, "apply")

    def command_untune(self, *_):
        self.profile = ""
        self.command("tune", "revert")

    def check_status(self):
        """`neuca status` is ok if there is nothing to do, and not ok otherwise."""
        plan, status = self.plan(), self.good(self.host.neuca("status", "--json"))
        is_ok = status.code == 0
        if (plan["operations"] and is_ok) or (
            not plan["operations"] and not plan["code"] and not is_ok
        ):
            raise Broken(
                "status agrees with plan",
                *texts(plan["operations"]),
                plan["code"],
                status.code,
                status.out,
            )

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
        self.failing(Fault("refuse", number))

    def do_roll_back(self, text, number):
        """Changes of the pass and of its roll-back are refused, and sometimes the process is killed after that."""
        self.write(text)
        faults = [Fault("refuse", 1 + number // 2, 2 + number % 7)]
        if number % 3 == 0:
            faults.append(Fault("kill", 5 + number))
        self.good(self.host.neuca("apply", "--json", faults=faults))

    def do_crash(self, text, number):
        self.write(text)
        self.good(self.host.neuca("apply", faults=[Fault("kill", number)]))

    def do_full(self, text, number):
        """The disk is full for some files; the plan expects that it is as long as no pass could write."""
        self.write(text)
        self.good(self.host.neuca("apply", faults=[Fault("full", 1 + number // 5, 1 + number % 5)]))
        self.good(self.host.once())

    def do_deaf(self, text, number):
        """Answers of the kernel are lost."""
        self.write(text)
        self.good(self.host.neuca("apply", faults=[Fault("deaf", number, 1 + number % 3)]))

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

    def failing(self, fault):
        """A pass with a failure, if what fails is tried at all."""
        before = self._settle()
        done = self.good(self.host.neuca("apply", "--json", faults=[fault]))
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

    def do_abandon(self, text, number):
        """A trial whose process is killed, while it changes something or later: the next pass returns."""
        faults = [Fault("kill", number)] if number % 2 else ()
        self.try_(text, signal.SIGKILL, faults=faults)
        self.return_to_active(text)

    def do_disturb(self, text, number):
        """Something is changed by hand during a trial."""
        events = draw_events(Random(number), BY_HAND, (0, 0, 1, 2)) or [f"unplug {1 + number % 4}"]
        self.try_(text, signal.SIGINT, events)
        self.return_to_active(text)

    def do_stuck(self, text, number):
        """Changes of a trial and of its roll-back are refused."""
        self.try_(text, signal.SIGINT, faults=[Fault("refuse", number, 1 + number % 9)])
        self.return_to_active(text)

    def return_to_active(self, text):
        """A pass returns to the document from before the trial."""
        if not self.is_checked:
            return
        final = self.check_pass()
        self.check_convergence(self.host.document_file.read_text(), final, self.check_second_pass())
        self.write(text)

    def do_confirm(self, text, _):
        self.try_(text, None)
        self.write(text)

    def try_(self, text, interrupt, events=(), faults=()):
        other = self.host.folder / "other"
        write(other, text)
        words = ["--source", f"file:{other}", "--try", "600", "apply"]
        child = self.host.start("neuca", *words, faults=faults)
        deadline = time.monotonic() + 20
        while b"on trial" not in os.pread(child[1], 65536, 0) and time.monotonic() < deadline:
            if os.waitid(os.P_PID, child[0], os.WEXITED | os.WNOHANG | os.WNOWAIT):
                break
            time.sleep(0.01)
        for event in events:
            self.event(*event.rsplit(" ", 1))
        if interrupt == signal.SIGKILL:
            self.kill_trial()
        elif interrupt:
            os.kill(child[0], interrupt)
        else:
            self.good(self.host.neuca("confirm"))
        self.trial = self.good(self.host.finish(child))
        if interrupt and self.trial.code != 1:
            raise Broken("exit codes are those that are documented", *self.trial)

    def kill_trial(self):
        with contextlib.suppress(OSError, ValueError, ProcessLookupError):
            trial = json.loads((self.host.folder / "state/trial.json").read_text())
            os.kill(trial["pid"], signal.SIGKILL)

    @contextlib.contextmanager
    def daemon(self, end, faults=()):
        """A daemon over the present document, which the signal `end` ends."""
        child = self.host.start("neucad", faults=faults)
        self.passes()
        yield
        os.kill(child[0], end)
        self.good(self.host.finish(child))
        with (self.host.folder / "run/lock").open("a") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)  # a pass that was started goes on without the daemon

    def do_daemon(self, text, number):
        """The daemon finds the new document; it may make a pass for its own events, but not for ever."""
        with self.daemon(signal.SIGKILL if number % 2 else signal.SIGTERM):
            self.few_passes(text)
            self.await_empty_plan()

    def do_daemon_fails(self, text, number):
        """Changes of each pass of the daemon are refused."""
        with self.daemon(signal.SIGTERM, [Fault("refuse", number, 1 + number % 4)]):
            self.few_passes(text)

    def few_passes(self, text):
        passes = self.passes(text)
        if passes > MAX_PASSES:
            raise Broken("the daemon makes few passes", f"{passes} passes")

    def do_replug(self, text, number):
        """A NIC is unplugged and plugged in again beside the daemon, which configures it."""
        number = 1 + number % 4
        with self.daemon(signal.SIGTERM):
            self.passes(text)
            self.await_empty_plan()
            for kind in ("unplug", "plug"):
                self.event(kind, number)
                self.await_empty_plan()

    def await_empty_plan(self):
        """The daemon does everything that is to be done, apart from removals on NICs that were ignored."""
        if self.ignored:
            return
        deadline = time.monotonic() + SECONDS
        while plan := self.plan()["operations"]:
            if time.monotonic() > deadline:
                raise Broken("the daemon does what is to be done", *texts(plan))
            time.sleep(0.05)

    def passes(self, text=None):
        """How many reports of passes were written until the daemon was quiet; with a text, after that is the document.

        On a busy machine, the report of the new document may be there as soon as the document is.
        """
        report = self.host.folder / "run/last-pass.json"
        times, document = [_time(report)], self.host.document_file.read_text()
        least = int(text not in (None, document))
        if text is not None:
            self.write(text)
            document = text
        begin = last = time.monotonic()
        is_new = False
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
            what
            for what, index, sender in self.reports.read()
            if sender and index in self.unchanged()
        ]
        if touched:
            raise Broken("protected NICs and default routes never change", *touched)

    def unchanged(self):
        """The interface indexes of what may not be changed."""
        ignored = {self._index(self.name_of(number)) for number in self.ignored & self.present}
        return self.indexes | ignored | set(self.foreign.values())

    def check_foreign(self):
        links = {link["ifname"]: link for link in look()[0]}
        for number, index in self.foreign.items():
            link = links.get(f"other{number}", {})
            addresses = [
                each["local"] for each in link.get("addr_info", ()) if each["family"] == "inet"
            ]
            if (link.get("ifindex"), addresses) != (index, [f"10.202.{number}.1"]):
                raise Broken("what others have made stays", f"other{number}", index, link)

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
                *texts(plan["operations"]),
                *map(str, plan["problems"]),
                done.out,
            )
        return report, done

    def check_second_pass(self):
        """The picture of the host, which a second pass does not change."""
        path = self.host.folder / "run/last-pass.json"
        has_failed = json.loads(path.read_text())["problems"]  # what failed is tried again
        before, written = picture(self.host.nics), files(self.host.folder)
        self.check_protected(before)
        self.check_foreign()
        if has_failed:
            return before
        self.reports.read()
        self.good(self.host.once())
        sent = [f"{what} {index}" for what, index, sender in self.reports.read() if sender]
        now, changed = files(self.host.folder), json.loads(path.read_text())["changed"]
        writes = [name for name in {*written, *now} if written.get(name) != now.get(name)]
        if sent or changed or writes:
            raise Broken("a second pass does nothing", *changed, *sent, *writes, *difference(before, self._settle()))  # fmt: skip
        self.check_status()
        return before

    def check_convergence(self, text, final, facts):
        """The host is as one that has seen this document only.

        What is on an absent NIC is kept if it is there ("absent" is not "delete"), and not made if it is not.
        """
        if self.ignored:  # what is there stays
            return
        absent = [mac(number) for number in NICS if number not in self.present - self.released]
        if any(re.search(rf"(members|parent) = .*{one}|{one}\.\d", text) for one in absent):
            return
        try:
            self.compare(text, final, facts)
        except Broken:  # the kernel may not have done yet what follows from the changes
            self.compare(text, final, self._settle(), settled)

    def compare(self, text, final, facts, look_at=None):
        report, done = final
        other = isolated(
            alone,
            text,
            sorted(self.present),
            sorted(self.released),
            self.profile or "none",
            look_at,
        )
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
            if kept not in line
            and " name " not in line
            and " other" not in line
            and not self.is_users(line, named)
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
        return bool(match) and (mac(int(match[1])) not in named or int(match[1]) in self.released)


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
    """Those that the document alone decides: a NIC keeps the name that another one has given it, or has when released."""
    return [
        f"{one['link']} {one['code']}"
        for one in report["problems"]
        if one["code"] not in ("name", "ignored")
    ]


def alone(text, present, released, profile, look_at):
    """The exit code, report and picture of a host on which only this document was applied."""
    host = Host(present, released, profile)
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
