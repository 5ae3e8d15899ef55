"""The mutations that `mutate.py` makes in a syntax tree."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

OPERATORS: dict[type, type] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip
NOT_MUTATED = {"annotation", "returns", "decorator_list"}
LOGGERS = {"log", "logging", "logger"}


class Place(NamedTuple):
    """Where a tree can be mutated: the statement with it, the functions around that, and what makes the mutation."""

    line: int
    statement: ast.stmt
    functions: tuple[ast.AST, ...]
    mutate: Callable[[], object]


def places(tree: ast.Module) -> list[Place]:
    """In the order of the source; the same source has the same places."""
    return list(_places(tree, None, ()))


def _places(node: ast.AST, statement: ast.stmt | None, functions: tuple[ast.AST, ...]) -> Iterator[Place]:  # fmt: skip
    if _is_left_out(node):
        return
    if isinstance(node, ast.stmt):
        statement = node
    if statement is not None:
        for mutate in _mutations(node):
            yield Place(getattr(node, "lineno", statement.lineno), statement, functions, mutate)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        functions = (*functions, node)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in NOT_MUTATED:
                yield from _places(child, statement, functions)


def _is_left_out(node: ast.AST) -> bool:
    """Docstrings, formatted texts, logging, type aliases, and what only a type checker reads."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        return node.col_offset == 0
    if isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            return isinstance(function.value, ast.Name) and function.value.id in LOGGERS
        return isinstance(function, ast.Name) and function.id in ("cast", "TypeVar")
    return isinstance(node, ast.JoinedStr)


def _mutations(node: ast.AST) -> Iterator[Callable[[], object]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield lambda: node.ops.__setitem__(0, OPERATORS[type(node.ops[0])]())
    if isinstance(node, (ast.BoolOp, ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        yield lambda: setattr(node, "op", OPERATORS[type(node.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        # `not not x` is `x` for whoever only asks whether it holds.
        yield lambda: setattr(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
    if isinstance(node, ast.Constant):
        yield from _constants(node)
    if isinstance(node, ast.Return) and not isinstance(node.value, (ast.Constant, type(None))):
        yield lambda: setattr(node, "value", ast.Constant(None))
    if isinstance(node, ast.ExceptHandler) and node.type is not None and ast.unparse(node.type) != "KeyboardInterrupt":  # fmt: skip
        yield lambda: setattr(node, "type", ast.Name("KeyboardInterrupt", ast.Load()))
    if isinstance(node, ast.Call):
        for keyword in node.keywords:
            yield lambda keyword=keyword: node.keywords.remove(keyword)
    if isinstance(node, (ast.Continue, ast.Break, ast.Raise, ast.AugAssign, ast.Delete)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_left_out(node.value)
    ):  # fmt: skip
        yield lambda: _become_pass(node)


def _constants(node: ast.Constant) -> Iterator[Callable[[], object]]:
    value = node.value
    if isinstance(value, bool):
        yield lambda: setattr(node, "value", not value)
    elif isinstance(value, (int, float)):
        yield lambda: setattr(node, "value", value + 1)
    elif isinstance(value, str) and value and not any(mark.isspace() for mark in value):
        yield lambda: setattr(node, "value", value + "mutated")


def _become_pass(statement: ast.AST) -> None:
    statement.__class__ = ast.Pass


def mutated(source: str, index: int) -> tuple[str, str, str]:
    """The mutated source, and what its line was and is."""
    tree = ast.parse(source)
    before = ast.unparse(tree)
    places(tree)[index].mutate()
    after = ast.unparse(tree)
    pairs = zip([*before.splitlines(), ""], [*after.splitlines(), ""])
    was, becomes = next(pair for pair in pairs if pair[0] != pair[1])
    start = max(
        0,
        next(
            place
            for place, marks in enumerate(zip(was + " ", becomes + " "))
            if len(set(marks)) > 1
        )
        - 40,
    )
    return after, was[start:].strip()[:90], becomes[start:].strip()[:90]


def observed(source: str, indexes: dict[int, int], call: str) -> str:
    """The source which calls `call(number)` where each of these mutations will be: {number: index}."""
    tree = ast.parse(source)
    found = places(tree)
    chosen = {number: found[index] for number, index in indexes.items()}
    every = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]  # fmt: skip
    for number, place in chosen.items():
        for function in place.functions[-1:] or every:
            _insert(function, place.statement if place.functions else None, f"{call}({number})")
    return ast.unparse(tree)


def _insert(function: ast.AST, statement: ast.stmt | None, call: str) -> None:
    """A call before this statement of the function, or at its start."""
    added = ast.parse(f"try:\n    {call}\nexcept Exception:\n    pass").body[0]
    for node in ast.walk(function):
        for _, body in ast.iter_fields(node):
            if isinstance(body, list) and statement is not None and statement in body:
                body.insert(body.index(statement), copy.deepcopy(added))
                return
    body = function.body  # type: ignore[attr-defined]
    body.insert(1 if ast.get_docstring(function, clean=False) is not None else 0, added)  # type: ignore[arg-type]
