"""Somebody's document becomes Evidence: an iperf run of any kind, or the evidence that a self-test wrote."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from typing import Optional

from neuca_tools.errors import SelftestError
from neuca_tools.selftest.evidence import VERSION, Evidence, Phase
from neuca_tools.selftest.evidence.codec import decode
from neuca_tools.selftest.evidence.run import Run
from neuca_tools.selftest.readers import read

OURS = "phases"  # a key that iperf3's documents have not


def evidence_of(
    content: bytes, expect: Optional[float] = None, rtt: Optional[float] = None
) -> Evidence:
    """What a document tells. Raises SelftestError for evidence of ours that is damaged or of another version."""
    own = _own(content)
    evidence = own if own is not None else of_run(read(content), content.decode("utf-8", "replace"))
    return replace(
        evidence,
        expect=evidence.expect if expect is None else expect,
        rtt=evidence.rtt if rtt is None else rtt,
    )


def of_run(run: Run, raw: Optional[str] = None) -> Evidence:
    """One phase for each direction, the document itself with the first. "local" is the client: it sends forward."""
    kind = run.protocol or "tcp"
    if len(run.flows) == 2:
        phases = tuple(
            Phase(
                "tcp-bidir" if kind == "tcp" else kind,
                run,
                flow.direction,
                raw=raw if place == 0 else None,
            )
            for place, flow in enumerate(run.flows)
        )
    else:
        name = "tcp-parallel" if kind == "tcp" and (run.streams or 1) > 1 else kind
        phases = (Phase(name, run, run.flows[0].direction if run.flows else "forward", raw=raw),)
    return Evidence(phases=phases)


def _own(content: bytes) -> Optional[Evidence]:
    try:
        data = json.loads(content)
    except (RecursionError, ValueError):
        return None
    whole = isinstance(data, dict) and isinstance(data.get("evidence"), dict)
    data = data["evidence"] if whole else data
    if not isinstance(data, dict) or not (
        whole or OURS in data
    ):  # a report has no phases where nobody was reached
        return None
    try:
        return decode(Evidence, data, VERSION)
    except RecursionError:
        raise SelftestError("read the evidence: it is nested too deeply") from None
