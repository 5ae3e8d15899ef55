"""The throughput steps of a test: TCP in each direction, parallel and in both, and UDP."""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest import amounts
from neuca_tools.selftest.conditions.reach import is_udp_blocked
from neuca_tools.selftest.diagnosis.diagnose import PhaseResult, phase_results
from neuca_tools.selftest.diagnosis.findings import GENTLY_LOST_SHARE
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Latency, Phase, Step
from neuca_tools.selftest.evidence.route import OneWay
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.iperf import plans
from neuca_tools.selftest.measure.iperf.command import MAX_STREAMS, Test
from neuca_tools.selftest.measure.iperf.conduct import GRACE_SECONDS, run_test
from neuca_tools.selftest.measure.iperf.plans import Options, Rung
from neuca_tools.selftest.measure.probes.echo import Requests, echo_requests, ping_requests
from neuca_tools.selftest.measure.probes.roundtrip import RoundTrips
from neuca_tools.selftest.report.text import one_way_words, phase_words

# The part of the slowest rate at which one-way loss is measured, or LOWEST_RATE if that is more,
# but never more than half of the slowest: see D19.
GENTLE_SHARE = 0.1
# Datagrams of that test: 0.5% of them are ten, which is more than chance. They are smaller than
# packets if the rate is low, but no smaller than SMALLEST bytes, so that headers hardly count.
MAX_DATAGRAMS, SMALLEST, LARGEST = 2000, 256, 1400
# Round trips in which iperf3 opens a connection, one after the other; a lost packet takes longer.
ROUND_TRIPS_TO_OPEN = 2
# Seconds beyond a test of many streams: a helper waits for a minute (serving.IDLE_SECONDS).
MAX_GRACE_SECONDS = 50.0
# The test that may fail although the peer responds: iperf3 opens all streams before it begins.
MAY_FAIL = "tcp-parallel"
PROBE_SECONDS = 0.05  # between the round trips that are measured under load
WAYS = {"forward": "out", "reverse": "back"}
NO_HELPER = "this needs a helper on the peer"
UDP_BLOCKED = "no datagram gets through"
STEPS_WITH_UDP = ("path-mtu", "udp", "one-way")
# These run even if a test before them got nothing through.
STEPS_IN_ANY_CASE = ("as-planned", "latency", "path-mtu", "path", "connections")
# The verdict and the text of a step.
Result = tuple[str, str]
ReportStep = Callable[[Step], None]


