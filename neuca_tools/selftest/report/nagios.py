"""The report as one line for Nagios and its kin, with performance data (Monitoring Plugins' development guidelines)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.model.printable import plain
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS, WORDS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def nagios(diagnosis: Diagnosis) -> str:
    """The line; its state is `NAGIOS[diagnosis.exit_code]`, which is what the plugin exits with."""
    state = STATES[NAGIOS[diagnosis.exit_code]]
    rates = [
        f"{phase.name} {amounts.rate(phase.rate)}"
        for phase in diagnosis.phases
        if phase.rate is not None
    ]
    limit = f"{diagnosis.limit.id} {diagnosis.limit.title}" if diagnosis.limit else ""
    words = ", ".join(
        [
            *(rates or [WORDS[diagnosis.exit_code]]),
            *([limit] if limit else []),
            *([diagnosis.unknown] if diagnosis.unknown else []),
        ]
    )
    values = " ".join(
        f"'{place}-{_label(one.name)}-{_label(one.direction)}'={one.rate:.0f}"
        for place, one in enumerate(diagnosis.phases)
        if one.rate is not None
    )
    line = plain(f"DATAPLANE {state} - {words}".replace("|", "/").replace("\n", " "))
    return f"{line} | {plain(values)}" if values else line


def _label(word: str) -> str:
    """Of performance data: neither its quote nor its equals sign may be in it."""
    return word.replace("'", "?").replace("=", "?").replace("|", "?").replace("\n", " ")
