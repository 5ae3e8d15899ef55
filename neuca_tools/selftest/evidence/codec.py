"""Frozen dataclasses to JSON and back, by their annotations; errors name the path of what is wrong."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from neuca_tools.errors import SelftestError

T = TypeVar("T")
# Of one list; the rest is ignored.
MOST_ITEMS = 1_000_000
# Metadata of a field that is not part of the format.
INTERNAL = {"internal": True}


def encode(value: object) -> object:
    """Plain JSON. Fields that have their default value, or are marked INTERNAL, are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        known = {one.name: getattr(value, one.name) for one in fields(value)}
        return {
            one.name: encode(known[one.name])
            for one in fields(value)
            if _is_written(one, known[one.name])
        }
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
    return one.default_factory() if one.default_factory is not MISSING else one.default


def decode(kind: type[T], data: object, version: int) -> T:
    """The dataclass `kind` from its JSON. Raises SelftestError if the version differs, or with the path of what is wrong."""
    if isinstance(data, dict) and data.get("version") != version:
        raise SelftestError(
            f"read the evidence: its version is {data.get('version')!r}, and this program knows {version}"
        )
    return cast(T, _decode(kind, data, "evidence"))


def _decode(kind: object, data: object, path: str) -> object:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Union:
        return None if data is None else _decode(inner[0], data, path)
    if origin is tuple:
        return tuple(
            _decode(inner[0], one, f"{path}[{place}]")
            for place, one in enumerate(_list(data, path)[:MOST_ITEMS])
        )
    if origin is not None:  # a Mapping with text for keys
        return {
            key: _decode(inner[1], one, f"{path}.{key}") for key, one in _dict(data, path).items()
        }
    if is_dataclass(kind):
        return _object(cast(Any, kind), _dict(data, path), path)
    return _simple(kind, data, path)


def _object(kind: type[T], data: dict[str, object], path: str) -> T:
    """Unknown keys are those of a later version, and ignored."""
    hints = get_type_hints(kind)
    parts = fields(cast(Any, kind))
    missing = [one.name for one in parts if one.name not in data and _default(one) is MISSING]
    if missing:
        raise SelftestError(f'read the evidence: {path} has no "{missing[0]}"')
    return kind(
        **{
            one.name: _decode(hints[one.name], data[one.name], f"{path}.{one.name}")
            for one in parts
            if one.name in data
        }
    )


def _simple(kind: object, data: object, path: str) -> object:
    if kind is float and isinstance(data, int) and not isinstance(data, bool) and abs(data) < 1e300:
        data = float(data)
    plain = isinstance(data, bool) is (kind is bool) and (
        not isinstance(data, float) or math.isfinite(data)
    )
    if not plain or not isinstance(data, cast(type, kind)):
        raise _wrong(cast(type, kind), data, path)
    return data


def _list(data: object, path: str) -> list[object]:
    if not isinstance(data, list):
        raise _wrong(list, data, path)
    return data


def _dict(data: object, path: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise _wrong(dict, data, path)
    return data


def _wrong(kind: type, data: object, path: str) -> SelftestError:
    names = {
        list: "a list",
        dict: "an object",
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
    }
    return SelftestError(
        f"read the evidence: {path} is {str(data)[:40]!r}, and should be {names[kind]}"
    )
