#!/usr/bin/python
# SPDX-License-Identifier: MIT
"""The Ansible module neuca.guest.apply: make one pass of the agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Make one pass of the guest network agent
version_added: 1.0.0
description:
  - Runs C(neuca apply). The task has changed the host if C(neuca plan) had anything to do before.
  - The management NIC and ignored NICs are never changed; see neucad(8).
extends_documentation_fragment:
  - neuca.guest.command
options:
  source:
    description:
      - Read the document from this source instead of the configured ones, as in neuca(1).
        The document becomes the last good one.
    type: str
  pending:
    description:
      - Whether exit code 3 of C(neuca apply) is accepted. It says that something has to wait, for
        example a name that can only be given at boot.
    type: bool
    default: true
attributes:
  check_mode:
    description: Reports the operations and makes no pass.
    support: full
  diff_mode:
    description: Shows what a pass adds and sets as additions, and what it removes as removals.
    support: full
"""

EXAMPLES = r"""
- name: Configure the dataplane as requested
  neuca.guest.apply:
"""

RETURN = r"""
operations:
  description: What was to be done, as described in neuca-status(7).
  returned: success
  type: list
  elements: dict
  sample: [{"operation": "set-mtu", "target": "eth1", "from": 1500, "to": 9000}]
remaining:
  description: What is still to be done after the pass; in check mode the same as RV(operations).
  returned: success
  type: list
  elements: dict
  sample: []
stdout:
  description: The output of C(neuca apply).
  returned: unless in check mode
  type: str
  sample: ""
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.neuca.guest.plugins.module_utils.neuca import program, shown, where

OK = 0
PENDING = 3


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path"},
            "source": {"type": "str"},
            "pending": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    words = where(module)
    if module.params["source"]:
        words += ["--source", module.params["source"]]
    before = operations(module, words)
    if module.check_mode:
        module.exit_json(
            changed=bool(before), operations=before, remaining=before, diff=_diff(before, [])
        )
    code, out, err = module.run_command([program(module), "apply", *words])
    after = operations(module, words) if before else []
    result = {"operations": before, "remaining": after, "stdout": out}
    result.update(changed=before != after, diff=_diff(before, after))
    if code != OK and not (code == PENDING and module.params["pending"]):
        text = out.strip() or err.strip()
        module.fail_json(msg=f"neuca apply: {text}", rc=code, stderr=err, **result)
    module.exit_json(**result)


def operations(module: AnsibleModule, words: list[str]) -> list[dict[str, Any]]:
    """What a pass would do now."""
    plan = shown(module, "plan", *words)[1]
    return plan["operations"]


def _diff(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> dict[str, str]:
    """What is removed stands before the pass; what is added or set, after it."""
    done = [operation for operation in before if operation not in after]
    removed = [one for one in done if one.get("to") is None and one.get("from") is not None]
    return {
        "before_header": "this host",
        "after_header": "neuca apply",
        "before": _lines(removed),
        "after": _lines([operation for operation in done if operation not in removed]),
    }


def _lines(operations: list[dict[str, Any]]) -> str:
    return "".join(f"{operation.get('text', '')}\n" for operation in operations)


if __name__ == "__main__":
    main()
