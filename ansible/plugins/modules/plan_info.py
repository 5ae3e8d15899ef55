#!/usr/bin/python
# SPDX-License-Identifier: MIT
"""The Ansible module neuca.guest.plan_info: what a pass of the agent would do now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_info
short_description: Return what a pass of the agent would do now
version_added: 1.0.0
description:
  - Returns the operations of C(neuca plan --json), in order. Nothing is changed.
extends_documentation_fragment:
  - neuca.guest.command
options:
  source:
    description:
      - Read the document from this source instead of the configured ones, as in neuca(1).
    type: str
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Find out what a new document would do
  neuca.guest.plan_info:
    source: file:/root/user-data.ini
  register: planned
"""

RETURN = r"""
operations:
  description: The operations, as described in neuca-status(7).
  returned: success
  type: list
  elements: dict
  sample: [{"operation": "set-mtu", "target": "eth1", "from": 1500, "to": 9000}]
rc:
  description: The exit code that C(neuca apply) would have, as described in neuca-status(7).
  returned: success
  type: int
  sample: 0
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.neuca.guest.plugins.module_utils.neuca import shown, where


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"config": {"type": "path"}, "source": {"type": "str"}},
        supports_check_mode=True,
    )
    words = where(module)
    if module.params["source"]:
        words += ["--source", module.params["source"]]
    code, plan = shown(module, "plan", *words)
    # Without `failed`, Ansible takes a code other than 0 for a failure.
    module.exit_json(changed=False, failed=False, operations=plan["operations"], rc=code)


if __name__ == "__main__":
    main()
