"""Who does something, and whether they mean it."""

from __future__ import annotations

import getpass
import sys
from typing import Final

import typer

from fencepost_cli.errors import CliError

_LONGEST: Final = 200


def ask(question: str) -> None:
    """Ask for confirmation; exit when it is refused. Raises CliError without a terminal."""
    if not sys.stdin.isatty():
        raise CliError("cannot ask for confirmation without a terminal", remedy="add --yes, or try --dry-run first")
    typer.confirm(question, abort=True, err=True)


def check_terminal() -> None:
    """Raise CliError without a terminal, where a debugger cannot ask."""
    if not sys.stdin.isatty():
        raise CliError("--debug needs a terminal", remedy="start the command in one, or leave --debug out")


def who(given: str | None) -> str:
    """Return the name that the command line gives, or this account's. Raises CliError without one."""
    if given:
        return given[:_LONGEST]
    try:
        return getpass.getuser()[:_LONGEST]
    except (OSError, KeyError) as error:
        raise CliError("this account has no name", remedy="say with --by who you are") from error