class ThroughputSteps:
    """The throughput steps of a test, until one of them gets nothing through.

    `report_step` is called with each step when it has ended.
    """

    _source: Address  # of this end

    def __init__(self, address: Address, options: Options, report_step: ReportStep) -> None:
        self._address, self._options, self._report_step = address, options, report_step
        self._evidence = Evidence(address=str(address), expect=options.expect, label=options.label)
        self._helper: Optional[Helper] = None
        # Why the steps that remain are skipped; empty while there is no reason.
        self._skip_reason = ""

    def _run_throughput(self) -> None:
        self._run_step("tcp", partial(self._measure_tcp, "tcp"))
        self._run_step("tcp-reverse", partial(self._measure_tcp, "tcp-reverse", "reverse"))
        for streams in self._options.parallel:
            if streams > 1:
                measure = partial(self._measure_tcp, streams=min(streams, MAX_STREAMS))
                self._run_step("tcp-parallel", partial(measure, "tcp-parallel"))
        self._run_step("tcp-bidir", partial(self._measure_tcp, "tcp-bidir", "both"))
        self._run_step("udp", self._search_udp_rate)
        self._run_step("one-way", self._measure_one_way)

    def _run_step(self, name: str, measure: Callable[[], Iterable[Result]]) -> None:
        """Run a step and report its results, or why it is skipped."""
        reason = self._reason_to_skip(name)
        if reason:
            self._done(name, "skipped", reason)
            return
        try:
            for verdict, text in measure():
                self._done(name, verdict, text)
        except OSError as error:
            self._done(name, "unknown", f"cannot be measured: {error.strerror}")

    def _reason_to_skip(self, name: str) -> str:
        """Why a step is not to run; empty if it is."""
        if name not in self._options.steps:
            return NOT_ASKED
        if name == "connections" and (self._helper is None or self._helper.failure):
            return NO_HELPER
        if name in STEPS_WITH_UDP and is_udp_blocked(self._evidence):
            return UDP_BLOCKED
        return "" if name in STEPS_IN_ANY_CASE else self._skip_reason

    def _done(self, name: str, verdict: str, text: str) -> None:
        step = Step(name, verdict, text)
        self._evidence = replace(self._evidence, steps=(*self._evidence.steps, step))
        self._report_step(step)

    def _measure_tcp(
        self, name: str, direction: str = "forward", streams: int = 1
    ) -> Iterator[Result]:
        options = self._options
        test = self._new_test(options.seconds, options.rate)._replace(
            streams=streams, direction=direction
        )
        trips = None
        if name == "tcp" and "loaded" in options.steps:
            # Not every host can send pings.
            with suppress(OSError):
                trips = RoundTrips(self._new_requests(), PROBE_SECONDS)
        phase = "tcp" if name == "tcp-reverse" else name
        grace = GRACE_SECONDS + streams * ROUND_TRIPS_TO_OPEN * (self._evidence.idle.p50 or 0.0)
        phases = run_test(phase, test, self._helper, trips, min(grace, MAX_GRACE_SECONDS))
        yield from self._add(name, phases, f" of {streams} streams" if streams > 1 else "")
        if trips is not None:
            self._end_loaded(trips.end())

    def _end_loaded(self, loaded: Latency) -> None:
        """End the step loaded, which is measured during the step tcp."""
        self._evidence = replace(self._evidence, loaded=loaded)
        if loaded.p50 and loaded.maximum:
            text = f"p50 {amounts.time(loaded.p50)}, max {amounts.time(loaded.maximum)}"
            self._done("loaded", "pass", text)
        else:
            self._done("loaded", "unknown", "no response during the test")

    def _new_test(self, seconds: float, rate: Optional[float]) -> Test:
        """A test with one TCP stream; `rate` in bit/s, None for no limit."""
        return Test(
            self._address,
            self._options.port,
            seconds,
            source=self._source,
            rate=rate,
            numa_nodes=self._options.numa,
        )

    def _new_requests(self) -> Requests:
        """Requests to the echo of the helper or, without one, pings. Raises OSError."""
        if self._helper is None:
            return ping_requests(self._address, self._source)
        port, token = self._options.port + 1, self._helper.token
        return echo_requests(self._address, port, token, self._source)

    def _add(self, name: str, phases: Sequence[Phase], offered: str = "") -> Iterator[Result]:
        """Add the phases of one run, with a result for each direction.

        Its text ends in what was `offered`, unless the test failed.
        """
        self._evidence = replace(self._evidence, phases=(*self._evidence.phases, *phases))
        results = phase_results(replace(self._evidence, phases=tuple(phases)))
        for phase, result in zip(phases, results):
            is_judged = result.protocol == "udp" or self._options.expect is not None
            verdict = _phase_verdict(phase, result, is_judged)
            yield verdict, _result_words(result, offered, len(results) > 1)
        error = next((result.error for result in results if result.error), None)
        if error and name != MAY_FAIL and not any(result.rate for result in results):
            self._skip_reason = f"the previous test got nothing through: {error}"

    def _search_udp_rate(self) -> Iterator[Result]:
        """Offer rates up to the expected one, or to what TCP reached, for the loss-free rate."""
        requested = self._options.rate or self._options.expect
        rates = self._measured_rates()
        top = requested or max(rates, default=None)
        if not top:
            yield "skipped", "no target rate is known: use --rate or --expect"
            return
        rungs: list[Rung] = []
        yield from self._climb_ladder(rungs, top, searching=not requested)
        best = plans.loss_free_rate(rungs)
        if best is None:
            yield "unknown", "no rate was found at which nothing is lost"
        else:
            yield "pass", f"loss-free up to {amounts.rate(best)}"

    def _climb_ladder(self, rungs: list[Rung], top: float, searching: bool) -> Iterator[Result]:
        """Fill in the rungs: run the tests up to the rate `top`, in bit/s.

        `searching`: a loss is not a failure, because the path is not known to have this rate. After
        the first loss that applies in any case.
        """
        seconds = min(plans.STEP_SECONDS, self._options.seconds)
        while (rate := plans.next_rate(rungs, top)) is not None and not self._skip_reason:
            search = searching or not all(rung.is_loss_free for rung in rungs)
            test = self._new_test(seconds, rate)._replace(udp=True)
            phases = self._datagrams("udp", test)
            marked = [replace(phase, search=search) for phase in phases]
            yield from self._add("udp", marked, f" of {amounts.rate(rate)}")
            rung = _rung_of(phases[0], rate)
            if rung is None:
                break
            rungs.append(rung)

    def _datagrams(self, name: str, test: Test) -> list[Phase]:
        """A UDP test, repeated once if nothing arrived.

        iperf3 does not send the first datagram of a stream again, without which no test begins: on
        a path that loses 4%, one test in twenty fails.
        """
        phases = run_test(name, test, self._helper)
        if any(phase.flow and phase.flow.rate for phase in phases):
            return phases
        return run_test(name, test, self._helper)

    def _measured_rates(self) -> list[float]:
        """The highest rate so far of each protocol and direction, in bit/s.

        Lower ones are not what the path carries: of UDP, little is offered at first.
        """
        highest: dict[tuple[Optional[str], str], float] = {}
        for result in phase_results(self._evidence):
            key = (result.protocol, result.direction)
            highest[key] = max(result.rate or 0.0, highest.get(key, 0.0))
        return [rate for rate in highest.values() if rate]

    def _measure_one_way(self) -> Iterator[Result]:
        """The loss of each direction on its own, at a rate that the path carries without queues."""
        rates = self._measured_rates()
        slowest = min(rates, default=plans.LOWEST_RATE / plans.RETRY_SHARE)
        rate = min(max(plans.LOWEST_RATE, GENTLE_SHARE * slowest), plans.RETRY_SHARE * slowest)
        seconds = min(plans.STEP_SECONDS, self._options.seconds)
        for direction in WAYS:
            test = self._new_test(seconds, min(rate, self._options.rate or rate))
            test = test._replace(
                udp=True, direction=direction, length=datagram_size(test.rate or rate, seconds)
            )
            (phase,) = self._datagrams("one-way", test)
            one_way = one_way_of(phase)
            self._evidence = replace(self._evidence, one_way=(*self._evidence.one_way, one_way))
            error = phase.run.error if phase.run else None
            yield _one_way_result(one_way, error)


