"""Untrusted JSON and YAML as plain trees: bounded in length, depth and number of items; every number is its text.

YAML is read as events and never constructs anything, and scalars keep their text: YAML 1.1 would make a number of an
unquoted MAC address of digits alone (a sexagesimal integer).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Optional, Union

from neuca_tools.errors import DocumentError

Tree = Union[None, bool, str, "list[Tree]", "dict[str, Tree]"]
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_ITEMS = 50000
_ITEM = 32  # characters of YAML text that count as one more item: an alias may repeat a long one
_NULL = ("", "~", "null", "Null", "NULL")  # YAML 1.2, 10.2.1.1
_TAGS = tuple(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")
)


def from_json(data: bytes, what: str) -> Tree:
    """The tree of a JSON text; `what` names the document in the DocumentError that it raises."""
    try:
        tree = json.loads(_text(data, what), parse_int=str, parse_float=str, parse_constant=str)
    except RecursionError:
        raise _too_deep(what) from None
    except ValueError as error:
        raise DocumentError(f"cannot read {what}: it is no JSON: {error}") from None
    if sum(1 for _ in _walk(tree, what)) > MAX_ITEMS:
        raise _too_many(what)
    return tree  # type: ignore[no-any-return] # what json.loads makes


def from_yaml(data: bytes, what: str) -> Tree:
    """The tree of a YAML text with one document in it; an alias counts as all that it stands for."""
    import yaml  # 15 ms, which only NoCloud has to pay

    builder = _Builder(what)
    try:
        for event in yaml.parse(
            _text(data, what), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        ):
            builder.take(type(event).__name__, event)
    except yaml.YAMLError as error:
        raise DocumentError(
            f"cannot read {what}: it is no YAML: {' '.join(str(error).split())[:200]}"
        ) from None
    except (ValueError, OverflowError):  # an escape beyond Unicode, in PyYAML's own scanner
        raise DocumentError(
            f"cannot read {what}: it is no YAML: an escape stands for no character"
        ) from None
    return builder.root


def _text(data: bytes, what: str) -> str:
    if len(data) > MAX_BYTES:
        raise DocumentError(f"cannot read {what}: it is longer than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"cannot read {what}: it is not UTF-8 text (byte {error.start})"
        ) from None


def _too_deep(what: str) -> DocumentError:
    return DocumentError(f"cannot read {what}: it is nested more than {MAX_DEPTH} levels deep")


def _too_many(what: str) -> DocumentError:
    return DocumentError(f"cannot read {what}: it has more than {MAX_ITEMS} items")


def _walk(tree: object, what: str) -> Iterator[object]:
    """Every item, without recursion."""
    waiting = [(tree, 0)]
    while waiting:
        item, depth = waiting.pop()
        yield item
        if depth > MAX_DEPTH:
            raise _too_deep(what)
        children = (
            item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        )
        waiting += [(child, depth + 1) for child in children]


class _Open:
    """A list or a mapping that is still being filled.

    `size` is the number of items in it, itself included; `height` the number of levels below it.
    """

    def __init__(self, tree: Union[list[Tree], dict[str, Tree]], anchor: Optional[str]) -> None:
        self.tree, self.anchor, self.size, self.height = tree, anchor, 1, 0
        self.key: Optional[str] = None


class _Builder:
    """Puts the events of one YAML document together."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.root: Tree = None
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Tree, int, int]] = {}  # tree, size, height

    def take(self, kind: str, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise DocumentError(f"cannot read {self.what}: it has more than one document")
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._check_tag(event.tag)
            self._check_depth(0)
            self._open.append(_Open({} if kind == "MappingStartEvent" else [], event.anchor))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            done = self._open.pop()
            self._put(done.tree, done.size, done.height, done.anchor)
        elif kind == "ScalarEvent":
            self._check_tag(event.tag)
            value = None if event.implicit[0] and event.value in _NULL else event.value
            self._put(value, 1 + len(event.value) // _ITEM, 0, event.anchor)
        elif kind == "AliasEvent":
            if event.anchor not in self._anchors:
                raise DocumentError(
                    f"cannot read {self.what}: an alias stands for nothing, or for itself"
                )
            self._put(*self._anchors[event.anchor], None)

    def _check_depth(self, height: int) -> None:
        """Before something is put in: an alias brings its own levels with it."""
        if len(self._open) + height > MAX_DEPTH:
            raise _too_deep(self.what)

    def _check_tag(self, tag: Optional[str]) -> None:
        if tag not in (None, "!", *_TAGS):
            raise DocumentError(
                f'cannot read {self.what}: the YAML tag "{str(tag)[:80]}" is refused'
            )

    def _put(self, tree: Tree, size: int, height: int, anchor: Optional[str]) -> None:
        self._check_depth(height)
        if anchor is not None:
            self._anchors[anchor] = (tree, size, height)
        if not self._open:
            self.root = tree
            return
        holder = self._open[-1]
        holder.size += size
        holder.height = max(holder.height, height + 1)
        if sum(one.size for one in self._open) > MAX_ITEMS:
            raise _too_many(self.what)
        if isinstance(holder.tree, list):
            holder.tree.append(tree)
        elif holder.key is None:
            holder.key = self._key(tree)
        elif holder.key == "<<" and isinstance(tree, dict):  # yaml.org/type/merge.html
            for key, value in tree.items():
                holder.tree.setdefault(key, value)
            holder.key = None
        else:
            holder.tree[holder.key], holder.key = tree, None

    def _key(self, tree: Tree) -> str:
        if isinstance(tree, (list, dict)):
            raise DocumentError(f"cannot read {self.what}: a key is no text")
        return "" if tree is None else str(tree)
