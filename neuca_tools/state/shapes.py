"""Dataclasses from JSON, with each field checked against its annotation."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from neuca_tools.dataclass import is_dataclass

T = TypeVar("T")


_HINTS: dict[type, Mapping[str, Any]] = {}  # get_type_hints() costs more than all else here


def _hints(kind: type) -> Mapping[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def made(kind: type[T], data: object) -> T:
    """An instance of `kind` from a JSON object with its fields. Raises TypeError, ValueError.

    `kind` is a dataclass or NamedTuple.
    """
    hints = _hints(kind)
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__} is no object")
    if not data.keys() <= hints.keys():
        unknown = min(map(str, data.keys() - hints.keys()))
        raise ValueError(f"{kind.__name__} has no {unknown!r}")
    return kind(**{name: fit(value, hints[name], name) for name, value in data.items()})


def fit(value: object, hint: object, name: str) -> Any:  # noqa: ANN401 - what the hint says
    """The value as this annotation has it: lists become tuples. Raises TypeError, ValueError."""
    if type(value) is hint:  # a bool is no int
        return value
    reader = _READERS.get(get_origin(hint))
    if reader:
        return reader(value, get_args(hint), name)
    if is_dataclass(hint) and isinstance(hint, type):
        return made(hint, value)
    if hint is float and type(value) is int:  # JSON has one kind of number
        return float(value)
    raise _wrong(name)


def _union(value: object, hints: tuple[Any, ...], name: str) -> object:
    for hint in hints:
        try:
            return fit(value, hint, name)
        except (TypeError, ValueError):
            continue
    raise _wrong(name)


def _literal(value: object, allowed: tuple[Any, ...], name: str) -> object:
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise _wrong(name)
    return value


def _tuple(value: object, hints: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise _wrong(name)
    if hints[-1] is Ellipsis:
        return tuple(fit(one, hints[0], name) for one in value)
    if len(value) != len(hints):
        raise _wrong(name)
    return tuple(fit(one, hint, name) for one, hint in zip(value, hints))


def _mapping(value: object, hints: tuple[Any, ...], name: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _wrong(name)
    return {fit(key, hints[0], name): fit(one, hints[1], name) for key, one in value.items()}


def _wrong(name: str) -> TypeError:
    return TypeError(f"{name} is of another type")


_READERS: Mapping[Any, Callable[[object, tuple[Any, ...], str], Any]] = {
    Union: _union,
    Literal: _literal,
    tuple: _tuple,
    dict: _mapping,
    Mapping: _mapping,
}
