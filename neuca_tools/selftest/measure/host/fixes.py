"""`--try-fix`: apply a recommendation at both ends, and keep it if a test is faster with it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Union

from neuca_tools.errors import SelftestError
from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, phase_results
from neuca_tools.selftest.evidence import Evidence, Phase
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.iperf.trial import BETTER_FACTOR, Trial, advised, ends

FIX_STEP = "try-fix"


class Fix:
    """Sysctls that are tried in one session: `begin` before its tests, `end` after them.

    Call `abandon` in any case. `before` is the rate without them, in bit/s.
    """

    def __init__(self, sysctls: dict[str, str], ours: bool, theirs: bool, before: float) -> None:
        self._sysctls, self._ours, self._theirs, self._before = sysctls, ours, theirs, before
        self._here = Trial()

    def begin(self, helper: Optional[Helper]) -> None:
        """Raises ApplyError, SelftestError."""
        if self._theirs:
            if helper is None:
                raise SelftestError("try the fix: it is for the peer, which has no helper")
            helper.set(self._sysctls)
        if self._ours:
            self._here.set(self._sysctls)

    def end(self, evidence: Evidence, helper: Optional[Helper]) -> tuple[str, str]:
        """Keep the values at both ends, or restore the originals; returns verdict and text."""
        results = phase_results(evidence)
        rate = max((result.steady or 0.0 for result in results if not result.error), default=0.0)
        text = f"{amounts.rate(self._before)} → {amounts.rate(rate)}"
        if rate < BETTER_FACTOR * self._before:
            self.abandon()
            return "fail", f"{text}: not a tenth better, so restored"
        try:
            if helper is not None and self._theirs:
                helper.keep()
        except ChannelError as error:
            self.abandon()
            return "fail", f"{text}, but restored: {error}"
        self._here.keep()
        names = " ".join(f'{name}="{value}"' for name, value in self._sysctls.items())
        return "pass", f"{text}: kept until the next boot: {names}"

    def abandon(self) -> None:
        """Restore the values of this end. A helper restores its own when the session ends."""
        self._here.restore()


def fix_for(
    evidence: Evidence, diagnosis: Diagnosis, options: Options
) -> Union[str, tuple[Fix, Options]]:
    """What to try, with the one test that shows its effect; or the reason why nothing is tried."""
    finding = diagnosis.limit
    if finding is None:
        return "nothing limits the path"
    sysctls = advised(finding)
    if not sysctls:
        return "the recommendation is not a setting that can be tried"
    phase = _tcp_phase(evidence, finding.phase)
    rate = phase and _steady_rate(evidence, phase)
    if phase is None or not rate:
        return "only fixes for a TCP test are tried"
    ours, theirs = ends(finding, phase.direction)
    if theirs and options.secret is None and options.ssh is None:
        return "it is for the peer, which has no helper"
    return Fix(sysctls, ours, theirs, rate), _only(phase, options)


def _tcp_phase(evidence: Evidence, name: Optional[str]) -> Optional[Phase]:
    """The phase of a finding; for a finding of the whole session, the first with TCP."""
    wanted = name or "tcp"
    return next((phase for phase in evidence.phases if phase.name == wanted != "udp"), None)


def _steady_rate(evidence: Evidence, phase: Phase) -> Optional[float]:
    return phase_results(replace(evidence, phases=(phase,)))[0].steady


def _only(phase: Phase, options: Options) -> Options:
    """The options of a session that repeats this phase only."""
    step = phase.name
    if phase.name == "tcp" and phase.direction == "reverse":
        step = "tcp-reverse"
    streams = (phase.run and phase.run.streams) or 1
    return replace(options, steps=frozenset({"reach", step}), parallel=(streams,))
