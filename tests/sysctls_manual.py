"""The list of neuca-sysctls(7): `python3 tests/sysctls_manual.py` writes it from the table of sysctls that documents may set.

`unit/test_docs.py` fails if the page is not current.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "man" / "neuca-sysctls.7"
BEGIN = '.\\" Written by tests/sysctls_manual.py from neuca_tools/tuning/allowed_sysctls.py:\n'
LIST = '.Bl -tag -width "net.ipv6.neigh.default.gc_thresh1" -compact'
END = '.\\" end of what is written\n'


def rows() -> dict[str, dict[str, str]]:
    """The permitted values of each key, by the reason for them."""
    from neuca_tools.tuning.allowed_sysctls import ALLOWED, Words

    values_by_reason: dict[str, dict[str, str]] = {}
    for path, rule in ALLOWED.items():
        if isinstance(rule, Words):
            reason, values = "one of these words", rule.words
        else:
            reason, values = rule.why, tuple(f"{low} to {high}" for low, high in rule.bounds)
        key = path.replace("/", ".")
        values_by_reason.setdefault(reason, {})[key] = ", ".join(values)
    return values_by_reason


def written(page: str) -> str:
    """The page with the list of the present table."""
    lines = []
    for reason, values_by_key in rows().items():
        lines += [".Pp", f"{reason[0].upper()}{reason[1:]}:", LIST]
        for key, values in values_by_key.items():
            lines += [f".It Va {key}", values]
        lines.append(".El")
    before, _, rest = page.partition(BEGIN)
    return "".join([before, BEGIN, *(f"{line}\n" for line in lines), END, rest.partition(END)[2]])


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(written(PAGE.read_text()))
