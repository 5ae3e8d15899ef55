"""The report as one line with performance data, for Nagios and other monitoring systems."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

from neuca_tools.model.printable import printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def nagios_line(diagnosis: Diagnosis) -> str:
    """The line (Monitoring Plugins guidelines); the exit code is `NAGIOS[diagnosis.exit_code]`."""
    state, limit = STATES[NAGIOS[diagnosis.exit_code]], diagnosis.limit
    words, values = [], []
    for place, phase in enumerate(diagnosis.phases):
        if phase.rate is not None:
            words.append(f"{phase.name} {amounts.rate(phase.rate)}")
            values.append(
                f"'{place}-{_performance_label(phase.name)}-{_performance_label(phase.direction)}'={phase.rate:.0f}"
            )
    words = words or [diagnosis.words]
    words += diagnosis.failures
    words += [f"{limit.id} {limit.title}"] if limit else []
    words += filter(None, [diagnosis.unknown])
    line = f"DATAPLANE {state} - {', '.join(words)}".replace("|", "/").replace("\n", " ")
    if not values:
        return printable_line(line)
    return f"{printable_line(line)} | {printable_line(' '.join(values))}"


def _performance_label(word: str) -> str:
    """A label of performance data, which must not contain its quote or an equals sign."""
    return re.sub("['=|]", "?", word).replace("\n", " ")
