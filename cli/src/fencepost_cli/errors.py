"""How a command ends: an exit code, and for a failure one line of what happened and one line of what to do."""

from __future__ import annotations

from enum import IntEnum

from fencepost_operator.text import single_line


class ExitCode(IntEnum):
    """What a script may rely on."""

    OK = 0
    FOUND = 1
    """The command did its work and found something that is wrong."""
    FAILED = 2
    """The command could not do its work; usage errors have the same code."""


class CliError(Exception):
    """A command cannot do its work. The message and the remedy are one line each and hold no password."""

    def __init__(self, message: object, *, remedy: str) -> None:
        super().__init__(single_line(message, limit=2000))
        self.remedy = single_line(remedy, limit=2000)
