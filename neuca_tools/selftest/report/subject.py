"""The subject of a diagnosis: the file, the program that wrote it, date, peer and options."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.model.printable import plain
from neuca_tools.selftest.evidence import Evidence
from neuca_tools.selftest.evidence.run import Run


def subject(evidence: Evidence, file: str) -> dict[str, str]:
    """What is known of these, by its name in the JSON report."""
    run = next((one.run for one in evidence.phases if one.run), Run("iperf"))
    version = run.version or ""
    found = {
        "file": file,
        "tool": f"{run.tool} {version}".strip(),
        "date": evidence.taken or run.taken,
        "peer": evidence.address or run.peer,
        "options": run.options,
        "system": run.system,
    }
    return {name: plain(value) for name, value in found.items() if value}


def subject_line(found: dict[str, str]) -> str:
    """The same in words: "run.txt: iperf3 3.12, Tue 5 Nov 2019, peer 10.0.0.1, options -P 4"."""
    facts = [found.get("tool", ""), found.get("date", "")]
    facts += [f"{name} {found[name]}" for name in ("peer", "options") if name in found]
    return f"{found['file']}: {', '.join(filter(None, facts))}"
