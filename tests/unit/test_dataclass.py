"""Our dataclasses behave as the library's do."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import copy
import dataclasses
import sys
import typing
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import pytest

from neuca_tools import dataclass as ours


class Pair(NamedTuple):
    left: object
    right: object


def made(library):
    """The same classes, decorated by one of the two modules."""

    @library.dataclass(frozen=True)
    class Base:
        kind: ClassVar[str] = "base"
        name: str
        size: int = 4

    @library.dataclass(frozen=True)
    class Derived(Base):
        size: int = 9
        more: Mapping[str, int] = library.field(default_factory=dict, compare=False)
        secret: str = library.field(default="", repr=False)

    @library.dataclass(frozen=True, order=True)
    class Ordered:
        first: int
        second: str = ""

    @library.dataclass
    class Open:
        values: list[object] = library.field(default_factory=list)

    @library.dataclass(frozen=True)
    class Own:
        name: str

        def __repr__(self):
            return "own"

        def __hash__(self):
            return 7

    @library.dataclass(frozen=True)
    class Empty:
        pass

    return {one.__name__: one for one in (Base, Derived, Ordered, Open, Own, Empty)}


def compiled(make):
    """Classes of ours whose constructors are compiled for the first instance."""
    few, ours.FEW = ours.FEW, 0
    try:
        return make()
    finally:
        ours.FEW = few


BOTH = [made(dataclasses), made(ours), compiled(lambda: made(ours))]


def same(function):
    """What it makes of the library's classes and of ours is the same."""
    libraries = (dataclasses, ours, ours)
    first, *others = (function(classes, library) for classes, library in zip(BOTH, libraries))
    assert others == [first, first]


def test_instances_are_shown_compared_and_hashed_alike():
    same(lambda known, _: repr(known["Derived"]("a", more={"x": 1}, secret="s")))
    same(lambda known, _: repr(known["Own"]("a")) + repr(known["Empty"]()))
    same(lambda known, _: known["Derived"]("a", 1, {"x": 1}) == known["Derived"]("a", 1, {}))
    same(lambda known, _: known["Derived"]("a", 1) == known["Derived"]("a", 1, secret="s"))
    same(lambda known, _: known["Base"]("a", 9) == known["Derived"]("a"))
    same(lambda known, _: hash(known["Own"]("a")))
    same(lambda known, _: len({known["Base"]("a"), known["Base"]("a", 4), known["Base"]("b")}))
    same(lambda known, _: known["Empty"]() == known["Empty"]())
    same(lambda known, _: (known["Base"].size, known["Derived"].size, known["Base"].kind))
    same(lambda known, _: known["Open"].__hash__)


def test_order():
    values = [(2, "a"), (1, "b"), (1, "a")]
    same(lambda known, _: list(map(repr, sorted(known["Ordered"](*one) for one in values))))
    same(lambda known, _: known["Ordered"](1) >= known["Ordered"](1))
    for classes in BOTH:
        with pytest.raises(TypeError):
            _ = classes["Ordered"](1) < 2


def test_every_instance_has_a_default_of_its_own():
    for classes in BOTH:
        first, second = classes["Open"](), classes["Open"]()
        first.values.append(1)
        assert (first.values, second.values) == ([1], [])


def test_copies_and_dictionaries():
    same(lambda known, lib: repr(lib.replace(known["Derived"]("a", secret="s"), name="b")))
    same(lambda known, _: list(vars(known["Derived"](secret="s", name="b", size=1))))

    def nested(known):
        parts = [known["Base"]("a"), {"k": (known["Base"]("b"),)}, Pair(1, [2])]
        return known["Open"](parts)

    same(lambda known, lib: lib.asdict(nested(known)))
    found = ours.asdict(nested(BOTH[1]))["values"][2]
    assert isinstance(found, Pair)


@pytest.mark.parametrize("change", ["name", "other"])
def test_a_frozen_instance_cannot_be_changed(change):
    for classes in BOTH:
        one = classes["Base"]("a")
        with pytest.raises(
            dataclasses.FrozenInstanceError, match=f"^cannot assign to field '{change}'$"
        ):
            setattr(one, change, 1)
        with pytest.raises(
            dataclasses.FrozenInstanceError, match=f"^cannot delete field '{change}'$"
        ):
            delattr(one, change)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ((), {}),
        ((), {"size": 1}),
        (("a", 1, {}, "", "too many"), {}),
        (("a",), {"other": 1}),
        (("a",), {"name": "b"}),
        (("a",), {"self": 1}),
    ],
)
def test_wrong_arguments_raise_the_same_error(words, given):
    texts = []
    for classes in BOTH:
        with pytest.raises(TypeError) as caught:
            classes["Derived"](*words, **given)
        texts.append(str(caught.value))
    assert texts[0] == texts[1] == texts[2]


