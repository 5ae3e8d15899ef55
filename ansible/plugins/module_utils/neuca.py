# SPDX-License-Identifier: MIT
"""Shared by the modules: run neuca, and write its configuration."""

from __future__ import annotations

import json
import re
from typing import Any

MISSING = "neuca is not installed on this host: use the role neuca.guest.neuca_install first"
HEADER = "# Written by Ansible (neuca.guest.config), which replaces the whole file.\n"
# Exit codes of neuca-status(7) with which "neuca status" and "neuca plan" have printed their data.
SHOWN = (0, 1, 3, 4, 78)
# What neuca-config(5) reads as the beginning of a comment.
_COMMENT = re.compile(r"(^|\s)[;#]")
_SECTION = re.compile(r"(interface|vlan|bond|bridge|vxlan|macvlan|vrf|ipoib) \S+( \S+)?")
_KEY = re.compile(r"[A-Za-z0-9][^\s=\[\];#]*")


class UnusableError(Exception):
    """Something that cannot be written to a configuration file."""


def shown(module: Any, command: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Run a command of neuca that prints JSON; return its exit code and the data.

    The module fails if there is no such data.
    """
    code, out, err = module.run_command([program(module), command, "--json", *words])
    try:
        data = json.loads(out)
    except ValueError:
        data = None
    if code not in SHOWN or not isinstance(data, dict):
        module.fail_json(msg=f"neuca {command}: {err.strip() or out.strip()}", rc=code)
    return code, data


def program(module: Any) -> str:
    """The path of neuca; the module fails if there is none."""
    path = module.get_bin_path("neuca")
    if not path and module.check_mode:
        # The task that would have installed it has not run either.
        module.exit_json(changed=False, skipped=True, msg=MISSING)
    if not path:
        module.fail_json(msg=MISSING)
    return path


def where(module: Any) -> list[str]:
    """The words of the command line for the module's parameter `config`."""
    given = module.params["config"]
    return ["--config", given] if given else []


def configuration(options: dict[str, Any], links: list[dict[str, Any]]) -> str:
    """The text of a configuration file. Raises UnusableError."""
    parts = [HEADER]
    for section in sorted(options):
        given = {
            name: value for name, value in (options[section] or {}).items() if value is not None
        }
        lines = [_line(name.replace("_", "-"), given[name]) for name in sorted(given)]
        if lines:
            parts.append(f"[{section}]\n{''.join(lines)}")
    for link in links:
        section, settings = link["section"], link["settings"]
        if not _SECTION.fullmatch(section):
            raise UnusableError(f'"{section}" is not the section of a link, as in neuca-config(5)')
        lines = [_line(name, _yes_or_no(value)) for name, value in settings.items()]
        parts.append(f"[{section}]\n{''.join(lines)}")
    return "\n".join(parts)


def _line(name: Any, value: Any) -> str:
    if not _KEY.fullmatch(str(name)):
        raise UnusableError(f'"{name}" is not the name of an option')
    text = _text(value)
    if not text.isprintable() or _COMMENT.search(text):
        raise UnusableError(f'"{name}" has a value that a configuration file cannot hold')
    return f"{name} = {text}".rstrip() + "\n"


def _yes_or_no(value: Any) -> Any:
    """The keys of links have no other boolean values; YAML reads both words as booleans."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    if isinstance(value, float):
        return f"{value:.6f}".rstrip("0").rstrip(".")
    if isinstance(value, (int, str)):
        return str(value).strip(" ")
    raise UnusableError(f"a value is {type(value).__name__}, not text, a number or a list")
