#!/usr/bin/python
# SPDX-License-Identifier: MIT
"""The Ansible module neuca.guest.selftest: measure the path to a peer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: selftest
short_description: Measure the dataplane path to a peer
version_added: 1.0.0
description:
  - Runs C(neuca-selftest run) against one peer and returns what it found. The peer runs
    C(neuca-selftest serve) or C(iperf3 -s -p 45678); the role P(neuca.guest.neuca_selftest#role)
    does both ends.
  - Nothing is configured, but traffic is sent at the full rate of the path unless O(rate) is given.
extends_documentation_fragment:
  - neuca.guest.command
options:
  peer:
    description:
      - The address of the peer on the dataplane.
    type: str
    required: true
  plan:
    description:
      - Which steps are run.
    type: str
    choices: [quick, standard, full]
    default: quick
  expect:
    description:
      - The expected rate of the path, such as V(5G).
    type: str
  rate:
    description:
      - The highest rate at which a test may send.
    type: str
  time:
    description:
      - The duration of each throughput test in seconds. The default is that of the plan.
    type: float
  interface:
    description:
      - The route to the peer must leave through this interface.
    type: str
  secret_file:
    description:
      - The file with the secret that both hosts share.
    type: path
  report:
    description:
      - Whether to return the whole report, up to some hundred KiB for each host.
    type: bool
    default: false
  accept:
    description:
      - Verdicts with which the task succeeds.
    type: list
    elements: str
    default: [pass]
attributes:
  check_mode:
    description: Can run in check mode.
    details: Sends nothing then, and is skipped.
    support: partial
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Expect 9 Gbit/s to the other host
  neuca.guest.selftest:
    peer: 172.16.0.2
    expect: 10G
    secret_file: /etc/neuca/selftest.secret
"""

RETURN = r"""
verdict:
  description: The verdict, as in neuca-selftest(1).
  returned: when a test was made
  type: str
  sample: pass
summary:
  description: The verdict and the rate of each test, in words.
  returned: when a test was made
  type: str
  sample: "pass: tcp 941 Mbit/s, tcp \u2190 940 Mbit/s"
findings:
  description: What limits the path, the most probable first.
  returned: when a test was made
  type: list
  elements: dict
  sample: []
report:
  description: The whole report; its schema is published with neuca-guest-tools.
  returned: with O(report)
  type: dict
  sample: {"version": 1, "verdict": "pass"}
rc:
  description: The exit code of C(neuca-selftest).
  returned: when a test was made
  type: int
  sample: 0
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.neuca.guest.plugins.module_utils.neuca import program, where

# Options that are passed on as they are, by parameter.
PASSED = {
    "plan": "--plan",
    "expect": "--expect",
    "rate": "--rate",
    "time": "--time",
    "interface": "--interface",
    "secret_file": "--secret-file",
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path"},
            "peer": {"type": "str", "required": True},
            "plan": {"type": "str", "choices": ["quick", "standard", "full"], "default": "quick"},
            "expect": {"type": "str"},
            "rate": {"type": "str"},
            "time": {"type": "float"},
            "interface": {"type": "str"},
            # The name of a file is no secret.
            "secret_file": {"type": "path", "no_log": False},
            "report": {"type": "bool", "default": False},
            "accept": {"type": "list", "elements": "str", "default": ["pass"]},
        },
        supports_check_mode=True,
    )
    if module.params["peer"].startswith("-"):
        module.fail_json(msg=f'the peer "{module.params["peer"]}" is not an address')
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, msg="nothing is sent in check mode")
    code, out, err = module.run_command([program(module), "selftest", *_words(module)])
    report = _report(module, code, out, err)
    result = {"verdict": report["verdict"], "findings": report.get("findings", []), "rc": code}
    result["summary"] = _summary(report)
    if module.params["report"]:
        result["report"] = report
    if report["verdict"] not in module.params["accept"]:
        said = [f"the self-test to {module.params['peer']}", result["summary"], *_reason(report)]
        module.fail_json(msg=": ".join(said), **result)
    # Without `failed`, Ansible takes a code other than 0 for a failure.
    module.exit_json(changed=False, failed=False, **result)


def _words(module: AnsibleModule) -> list[str]:
    words = ["run", "--json", *where(module)]
    for name, option in PASSED.items():
        if module.params[name] is not None:
            words += [option, str(module.params[name])]
    return [*words, module.params["peer"]]


def _summary(report: dict[str, Any]) -> str:
    phases = [phase for phase in report.get("phases", []) if phase.get("rate") is not None]
    arrows = {"reverse": " \u2190"}  # as in the text of neuca-selftest
    rates = [
        f"{phase['name']}{arrows.get(phase.get('direction'), '')} {_rate(phase['rate'])}"
        for phase in phases
    ]
    return ": ".join([report["verdict"], *([", ".join(rates)] if rates else [])])


def _rate(bits: float) -> str:
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bits < 1000:
            return f"{bits:.4g} {unit}"
        bits /= 1000
    return f"{bits:.4g} Gbit/s"


def _reason(report: dict[str, Any]) -> list[str]:
    """The first finding, or why there is no result, if the report has either."""
    texts = [finding["text"] for finding in report.get("findings", [])[:1]]
    return texts or [report["unknown"]] * bool(report.get("unknown"))


def _report(module: AnsibleModule, code: int, out: str, err: str) -> dict[str, Any]:
    try:
        report = json.loads(out)
    except ValueError:
        report = None
    if not isinstance(report, dict) or "verdict" not in report:
        module.fail_json(msg=err.strip() or f"neuca-selftest: {out.strip()}", rc=code)
    return report


if __name__ == "__main__":
    main()
