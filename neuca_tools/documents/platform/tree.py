"""Parse untrusted JSON and YAML into plain trees of limited length, depth and item count.

Numbers stay text. No object of YAML is ever constructed, and scalars keep their text: in YAML 1.1,
an unquoted MAC address with no letters is a number (a sexagesimal integer).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any, Callable, Union

from neuca_tools.documents.envelope import decode_text
from neuca_tools.errors import DocumentError, unreadable
from neuca_tools.model.printable import printable_line

Tree = Union[None, bool, str, "list[Tree]", "dict[str, Tree]"]
MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32  # lists and objects within each other
MAX_ITEMS = 50000  # of a whole document
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"
_TOO_MANY = f"it has more than {MAX_ITEMS} items"
# Characters of a text in YAML that count as one more item, because aliases may repeat a long one.
_ITEM = 32
REPEATED = "repeated keys"
"""The key of the root for the paths of keys that occur twice in their object, with a severity."""
MAX_REPEATED = 20  # that are reported
_EXACT = 2.0**53  # below it, a float has every integer
_YAML = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _YAML + name for name in "str int float bool null map seq timestamp merge value".split()
)


class _Pairs(list[tuple[Any, Any]]):
    """The keys and values of an object in the order of the text, with repeated keys."""


class _Reader:
    """Turns what a parser returned into a tree within the limits.

    `open_item` returns a scalar, the items of a list, or the `_Pairs` of an object. `what` names
    the document in the DocumentError that `read` raises. `item` characters of a text count as one
    more item.
    """

    def __init__(self, what: str, open_item: Callable[[Any], Any], item: int = MAX_BYTES) -> None:
        self._what, self._open_item, self._item = what, open_item, item
        self._items = 0
        self._repeated: dict[str, Tree] = {}

    def read(self, item: object) -> Tree:
        """The tree of a whole document."""
        tree = self._read(item, "", 0)
        if self._repeated and isinstance(tree, dict):
            tree.setdefault(REPEATED, self._repeated)
        return tree

    def _read(self, item: object, path: str, depth: int) -> Tree:
        """An alias counts as everything that it stands for."""
        if depth > MAX_DEPTH:
            raise unreadable(_TOO_DEEP, self._what)
        value = self._open_item(item)
        self._count(1, value)
        if isinstance(value, _Pairs):
            return self._read_object(value, path, depth)
        if isinstance(value, list):
            return [self._read(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
        scalar: Tree = value
        return scalar

    def _read_object(self, pairs: _Pairs, path: str, depth: int) -> Tree:
        mapping: dict[str, Tree] = {}
        keys = [self._key_text(self._open_item(key)) for key, _ in pairs]
        last = {key: at for at, key in enumerate(keys)}
        for at, (key, (_, item)) in enumerate(zip(keys, pairs)):
            below = f"{path}.{key}".lstrip(".")
            if key != "<<" and at < last[key]:
                self._note_repeated(below, item, pairs[last[key]][1])
                continue
            value = self._read(item, below, depth + 1)
            if key != "<<" or not _merge(value, mapping):
                mapping[key] = value
        return mapping

    def _note_repeated(self, path: str, *items: object) -> None:
        """Note a key that occurs twice: an error if more than a single value is lost."""
        if len(self._repeated) < MAX_REPEATED:
            is_whole = any(isinstance(self._open_item(item), list) for item in items)
            self._repeated[path] = "error" if is_whole else "warning"

    def _key_text(self, key: object) -> str:
        if isinstance(key, list):
            raise unreadable("a key is not text", self._what)
        text = "" if key is None else str(key)
        self._count(0, text)
        return text

    def _count(self, number: int, value: object) -> None:
        self._items += number + (len(value) // self._item if isinstance(value, str) else 0)
        if self._items > MAX_ITEMS:
            raise unreadable(_TOO_MANY, self._what)


def _merge(value: Tree, mapping: dict[str, Tree]) -> bool:
    """Add what a merge key stands for (yaml.org/type/merge.html); False if it is not an object."""
    items = value if isinstance(value, list) else [value]
    objects = [item for item in items if isinstance(item, dict)]
    if len(objects) == len(items):
        for name, item in chain.from_iterable(merged.items() for merged in objects):
            mapping.setdefault(name, item)
    return len(objects) == len(items)


def from_json(data: bytes, what: str) -> Tree:
    """Parse a JSON text; `what` names the document in the DocumentError that this raises."""
    try:
        items = json.loads(
            _decode_text(data, what),
            object_pairs_hook=_Pairs,
            parse_int=str,
            parse_float=_number_text,
            parse_constant=str,
        )
    except RecursionError:
        raise unreadable(_TOO_DEEP, what) from None
    except ValueError as error:
        raise unreadable(f"it is not JSON: {error}", what) from None
    return _Reader(what, lambda item: item).read(items)


def _number_text(text: str) -> str:
    """A number with a point or exponent, without them if it is an integer: `1450.0` is 1450."""
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) < _EXACT else text


def from_yaml(data: bytes, what: str) -> Tree:
    """Parse a YAML text with a single document.

    `what` names the document in the DocumentError that this raises.
    """
    return _Reader(what, partial(_open_node, what), _ITEM).read(
        _compose(_decode_text(data, what), what)
    )


def _compose(text: str, what: str) -> Any:  # noqa: ANN401 - PyYAML has no types
    """The root node of a YAML text. Raises DocumentError."""
    # Imported here, because it takes 15 ms and only NoCloud needs it.
    import yaml

    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(yaml.composer.Composer, safe):  # type: ignore[misc]
        """Composes the nodes in Python, where it can stop at the limits."""

        def __init__(self) -> None:
            safe.__init__(self, text)
            self.anchors: dict[str, Any] = {}
            self.nodes = self.depth = 0

        def compose_node(self, parent: object, index: object) -> Any:  # noqa: ANN401 - PyYAML has no types
            self.nodes += 1
            self.depth += 1
            if self.depth > MAX_DEPTH + 1:
                raise unreadable(_TOO_DEEP, what)
            if self.nodes > MAX_ITEMS:
                raise unreadable(_TOO_MANY, what)
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    try:
        return Loader().get_single_node()
    except yaml.YAMLError as error:
        reason = printable_line(" ".join(str(error).split())[:200])
        mark = getattr(error, "problem_mark", None)
        if mark is not None:
            # libyaml does not say which one: often a tab.
            letter = text[mark.index : mark.index + 1]
            reason = reason.replace("found character that", f"found character {letter!r} that")
    except (ValueError, OverflowError):
        # PyYAML's scanner fails like this for an escape beyond Unicode.
        reason = "an escape is not a character"
    raise unreadable(f"it is not YAML: {reason}", what)


def _open_node(what: str, node: Any) -> Any:  # noqa: ANN401 - PyYAML has no types
    """What `_Reader` takes for a node of YAML; an empty text has none. Raises DocumentError."""
    if node is None or node.tag == f"{_YAML}null":
        return None
    if node.tag not in _TAGS:
        raise unreadable(f'the YAML tag "{node.tag[:80]}" is refused', what)
    return _Pairs(node.value) if node.id == "mapping" else node.value


def to_yaml(data: object) -> str:
    """Data as YAML; a text of several lines is a block."""
    # As in `_compose`.
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
        # YAML has no tabs.
        root = _compose(data.decode("utf-8-sig", "replace").replace("\t", " "), "")
    except (ImportError, DocumentError):
        return {}
    line_by_path: dict[str, int] = {}
    waiting = [("", root)]
    for path, node in waiting:  # it grows
        if len(line_by_path) > MAX_ITEMS:
            break
        below = []
        kind = getattr(node, "id", "")
        if kind == "mapping":
            below = [(f"{path}.{key.value}".lstrip("."), key, value) for key, value in node.value]
        elif kind == "sequence":
            below = [(f"{path}[{at}]", item, item) for at, item in enumerate(node.value)]
        line_by_path.update((name, key.start_mark.line + 1) for name, key, _ in below)
        waiting += [(name, value) for name, _, value in below]
    return line_by_path


def all_items(tree: Tree) -> Iterator[Tree]:
    """Every item of a tree, itself first. The limits of the tree limit the recursion."""
    yield tree
    below = tree if isinstance(tree, list) else ()
    if isinstance(tree, dict):
        below = list(tree.values())
    for item in below:
        yield from all_items(item)


def _decode_text(data: bytes, what: str) -> str:
    if len(data) > MAX_BYTES:
        raise unreadable(f"it is longer than {MAX_BYTES} bytes", what)
    return decode_text(data, what)
