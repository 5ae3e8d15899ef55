"""The throughput steps of a test: TCP one way and the other, several streams, both ways at once, and UDP's ladder."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Optional

from neuca_tools.model import Host as Address
from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.diagnose import phase_results
from neuca_tools.selftest.evidence import NOT_ASKED, Evidence, Phase, Step
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.iperf.command import MOST_STREAMS, Test
from neuca_tools.selftest.measure.iperf.conduct import conduct
from neuca_tools.selftest.measure.iperf.plans import (
    STEP_SECONDS,
    Options,
    Rung,
    loss_free,
    next_rate,
)
from neuca_tools.selftest.measure.probes import roundtrip
from neuca_tools.selftest.report.text import phase_words

BESIDE = 0.05  # seconds between round trips under load


class ThroughputSteps:
    """Adds its phases to an Evidence. The first that does not get through is the last."""

    def __init__(
        self,
        options: Options,
        address: Address,
        source: Address,
        devices: Sequence[str],
        helper: Optional[Helper],
        tell: Callable[[Step], None],
    ) -> None:
        self._options, self._address, self._source, self._devices = (
            options,
            address,
            source,
            devices,
        )
        self._helper, self._tell, self._lost = helper, tell, ""
        self._evidence = Evidence()

    def run(self, evidence: Evidence) -> Evidence:
        self._evidence = evidence
        self._tcp("tcp", probe=True)
        self._tcp("tcp-reverse", direction="reverse")
        for streams in [one for one in self._options.parallel if one > 1]:
            self._tcp("tcp-parallel", streams=min(streams, MOST_STREAMS))
        self._tcp("tcp-bidir", direction="both")
        self._udp()
        return self._evidence

    def _done(self, step: Step) -> None:
        self._evidence = replace(self._evidence, steps=(*self._evidence.steps, step))
        self._tell(step)

    def _left_out(self, name: str) -> bool:
        if name not in self._options.steps:
            self._done(Step(name, "skipped", NOT_ASKED))
        elif self._lost:
            self._done(Step(name, "skipped", self._lost))
        return name not in self._options.steps or bool(self._lost)

    def _tcp(
        self, name: str, direction: str = "forward", streams: int = 1, probe: bool = False
    ) -> None:
        if self._left_out(name):
            return
        test = self._test(
            self._options.seconds, direction=direction, streams=streams, rate=self._options.rate
        )
        beside = self._beside() if probe and "loaded" in self._options.steps else None
        found = conduct(
            "tcp" if name == "tcp-reverse" else name, test, self._helper, self._devices, beside
        )
        self._take(name, found, f" of {streams} streams" if streams > 1 else "")
        if beside is not None:
            loaded = beside.end()
            self._evidence = replace(self._evidence, loaded=loaded)
            text = (
                f"p50 {amounts.time(loaded.p50)}, max {amounts.time(loaded.maximum)}"
                if loaded.p50 and loaded.maximum
                else ""
            )
            self._done(
                Step(
                    "loaded",
                    "pass" if text else "unknown",
                    text or "nothing came back beside the test",
                )
            )

    def _test(
        self,
        seconds: float,
        direction: str = "forward",
        streams: int = 1,
        udp: bool = False,
        rate: Optional[float] = None,
    ) -> Test:
        return Test(
            self._address,
            self._options.port,
            seconds,
            self._source,
            streams,
            direction,
            udp,
            rate,
            self._options.numa,
        )

    def _beside(self) -> Optional[roundtrip.RoundTrips]:
        """None where this host may not send pings."""
        with suppress(OSError):
            if self._helper:
                return roundtrip.Datagrams(
                    self._address, self._options.port + 1, self._helper.token, self._source, BESIDE
                )
            return roundtrip.Pings(self._address, self._source, BESIDE)
        return None

    def _take(self, name: str, found: Sequence[Phase], more: str = "") -> None:
        self._evidence = replace(self._evidence, phases=(*self._evidence.phases, *found))
        results = phase_results(replace(self._evidence, phases=tuple(found)))
        words = {True: "pass", False: "fail", None: "pass"}
        for phase, one in zip(found, results):
            way = " back" if len(results) > 1 and one.direction == "reverse" else ""
            verdict = (
                "fail"
                if one.error
                else "unknown"
                if one.rate is None
                else "search"
                if phase.search
                else words[one.passed]
            )
            self._done(Step(name, verdict, f"{phase_words(one)}{more}{way}"))
        error = next((one.error for one in results if one.error), None)
        if error and not any(one.rate for one in results):
            self._lost = f"the test before got nothing through: {error}"

    def _udp(self) -> None:
        """Up the ladder to the rate that is expected, else to what TCP got; then between, for the loss-free rate."""
        if self._left_out("udp"):
            return None
        asked = self._options.rate or self._options.expect
        top = asked or max(
            (one.rate for one in phase_results(self._evidence) if one.rate), default=None
        )
        if not top:
            return self._done(
                Step("udp", "skipped", "no rate is known to climb to: --rate or --expect")
            )
        rungs: list[Rung] = []
        rate = next_rate(rungs, top)
        while rate is not None and not self._lost:
            search = not asked or any(not one.clean for one in rungs)
            found = conduct(
                "udp",
                self._test(min(STEP_SECONDS, self._options.seconds), udp=True, rate=rate),
                self._helper,
                self._devices,
            )
            self._take(
                "udp", [replace(one, search=search) for one in found], f" of {amounts.rate(rate)}"
            )
            rung = _rung(found[0], rate)
            if rung is None:
                break
            rungs.append(rung)
            rate = next_rate(rungs, top)
        best = loss_free(rungs)
        return self._done(
            Step(
                "udp",
                "unknown" if best is None else "pass",
                f"loss-free up to {amounts.rate(best)}"
                if best
                else "no rate was found at which nothing is lost",
            )
        )


def _rung(phase: Phase, asked: float) -> Optional[Rung]:
    flow = phase.run.flow("forward") if phase.run and not phase.run.error else None
    if flow is None or not flow.received.datagrams or flow.sent.rate is None:
        return None
    return Rung(asked, flow.sent.rate, (flow.received.lost or 0) / flow.received.datagrams)
