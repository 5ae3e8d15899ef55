"""The daemon: one selector over signals, netlink, udev and the worker's socket.

Whatever could block runs in a child process. Asking the sources and making a pass is one job of a
child, which also keeps pyroute2 and the modules of a pass out of the idle daemon. An event only
plans a job, which starts after a short debounce and observes everything anew.
"""

# SPDX-License-Identifier: MIT

import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from neuca_tools.agent import in_force
from neuca_tools.agent.backoff import WHOLE_PASS, Backoff
from neuca_tools.agent.worker import Job, JobResult, Worker
from neuca_tools.backends import systemd, udev
from neuca_tools.backends.linkwatch import LinkWatch, index_by_interface
from neuca_tools.config import Config, load_config
from neuca_tools.errors import ConfigError, ObserveError
from neuca_tools.files import as_apply_error, make_directory
from neuca_tools.state.records import has_document

log = logging.getLogger("neuca")

EVENT_GAP_SECONDS = 0.01  # without an event before their job: one NIC causes several in a row
DEBOUNCE_SECONDS = 0.1  # from the first of them to their job, however many follow
SECONDS_BETWEEN_PASSES = 0.5  # for events: a flapping link must not keep the host busy
TRIAL_RETRY_SECONDS = 5.0  # at most between attempts while a trial holds the lock
UDEV_NAMING_SECONDS = 3.0  # that a job waits for udev to name a new NIC
# Between polls while no source responds, unless poll-interval is longer.
SILENT_POLL_SECONDS = 60.0
# Methods of a Logger, for the faults of a configuration.
LOG_METHOD_BY_SEVERITY = {"error": "warning", "warning": "warning", "note": "info"}
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class Plans:
    """Times on the monotonic clock in seconds; None: not planned.

    `poll`: ask the sources. `events`: make a pass for events; never before `earliest`.
    `retry`: make a pass after a failure. `watchdog`: notify systemd.
    """

    poll: float = 0.0
    events: Optional[float] = None
    retry: Optional[float] = None
    watchdog: Optional[float] = None
    earliest: float = 0.0

    def next(self) -> float:
        """The earliest of the planned times."""
        return min(self._planned().values())

    def due(self, now: float) -> set[str]:
        """The names of the plans whose time has come."""
        return {name for name, time in self._planned().items() if now >= time}

    def _planned(self) -> dict[str, float]:
        times = {name: time for name, time in vars(self).items() if time is not None}
        del times["earliest"]
        return times


