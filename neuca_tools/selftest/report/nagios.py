"""The report as one line with performance data, for Nagios and other monitoring systems."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re

from neuca_tools.model.printable import plain
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import NAGIOS
from neuca_tools.selftest.diagnosis.diagnose import Diagnosis

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")


def nagios(diagnosis: Diagnosis) -> str:
    """The line (Monitoring Plugins guidelines); the exit code is `NAGIOS[diagnosis.exit_code]`."""
    state, limit = STATES[NAGIOS[diagnosis.exit_code]], diagnosis.limit
    words, values = [], []
    for place, phase in enumerate(diagnosis.phases):
        if phase.rate is not None:
            words.append(f"{phase.name} {amounts.rate(phase.rate)}")
            values.append(
                f"'{place}-{_label(phase.name)}-{_label(phase.direction)}'={phase.rate:.0f}"
            )
    words = words or [diagnosis.words]
    words += diagnosis.failures
    words += [f"{limit.id} {limit.title}"] if limit else []
    words += filter(None, [diagnosis.unknown])
    line = f"DATAPLANE {state} - {', '.join(words)}".replace("|", "/").replace("\n", " ")
    if not values:
        return plain(line)
    return f"{plain(line)} | {plain(' '.join(values))}"


def _label(word: str) -> str:
    """A label of performance data, which must not contain its quote or an equals sign."""
    return re.sub("['=|]", "?", word).replace("\n", " ")
