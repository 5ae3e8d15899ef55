"""`neuca run-scripts`: runs the scripts of the user-data that have not run on this instance yet."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from neuca_tools.commands.common import require_root, show
from neuca_tools.commands.context import load_configuration
from neuca_tools.commands.data import stored_document
from neuca_tools.config import Config
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
    findings = _run_or_list(config, document, arguments.dry_run)
    show(_scripts_json(findings), arguments.json, _scripts_text)
    if arguments.dry_run or all(finding.state == "ok" for finding in findings):
        return EXIT_OK
    return EXIT_FAILED


def _run_or_list(config: Config, document: Document, dry_run: bool) -> Sequence[Finding]:
    if dry_run:
        return list(scripts.script_findings(Guest(config, document), "would run, or is running"))
    return run_feature(config, "scripts", document).findings if document.scripts else ()


def _scripts_json(findings: Sequence[Finding]) -> dict[str, Any]:
    states = [
        {"name": finding.subject, "state": finding.state, "text": finding.text}
        for finding in findings
    ]
    return {"version": 1, "scripts": states}


def _scripts_text(data: dict[str, Any]) -> str:
    lines = [script["text"] for script in data["scripts"]]
    return "\n".join(lines) or "there are no scripts"
