"""Frozen dataclasses to JSON and back, by their annotations; errors name a wrong value's path."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from neuca_tools.dataclass import is_dataclass
from neuca_tools.errors import SelftestError

if TYPE_CHECKING:
    from dataclasses import Field

T = TypeVar("T")
NAMES = {
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}
# The most items of one list; the rest is ignored.
MOST_ITEMS = 1_000_000
# Metadata of a field that is not part of the format.
INTERNAL = {"internal": True}


def encode(value: object) -> object:
    """Plain JSON. Fields that have their default value, or are marked INTERNAL, are left out."""
    # Loading this module takes as long as starting Python; most commands encode nothing.
    from dataclasses import fields

    if is_dataclass(value) and not isinstance(value, type):
        known = [(one, getattr(value, one.name)) for one in fields(cast(Any, value))]
        return {one.name: encode(content) for one, content in known if _is_written(one, content)}
    if isinstance(value, (tuple, list)):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): encode(one) for key, one in value.items()}
    return value


def _is_written(one: Field[Any], value: object) -> bool:
    if one.metadata == INTERNAL:
        return False
    return one.name == "version" or value != _default(one)


def _default(one: Field[Any]) -> object:
    from dataclasses import MISSING

    if one.default_factory is not MISSING:
        return one.default_factory()
    return one.default


def decode(kind: type[T], data: object, version: int, what: str = "evidence") -> T:
    """The dataclass `kind` from its JSON.

    `what` it is, in one word. Raises SelftestError if the version differs, or with the path of what
    is wrong.
    """
    if isinstance(data, dict) and data.get("version") != version:
        known = f"this program knows {version}"
        found = str(data.get("version"))[:40]
        raise SelftestError(f"read the {what}: its version is {found}, and {known}")
    return cast(T, _decode(kind, data, what))


def _decode(kind: object, data: object, path: str) -> object:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        if data is None:
            return None
        return _decode(inner[0], data, path)
    if origin is tuple:
        items = enumerate(_checked(list, data, path)[:MOST_ITEMS])
        return tuple(_decode(inner[0], one, f"{path}[{place}]") for place, one in items)
    if origin is not None:  # a Mapping with text for keys
        content = _checked(dict, data, path)
        return {key: _decode(inner[1], one, f"{path}.{key}") for key, one in content.items()}
    if is_dataclass(kind):
        return _object(cast(Any, kind), _checked(dict, data, path), path)
    return _simple(cast(type, kind), data, path)


def _object(kind: type[T], data: dict[str, object], path: str) -> T:
    """Unknown keys are those of a later version, and ignored."""
    from dataclasses import MISSING, fields

    hints = get_type_hints(kind)
    parts = fields(cast(Any, kind))
    missing = [one.name for one in parts if one.name not in data and _default(one) is MISSING]
    if missing:
        raise SelftestError(f'{_reading(path)}: {path} has no "{missing[0]}"')
    known = [one.name for one in parts if one.name in data]
    return kind(**{name: _decode(hints[name], data[name], f"{path}.{name}") for name in known})


def _simple(kind: type, data: object, path: str) -> object:
    """A text, a truth value or a finite number. A whole number may stand for a fraction."""
    if kind is float and type(data) is int and abs(data) < 1e300:
        return float(data)
    if isinstance(data, bool) and kind is not bool:
        raise _wrong(kind, data, path)
    if isinstance(data, float) and not math.isfinite(data):
        raise _wrong(kind, data, path)
    return _checked(kind, data, path)


def _checked(kind: type[T], data: object, path: str) -> T:
    if not isinstance(data, kind):
        raise _wrong(kind, data, path)
    return data


def _wrong(kind: type, data: object, path: str) -> SelftestError:
    return SelftestError(
        f"{_reading(path)}: {path} is {str(data)[:40]!r}, and should be {NAMES[kind]}"
    )


def _reading(path: str) -> str:
    """What was tried, from the first word of a path."""
    return f"read the {path.partition('.')[0].partition('[')[0]}"
