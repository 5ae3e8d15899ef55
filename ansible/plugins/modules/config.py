#!/usr/bin/python
# SPDX-License-Identifier: MIT
"""The Ansible module neuca.guest.config: write a configuration file of the agent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: config
short_description: Write a configuration file of the guest network agent
version_added: 1.0.0
description:
  - Writes one file with options of neuca-config(5), by default a file in C(/etc/neuca/config.d).
  - The file is replaced as a whole, so an option that is no longer given gets its default again.
    Other files of the configuration are not changed.
  - Before the file is replaced, neuca on the host reads the new one. With a value that it cannot
    use, the module fails and nothing is changed.
  - The agent is not told. It reads its configuration when it starts and on SIGHUP, and
    M(neuca.guest.apply) reads it at once.
author:
  - The neuca-guest-tools authors (@neuca-guest-tools)
extends_documentation_fragment:
  - neuca.guest.options
options:
  links:
    description:
      - The sections of neuca-config(5) about one link each.
    type: list
    elements: dict
    default: []
    suboptions:
      section:
        description:
          - The name of the section, such as C(interface MAC), C(vlan MAC.ID) or C(bond NAME).
        type: str
        required: true
      settings:
        description:
          - The keys of neuca-user-data(5). A list becomes a comma-separated value.
        type: dict
        required: true
  path:
    description:
      - The file to write. Its directory must exist.
    type: path
    default: /etc/neuca/config.d/50-ansible.conf
  state:
    description:
      - Whether the file exists. With V(absent), O(options) and O(links) are ignored.
    type: str
    choices: [present, absent]
    default: present
attributes:
  check_mode:
    description: Can run in check mode and report what would change.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
"""

EXAMPLES = r"""
- name: Protect the storage NIC, and address the second one
  neuca.guest.config:
    options:
      runtime:
        dataplane_macs_to_ignore: ["fe:16:3e:00:6d:b2"]
      network:
        drift: enforce
    links:
      - section: interface fe:16:3e:00:6d:af
        settings:
          addresses: [172.16.0.1/24]
          mtu: 9000

- name: Return to the defaults
  neuca.guest.config:
    state: absent
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
  sample: /etc/neuca/config.d/50-ansible.conf
"""

import os
import re
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.neuca.guest.plugins.module_utils.neuca import (
    UnusableError,
    configuration,
)
from ansible_collections.neuca.guest.plugins.module_utils.options import OPTIONS

MODE = 0o644
LINK = {
    "section": {"type": "str", "required": True},
    "settings": {"type": "dict", "required": True},
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "options": {"type": "dict", "options": OPTIONS, "default": {}},
            "links": {"type": "list", "elements": "dict", "default": [], "options": LINK},
            "path": {"type": "path", "default": "/etc/neuca/config.d/50-ansible.conf"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    path = module.params["path"]
    try:
        before = _read(path)
        after = _wanted(module)
        mode_differs = after is not None and before is not None and _mode(path) != MODE
        changed = before != after or mode_differs
        if after is not None and before != after:
            _validate(module, path, after)
        if changed and not module.check_mode:
            _write(module, path, after)
    except (OSError, UnicodeDecodeError) as error:
        module.fail_json(msg=f'write "{path}": {error}')
    module.exit_json(changed=changed, path=path, diff=_diff(path, before, after))


def _wanted(module: AnsibleModule) -> str | None:
    if module.params["state"] == "absent":
        return None
    try:
        return configuration(module.params["options"], module.params["links"])
    except UnusableError as error:
        module.fail_json(msg=str(error))


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as stream:  # noqa: PTH123 - as Ansible has it
            return stream.read()
    except FileNotFoundError:
        return None


def _mode(path: str) -> int:
    return os.stat(path).st_mode & 0o7777  # noqa: PTH116


def _validate(module: AnsibleModule, path: str, text: str) -> None:
    """Fail with what neuca on the host finds wrong in this text; no source is queried for that."""
    neuca = module.get_bin_path("neuca")
    if not neuca:
        module.warn("neuca is not installed on this host: the options were not checked")
        return
    directory = tempfile.mkdtemp(dir=module.tmpdir)
    try:
        trial = os.path.join(directory, "config")  # noqa: PTH118
        with open(trial, "w", encoding="utf-8") as stream:  # noqa: PTH123
            stream.write(text)
        words = ["show", "document", "--source", "none", "--config", trial]
        err = module.run_command([neuca, *words])[2]
    finally:
        shutil.rmtree(directory)
    faults = [
        line.split(": ", 3)[3]
        for line in err.splitlines()
        if re.match(rf"neuca: (error|warning): {re.escape(trial)}: ", line)
    ]
    if faults:
        module.fail_json(msg=f'"{path}" would not be valid: {"; ".join(faults)}', faults=faults)


def _write(module: AnsibleModule, path: str, text: str | None) -> None:
    if text is None:
        os.unlink(path)  # noqa: PTH108
        return
    handle, new = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.chmod(new, MODE)  # noqa: PTH101
    module.atomic_move(new, path)
    # An existing file keeps its mode when it is replaced.
    module.set_mode_if_different(path, MODE, False)


def _diff(path: str, before: str | None, after: str | None) -> dict[str, str]:
    return {
        "before_header": path,
        "after_header": path,
        "before": before or "",
        "after": after or "",
    }


if __name__ == "__main__":
    main()
