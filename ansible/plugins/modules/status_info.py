#!/usr/bin/python
# SPDX-License-Identifier: MIT
"""The Ansible module neuca.guest.status_info: whether each NIC is configured as requested."""

from __future__ import annotations

DOCUMENTATION = r"""
module: status_info
short_description: Return whether each NIC is configured as requested
version_added: 1.0.0
description:
  - Returns the output of C(neuca status --json). No source is queried.
  - A host that is not as requested is not an error of the module; use a task with
    M(ansible.builtin.assert) if it should be.
extends_documentation_fragment:
  - neuca.guest.command
options:
  wait:
    description:
      - Wait while the state is V(pending).
    type: bool
    default: false
  timeout:
    description:
      - How long to wait at most, in seconds.
    type: float
    default: 300
attributes:
  check_mode:
    description: Changes nothing.
    support: full
  diff_mode:
    description: Changes nothing.
    support: none
"""

EXAMPLES = r"""
- name: Wait until the network is configured
  neuca.guest.status_info:
    wait: true
    timeout: 60
  register: network

- name: Require that everything is as requested
  ansible.builtin.assert:
    that: network.status.state == "ok"
"""

RETURN = r"""
status:
  description: The output of C(neuca status --json), as described in neuca-status(7).
  returned: success
  type: dict
  sample: {"version": 2, "state": "ok", "interfaces": []}
rc:
  description: The exit code of C(neuca status), as described in neuca-status(7).
  returned: success
  type: int
  sample: 0
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.neuca.guest.plugins.module_utils.neuca import shown, where


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "config": {"type": "path"},
            "wait": {"type": "bool", "default": False},
            "timeout": {"type": "float", "default": 300},
        },
        supports_check_mode=True,
    )
    words = where(module)
    if module.params["wait"]:
        words += ["--wait", "--timeout", str(module.params["timeout"])]
    code, status = shown(module, "status", *words)
    # Without `failed`, Ansible takes a code other than 0 for a failure.
    module.exit_json(changed=False, failed=False, status=status, rc=code)


if __name__ == "__main__":
    main()
