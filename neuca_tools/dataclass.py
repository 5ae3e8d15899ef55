"""What the agent uses of `dataclasses`, and NamedTuple: classes that cost nothing until used.

The library compiles up to six methods of each class when it is defined, and imports `inspect`. That
took a third of the time of a command, which loads many classes and uses few. Here `__init__` is
compiled when a class gets more than FEW instances, since compiling it takes as long as making about
ten without it; the other methods are shared by all classes. Type checkers see the library, whose
functions work on these classes too, as those here do on its own. The same goes for NamedTuple, of
which the library compiles a method for each class, too.
"""

# SPDX-License-Identifier: MIT
# What is said of any class has no narrower types, and uses what it has given the class itself.
# ruff: noqa: A002, ANN401, N807, PLC0414, RUF063, SLF001

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping

from neuca_tools.typed import TYPE_CHECKING, Any, Callable, Optional

ABSENT: Any = object()
FEW = 15  # instances
_COMPARISONS = {name: getattr(operator, name) for name in ("__lt__", "__le__", "__gt__", "__ge__")}


class Field:
    """How a field is made, shown and compared."""

    __slots__ = ("compare", "default", "factory", "metadata", "repr")

    def __init__(
        self,
        *,
        default: Any = ABSENT,
        default_factory: Any = ABSENT,
        repr: bool = True,
        compare: bool = True,
        metadata: Optional[Mapping[Any, Any]] = None,
    ) -> None:
        self.default, self.factory = default, default_factory
        self.repr, self.compare, self.metadata = repr, compare, metadata

    def default_value(self) -> Any:
        """The default, made if there is a factory for it; ABSENT if there is neither."""
        return self.default if self.factory is ABSENT else self.factory()

    def for_library(self) -> Any:
        """The same as the library has it."""
        from dataclasses import field

        same: dict[str, Any] = {
            "repr": self.repr,
            "compare": self.compare,
            "metadata": self.metadata,
        }
        if self.factory is not ABSENT:
            return field(default_factory=self.factory, **same)
        if self.default is not ABSENT:
            return field(default=self.default, **same)
        return field(**same)


class _LibraryFields:
    """The attribute by which functions of the library know a dataclass, made when it is read."""

    def __get__(self, _: object, owner: Any) -> Any:
        from dataclasses import make_dataclass

        parts = [(name, Any, one.for_library()) for name, one in owner._dataclass_fields.items()]
        made: Any = make_dataclass(owner.__name__, parts)
        if "_dataclass_fields" in owner.__dict__:
            owner.__dataclass_fields__ = made.__dataclass_fields__
        return made.__dataclass_fields__


def _dataclass(cls: Optional[type] = None, *, frozen: bool = False, order: bool = False) -> Any:
    if cls is None:
        return lambda decorated: _dataclass(decorated, frozen=frozen, order=order)
    fields = _fields_of(cls)
    changed: dict[str, Any] = {
        "_dataclass_fields": fields,
        "_dataclass_compared": _getter([name for name, one in fields.items() if one.compare]),
        "__dataclass_fields__": _LibraryFields(),
        **_methods(cls, fields, frozen),
    }
    if order:
        changed.update({name: _ordered(compare) for name, compare in _COMPARISONS.items()})
    for name, value in changed.items():
        setattr(cls, name, value)
    return cls


def _fields_of(cls: type) -> dict[str, Field]:
    """The fields of the class and its bases. Their defaults become attributes of the class."""
    found: dict[str, Field] = {}
    for base in cls.__mro__[:0:-1]:
        found.update(base.__dict__.get("_dataclass_fields", {}))
    for name, annotation in cls.__dict__.get("__annotations__", {}).items():
        if annotation.startswith("ClassVar"):
            continue
        value = cls.__dict__.get(name, ABSENT)
        if not isinstance(value, Field):
            found[name] = Field(default=value)
            continue
        found[name] = value
        if value.default is ABSENT:
            delattr(cls, name)
        else:
            setattr(cls, name, value.default)
    return found


def _getter(names: list[str]) -> Callable[[object], object]:
    # Without a field all instances of a class are equal. A function would become a method.
    return operator.attrgetter(*(names or ["__class__"]))


