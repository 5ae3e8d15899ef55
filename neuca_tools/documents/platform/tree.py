"""Parse untrusted JSON and YAML into plain trees of limited length, depth and item count.

Numbers stay text. YAML is read as events, so no object is ever constructed, and scalars keep their
text: in YAML 1.1, an unquoted MAC address with no letters is a number (a sexagesimal integer).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Optional, Union

from neuca_tools.errors import DocumentError
from neuca_tools.model.printable import printable_line

Tree = Union[None, bool, str, "list[Tree]", "dict[str, Tree]"]
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_ITEMS = 50000
# Characters of a YAML scalar that count as one more item, because aliases may repeat a long one.
_ITEM = 32
REPEATED = "repeated keys"
"""The key of the root for the paths of keys that occur twice in their object, with a severity."""
MOST_REPEATED = 20
_EXACT = 2.0**53  # below it, a float has every integer
# YAML 1.2, 10.2.1.1.
_NULL = ("", "~", "null", "Null", "NULL")
_TAGS = tuple(
    f"tag:yaml.org,2002:{name}"
    for name in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp")
)


def from_json(data: bytes, what: str) -> Tree:
    """Parse a JSON text; `what` names the document in the DocumentError that this raises."""
    repeated: _Repeated = {}
    try:
        tree = json.loads(
            _decode_text(data, what),
            object_pairs_hook=partial(_build_object, repeated),
            parse_int=str,
            parse_float=_number_text,
            parse_constant=str,
        )
    except RecursionError:
        raise _too_deep(what) from None
    except ValueError as error:
        raise DocumentError(f"cannot read {what}: it is not JSON: {error}") from None
    if sum(1 for _ in _all_items(tree, what)) > MAX_ITEMS:
        raise _too_many(what)
    return _with_repeated(tree, dict(_placed_notes(tree, "", repeated)) if repeated else {})


# An object by its identity, which it keeps as long as it is here, with the notes about its keys.
_Repeated = dict[int, "tuple[dict[str, Tree], dict[str, Tree]]"]


def _build_object(repeated: _Repeated, pairs: list[tuple[str, Tree]]) -> dict[str, Tree]:
    """An object of JSON; its repeated keys are noted by its identity."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        values_by_key: dict[str, Tree] = {}
        notes: dict[str, Tree] = {}
        repeated[id(mapping)] = (mapping, notes)
        for key, value in pairs:
            if key in values_by_key:
                _note_repeated(notes, key, values_by_key[key], value)
            values_by_key[key] = value
    return mapping


def _placed_notes(tree: Tree, path: str, repeated: _Repeated) -> Iterator[tuple[str, Tree]]:
    """What is noted of the objects in a tree, with the paths to them."""
    if isinstance(tree, dict):
        _, notes = repeated.get(id(tree), ({}, {}))
        for key, note in notes.items():
            yield f"{path}.{key}".lstrip("."), note
        for key, value in tree.items():
            yield from _placed_notes(value, f"{path}.{key}".lstrip("."), repeated)
    elif isinstance(tree, list):
        for number, item in enumerate(tree):
            yield from _placed_notes(item, f"{path}[{number}]", repeated)


def _note_repeated(repeated: dict[str, Tree], path: str, *values: Tree) -> None:
    """Note a key that occurs twice: an error if more than a single value is lost."""
    if len(repeated) < MOST_REPEATED:
        whole = any(isinstance(value, (list, dict)) for value in values)
        repeated[path] = "error" if whole else "warning"


def _with_repeated(tree: Tree, repeated: dict[str, Tree]) -> Tree:
    if repeated and isinstance(tree, dict):
        tree.setdefault(REPEATED, repeated)
    return tree


def _number_text(text: str) -> str:
    """A number with a point or exponent, without them if it is an integer: `1450.0` is 1450."""
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else text


def from_yaml(data: bytes, what: str) -> Tree:
    """Parse a YAML text with a single document; an alias counts as everything that it stands for.

    `what` names the document in the DocumentError that this raises.
    """
    # Imported here, because it takes 15 ms and only NoCloud needs it.
    import yaml

    builder = _Builder(what)
    try:
        for event in yaml.parse(
            _decode_text(data, what), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        ):
            builder.take(type(event).__name__, event)
    except yaml.YAMLError as error:
        reason = printable_line(" ".join(str(error).split())[:200])
        raise DocumentError(f"cannot read {what}: it is not YAML: {reason}") from None
    except (ValueError, OverflowError):
        # PyYAML's scanner fails like this for an escape beyond Unicode.
        raise DocumentError(
            f"cannot read {what}: it is not YAML: an escape is not a character"
        ) from None
    return _with_repeated(builder.root, builder.repeated)


def to_yaml(data: object) -> str:
    """Data as YAML; a text of several lines is a block."""
    # As in `from_yaml`.
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    output = yaml.dump(data, Dumper=Dumper, sort_keys=False, width=math.inf, allow_unicode=True)
    return str(output)