def test_instances_are_no_larger_than_those_of_the_library():
    def size(classes, number):
        made = [classes["Derived"]("a", number) for _ in range(number)]
        return max(sys.getsizeof(vars(one)) for one in made)

    for few in (1, ours.FEW + 5):
        assert len({size(made(module), few) for module in (dataclasses, ours)}) == 1


@pytest.mark.parametrize("number", [1, ours.FEW, ours.FEW + 1, ours.FEW + 2])
@pytest.mark.parametrize("tuples_too", [False, True])
def test_only_a_class_of_many_instances_has_its_constructor_compiled(number, tuples_too):
    make = tuples(ours.NamedTuple) if tuples_too else made(ours)["Derived"]
    counted = []

    def count(_, event, function):
        if event == "c_call" and function is exec:
            counted.append(function)

    sys.setprofile(count)
    try:
        for _ in range(number):
            make(1)
    finally:
        sys.setprofile(None)
    assert len(counted) == (number > ours.FEW)


def test_the_functions_of_the_library_work_on_ours():
    one = made(ours)["Derived"]("a", 1, secret="s")
    assert dataclasses.is_dataclass(one)
    assert [field.name for field in dataclasses.fields(one)] == ["name", "size", "more", "secret"]
    assert dataclasses.replace(one, name="b") == ours.replace(one, name="b")
    assert dataclasses.asdict(one) == ours.asdict(one)
    assert ours.field_names(type(one)) == ("name", "size", "more", "secret")
    assert (ours.is_dataclass(one), ours.is_dataclass(1)) == (True, False)


@dataclasses.dataclass(frozen=True)
class OfLibrary:
    name: str
    inner: object = None


@ours.dataclass(frozen=True)
class OfOurs:
    name: str
    inner: object = None


class Plain(OfOurs):
    pass


@pytest.mark.parametrize("outer", [OfLibrary, OfOurs, Plain])
@pytest.mark.parametrize("inner", [OfLibrary, OfOurs, Plain])
@pytest.mark.parametrize("module", [ours, dataclasses])
def test_both_modules_work_on_the_classes_of_both(module, outer, inner):
    value = outer("a", (inner("b"),))
    assert module.replace(value, name="c") == outer("c", (inner("b"),))
    assert module.asdict(value) == {"name": "a", "inner": ({"name": "b", "inner": None},)}
    assert ours.field_names(outer) == ours.field_names(value) == ("name", "inner")


# --- NamedTuple -----------------------------------------------------------------------------------


def tuples(base):
    class Pair(base):
        """Two, or one."""

        left: int
        right: tuple[str, ...] = ()

        @property
        def whole(self) -> object:
            return (self.left, *self.right)

    return Pair


OURS, THEIRS = tuples(ours.NamedTuple), tuples(typing.NamedTuple)
COMPILED = compiled(lambda: tuples(ours.NamedTuple))


def said_of(made):
    """What can be seen of a class of tuples and of an instance of it."""
    one, other = made(1), made(2, right=("a",))
    left, right = other
    return (
        (repr(one), repr(other), str(other), left, right, other[1], len(other), other.whole),
        (made.__doc__, made.__name__, type(made), made.__mro__[1:], made._fields),
        (
            made._field_defaults,
            getattr(made, "__match_args__", made._fields),
            hasattr(one, "__dict__"),
            hash(one),
        ),
        (one._replace(left=3), other._asdict(), made._make([5, ()]), sorted([other, one])),
        (one == (1, ()), one != other, one < other, copy.copy(other), copy.deepcopy(other)),
        made.left.__get__(other),
    )


def test_our_tuples_are_like_those_of_the_library():
    assert said_of(OURS) == said_of(THEIRS) == said_of(COMPILED)


def test_a_tuple_of_a_subclass_is_one_of_the_subclass():
    class More(OURS):
        pass

    assert type(More(1)) is More
    assert type(More(1)._replace(left=2)) is More


@pytest.mark.parametrize(
    "wrong",
    [
        lambda made: made(),
        lambda made: made(1, 2, 3),
        lambda made: made(1, middle=2),
        lambda made: made(1, left=2),
        lambda made: made._make([1]),
        lambda made: made(1)._replace(middle=2),
        lambda made: setattr(made(1), "left", 2),
        lambda made: setattr(made(1), "middle", 2),
    ],
)
def test_what_a_tuple_of_the_library_refuses_ours_refuses(wrong):
    raised = []
    for made in (THEIRS, OURS, COMPILED):
        with pytest.raises((TypeError, ValueError, AttributeError)) as error:
            wrong(made)
        raised.append(error.type)
    # Python 3.13 has another one for _replace() (gh-issue 114198).
    assert raised[0] in (raised[1], TypeError)
    assert raised[1] is raised[2]
