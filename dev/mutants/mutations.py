"""All mutations of a file: each is one change of its text that a programmer could have made by mistake.

A comparison, `and` or `or`, a `not`, a number or a bool changes; a branch or a statement is dropped.  What changes a
message alone is not among them: strings, what is inside an f-string or an error, the choice between strings, a value
that is named a message, functions that return one, and calls of a logger.  Nor is the assignment of a local variable
dropped: each use would fail.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
DROPPED: Final = (ast.AugAssign, ast.Return, ast.Raise, ast.Continue, ast.Break, ast.Delete)
LOGGERS: Final = ("log", "logger")
MESSAGES: Final = ("message", "why", "what", "text")
"""Names of what is shown to users."""


@dataclass(frozen=True, slots=True, order=True)
class Mutation:
    """`after` instead of the text from `start` to `end`, in bytes of the file.

    `statement` is the line of the innermost statement around it; `function` is the first line of the outermost
    function around it, with its decorators, and None for a constant of the module.
    """

    start: int
    end: int
    after: str
    before: str
    line: int
    statement: int
    function: int | None

    def applied(self, source: str) -> str:
        """Return the file with the change."""
        text = source.encode()
        return (text[: self.start] + self.after.encode() + text[self.end :]).decode()

    def lines(self, source: str) -> tuple[str, str]:
        """Return the lines of the change, before and after it, each as one."""
        text = source.encode()
        first = text.rfind(b"\n", 0, self.start) + 1
        last = text.find(b"\n", self.end)
        head, tail = text[first : self.start].decode(), text[self.end : last if last >= 0 else None].decode()
        return " ".join(f"{head}{self.before}{tail}".split()), " ".join(f"{head}{self.after}{tail}".split())


def mutations_of(source: str) -> list[Mutation]:
    """Return all mutations of a file, by place."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str) -> None:
        self.found: list[Mutation] = []
        self._text = source.encode()
        self._lines = [0]
        for line in self._text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._statement = 0
        self._function: int | None = None

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self._within_statement(node)
        elif not _is_message(node):
            if isinstance(node, ast.expr):
                self._of_expression(node)
            self.generic_visit(node)

    def _within_statement(self, node: ast.stmt) -> None:
        outer = self._statement
        self._statement = node.lineno
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if not _returns_message(node):
                    self._of_function(node)
            case ast.ClassDef():
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        self.visit(each)
            case ast.Assign() | ast.AnnAssign():
                self._of_assignment(node)
            case _ if self._function is not None and not _is_said(node):
                self._drop_statement(node)
                self._of_branches(node)
                if not isinstance(node, ast.Raise):
                    self.generic_visit(node)
        self._statement = outer

    def _of_assignment(self, node: ast.Assign | ast.AnnAssign) -> None:
        self._drop_statement(node)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is not None and not any(isinstance(each, ast.Name) and each.id in MESSAGES for each in targets):
            self.visit(node.value)

    def _of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self._function
        if outer is None:
            self._function = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        for each in node.body:
            self.visit(each)
        self._function = outer

    def _drop_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=targets):
                is_dropped = not any(isinstance(each, ast.Name | ast.Tuple) for each in targets)
            case ast.Expr(value=ast.Constant()) | ast.Return(value=None | ast.Constant(value=None)):
                is_dropped = False
            case _:
                is_dropped = isinstance(node, (*DROPPED, ast.Expr))
        if is_dropped and self._function is not None:
            self._change(node, "pass")

    def _of_branches(self, node: ast.stmt) -> None:
        match node:
            case ast.If() | ast.While() if not isinstance(node.test, ast.Constant):
                self._change(node.test, "False")
                self._negate(node.test)
                if not all(isinstance(each, ast.If) or _is_said(each) for each in node.orelse):
                    self._replace(node.orelse[0], node.orelse[-1], "pass")
            case ast.Match():
                for case in node.cases:
                    if case.guard is None and not isinstance(case.pattern, ast.MatchAs):
                        self._change(case.pattern, f"{ast.unparse(case.pattern)} if False")
            case _:
                pass

    def _of_expression(self, node: ast.expr) -> None:
        match node:
            case ast.Compare():
                for place, operator in enumerate(node.ops):
                    changed = copy.deepcopy(node)
                    changed.ops[place] = COMPARISONS[type(operator)]()
                    self._change(node, _in_brackets(changed))
            case ast.BoolOp():
                changed_bool = copy.deepcopy(node)
                changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
                self._change(node, _in_brackets(changed_bool))
            case ast.UnaryOp(op=ast.Not()):
                self._change(node, _in_brackets(node.operand))
            case ast.IfExp():
                self._negate(node.test)
            case ast.Constant(value=bool() as value):
                self._change(node, str(not value))
            case ast.Constant(value=int() | float() as value):
                self._change(node, str(value + 1))
            case _:
                pass

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.NamedExpr) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            self._change(test, f"(not {_in_brackets(test)})")

    def _change(self, node: ast.expr | ast.stmt | ast.pattern, after: str) -> None:
        self._replace(node, node, after)

    def _replace(
        self, first: ast.expr | ast.stmt | ast.pattern, last: ast.expr | ast.stmt | ast.pattern, after: str
    ) -> None:
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        start = self._lines[first.lineno - 1] + first.col_offset
        end = self._lines[last.end_lineno - 1] + last.end_col_offset
        self.found.append(
            Mutation(
                start=start,
                end=end,
                after=after,
                before=self._text[start:end].decode(),
                line=first.lineno,
                statement=self._statement,
                function=self._function,
            )
        )


def _is_said(node: ast.stmt) -> bool:
    """Return whether a statement only logs, adds to a message, or shows a type checker that it is not reached."""
    match node:
        case ast.If(body=body, orelse=orelse):
            return all(_is_said(each) for each in [*body, *orelse])
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGGERS
        case ast.AugAssign(target=ast.Name(id=name)):
            return name in MESSAGES
        case ast.Expr(value=ast.Call(func=ast.Name(id="assert_never"))) | ast.Assert():
            return True
        case _:
            return False


def _is_message(node: ast.AST) -> bool:
    """Return whether an expression, or a named argument, is text for users."""
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.IfExp():
            return _is_message(node.body) and _is_message(node.orelse)
        case ast.BinOp(op=ast.Add()):
            return _is_message(node.left) or _is_message(node.right)
        case ast.Tuple():
            return any(_is_message(each) for each in node.elts)
        case ast.keyword():
            return node.arg in MESSAGES
        case _:
            return False


def _returns_message(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    if node.returns is None or ast.unparse(node.returns) not in {"str", "tuple[str, str]"}:
        return False
    returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value is not None]
    return any(_is_message(each) for each in returned)


def _in_brackets(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def with_marks(source: str, mark: Callable[[int], ast.stmt]) -> ast.Module:
    """Return the file with `mark(line)` before each statement of its functions."""
    tree = ast.parse(source)
    for function in [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for body in _bodies(function):
            body[:] = [put for each in body for put in _marked(each, mark)]
    return ast.fix_missing_locations(tree)


def _marked(node: ast.stmt, mark: Callable[[int], ast.stmt]) -> Iterator[ast.stmt]:
    is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if not is_docstring:
        yield ast.copy_location(mark(node.lineno), node)
    yield node


def _bodies(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Return the bodies in a function, without those of functions in it."""
    for _, value in ast.iter_fields(function):
        if not isinstance(value, list):
            continue
        if value and isinstance(value[0], ast.stmt):
            yield value
        for each in value:
            if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.expr):
                yield from _bodies(each)
