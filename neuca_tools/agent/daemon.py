"""The loop: one selector over signals, netlink, udev and the worker's pipe; whatever could block runs in a child that ends.

A look at the metadata and a pass are one job of one child, which also keeps pyroute2 out of the idle daemon. Events
only mark the world dirty; after a short debounce comes a job, and a whole look.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import logging
import random
import selectors
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable, Optional

from neuca_tools.agent.worker import Job, Outcome, Worker
from neuca_tools.backends import systemd, udev
from neuca_tools.backends.linkwatch import LinkWatch, interfaces
from neuca_tools.config import Config, load
from neuca_tools.errors import ConfigError, ObserveError

log = logging.getLogger("neuca")
DEBOUNCE = 0.1  # seconds of quiet after an event before a job: one NIC makes several
REST = 0.5  # seconds from one event's job to the next one's: a link that flaps does not keep the host busy
UDEV_PATIENCE = 3.0  # seconds that udev gets to name a new NIC; then the job runs without its word
LONGEST_BACKOFF = 600.0  # seconds between tries for a NIC that keeps failing
LONGEST_SILENCE = (
    60.0  # seconds between looks while no source answers, unless poll-interval is longer
)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class Plans:
    """When what is due, on the monotonic clock; None: not at all. No job for an event before `rested`."""

    poll: float = 0.0
    events: Optional[float] = None
    retry: Optional[float] = None
    watchdog: Optional[float] = None
    retire: Optional[float] = None
    rested: float = 0.0

    def next(self) -> float:
        return min(
            due
            for due in (self.poll, self.events, self.retry, self.watchdog, self.retire)
            if due is not None
        )


def _ignore(*_: object) -> None:
    """The wake-up descriptor tells which signal it was."""


class Daemon:
    """`run` returns when a signal says so."""

    def __init__(self, config: Config, path: Path, configure_log: Callable[[Config], None]) -> None:
        self.config, self.path, self._configure_log = config, path, configure_log
        self._selector = selectors.DefaultSelector()
        self._worker: Optional[Worker] = None
        self._alive = systemd.watchdog_interval()
        now = time.monotonic()
        self._plans = Plans(poll=now, watchdog=None if self._alive is None else now)
        self._job = Job(config)
        self._failures = self._silences = 0
        self._held = False  # by the last pass: it waits for a sign of the management NIC
        self._starting = True  # until a pass has set drift right
        self._stopping = self._ready = False
        self._links = LinkWatch()
        self._udev: Optional[udev.Monitor] = None

    def run(self) -> None:
        """First a pass over the last good document, at once, or with none over what the sources say; then the loop."""
        receive, send = socket.socketpair()
        for end in (receive, send):
            end.setblocking(False)
        before = [(number, signal.signal(number, _ignore)) for number in SIGNALS]
        wakeup = signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
        try:
            self._watch(receive.fileno(), lambda: self._signals(receive))
            self._watch(self._links.fileno(), self._link_events)
            self._watch_udev()
            known = self._job.has_last_good()
            self._begin(replace(self._job, start=True, fetch=not known, run=True))
            if not known:
                self._say_ready("waiting for the first document")
            while not self._stopping:
                self._turn()
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before:
                signal.signal(number, handler)
            self._close(receive, send)

    def _turn(self) -> None:
        """Wait for the next descriptor or deadline, and do what is due."""
        ends = self._worker.deadline if self._worker else None  # of the job under way
        deadline = self._plans.next() if ends is None else ends
        if self._plans.watchdog is not None:
            deadline = min(deadline, self._plans.watchdog)
        for key, _ in self._selector.select(max(0.0, deadline - time.monotonic())):
            key.data()
        now = time.monotonic()
        self._feed_watchdog(now)
        if not self._busy() and not self._stopping:
            self._start_what_is_due(now)
        elif ends is not None and now >= ends and self._busy():
            log.error(
                "a pass took longer than %g s (command-timeout): it is killed",
                self.config.command_timeout,
            )
            self._end()

    def _busy(self) -> bool:
        return self._worker is not None and self._worker.deadline is not None

    def _start_what_is_due(self, now: float) -> None:
        events = self._plans.events is not None and now >= self._plans.events
        retry = self._plans.retry is not None and now >= self._plans.retry
        poll = now >= self._plans.poll
        if self._plans.retire is not None and now >= self._plans.retire:
            self._retire()
        if events:
            self._plans.events = None
            self._plans.rested = now + REST
        if retry:
            self._plans.retry = None
        if poll:
            self._plans.poll = now + self._patience()
            self._plans.rested = now + REST
        if events or retry or poll:
            run = events or retry or self.config.drift == "enforce"
            self._begin(
                replace(self._job, fetch=poll, run=run or self._starting, start=self._starting)
            )

    # --- the worker ---

    def _begin(self, job: Job) -> None:
        self._links.stirred = False
        try:
            try:
                self._have_worker().begin(job)
            except (
                ConnectionError
            ):  # somebody has killed it while it waited, just now: a new one has read nothing of it
                self._retire()
                self._have_worker().begin(job)
        except OSError as error:  # EAGAIN, ENOMEM, EMFILE: the host is short of something
            log.error("start a pass: %s", error.strerror)
            self._retire()
            self._settle_retry(Outcome(failed=1))

    def _have_worker(self) -> Worker:
        """The child that waits for a job, if it has the configuration in force, else a new one. Raises OSError."""
        self._plans.retire = None
        if self._worker and self._worker.config is not self.config:
            self._retire()
        if self._worker is None:
            self._worker = Worker(self.config)
            self._selector.register(self._worker.fileno(), selectors.EVENT_READ, self._worker_spoke)
        return self._worker

    def _worker_spoke(self) -> None:
        worker, busy = self._worker, self._busy()
        if worker and worker.read():
            if busy and not worker.unheard:
                self._end()
            else:  # somebody has killed it while it waited; what it was given meanwhile goes to a new one
                self._retire()
                if busy:
                    self._begin(worker.job)

    def _retire(self) -> None:
        worker, self._worker, self._plans.retire = self._worker, None, None
        if worker:
            self._selector.unregister(worker.fileno())
            worker.end()

    def _end(self) -> None:
        """Take in what the child reported; one that died without a word is a failure. After a pass it may stay a little."""
        worker = self._worker
        if worker is None:
            return
        outcome = worker.outcome()
        if outcome is None or not worker.passed:
            self._retire()
        else:
            self._plans.retire = worker.retires
        if outcome is None:
            log.error("the pass ended without a report")
            outcome = Outcome(failed=1, sha256=self._job.sha256, session=self._job.session)
            self._plans.poll = time.monotonic() + self._backoff(self._failures + 1)
        self._job = replace(
            self._job, sha256=outcome.sha256 or self._job.sha256, session=outcome.session
        )
        if outcome.failed:
            self._links.drain()  # what the pass did and undid itself: the next try is the retry's
        self._links.attentive = outcome.attentive and not outcome.failed
        if (
            self._links.attentive and self._links.stirred
        ):  # while the pass went on: it may have looked before
            self._dirty(DEBOUNCE)
        self._starting = self._starting and not outcome.passed
        self._held = outcome.held if outcome.ran else self._held
        self._settle_poll(outcome)
        self._settle_retry(outcome)
        if worker.started or outcome.ran or not self._ready:
            self._say_ready(outcome.text)
        if outcome.text:
            systemd.notify(f"STATUS={outcome.text}")

    def _settle_retry(self, outcome: Outcome) -> None:
        """A NIC that failed is tried again ever more slowly; anything else that starts a pass tries it too."""
        if not outcome.ran and outcome.failed == 0:
            return
        self._failures = self._failures + 1 if outcome.failed else 0
        again = (
            self._backoff(self._failures)
            if outcome.failed
            else self.config.poll_interval
            if outcome.held
            else None
        )
        self._plans.retry = None if again is None else time.monotonic() + again

    def _settle_poll(self, outcome: Outcome) -> None:
        """Count the looks in a row that nobody has answered; an answer ends the longer waits at once."""
        if outcome.unanswered:
            self._silences += 1
        elif outcome.unanswered is not None:
            self._silences = 0
            self._plans.poll = min(self._plans.poll, time.monotonic() + self.config.poll_interval)

    def _patience(self) -> float:
        """Until the next look: ever longer while nobody answers, and not the same for all guests of a cloud that comes back."""
        usual = self.config.poll_interval
        if not self._silences:
            return usual
        longer = min(usual * float(2 ** min(self._silences - 1, 16)), max(usual, LONGEST_SILENCE))
        return longer * random.uniform(0.75, 1.25)

    def _backoff(self, failures: int) -> float:
        return min(LONGEST_BACKOFF, self.config.poll_interval * float(2 ** min(failures, 16)))

    def _say_ready(self, text: str) -> None:
        if not self._ready:
            self._ready = True
            systemd.notify(f"READY=1\nSTATUS={text}")

    # --- events ---

    def _watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, handler)

    def _watch_udev(self) -> None:
        """udev says when a NIC has its name; where none serves this namespace, netlink alone has to do."""
        if self.config.managers != "auto" or not udev.here(interfaces()):
            return
        try:
            self._udev = udev.open_monitor()
        except ObserveError as error:
            log.warning("%s, ignoring", error.text)
            return
        self._watch(self._udev.fileno(), self._udev_events)

    def _link_events(self) -> None:
        waiting = not self._job.sha256 or self._held
        enforced = self.config.drift == "enforce" and not self._failures
        stirred = self._links.drain(addresses=waiting or enforced)
        if stirred:
            self._dirty(UDEV_PATIENCE if self._udev else DEBOUNCE)
        if (
            stirred and not self._job.sha256
        ):  # for its first document: the management NIC may have its address now
            self._plans.poll = min(
                self._plans.poll, max(time.monotonic() + DEBOUNCE, self._plans.rested)
            )

    def _udev_events(self) -> None:
        if self._udev is None:
            return
        events = self._udev.drain()
        lost = self._udev.overflowed
        if lost:  # the monitor is deaf from now on (pyudev #194)
            self._selector.unregister(self._udev.fileno())
            self._udev.close()
            self._udev = None
            self._watch_udev()
        if lost or self._plans.events is not None or any(event.action == "add" for event in events):
            self._dirty(DEBOUNCE)

    def _dirty(self, patience: float) -> None:
        due = max(time.monotonic() + patience, self._plans.rested)
        self._plans.events = due if self._plans.events is None else min(due, self._plans.events)

    def _signals(self, receive: socket.socket) -> None:
        numbers = set(receive.recv(4096))
        if numbers & {signal.SIGTERM, signal.SIGINT}:
            systemd.notify("STOPPING=1")
            self._stopping = True
        elif signal.SIGHUP in numbers:
            self._reload()

    def _reload(self) -> None:
        """Read the configuration again, then look at everything. A configuration that cannot be read changes nothing."""
        try:
            self.config = load(self.path)
        except ConfigError as error:
            log.error("%s; the configuration of before stays in force", error.text)
            return
        self._configure_log(self.config)
        for fault in self.config.faults:
            log.warning("%s", fault.text)
        self._job = replace(self._job, config=self.config)
        self._plans.poll = self._plans.events = time.monotonic()
        log.info("configuration read again")

    def _feed_watchdog(self, now: float) -> None:
        if (
            self._alive is not None
            and self._plans.watchdog is not None
            and now >= self._plans.watchdog
        ):
            systemd.notify("WATCHDOG=1")
            self._plans.watchdog = now + self._alive / 2

    def _close(self, *ends: socket.socket) -> None:
        """A pass under way is left to finish what it does to a NIC, within systemd's own time for stopping."""
        if self._worker and self._busy():
            self._worker.wait()
            self._end()
        self._retire()
        for end in (*ends, self._links, self._udev):
            with suppress(OSError):
                if end is not None:
                    end.close()
        self._selector.close()