def lines_of(data: bytes) -> dict[str, int]:
    """The line of each key and list item of a YAML or JSON text, by its path (`links[0].mtu`).

    Of a key that occurs twice, the last one counts. Empty without PyYAML, and for a JSON text that
    is no YAML.
    """
    try:
        # As in `from_yaml`.
        import yaml
    except ImportError:
        return {}
    text = data.decode("utf-8-sig", "replace").replace("\t", " ")  # YAML allows no tabs
    line_by_path: dict[str, int] = {}
    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        return line_by_path
    waiting = [("", root)]
    for path, node in waiting:  # it grows
        if len(line_by_path) > MAX_ITEMS:
            break
        if isinstance(node, yaml.MappingNode):
            below = [(f"{path}.{key.value}".lstrip("."), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            below = [(f"{path}[{at}]", item, item) for at, item in enumerate(node.value)]
        else:
            continue
        line_by_path.update((name, key.start_mark.line + 1) for name, key, _ in below)
        waiting += [(name, value) for name, _, value in below]
    return line_by_path


def _decode_text(data: bytes, what: str) -> str:
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


def _all_items(tree: object, what: str) -> Iterator[object]:
    """Every item of a tree, itself included, without recursion.

    Raises DocumentError if it is too deep.
    """
    waiting = [(tree, 0)]
    while waiting:
        item, depth = waiting.pop()
        yield item
        if depth > MAX_DEPTH:
            raise _too_deep(what)
        if isinstance(item, dict):
            waiting += [(child, depth + 1) for child in item.values()]
        elif isinstance(item, list):
            waiting += [(child, depth + 1) for child in item]


class _Open:
    """A list or mapping that is not complete yet.

    `size` is the number of items in it, itself included; `height` is the number of levels below it.
    """

    def __init__(self, tree: Union[list[Tree], dict[str, Tree]], anchor: Optional[str]) -> None:
        self.tree, self.anchor, self.size, self.height = tree, anchor, 1, 0
        self.key: Optional[str] = None
        self.keys: set[str] = set()  # without those that are merged into it


class _Builder:
    """Builds the tree from the events of one YAML document; `root` is the result."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.root: Tree = None
        self.repeated: dict[str, Tree] = {}
        self._documents = 0
        self._open: list[_Open] = []
        # Tree, size and height of what each anchor stands for.
        self._anchors: dict[str, tuple[Tree, int, int]] = {}

    def take(self, kind: str, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types
        """Process one event; `kind` is the name of its class. Raises DocumentError."""
        if kind == "DocumentStartEvent":
            self._start_document()
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._check_tag(event.tag)
            self._check_depth(0)
            tree: Union[list[Tree], dict[str, Tree]] = []
            if kind == "MappingStartEvent":
                tree = {}
            self._open.append(_Open(tree, event.anchor))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            done = self._open.pop()
            self._put(done.tree, done.size, done.height, done.anchor)
        elif kind == "ScalarEvent":
            self._take_scalar(event)
        elif kind == "AliasEvent":
            self._take_alias(event.anchor)

    def _start_document(self) -> None:
        self._documents += 1
        if self._documents > 1:
            raise DocumentError(f"cannot read {self.what}: it has more than one document")

    def _take_scalar(self, event: Any) -> None:  # noqa: ANN401 - PyYAML has no types
        self._check_tag(event.tag)
        is_plain, _ = event.implicit
        value = event.value
        if is_plain and value in _NULL:
            value = None
        self._put(value, 1 + len(event.value) // _ITEM, 0, event.anchor)

    def _take_alias(self, anchor: str) -> None:
        if anchor not in self._anchors:
            raise DocumentError(
                f"cannot read {self.what}: an alias refers to nothing, or to itself"
            )
        self._put(*self._anchors[anchor], None)

    def _check_depth(self, height: int) -> None:
        """Raise DocumentError if something with `height` levels would exceed the limit here."""
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
        if sum(holder.size for holder in self._open) > MAX_ITEMS:
            raise _too_many(self.what)
        if isinstance(holder.tree, list):
            holder.tree.append(tree)
        elif holder.key is None:
            holder.key = self._key_text(tree)
        else:
            if holder.key in holder.keys and holder.key != "<<":
                _note_repeated(self.repeated, self._path(), holder.tree[holder.key], tree)
            holder.keys.add(holder.key)
            _set_key(holder.tree, holder.key, tree)
            holder.key = None

    def _path(self) -> str:
        """The path of the value that is complete now, as that of a Part."""
        path = ""
        for holder in self._open:
            if isinstance(holder.tree, list):
                path += f"[{len(holder.tree)}]"
            else:
                path = f"{path}.{holder.key}".lstrip(".")
        return path

    def _key_text(self, tree: Tree) -> str:
        if isinstance(tree, (list, dict)):
            raise DocumentError(f"cannot read {self.what}: a key is not text")
        if tree is None:
            return ""
        return str(tree)


def _set_key(mapping: dict[str, Tree], key: str, value: Tree) -> None:
    """Set a key of a mapping; `<<` merges another mapping into it (yaml.org/type/merge.html)."""
    if key == "<<" and isinstance(value, dict):
        for name, inner in value.items():
            mapping.setdefault(name, inner)
    else:
        mapping[key] = value