def _methods(cls: type, fields: Mapping[str, Field], frozen: bool) -> dict[str, Any]:
    """Those that the class does not define itself."""

    values_of = _first_values(fields.keys(), lambda name: fields[name].default_value())

    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        values = values_of(args, keywords)
        if values is None:
            _complete(cls)
            cls.__init__(self, *args, **keywords)  # type: ignore[misc]
        else:
            own = self.__dict__
            for name, value in values.items():  # update() would unshare the keys
                own[name] = value

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    wanted: dict[str, Any] = {"__init__": __init__, "__repr__": _repr, "__eq__": _eq}
    methods = {name: method for name, method in wanted.items() if name not in cls.__dict__}
    # A class that defines __eq__ alone has None there.
    if cls.__dict__.get("__hash__") is None:
        methods["__hash__"] = _hash if frozen else None
    if frozen:
        methods.update(__setattr__=_refuse_to_set, __delattr__=_refuse_to_delete)
    return methods


def _first_values(
    names: Collection[str], default: Callable[[str], Any]
) -> Callable[[tuple[Any, ...], Mapping[str, Any]], Optional[dict[str, Any]]]:
    """A function that gives the values (see `_values`) of the first FEW instances, then None."""
    countdown = iter(range(FEW))

    def values_of(args: tuple[Any, ...], given: Mapping[str, Any]) -> Optional[dict[str, Any]]:
        if next(countdown, None) is None:
            return None
        return _values(names, default, args, given)

    return values_of


def _values(
    names: Collection[str],
    default: Callable[[str], Any],
    args: tuple[Any, ...],
    given: Mapping[str, Any],
) -> Optional[dict[str, Any]]:
    """The values of an instance, in the order of its fields; None if the arguments are wrong."""
    values = dict(zip(names, args))
    if len(args) > len(names) or not values.keys().isdisjoint(given):
        return None
    for name in names:
        if name not in values:
            values[name] = given[name] if name in given else default(name)
            if values[name] is ABSENT:
                return None
    return values if values.keys() >= given.keys() else None


