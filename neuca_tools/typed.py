"""What annotations use of `typing`, without its cost: a tenth of a start, half a MiB of the daemon.

Type checkers see the library. At run time annotations are strings. The few that are evaluated, to
read JSON by them (`state.shapes`), only need to know what a form was subscripted with.
"""

# SPDX-License-Identifier: MIT
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN204, PLC0414

from __future__ import annotations

from collections.abc import Callable as Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as Any
    from typing import BinaryIO as BinaryIO
    from typing import ClassVar as ClassVar
    from typing import Literal as Literal
    from typing import NoReturn as NoReturn
    from typing import Optional as Optional
    from typing import Protocol as Protocol
    from typing import TypeVar as TypeVar
    from typing import Union as Union
    from typing import cast as cast
else:

    class _Form:
        """A form; subscripted, one with `__origin__` and `__args__` as in the library."""

        __slots__ = ("__args__", "__origin__")

        def __init__(self, origin=None, arguments=()):
            self.__origin__, self.__args__ = origin, arguments

        def __getitem__(self, given):
            return _Form(self, given if isinstance(given, tuple) else (given,))

    class _Union(_Form):
        __slots__ = ()

        def __getitem__(self, given):
            members = given if isinstance(given, tuple) else (given,)
            return _Form(self, tuple(type(None) if one is None else one for one in members))

    class _Optional(_Form):
        __slots__ = ()

        def __getitem__(self, given):
            return Union[given, None]

    class Protocol:
        """A base class of classes that are used by their methods alone."""

    class TypeVar:
        def __init__(self, name, *_constraints, **_bound):
            self.__name__ = name

    def cast(_, value):
        return value

    Any, BinaryIO, ClassVar, Literal, NoReturn = (_Form() for _ in range(5))
    Union, Optional = _Union(), _Optional()


def arguments_of(hint: object) -> tuple[Any, ...]:
    """What it was subscripted with: typing.get_args()."""
    arguments: tuple[Any, ...] = getattr(hint, "__args__", ())
    return arguments
