"""Dataclasses and named tuples from JSON, with each field checked against its annotation."""

# SPDX-License-Identifier: MIT

import math
from collections.abc import Callable, Collection, Mapping
from inspect import signature
from types import MappingProxyType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Returns a value of JSON as an annotation has it. Raises ShapeError."""
_TITLES = {
    list: "a list",
    dict: "an object",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bool: "true or false",
}
_PLAIN = (str, int, bool)


class ShapeError(ValueError):
    """A value of another type; `path` leads to it (`.nics[3].name`), `reason` is its predicate."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path.lstrip('.') or 'it'} {reason}")
        self.reason, self.path = reason, path


def _error_below(step: str, error: ShapeError) -> ShapeError:
    return ShapeError(error.reason, step + error.path)


def _checked_type(kind: type, value: object) -> Any:  # noqa: ANN401 - a value of this type
    if type(value) is not kind:  # a bool is not an int
        raise ShapeError(f"is {str(value)[:40]!r}, and should be {_TITLES[kind]}")
    return value


def _required_fields(kind: type) -> set[str]:
    parameters = signature(kind).parameters.items()
    return {name for name, parameter in parameters if parameter.default is parameter.empty}


class Shapes:
    """Readers by annotations. They take `max_items` items of a list, and ignore the rest.

    `leaves` has what reads types that JSON has in another form; it may raise ValueError. `strict`:
    an object with other keys than fields is wrong. `key_by_field`: fields named otherwise in JSON.
    """

    def __init__(
        self,
        leaves: Mapping[object, Reader],
        *,
        strict: bool = True,
        max_items: int = 1 << 30,
        key_by_field: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._readers, self._key_by_field = dict(leaves), key_by_field
        self._strict, self._max_items = strict, max_items

    def read(self, kind: type[T], value: object) -> T:
        """The value as an instance of this dataclass or named tuple. Raises ValueError."""
        return cast(T, self.reader(kind)(value))

    def reader(self, hint: object) -> Reader:
        """What reads values with this annotation, made once."""
        if hint not in self._readers:
            self._readers[hint] = self._new_reader(hint)
        return self._readers[hint]

    def _new_reader(self, hint: Any) -> Reader:  # noqa: ANN401 - any annotation
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Union:
            reader = self.reader(inner[0])  # Optional
            return lambda value: None if value is None else reader(value)
        if origin is Literal:
            return lambda value: _one_of(inner, value)
        if origin is tuple:
            return self._tuple_reader(inner)
        if origin is frozenset:
            items = self._tuple_reader((*inner, ...))
            return lambda value: frozenset(items(value))
        if origin is not None:
            return self._mapping_reader(*inner)
        if hint is float:
            return _finite_number
        if hint in _TITLES:
            return lambda value: _checked_type(hint, value)
        return self._object_reader(hint)

    def _tuple_reader(self, kinds: tuple[Any, ...]) -> Reader:
        readers = [self.reader(kind) for kind in kinds if kind is not Ellipsis]

        def read(value: object) -> tuple[Any, ...]:
            items = _checked_type(list, value)[: self._max_items]
            each = readers * len(items) if kinds[-1] is Ellipsis else readers
            if len(items) != len(each):
                raise ShapeError(f"has {len(items)} items, and should have {len(each)}")
            place, converted = 0, [*items]
            try:
                for place, item in enumerate(items):
                    converted[place] = each[place](item)
            except ShapeError as error:
                raise _error_below(f"[{place}]", error) from None
            return tuple(converted)

        return read

    def _mapping_reader(self, key_kind: object, kind: object) -> Reader:
        read_key, read_value = self.reader(key_kind), self.reader(kind)

        def read(value: object) -> dict[Any, Any]:
            key, converted = "", {}
            try:
                for key, content in _checked_type(dict, value).items():
                    converted[read_key(key)] = read_value(content)
            except ShapeError as error:
                raise _error_below(f".{key}" if key else "", error) from None
            return converted

        return read

    def _object_reader(self, kind: Any) -> Reader:  # noqa: ANN401 - a dataclass or named tuple
        hints = get_type_hints(kind)
        names = {self._key_by_field.get(name, name): name for name in hints}
        readers = {key: self.reader(hints[name]) for key, name in names.items()}
        # A call for each of these would cost most.
        plain = {key: hint if (hint := hints[names[key]]) in _PLAIN else None for key in names}
        required = _required_fields(kind)

        def read(value: object) -> object:
            content, key, converted = _checked_type(dict, value), "", {}
            try:
                for key, item in content.items():
                    if key in readers:
                        is_plain = type(item) is plain[key]
                        converted[names[key]] = item if is_plain else readers[key](item)
            except ShapeError as error:
                raise _error_below(f".{key}", error) from None
            self._check_names(content.keys() - readers.keys(), required - converted.keys(), kind)
            return kind(**converted)

        return read

    def _check_names(self, unknown: Collection[str], missing: Collection[str], kind: type) -> None:
        if unknown and self._strict:
            raise ShapeError(f'has "{min(unknown)}", which {kind.__name__} lacks')
        if missing:
            raise ShapeError(f'has no "{min(missing)}"')


def _finite_number(value: object) -> float:
    """A finite number. A whole number may stand for a fraction."""
    if type(value) is int and abs(value) < 1e300:
        return float(value)
    if not math.isfinite(_checked_type(float, value)):
        raise ShapeError(f"is {value!r}, and should be a number")
    return cast(float, value)


def _one_of(allowed: tuple[Any, ...], value: object) -> object:
    if value not in allowed or type(value) not in {*map(type, allowed)}:
        words = ", ".join(map(repr, allowed))
        raise ShapeError(f"is {str(value)[:40]!r}, and should be one of {words}")
    return value
