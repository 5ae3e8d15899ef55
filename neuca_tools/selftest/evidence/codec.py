"""Frozen dataclasses to JSON and back, by their annotations; errors name a wrong value's path."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from neuca_tools.errors import SelftestError

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
    if is_dataclass(value) and not isinstance(value, type):
        known = [(field, getattr(value, field.name)) for field in fields(value)]
        return {
            field.name: encode(content) for field, content in known if _is_written(field, content)
        }
    if isinstance(value, (tuple, list)):
        return [encode(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): encode(one) for key, one in value.items()}
    return value


def _is_written(field: Field[Any], value: object) -> bool:
    if field.metadata == INTERNAL:
        return False
    return field.name == "version" or value != _default(field)


def _default(field: Field[Any]) -> object:
    """The default of a field, made if there is a factory for it; MISSING if there is neither."""
    return field.default if field.default_factory is MISSING else field.default_factory()


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
    if isinstance(kind, type) and get_origin(kind) is None:
        if kind in NAMES:
            return _simple(kind, data, path)
        return _object(kind, _checked(dict, data, path), path)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        if data is None:
            return None
        return _decode(inner[0], data, path)
    if origin is tuple:
        items = enumerate(_checked(list, data, path)[:MOST_ITEMS])
        return tuple(_decode(inner[0], one, f"{path}[{place}]") for place, one in items)
    # A Mapping with text for keys.
    content = _checked(dict, data, path)
    return {key: _decode(inner[1], one, f"{path}.{key}") for key, one in content.items()}


def _object(kind: type[T], data: dict[str, object], path: str) -> T:
    """Unknown keys are those of a later version, and ignored."""
    hints, required = _format_of(cast(Any, kind))
    missing = [name for name in required if name not in data]
    if missing:
        raise SelftestError(f'{_reading(path)}: {path} has no "{missing[0]}"')
    known = [name for name in hints if name in data]
    return kind(**{name: _decode(hints[name], data[name], f"{path}.{name}") for name in known})


@cache
def _format_of(kind: type) -> tuple[dict[str, object], list[str]]:
    """The type of each field of a dataclass, and the names of those without a default."""
    hints, known = get_type_hints(kind), fields(kind)
    required = [field.name for field in known if _default(field) is MISSING]
    return {field.name: hints[field.name] for field in known}, required


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
