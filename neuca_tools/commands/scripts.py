"""`neuca run-scripts`: runs the scripts of the user-data that have not run on this instance yet."""

# SPDX-License-Identifier: MIT

import argparse
from collections.abc import Sequence

from neuca_tools.commands.common import require_root, show
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.data import stored_document
from neuca_tools.errors import EXIT_FAILED, EXIT_OK
from neuca_tools.guest import scripts
from neuca_tools.guest.base import Finding, Guest
from neuca_tools.guest.run import run_feature
from neuca_tools.model import Document


def run(arguments: argparse.Namespace) -> int:
    config = load_configuration(arguments)
    require_root("run-scripts")
    config.demand_protection()
    document = stored_document(config).document or Document()
    findings: Sequence[Finding] = ()
    if arguments.dry_run:
        guest = Guest(config, document)
        findings = tuple(scripts.script_findings(guest, "would run, or is running"))
    elif document.scripts:
        findings = run_feature(config, "scripts", document).findings
    states = [
        {"name": finding.subject, "state": finding.state, "text": finding.text}
        for finding in findings
    ]
    text = "\n".join(finding.text for finding in findings) or "there are no scripts"
    show({"version": 1, "scripts": states}, arguments.json, lambda _: text)
    is_ok = arguments.dry_run or all(finding.state == "ok" for finding in findings)
    return EXIT_OK if is_ok else EXIT_FAILED
