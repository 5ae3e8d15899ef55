"""`--try-fix`: what the advice of a diagnosis is worth, measured: set it at both ends, measure again, keep it if it is better."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace
from typing import Optional, Union

from neuca_tools.errors import SelftestError
from neuca_tools.selftest import amounts
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis, phase_results
from neuca_tools.selftest.evidence import Evidence, Phase, Step
from neuca_tools.selftest.measure.helper.channel import ChannelError
from neuca_tools.selftest.measure.helper.peer import Helper
from neuca_tools.selftest.measure.iperf.plans import Options
from neuca_tools.selftest.measure.iperf.trial import BETTER, Trial, advised, ends

STEP = "try-fix"


class Fix:
    """One advice that is tried in a session: `begin` before its tests, `end` after them; `abandon` whatever happens."""

    def __init__(self, sysctls: dict[str, str], ours: bool, theirs: bool, before: float) -> None:
        self._sysctls, self._ours, self._theirs, self._before = sysctls, ours, theirs, before
        self._here = Trial()

    def begin(self, helper: Optional[Helper]) -> None:
        """Raises ApplyError, SelftestError."""
        if self._theirs:
            if helper is None:
                raise SelftestError(
                    "try the fix: it is for the other end, and there is no helper there"
                )
            helper.set(self._sysctls)
        if self._ours:
            self._here.set(self._sysctls)

    def end(self, evidence: Evidence, helper: Optional[Helper]) -> Step:
        """Keep it at both ends, or put it back."""
        rate = max(
            (one.steady for one in phase_results(evidence) if one.steady and not one.error),
            default=0.0,
        )
        text = f"{amounts.rate(self._before)} → {amounts.rate(rate)}"
        if rate < BETTER * self._before:
            self.abandon()
            return Step(STEP, "fail", f"{text}: not a tenth better, and put back")
        try:
            if helper is not None and self._theirs:
                helper.keep()
        except ChannelError as error:
            self.abandon()
            return Step(STEP, "fail", f"{text}, and put back: {error}")
        self._here.keep()
        names = " ".join(f'{name}="{value}"' for name, value in self._sysctls.items())
        return Step(STEP, "pass", f"{text}: kept until the next boot: {names}")

    def abandon(self) -> None:
        """Put back what was set here; a helper does so by itself at the end of the session."""
        self._here.back()


def fix_for(
    evidence: Evidence, diagnosis: Diagnosis, options: Options
) -> Union[str, tuple[Fix, Options]]:
    """What to try, and the one test that shows it; or why there is nothing to try."""
    finding = diagnosis.limit
    if finding is None:
        return "nothing limits"
    sysctls = advised(finding)
    phase = _phase(evidence, finding.phase)
    rate = (
        next(
            (one.steady for one in phase_results(replace(evidence, phases=(phase,))) if one.steady),
            None,
        )
        if phase
        else None
    )
    if not sysctls:
        return "the advice is no setting that can be tried"
    if phase is None or rate is None or phase.name == "udp":
        return "only what limits a TCP test is tried"
    ours, theirs = ends(finding, phase.direction)
    if theirs and options.secret is None and options.ssh is None:
        return "it is for the other end, and there is no helper there"
    step = "tcp-reverse" if phase.name == "tcp" and phase.direction == "reverse" else phase.name
    streams = (phase.run.streams or 1) if phase.run else 1
    only = replace(options, steps=frozenset({"reach", step}), parallel=(streams,))
    return Fix(sysctls, ours, theirs, rate), only


def _phase(evidence: Evidence, name: Optional[str]) -> Optional[Phase]:
    """The one that a finding was found in; of the whole session, the first of TCP."""
    wanted = name or "tcp"
    return next((one for one in evidence.phases if one.name == wanted), None)
