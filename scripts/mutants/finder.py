"""Mutants of source text: comparisons, operators, constants, conditions, returned values, arguments, and dropped statements.

Texts are not mutated: they are wording or SQL. Declarations and assertions are left to the type checker.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Code = ast.stmt | ast.expr
OPERATORS: dict[type[ast.AST], tuple[Any, ...]] = {
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,), ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.And: (ast.Or,), ast.Or: (ast.And,), ast.Add: (ast.Sub,), ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,), ast.Div: (ast.Mult,), ast.FloorDiv: (ast.Mult,), ast.Mod: (ast.Mult,), ast.BitOr: (ast.BitAnd,),
    ast.BitAnd: (ast.BitOr,), ast.LShift: (ast.RShift,), ast.RShift: (ast.LShift,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: the bytes from `start` to `end` become `text`."""

    file: str
    number: int
    line: str
    mutation: str
    start: int
    end: int
    text: str
    function: int | None  # its first line, decorators included; None at the level of the module or of a class

    @property
    def key(self) -> tuple[str, str, str]:
        return self.file, self.line, self.mutation


class Finder(ast.NodeVisitor):
    """Collects the mutants of one file; annotations, decorators and bases are left alone."""

    def __init__(self, file: str, source: bytes) -> None:
        self._file, self._lines = file, source.splitlines(keepends=True)
        self._function: int | None = None
        self.found: dict[tuple[int, int, str], Mutant] = {}
        self.visit(ast.parse(source))

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt | ast.expr):
            for target, new in _variants(node):
                self._add(target, new)
        super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer, self._function = self._function, min(line.lineno for line in (node, *node.decorator_list))
        for part in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(part)
        self._function = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 -- the name is of ast.NodeVisitor

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in node.body:
            self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Before Python 3.12, what stands inside has no position of its own."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """It narrows a type."""

    def _add(self, target: Code, new: ast.AST) -> None:
        assert target.end_lineno is not None
        assert target.end_col_offset is not None
        start = sum(map(len, self._lines[: target.lineno - 1])) + target.col_offset
        end = sum(map(len, self._lines[: target.end_lineno - 1])) + target.end_col_offset
        text = ast.unparse(new)
        mutation = f"{ast.unparse(target)} -> {text}"
        written = text if isinstance(new, ast.stmt) else f"({text})"
        line = self._lines[target.lineno - 1].decode().strip()
        found = Mutant(self._file, target.lineno, line, mutation, start, end, written, self._function)
        self.found.setdefault((start, end, text), found)


def _variants(node: Code) -> Iterator[tuple[Code, ast.AST]]:
    """What is replaced, and by what."""
    match node:
        case ast.Compare(left, [operator], comparators):
            yield from ((node, ast.Compare(left, [new()], comparators)) for new in OPERATORS[type(operator)])
        case ast.BoolOp(operator, values):
            yield node, ast.BoolOp(OPERATORS[type(operator)][0](), values)
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield node, ast.BinOp(left, OPERATORS[type(operator)][0](), right)
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.Constant(bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(int() | float() as number):
            yield node, ast.Constant(number + 1)
        case ast.Call(ast.Name("isinstance" | "next" | "max" | "min")):
            return  # with swapped arguments these always fail or do the same
        case ast.Call(called, [first, second, *rest], keywords) if ast.Starred not in (type(first), type(second)):
            yield node, ast.Call(called, [second, first, *rest], keywords)
        case _:
            yield from _control_variants(node)


def _control_variants(node: Code) -> Iterator[tuple[Code, ast.AST]]:
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield from _negated(test)
        case ast.ListComp(_, loops) | ast.SetComp(_, loops) | ast.GeneratorExp(_, loops) | ast.DictComp(_, _, loops):
            for test in (test for loop in loops for test in loop.ifs):
                yield from _negated(test)
        case ast.Return(ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield node, ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call() | ast.Await()) | ast.Raise() | ast.Continue() | ast.Break() | ast.AugAssign() | ast.Delete():
            yield node, ast.Pass()
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield node, ast.Pass()


def _negated(test: ast.expr) -> Iterator[tuple[ast.expr, ast.AST]]:
    """A comparison or negation as a condition has variants of its own."""
    if not isinstance(test, ast.Compare) and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield test, ast.UnaryOp(ast.Not(), test)


def mutants_of(source: Path, paths: Sequence[str]) -> list[Mutant]:
    places = (source / "fidelio" / path for path in paths)
    files = (file for place in places for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place]))
    return [mutant for file in files for mutant in Finder(str(file.relative_to(source)), file.read_bytes()).found.values()]


def sample(mutants: Iterable[Mutant], seed: int, size: int) -> list[Mutant]:
    """Ranked by a hash of their texts: a change elsewhere in the source leaves the sample as it is."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256(repr((seed, mutant.key)).encode()).digest())[:size]
