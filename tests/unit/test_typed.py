"""Annotations without `typing`: the same as with it, for all that state files are read by."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import typing
from collections.abc import Mapping

import pytest

from neuca_tools.dataclass import NamedTuple
from neuca_tools.state.shapes import fit, hints, made, origin_of
from neuca_tools.typed import Literal, Optional, Union, arguments_of, cast


class Base:
    number: int
    names: tuple[str, ...]


class Kind(Base):
    number: Optional[int]
    one: Union[int, str, None]
    word: Literal["a", "b"]
    table: Mapping[str, Optional[int]]
    other: Optional[Base]


def test_annotations_are_evaluated_with_those_of_the_bases():
    found = hints(Kind)
    assert list(found) == ["number", "names", "one", "word", "table", "other"]
    assert (origin_of(found["number"]), arguments_of(found["number"])) == (Union, (int, type(None)))
    assert arguments_of(found["one"]) == (int, str, type(None))
    assert (origin_of(found["word"]), arguments_of(found["word"])) == (Literal, ("a", "b"))
    assert (origin_of(found["names"]), arguments_of(found["names"])) == (tuple, (str, ...))
    assert (origin_of(int), arguments_of(int)) == (None, ())


@pytest.mark.parametrize("home", [typing, __import__("neuca_tools.typed").typed])
def test_the_forms_of_the_library_and_ours_read_the_same(home):
    assert fit(1, home.Optional[int], "x") == 1
    assert fit(None, home.Optional[int], "x") is None
    assert fit("a", home.Union[int, home.Literal["a"]], "x") == "a"
    assert fit({"a": [1]}, Mapping[str, tuple[int, ...]], "x") == {"a": (1,)}
    for value, hint in (
        ("a", home.Optional[int]),
        ("c", home.Literal["a"]),
        (True, home.Optional[int]),
    ):
        with pytest.raises(TypeError, match="x is of another type"):
            fit(value, hint, "x")


class Library(NamedTuple):
    number: typing.Optional[int]


def test_a_class_with_the_forms_of_the_library_is_read():
    assert made(Library, {"number": None}) == Library(None)


def test_a_cast_is_its_value():
    assert cast("int", "x") == "x"