def datagram_size(rate: float, seconds: float) -> int:
    """Bytes of a datagram of the test of one-way loss; 0 for iperf3's own size.

    What is lost at random is counted in packets, of which a slow path carries few.
    """
    size = int(rate * seconds / 8 / MAX_DATAGRAMS)
    return 0 if size >= LARGEST else max(SMALLEST, size)


def one_way_of(phase: Phase) -> OneWay:
    """What the two ends of a UDP phase counted."""
    flow = phase.run.flow(phase.direction) if phase.run else None
    if flow is None:
        return OneWay(phase.direction, phase.target)
    sent, received = flow.sent, flow.received
    return OneWay(
        direction=phase.direction,
        rate=phase.target,
        sent=sent.datagrams,
        seen=received.datagrams,
        lost=received.lost,
        out_of_order=received.out_of_order,
        losses=tuple(interval.lost for interval in flow.intervals if interval.lost is not None),
    )


def _one_way_result(one_way: OneWay, error: Optional[str]) -> Result:
    way = WAYS[one_way.direction]
    if error:
        return "fail", f"{way}: {error}"
    if one_way.loss is None:
        return "unknown", f"{way}: iperf3 did not report the sequence numbers of both hosts"
    verdict = "fail" if one_way.loss >= GENTLY_LOST_SHARE else "pass"
    return verdict, f"{one_way_words(one_way)} {way}"


def _result_words(result: PhaseResult, offered: str, is_of_both: bool) -> str:
    back = " back" if is_of_both and result.direction == "reverse" else ""
    return f"{phase_words(result)}{'' if result.error else offered}{back}"


def _phase_verdict(phase: Phase, result: PhaseResult, is_judged: bool) -> str:
    """`is_judged`: the rate is compared with another one, which may say neither pass nor fail."""
    if result.passed is False:
        return "fail"
    if result.rate is None or (is_judged and result.passed is None and not phase.search):
        return "unknown"
    return "search" if phase.search else "pass"


def _rung_of(phase: Phase, offered: float) -> Optional[Rung]:
    """What a UDP phase says about the rate `offered`; None if it is incomplete."""
    flow = phase.run.flow("forward") if phase.run and not phase.run.error else None
    if flow is None or not flow.received.datagrams or flow.sent.rate is None:
        return None
    return Rung(offered, flow.sent.rate, (flow.received.lost or 0) / flow.received.datagrams)
