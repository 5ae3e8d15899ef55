"""`neuca run-scripts`: runs the scripts of the user-data that have not run on this instance yet."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse

from neuca_tools.commands.context import configuration, require_root
from neuca_tools.commands.data import stored_document
from neuca_tools.errors import EXIT_FAILED, EXIT_OK
from neuca_tools.guest.run import run_feature


def run(arguments: argparse.Namespace) -> int:
    config = configuration(arguments)
    require_root("neuca run-scripts")
    document = stored_document(config).document
    outcome = run_feature(config, "scripts", document) if document else None
    if outcome is None or not outcome.findings:
        print("there are no scripts")
        return EXIT_OK
    print("\n".join(finding.text for finding in outcome.findings))
    return EXIT_OK if outcome.state == "ok" else EXIT_FAILED
