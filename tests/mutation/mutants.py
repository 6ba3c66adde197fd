"""Every small change of a module that its tests should notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import CodeType
from typing import Final

__all__ = ["Mutant", "compiled", "mutants_of", "stratified"]

_COMPARED: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
}
_PAIRS: Final = (
    *(("min", "max"), ("minimum", "maximum"), ("any", "all"), ("ceil", "floor")),
    *(("start", "end"), ("start_ns", "end_ns"), ("left", "right")),
)
_OTHER: Final = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    """Dotted."""
    function: str
    """Qualified name of the function or class around it; "" at the level of the module."""
    in_function: bool
    lines: range
    """The lines of the innermost statement around it: what must run for a test to notice."""
    source: str
    """The first of these lines."""
    change: str
    node: int
    """The changed node's place in `ast.walk`."""
    variant: int


def mutants_of(module: str, path: Path) -> list[Mutant]:
    """All mutants of a module, in the order of its tree."""
    tree = ast.parse(path.read_bytes())
    text = path.read_text().splitlines()
    number = {node: at for at, node in enumerate(ast.walk(tree))}
    found = []
    for node, statement, function, in_function in _within(tree, None, "", False):
        lines = range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        # Of a function: all its lines, since its head, with its defaults, only runs when it is imported.
        if isinstance(statement, (ast.If, ast.While, ast.For, ast.ClassDef)):
            lines = range(statement.lineno, statement.body[0].lineno)
        for variant, other in enumerate(_variants(node)):
            before, after = (" ".join(ast.unparse(each).split()) for each in (node, other))
            if before != after:
                source, change = text[lines[0] - 1].strip(), f"{before} -> {after}"
                found.append(
                    Mutant(module, function, in_function, lines, source, change, number[node], variant)
                )
    return found


def compiled(mutant: Mutant | None, path: Path) -> CodeType:
    """The module with the change made; None makes none."""
    tree = ast.parse(path.read_bytes())
    if mutant is not None:
        chosen = list(ast.walk(tree))[mutant.node]
        other = ast.copy_location(list(_variants(chosen))[mutant.variant], chosen)
        tree = _Swap(chosen, other).visit(tree)
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


def stratified(mutants: list[Mutant], size: int, seed: int, least: int = 6) -> list[Mutant]:
    """A sample with every module's share of the mutants, and at least a few of each."""
    by_module: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_module.setdefault(mutant.module, []).append(mutant)
    chosen = []
    for module, own in by_module.items():
        count = max(least, round(size * len(own) / len(mutants)))
        chosen += Random(f"{seed} {module}").sample(own, min(count, len(own)))
    return chosen


def _within(
    node: ast.AST, statement: ast.stmt | None, function: str, in_function: bool
) -> Iterator[tuple[ast.AST, ast.stmt, str, bool]]:
    """The nodes that may change, with the statement and the function around them."""
    for child in _children(node):
        inner, around = statement, function
        if isinstance(child, ast.stmt):
            inner = child
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            around = f"{function}.{child.name}".lstrip(".")
        deep = in_function or isinstance(child, ast.FunctionDef)
        if inner is not None:
            yield child, inner, around, deep
        yield from _within(child, inner, around, deep)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Without what only people and type checkers read, and decorators, which decide how, not what."""
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if isinstance(child, ast.AST) and not text:
                yield child


def _variants(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    for kind in (_operators, _values, _names, _parts):
        yield from kind(node)


def _operators(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[op]):
            for other in _COMPARED[type(op)]:
                yield ast.Compare(node.left, [other()], node.comparators)
        case ast.BinOp(op=op) if type(op) in _COMPUTED:
            yield ast.BinOp(node.left, _COMPUTED[type(op)](), node.right)
        case ast.AugAssign(op=op) if type(op) in _COMPUTED:
            yield ast.AugAssign(node.target, _COMPUTED[type(op)](), node.value)
            yield ast.Pass()
        case ast.BoolOp(op=op):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), node.values)
        case ast.UnaryOp(operand=operand):
            yield operand


def _values(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=float() as value):
            # These are estimates, which one more or less changes by everything or nothing.
            yield ast.Constant(value * 2 if value else 1.0)
            yield ast.Constant(value / 2)
        case ast.Constant(value=("left" | "right") as value):
            yield ast.Constant(_OTHER[value])


def _names(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Name(id=("min" | "max" | "any" | "all") as name, ctx=ast.Load()):
            yield ast.Name(_OTHER[name], ast.Load())
        # The table of constants has a `start_ns` and no `end_ns`.
        case ast.Attribute(value=value, attr=name, ctx=ast.Load()) if name in _OTHER:
            if not ast.unparse(value).endswith("constants"):
                yield ast.Attribute(value, _OTHER[name], ast.Load())


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Larger changes: tests negated, arguments swapped, statements and results left out."""
    match node:
        case ast.If(test=test) if not isinstance(test, (ast.Compare, ast.UnaryOp)):
            yield ast.If(ast.UnaryOp(ast.Not(), test), node.body, node.orelse)
        case ast.IfExp(test=test):
            yield ast.IfExp(test, node.orelse, node.body)
        case ast.Call(func=ast.Attribute(attr="where"), args=[test, one, other]):
            yield ast.Call(node.func, [test, other, one], [])
        case ast.Call(func=ast.Attribute(attr="lexsort"), args=[ast.Tuple(elts=keys)]):
            yield ast.Call(node.func, [ast.Tuple(keys[::-1], ast.Load())], [])
        case ast.Call(func=ast.Attribute(attr="searchsorted"), keywords=[]):
            yield ast.Call(node.func, node.args, [ast.keyword("side", ast.Constant("right"))])
        case ast.Return(value=ast.expr()):
            yield ast.Return(ast.Constant(None))
        case ast.Continue() | ast.Break() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
        case ast.Assign(targets=[target], value=value) if _again(target, value):
            yield ast.Pass()


def _again(target: ast.expr, value: ast.expr) -> bool:
    """Whether an assignment changes what is there already: without it the rest still runs."""
    if isinstance(target, (ast.Subscript, ast.Attribute)):
        return not (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self")
    read = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
    return {each.id for each in ast.walk(target) if isinstance(each, ast.Name)} <= read


class _Swap(ast.NodeTransformer):
    def __init__(self, chosen: ast.AST, other: ast.AST) -> None:
        self._chosen, self._other = chosen, other

    def visit(self, node: ast.AST) -> ast.AST:
        return self._other if node is self._chosen else super().generic_visit(node)
