"""Typed reading of an untrusted tree: each value with the path to it, and a fault, of that value alone, where it is no use."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Callable, Literal, Optional, TypeVar

from neuca_tools.documents.neuca.values import UnusableError, clip
from neuca_tools.documents.platform.tree import Tree
from neuca_tools.model import Fault

MAX_FAULTS = 200
_TRUE = ("true", "yes", "on", "1", "y")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """One object of a document: `path` leads to it, `mac` is the NIC that it is about, where that is known."""

    tree: Mapping[str, Tree]
    document: str
    path: str = ""
    mac: str = ""
    faults: list[Fault] = field(default_factory=list)

    @property
    def where(self) -> str:
        """For people: `network_data.json, links[0]`."""
        return f"{self.document}, {self.path}" if self.path else self.document

    def about(self, mac: str) -> Part:
        return replace(self, mac=mac)

    def fault(
        self, key: str, value: Tree, reason: str, severity: Literal["error", "warning"] = "error"
    ) -> None:
        """Note that a value cannot be used, up to a number of faults."""
        section, shown = (
            f"{self.document} {self.mac}".strip(),
            clip(value) if isinstance(value, str) else "",
        )
        found = Fault(0, section, clip(self._path(key)), shown, reason, severity)
        if len(self.faults) < MAX_FAULTS and found not in self.faults:
            self.faults.append(found)

    def warn(self, key: str, reason: str) -> None:
        value = self.tree.get(key)
        self.fault(key, value, reason, "warning")

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def text(self, key: str) -> Optional[str]:
        """A scalar as its text; None where it is absent, null or empty."""
        value = self.tree.get(key)
        if isinstance(value, (list, dict)):
            self.fault(key, None, "it is not a single value")
            return None
        return _text(value)

    def read(self, key: str, reader: Callable[[str], _T]) -> Optional[_T]:
        """A scalar as its reader makes it."""
        text = self.text(key)
        return None if text is None else self.made(key, text, reader)

    def made(self, key: str, text: str, reader: Callable[[str], _T]) -> Optional[_T]:
        """What the reader makes of a text; a fault of this key where that is nothing."""
        try:
            return reader(text)
        except UnusableError as reason:
            self.fault(key, text, str(reason))
            return None

    def true(self, key: str) -> bool:
        value = self.tree.get(key)
        return value is True or (isinstance(value, str) and value.lower() in _TRUE)

    def texts(self, key: str) -> list[str]:
        """The scalars of a list; a scalar alone is a list of one."""
        value = self.tree.get(key)
        items = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(item, (list, dict)) for item in items):
            self.fault(key, None, "it is not a list of single values")
        return [
            text
            for item in items
            if not isinstance(item, (list, dict))
            for text in [_text(item)]
            if text is not None
        ]

    def child(self, key: str) -> Part:
        """An object inside; an empty one where there is none."""
        value = self.tree.get(key)
        if value is not None and not isinstance(value, dict):
            self.fault(key, None, "it is not an object")
        return replace(self, tree=value if isinstance(value, dict) else {}, path=self._path(key))

    def parts(self, key: str) -> Iterator[Part]:
        """The objects of a list."""
        value = self.tree.get(key)
        if value is not None and not isinstance(value, list):
            self.fault(key, None, "it is not a list")
        for number, item in enumerate(value if isinstance(value, list) else []):
            if isinstance(item, dict):
                yield replace(self, tree=item, path=f"{self._path(key)}[{number}]")
            else:
                self.fault(f"{key}[{number}]", None, "it is not an object")

    def named(self, key: str) -> Iterator[tuple[str, Part]]:
        """The objects of an object, by their names."""
        holder = self.child(key)
        for name in holder.tree:
            yield name, holder.child(name)


def _text(value: Tree) -> Optional[str]:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.strip() or None if isinstance(value, str) else None