def _complete(cls: Any) -> None:
    """Compile the `__init__` of a class."""
    parameters, lines, names = ["self"], ["_values = self.__dict__"], {"_absent": ABSENT}
    for name, one in cls._dataclass_fields.items():
        value = name
        if one.factory is not ABSENT:
            names[f"_make_{name}"] = one.factory
            parameters.append(f"{name}=_absent")
            value = f"_make_{name}() if {name} is _absent else {name}"
        elif one.default is not ABSENT:
            names[f"_default_{name}"] = one.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f"_values[{name!r}] = {value}")
    body = "\n ".join(lines)
    exec(f"def __init__({', '.join(parameters)}):\n {body}", names)
    method: Any = names["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = method


def _repr(self: Any) -> str:
    own, fields = self.__dict__, self._dataclass_fields.items()
    values = ", ".join([f"{name}={own[name]!r}" for name, one in fields if one.repr])
    return f"{self.__class__.__qualname__}({values})"


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._dataclass_compared(self) == other._dataclass_compared(other)


def _hash(self: Any) -> int:
    return hash(self._dataclass_compared(self))


def _ordered(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compare(self._dataclass_compared(self), other._dataclass_compared(other))

    return method


def _refuse_to_set(_: object, name: str, __: object) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: object, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _replace(value: Any, **changes: Any) -> Any:
    cls = type(value)
    fields = cls.__dict__.get("_dataclass_fields")
    if fields is None:
        from dataclasses import replace as of_library

        return of_library(value, **changes)
    values = {**value.__dict__, **changes}
    if len(values) > len(fields):
        if not changes.keys() <= fields.keys():
            return cls(**changes)  # raises the TypeError for a keyword that is unknown
        # A cached property is there as well, and may not be true of the copy.
        values = {name: values[name] for name in fields}
    copy = object.__new__(cls)
    object.__setattr__(copy, "__dict__", values)
    return copy


def _asdict(value: Any) -> Any:
    """The value with each dataclass in it as a dictionary, at any depth."""
    if "_dataclass_fields" in type(value).__dict__:
        return {name: _asdict(getattr(value, name)) for name in value._dataclass_fields}
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        from dataclasses import asdict as of_library

        return of_library(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return value.__class__(*map(_asdict, value))
    if isinstance(value, (list, tuple)):
        return value.__class__(map(_asdict, value))
    if isinstance(value, dict):
        return {_asdict(key): _asdict(one) for key, one in value.items()}
    return value


def field_names(cls: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass or an instance of one, also of the library."""
    found = getattr(cls, "_dataclass_fields", None)
    return tuple(cls.__dataclass_fields__ if found is None else found)


def fields_of(cls: Any) -> Mapping[str, Field]:
    """The fields, by their names, of a dataclass of this module or an instance of one."""
    found: Mapping[str, Field] = cls._dataclass_fields
    return found


def is_dataclass(value: object) -> bool:
    """Whether it is a dataclass, or an instance of one. Does not need the library for that."""
    cls = value if isinstance(value, type) else type(value)
    return any("__dataclass_fields__" in base.__dict__ for base in cls.__mro__)


# --- NamedTuple -----------------------------------------------------------------------------------


class _TupleMaker(type):
    """Makes the classes that inherit from NamedTuple. They are of the type `type`, as typing's."""

    def __new__(cls, name: str, _: tuple[type, ...], given: dict[str, Any]) -> Any:
        fields = tuple(given.get("__annotations__", ()))
        defaults = {field: given.pop(field) for field in fields if field in given}
        places = {field: property(operator.itemgetter(i)) for i, field in enumerate(fields)}

        values_of = _first_values(fields, lambda name: defaults.get(name, ABSENT))

        def __new__(made_of: Any, *args: Any, **keywords: Any) -> Any:
            values = values_of(args, keywords)
            if values is None:
                made.__new__ = _maker(fields, defaults)
                return made.__new__(made_of, *args, **keywords)
            return tuple.__new__(made_of, values.values())

        shared = {
            "__slots__": (),
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": defaults,
            "__new__": __new__,
            **_TUPLE_METHODS,
        }
        made: Any = type(name, (tuple,), {**shared, **places, **given})
        return made


def _maker(fields: tuple[str, ...], defaults: dict[str, Any]) -> Callable[..., Any]:
    """The `__new__` of a named tuple."""
    names: dict[str, Any] = {f"_default_{name}": value for name, value in defaults.items()}
    names["_new"] = tuple.__new__
    given = {name: f"{name}=_default_{name}" for name in defaults}
    parameters = ", ".join(["_cls", *(given.get(name, name) for name in fields)])
    values = "".join(f"{name}, " for name in fields)
    exec(f"def __new__({parameters}):\n return _new(_cls, ({values}))", names)
    method: Callable[..., Any] = names["__new__"]
    return method


def _make_tuple(cls: Any, values: Any) -> Any:
    made = tuple.__new__(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


def _replace_in_tuple(self: Any, /, **changes: Any) -> Any:
    made = self._make(map(changes.pop, self._fields, self))
    if changes:
        raise ValueError(f"Got unexpected field names: {list(changes)!r}")
    return made


def _repr_of_tuple(self: Any) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
    return f"{self.__class__.__name__}({values})"


_TUPLE_METHODS: dict[str, Any] = {
    "_make": classmethod(_make_tuple),
    "_replace": _replace_in_tuple,
    "_asdict": lambda self: dict(zip(self._fields, self)),
    "__repr__": _repr_of_tuple,
    "__getnewargs__": lambda self: tuple(self),  # noqa: PLW0108 - a class would not be bound
}


class _NamedTuple:
    """What a class statement names as the base, in whose place it gets `_TupleMaker`."""

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (_BASE,)


_BASE = type.__new__(_TupleMaker, "NamedTuple", (), {})


if TYPE_CHECKING:
    from dataclasses import asdict as asdict
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
    from dataclasses import replace as replace
    from typing import NamedTuple as NamedTuple
else:
    dataclass, field, replace, asdict = _dataclass, Field, _replace, _asdict
    NamedTuple = _NamedTuple()
