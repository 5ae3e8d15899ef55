"""The options of neuca-config(5) as the Ansible collection has them: `python3 tests/ansible_options.py` writes its two files.

Names and types come from the table of options and the types of `Config`, descriptions and the words of a choice from the manual
page. `unit/test_ansible_options.py` fails if a file is not current.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path, PurePath
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "man" / "neuca-config.5"
PLUGINS = ROOT / "ansible" / "plugins"
SPECIFICATION = PLUGINS / "module_utils" / "options.py"
DOCUMENTATION = PLUGINS / "doc_fragments" / "options.py"
HEADER = (
    "# Written by tests/ansible_options.py from neuca_tools/config/options.py: do not edit.\n"
    "# SPDX-License-Identifier: MIT\n"
)
# The options of [selftest] are read by the self-test, and have no field: their types are here.
SELFTEST = {"time": {"type": "float"}, "port": {"type": "int"}, "run-at-boot": {"type": "bool"},
            "peers": {"type": "list", "elements": "str"}, "secret-file": {"type": "path"},
            "plan": {"type": "str", "choices": ["quick", "standard", "full"]}}  # fmt: skip
WORDS = {bool: "bool", int: "int", float: "float"}
_ITEM = re.compile(r"^     ([a-z][a-z-]*) = (.*)$")


def options() -> dict[str, dict[str, dict[str, Any]]]:
    """Each option by section and name, as an argument of an Ansible module without its description."""
    from neuca_tools.commands.selftest_options import SETTINGS
    from neuca_tools.config import Config
    from neuca_tools.config.options import MAC_LISTS, OPTIONS

    fields = {where: name for where, (name, _) in OPTIONS.items()} | MAC_LISTS
    kinds, page = get_type_hints(Config), manual()
    placeholders = re.findall(r"^\.It Cm (\S+) No = .*\bAr\b", PAGE.read_text(), re.MULTILINE)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (section, option), name in fields.items():
        # A rate, a time and a file's name are text with a grammar of their own.
        written = {"type": "str"} if name in ("rate", "rtt") else _argument(kinds[name])
        choices = page[section, option][0].split(" | ")
        if written == {"type": "str"} and len(choices) > 1 and option not in placeholders:
            written["choices"] = choices
        found.setdefault(section, {})[option] = written
    found["selftest"] = {option: SELFTEST.get(option, {"type": "str"}) for option in SETTINGS}
    return {section: dict(sorted(each.items())) for section, each in sorted(found.items())}


def _argument(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Union:
        (hint,) = set(get_args(hint)) - {type(None)}
    if get_origin(hint) is Literal:
        return {"type": "str", "choices": list(get_args(hint))}
    if get_origin(hint) in (tuple, frozenset):
        return {"type": "list", "elements": "str"}
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return {"type": "path"}
    return {"type": WORDS.get(hint, "str")}


def manual() -> dict[tuple[str, str], tuple[str, list[str]]]:
    """What neuca-config(5) says after the `=` of each option, and the sentences of its first paragraph."""
    shown = subprocess.run(
        ["mandoc", "-T", "ascii", PAGE], capture_output=True, check=True, text=True
    )
    section, found, item = "", {}, None
    for line in re.sub(".\b", "", shown.stdout).expandtabs().splitlines():
        if title := re.fullmatch(r"   \[(\w+)\]", line):
            section = title[1]
        elif option := _ITEM.match(line):
            item = (option[2], [])
            found[section, option[1]] = item
        elif not line.strip():
            item = None
        elif item:
            item[1].append(line.strip())
    return {where: (words, _sentences(lines)) for where, (words, lines) in found.items()}


def _sentences(lines: list[str]) -> list[str]:
    text = re.sub(r"([a-z])- ([a-z])", r"\1-\2", " ".join(lines))
    return [re.sub(" +", " ", one) for one in re.split(r"(?<=\.)  ", text)]


def specification() -> str:
    """The argument specification, a module of Python."""
    spec = {
        section: {
            "type": "dict",
            "options": {name.replace("-", "_"): argument for name, argument in each.items()},
        }
        for section, each in options().items()
    }
    table = re.sub(r"\b(true|false)\b", lambda word: word[1].title(), json.dumps(spec, indent=4))
    text = f'{HEADER}"""Every option of neuca-config(5), as an argument specification."""\n\n'
    return f"{text}# fmt: off\nOPTIONS = {table}\n"


def documentation() -> str:
    """The documentation fragment with the same options."""
    page = manual()
    lines = ["options:", "  options:", "    description:"]
    lines += _described(
        [
            "The options of each section of the configuration, as in neuca-config(5).",
            "Names have V(_) for V(-). What is not given is not written, and keeps its default.",
        ],
        6,
    )
    lines += ["    type: dict", "    default: {}", "    suboptions:"]
    for section, each in options().items():
        lines += [f"      {section}:", "        description:"]
        lines += _described([f"The section C([{section}])."], 10)
        lines += ["        type: dict", "        suboptions:"]
        for name, argument in each.items():
            lines += [f"          {name.replace('-', '_')}:", "            description:"]
            lines += _described(page[section, name][1], 14)
            lines += [f"            {key}: {json.dumps(value)}" for key, value in argument.items()]
    fragment = "\n".join(lines)
    text = f'{HEADER}"""Every option of neuca-config(5), as documentation."""\n\n\n'
    text += 'class ModuleDocFragment:\n    """For modules that write the configuration."""\n\n'
    return f'{text}    DOCUMENTATION = r"""\n{fragment}\n"""\n'


def _described(sentences: list[str], indent: int) -> list[str]:
    lines = []
    for sentence in sentences:
        lines.append(f"{' ' * indent}- >-")
        lines += textwrap.wrap(
            sentence,
            96,
            initial_indent=" " * (indent + 2),
            subsequent_indent=" " * (indent + 2),
            break_on_hyphens=False,
            break_long_words=False,
        )
    return lines


def main() -> None:
    for path, text in ((SPECIFICATION, specification()), (DOCUMENTATION, documentation())):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
