"""The comparison of several paths: a table for people, and JSON."""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Iterator, Sequence

from neuca_tools.model.printable import json_document, printable_line
from neuca_tools.selftest import amounts
from neuca_tools.selftest.codes import WORDS, ExitCode
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.diagnosis.paths import (
    BYTES,
    CONNECTIONS,
    LESS_IS_BETTER,
    RATE,
    TIME,
    PathComparison,
    Row,
    Tests,
    Value,
)
from neuca_tools.selftest.evidence.codec import encode
from neuca_tools.selftest.report.record import report_data
from neuca_tools.selftest.report.text import conclusion_text, name_with_arrow

VERSION = 1
FORMS: dict[str, Callable[[float], str]] = {
    RATE: amounts.rate,
    TIME: amounts.time,
    BYTES: lambda value: f"{value:.0f} bytes",
    CONNECTIONS: lambda value: f"{value:.0f} connections/s",
}
NAME_WIDTH, VALUE_WIDTH = 18, 29


def path_table(comparison: PathComparison, verbose: bool = False) -> str:
    """Every measurement over each path, with what it costs; then what limits each of them."""
    width = max(len(verdict.label) for verdict in comparison.verdicts) + 2
    lines = [printable_line(line) for row in comparison.rows for line in _row_lines(row, width)]
    for number, verdict in enumerate(comparison.verdicts):
        note = "" if number else " (the baseline)"
        lines.append(printable_line(f"— {verdict.label}{note}"))
        lines.append(conclusion_text(verdict.diagnosis, verbose))
    return "\n".join(lines)


def _row_lines(row: Row, width: int) -> Iterator[str]:
    name = name_with_arrow(row.name, row.direction)
    for value in row.values:
        yield f"{name:<{NAME_WIDTH}}{value.label:<{width}}{_value_text(value, row.unit)}"
        name = ""


def _value_text(value: Value, unit: str) -> str:
    form = FORMS[unit]
    text = form(value.median)
    if value.count > 1 and unit != BYTES:
        text += f" ± {form(value.deviation)}"
    if value.tax is None:
        return text
    text = f"{text:<{VALUE_WIDTH}}"
    if not value.tax:
        return f"{text} the same"
    is_more = (value.tax > 0) is (unit in LESS_IS_BETTER)
    text += f" {amounts.percent(abs(value.tax))} {'more' if is_more else 'less'}"
    return f"{text}, within their usual variation" if value.alike else text


def path_record(comparison: PathComparison, paths: Sequence[Tests], code: ExitCode) -> str:
    """Everything as JSON, with the report of each test. Keys may be added within a version."""
    verdicts = [
        {
            "label": verdict.label,
            "verdict": verdict.diagnosis.words,
            "exit_code": int(verdict.diagnosis.exit_code),
            "unknown": verdict.diagnosis.unknown,
            "findings": encode(verdict.diagnosis.findings),
            "reports": [report_data(evidence, diagnose(evidence)) for evidence in tests.rounds],
        }
        for verdict, tests in zip(comparison.verdicts, paths)
    ]
    return json_document(
        {
            "version": VERSION,
            "verdict": WORDS[code],
            "exit_code": int(code),
            "baseline": paths[0].label,
            "rows": encode(comparison.rows),
            "paths": verdicts,
        }
    )
