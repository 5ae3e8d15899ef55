"""Frozen dataclasses to JSON and back, by their annotations; errors name a wrong value's path."""

# SPDX-License-Identifier: MIT

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, TypeVar

from neuca_tools.errors import SelftestError
from neuca_tools.model.shapes import ShapeError, Shapes

T = TypeVar("T")
# Whole numbers are smaller than this, as those that are read from iperf3's JSON are. No counter has
# as much, and the ratio of any two is a float.
_MAX_INTEGER = 10**25
# Metadata of a field that is not part of the format.
INTERNAL = {"internal": True}


def _whole_number(value: object) -> int:
    if type(value) is not int:  # a bool is not a whole number
        raise ShapeError(f"is {str(value)[:40]!r}, and should be a whole number")
    if abs(value) >= _MAX_INTEGER:
        raise ShapeError("is too large a number")
    return value


# Unknown keys are those of a later version, and ignored, and so is the rest of a very long list.
_SHAPES = Shapes({int: _whole_number}, strict=False, max_items=1_000_000)


def encode(value: object) -> object:
    """Plain JSON. Fields that have their default value, or are marked INTERNAL, are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        known = [(field, getattr(value, field.name)) for field in fields(value)]
        return {
            field.name: encode(content) for field, content in known if _is_written(field, content)
        }
    if isinstance(value, (tuple, list)):
        return [encode(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): encode(each) for key, each in value.items()}
    return value


def _is_written(field: Field[Any], value: object) -> bool:
    if field.metadata == INTERNAL:
        return False
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return field.name == "version" or value != default


def decode(kind: type[T], data: object, what: str = "evidence") -> T:
    """The dataclass `kind` from its JSON.

    `what` it is, in one word. Raises SelftestError with the path of what is wrong, or if `kind`
    has a version and this is another one.
    """
    version = getattr(kind, "version", None)
    if version and isinstance(data, dict) and data.get("version") != version:
        known = f"this program knows {version}"
        shown = str(data.get("version"))[:40]
        raise SelftestError(f"read the {what}: its version is {shown}, and {known}")
    try:
        return _SHAPES.read(kind, data)
    except ShapeError as error:
        raise SelftestError(f"read the {what}: {what}{error.path} {error.reason}") from None
