"""Dataclasses from JSON, with each field checked against its annotation."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[object, str], Any]
"""Returns a value as an annotation has it; the second argument is its name, for the error."""


_Fields = tuple[Mapping[str, Reader], Mapping[str, object]]
_FIELDS: dict[type, _Fields] = {}  # annotations are read once for each class


def _fields(kind: type) -> _Fields:
    """What reads each field; and the annotation of each, which is often the type of its value."""
    if kind not in _FIELDS:
        found = get_type_hints(kind)
        _FIELDS[kind] = {name: _reader(hint) for name, hint in found.items()}, found
    return _FIELDS[kind]


def made(kind: type[T], data: object) -> T:
    """An instance of `kind` from a JSON object with its fields. Raises TypeError, ValueError.

    `kind` is a dataclass or NamedTuple.
    """
    readers, types = _fields(kind)
    if not isinstance(data, dict):
        raise TypeError(f"{kind.__name__} is not an object")
    if not data.keys() <= readers.keys():
        unknown = min(map(str, data.keys() - readers.keys()))
        raise ValueError(f"{kind.__name__} has no {unknown!r}")
    values = {
        name: value if type(value) is types[name] else readers[name](value, name)
        for name, value in data.items()
    }
    return kind(**values)


def fit(value: object, hint: object, name: str) -> Any:  # noqa: ANN401 - what the hint says
    """The value as this annotation has it: lists become tuples. Raises TypeError, ValueError."""
    return _reader(hint)(value, name)


@lru_cache(None)
def _reader(hint: Any) -> Reader:  # noqa: ANN401 - any annotation
    make = _MAKERS.get(get_origin(hint))
    if make is not None:
        return make(get_args(hint))

    def read(value: object, name: str) -> object:
        if type(value) is hint:  # a bool is no int
            return value
        if isinstance(hint, type) and is_dataclass(hint):
            return made(hint, value)
        if hint is float and type(value) is int:  # JSON has one kind of number
            return float(value)
        raise _wrong(name)

    return read


def _union(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds]

    def read(value: object, name: str) -> object:
        if type(value) in kinds:
            return value
        for one in readers:
            try:
                return one(value, name)
            except (TypeError, ValueError):
                continue
        raise _wrong(name)

    return read


def _literal(allowed: tuple[Any, ...]) -> Reader:
    types = {*map(type, allowed)}

    def read(value: object, name: str) -> object:
        if type(value) not in types or value not in allowed:
            raise _wrong(name)
        return value

    return read


def _tuple(kinds: tuple[Any, ...]) -> Reader:
    readers = [_reader(kind) for kind in kinds if kind is not Ellipsis]

    def read(value: object, name: str) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _wrong(name)
        if kinds[-1] is Ellipsis:
            return tuple([readers[0](one, name) for one in value])
        if len(value) != len(kinds):
            raise _wrong(name)
        return tuple([one(part, name) for one, part in zip(readers, value)])

    return read


def _mapping(kinds: tuple[Any, ...]) -> Reader:
    key_of, value_of = map(_reader, kinds)

    def read(value: object, name: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise _wrong(name)
        return {key_of(key, name): value_of(one, name) for key, one in value.items()}

    return read


def _wrong(name: str) -> TypeError:
    return TypeError(f"{name} is of another type")


_MAKERS: Mapping[Any, Callable[[tuple[Any, ...]], Reader]] = {
    Union: _union,
    Literal: _literal,
    tuple: _tuple,
    dict: _mapping,
    Mapping: _mapping,
}
