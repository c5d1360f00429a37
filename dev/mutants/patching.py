"""A mutant in this process: its code takes the place of the original's in the functions that are already imported.

So the files stay as they are, and a test run is collected once for all mutants: each is a fork of it.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from mutants.mutations import Mutation


class NotLoadedError(Exception):
    """No test imports what is to be mutated."""


def apply(file: Path, source: str, mutation: Mutation) -> None:
    """Put a mutant of `file` in place. Raises NotLoadedError, SyntaxError, ValueError."""
    mutant = mutation.applied(source)
    if mutation.function is None:
        _set_constants(file, ast.parse(mutant), mutation)
    elif not put_code(file, compile(mutant, str(file), "exec"), first_line=mutation.function):
        raise NotLoadedError(f"{file.name}: no function begins on line {mutation.function} in what the tests import")


def put_code(file: Path, code: CodeType, *, first_line: int | None = None) -> int:
    """Give each function of `file`, or the one that begins on a line, its code in `code`; return how many there are."""
    new = {
        (each.co_qualname, each.co_firstlineno): each
        for each in _codes(code)
        if first_line is None or each.co_firstlineno == first_line
    }
    loaded = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    found = [
        (each, new[place])
        for each in loaded
        if each.__code__.co_filename == str(file)
        and (place := (each.__code__.co_qualname, each.__code__.co_firstlineno)) in new
    ]
    for function, its_code in found:
        function.__code__ = its_code
    return len(found)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def _set_constants(file: Path, tree: ast.Module, mutation: Mutation) -> None:
    """Assign what the changed statement of a module gives, also where another module has imported the name."""
    module = _module(file)
    statement = next(each for each in tree.body if each.lineno == mutation.statement)
    before = dict(vars(module))
    exec(compile(ast.Module([statement], type_ignores=[]), str(file), "exec"), vars(module))  # noqa: S102  # our own code
    changed = {name: value for name, value in vars(module).items() if before.get(name) is not value}
    for importer in list(sys.modules.values()):
        for name, value in changed.items():
            if vars(importer).get(name, value) is before.get(name):
                setattr(importer, name, value)


def _module(file: Path) -> ModuleType:
    found = next((each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == str(file)), None)
    if found is None:
        raise NotLoadedError(f"{file.name}: the tests do not import it")
    return found