class Daemon:
    """The daemon; `run` returns after SIGTERM or SIGINT."""

    def __init__(self, config: Config, path: Path, configure_log: Callable[[Config], None]) -> None:
        self.config, self.path, self._configure_log = config, path, configure_log
        self._selector = selectors.DefaultSelector()
        self._worker: Optional[Worker] = None
        self._watchdog_interval = systemd.watchdog_interval()
        now = time.monotonic()
        self._plans = Plans(poll=now, watchdog=None if self._watchdog_interval is None else now)
        self._event_pass_deadline: Optional[float] = None  # for the events so far
        self._changed_links: set[int] = set()  # in the events so far; 0: anything else changed
        self._job = Job(config, at_start=in_force.digests(config))
        self._backoff, self._unanswered_polls = Backoff(), 0
        self._waits_for_address = False  # as in the result of the last pass
        self._waits_for_document = False  # there is none to make a pass for
        self._is_starting = True  # until a pass has corrected all drift
        self._is_stopping = self._is_ready = False
        self._directories = [config.run_directory]  # that exist, and may not vanish
        self._links = LinkWatch()
        self._udev: Optional[udev.Monitor] = None

    def run(self) -> None:
        """Make a pass for the last good document or, without one, ask the sources; then loop."""
        receive, send = socket.socketpair()
        for end in (receive, send):
            end.setblocking(False)
        # The wake-up descriptor tells which signal it was; before it is set, one would be lost.
        wakeup = signal.set_wakeup_fd(send.fileno(), warn_on_full_buffer=False)
        before = [(number, signal.signal(number, lambda *_: None)) for number in SIGNALS]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # which the command has blocked
        try:
            self._watch_descriptor(receive.fileno(), lambda: self._handle_signals(receive))
            self._watch_descriptor(self._links.fileno(), self._link_events)
            self._watch_udev()
            self._waits_for_document = not has_document(self.config.state)
            self._begin(replace(self._job, start=True, fetch=self._waits_for_document, run=True))
            if self._waits_for_document:
                self._say_ready("waiting for the first document")
            while not self._is_stopping:
                self._turn()
        finally:
            self._close()  # first: another signal must not end the wait for a pass
            signal.set_wakeup_fd(wakeup)
            for number, handler in before:
                signal.signal(number, handler)
            receive.close()
            send.close()

    def _turn(self) -> None:
        """Wait for the next descriptor or deadline, and do what is due."""
        job_deadline = self._worker.deadline if self._worker else None
        deadline = self._plans.next() if job_deadline is None else job_deadline
        if self._plans.watchdog is not None:
            deadline = min(deadline, self._plans.watchdog)
        for key, _ in self._selector.select(max(0.0, deadline - time.monotonic())):
            key.data()
        now = time.monotonic()
        self._feed_watchdog(now)
        if self._worker is None and not self._is_stopping:
            self._start_what_is_due(now)
        elif job_deadline is not None and now >= job_deadline and self._worker:
            seconds = self.config.command_timeout
            log.error("a pass took longer than %g s (command-timeout), killing it", seconds)
            self._end()

    def _start_what_is_due(self, now: float) -> None:
        due = self._plans.due(now)
        if "events" in due:
            self._forget_events()
            self._plans.earliest = now + SECONDS_BETWEEN_PASSES
        if "retry" in due:
            self._plans.retry = None
        if "poll" in due:
            self._plans.poll = now + self._seconds_to_next_poll()
            self._plans.earliest = now + SECONDS_BETWEEN_PASSES
        if due & {"events", "retry", "poll"}:
            every_poll = self._is_starting or self.config.drift == "enforce"
            run = bool(due & {"events", "retry"}) or (every_poll and not self._backoff)
            gone = (*self._job.gone, *self._links.take_gone())
            self._job = replace(self._job, gone=gone)
            job = replace(self._job, fetch="poll" in due, run=run, start=self._is_starting)
            self._begin(replace(job, left_out=self._backoff.left_out(now)))

    # --- the worker ---

    def _begin(self, job: Job) -> None:
        self._links.begin_job()
        try:
            self._worker = Worker(job)
        except OSError as error:  # EAGAIN, ENOMEM, EMFILE: the host is short of a resource
            log.error("start a pass: %s", error.strerror)
            self._links.end_job()
            self._plan_retry(JobResult(failed={WHOLE_PASS: 0}))
        else:
            self._watch_descriptor(self._worker.fileno(), self._read_worker)

    def _read_worker(self) -> None:
        if self._worker and self._worker.read():
            self._end()

    def _end_child(self) -> None:
        worker, self._worker = self._worker, None
        if worker:
            self._selector.unregister(worker.fileno())
            worker.end()

    def _end(self) -> None:
        """Process the report of the child's job, and reap the child."""
        worker = self._worker
        if worker is None:
            return
        self._end_child()
        result = worker.result()
        if result is None:
            log.error("the pass ended without a report")
            failed = JobResult(failed={WHOLE_PASS: 0})
            result = failed._replace(sha256=self._job.sha256, session=self._job.session)
        self._restore_directories()
        self._remember(result)
        self._discard_events(result.new_links)
        if worker.config is self.config:  # else a pass and a poll are planned for the new one
            self._plan_poll(result)
            self._plan_retry(result)
        self._say_ready(result.text)
        if result.text:
            systemd.notify(f"STATUS={result.text}")

    def _restore_directories(self) -> None:
        """Create a directory again that was removed, as only systemd can in the unit's sandbox.

        Raises ApplyError, which ends the daemon for a restart.
        """
        for directory in self._directories:
            with as_apply_error(f'create "{directory}"'):
                make_directory(directory)
        places = (self.config.run_directory, self.config.state_directory)
        self._directories = [place for place in places if place.is_dir()]

    def _remember(self, result: JobResult) -> None:
        """Keep what the next job and the next events depend on."""
        self._job = self._job.after(result)
        self._waits_for_document = not self._job.sha256
        self._link_events()  # also after a failure: a pass for them leaves out what failed
        self._watch_links(result)
        if result.completed_pass:
            self._is_starting = False

    def _watch_links(self, result: JobResult) -> None:
        """Watch what the pass says, also for what has changed since it observed the host."""
        links, watched = self._links, (self._links.reports_routing, self._waits_for_address)
        is_repeated = WHOLE_PASS in result.failed  # each event, even its own, would repeat it
        if result.made_pass:
            links.reports_all_changes = result.watches_all_links and not is_repeated
        if result.completed_pass:
            self._waits_for_address = result.waits_for_address
            links.reports_routing = result.has_routing_to_keep
        watches = links.reports_routing, self._waits_for_address
        begins = any(now > before for now, before in zip(watches, watched))
        is_news = begins and links.has_seen_routing_change
        is_news = is_news or (links.reports_all_changes and links.has_seen_change)
        if is_news and not is_repeated:
            self._plan_event_pass(EVENT_GAP_SECONDS, {0})
        links.end_job()

    def _plan_retry(self, result: JobResult) -> None:
        """Plan another pass for what failed, at growing intervals.

        The same holds for a network manager that does not respond, and during a trial.
        """
        now, interval = time.monotonic(), self.config.poll_interval
        if result.waits_for_trial:
            self._plans.retry = now + min(interval, TRIAL_RETRY_SECONDS)
        if not result.made_pass and not result.failed:
            return
        self._backoff.update(result.failed, result.left_out, now, interval)
        due = self._backoff.due()
        if WHOLE_PASS in result.failed and not result.made_pass:
            self._plans.poll = due or self._plans.poll  # one that asks the sources may end so again
        if due is None and result.waits_for_address:
            due = now + interval
        self._plans.retry = min(filter(None, (due, result.deadline)), default=None)

    def _plan_poll(self, result: JobResult) -> None:
        """Count the polls in a row that got no response; a response ends the longer intervals."""
        if result.unanswered:
            self._unanswered_polls += 1
        elif result.unanswered is not None:
            self._unanswered_polls = 0
            self._plans.poll = min(self._plans.poll, time.monotonic() + self.config.poll_interval)

    def _seconds_to_next_poll(self) -> float:
        """The poll interval; while no source responds, longer and random.

        Thus the guests of a cloud do not all poll at the same moment after an outage.
        """
        interval = self.config.poll_interval
        if not self._unanswered_polls:
            return interval
        doubled = interval * float(2 ** min(self._unanswered_polls - 1, 16))
        return min(doubled, max(interval, SILENT_POLL_SECONDS)) * (0.75 + os.urandom(1)[0] / 510)

    def _say_ready(self, text: str) -> None:
        if not self._is_ready:
            self._is_ready = True
            systemd.notify(f"READY=1\nSTATUS={text}")

    # --- events ---

    def _watch_descriptor(self, descriptor: int, handler: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, handler)

    def _watch_udev(self) -> None:
        """Watch udev, which reports when it has named a NIC; without it, netlink suffices."""
        if self.config.managers != "auto" or not udev.serves_this_namespace():
            return
        try:
            self._udev = udev.Monitor()
        except ObserveError as error:
            log.warning("%s, ignoring", error.text)
            return
        self._watch_descriptor(self._udev.fileno(), self._udev_events)

    def _link_events(self) -> None:
        waits, enforces = self._waits_for_document, self.config.drift == "enforce"
        links = self._links.drain(addresses=waits or self._waits_for_address or enforces)
        if not links:
            return
        if self._udev and links | self._changed_links != {0}:
            self._await_udev(links)
        else:
            self._plan_event_pass(DEBOUNCE_SECONDS if waits else EVENT_GAP_SECONDS, links)
        if waits:
            # The management NIC may have its address now: ask for the first document soon.
            soon = max(time.monotonic() + DEBOUNCE_SECONDS, self._plans.earliest)
            self._plans.poll = min(self._plans.poll, soon)

    def _udev_events(self) -> None:
        if self._udev is None:
            return
        events = self._udev.drain()
        has_overflowed = self._udev.overflowed
        if has_overflowed:  # the monitor receives nothing from now on
            self._selector.unregister(self._udev.fileno())
            self._udev = None
            self._changed_links.add(0)
            self._watch_udev()
        added = {name for action, name in events if action == "add"}
        if has_overflowed or added or self._plans.events is not None:
            indexes = index_by_interface() if added else {}
            self._plan_event_pass(EVENT_GAP_SECONDS, {indexes.get(name, 0) for name in added})

    def _plan_event_pass(self, quiet_seconds: float, links: Collection[int]) -> None:
        """Plan a pass for when `quiet_seconds` have passed without an event of these links."""
        now = time.monotonic()
        self._changed_links.update(links)
        if self._event_pass_deadline is None:
            self._event_pass_deadline = now + DEBOUNCE_SECONDS
        deadline = min(now + quiet_seconds, self._event_pass_deadline)
        self._plans.events = max(deadline, self._plans.earliest)

    def _await_udev(self, links: Collection[int]) -> None:
        """Plan a pass in case udev does not report what it has done with a new NIC."""
        if self._changed_links <= {0}:  # no pass is planned, or one for addresses
            self._plans.events = max(time.monotonic() + UDEV_NAMING_SECONDS, self._plans.earliest)
        self._changed_links.update(links)

    def _discard_events(self, new_links: Collection[int]) -> None:
        """Cancel a pass that was planned only because the last one created these links.

        Events of a link that has disappeared since count. udev has processed the others, so that
        its events have arrived.
        """
        if new_links:
            self._link_events()
            self._udev_events()
            self._changed_links -= self._links.present(new_links)
            if not self._changed_links:
                self._forget_events()

    def _forget_events(self) -> None:
        self._plans.events = self._event_pass_deadline = None
        self._changed_links.clear()

    def _handle_signals(self, receive: socket.socket) -> None:
        numbers = set(receive.recv(4096))
        if numbers & {signal.SIGTERM, signal.SIGINT}:
            systemd.notify("STOPPING=1")
            self._is_stopping = True
        elif signal.SIGHUP in numbers:
            self._reload_configuration()

    def _reload_configuration(self) -> None:
        """Load the configuration and plan a job; an unreadable one changes nothing."""
        try:
            self.config = load_config(self.path)
        except ConfigError as error:
            log.error("%s; the previous configuration stays active", error.text)
            return
        self._configure_log(self.config)
        for fault in self.config.faults:
            getattr(log, LOG_METHOD_BY_SEVERITY[fault.severity])("%s", fault.text)
        self._job, self._backoff = replace(self._job, config=self.config), Backoff()
        self._plans.poll = self._plans.events = time.monotonic()
        self._changed_links.add(0)
        log.info("configuration reloaded")

    def _feed_watchdog(self, now: float) -> None:
        if self._watchdog_interval is not None and "watchdog" in self._plans.due(now):
            systemd.notify("WATCHDOG=1")
            self._plans.watchdog = now + self._watchdog_interval / 2

    def _close(self) -> None:
        """Let a pass finish, for at most `worker.PASS_GRACE_SECONDS`, and close everything."""
        if self._worker and self._worker.wait():
            self._end()
        self._end_child()
        self._links.close()
        self._selector.close()
