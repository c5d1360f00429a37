"""`breakpoint()` on the terminal, in each process of a local run, also in Spark's Python workers.

PYTHONBREAKPOINT names `set_trace`. The standard streams of these processes are not the terminal.
"""

from __future__ import annotations

import os
import pdb  # noqa: T100 - what this is
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

TERMINAL: Final = Path("/dev/tty")
"""That of the process's session, whatever its standard streams are."""


def set_trace(*_args: object, **_more: object) -> None:
    """Stop in the caller. Raises OSError without a terminal."""
    TerminalDebugger().set_trace(sys._getframe(1))  # noqa: SLF001 - as pdb does


class TerminalDebugger(pdb.Pdb):
    """Reads from the terminal, which it takes from the shell's job while it waits for a command."""

    def __init__(self) -> None:
        self._input = TERMINAL.open(encoding="utf-8")
        super().__init__(stdin=self._input, stdout=TERMINAL.open("w", encoding="utf-8"), nosigint=True, readrc=False)

    def interaction(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - they differ between versions of Python
        """Ask for commands until one continues."""
        with _foreground(self._input.fileno()):
            super().interaction(*args, **more)


@contextmanager
def _foreground(terminal: int) -> Iterator[None]:
    """Be the terminal's job for the block: another process group that reads from it is stopped."""
    before = os.tcgetpgrp(terminal)
    _give(terminal, os.getpgrp())
    try:
        yield
    finally:
        _give(terminal, before)


def _give(terminal: int, group: int) -> None:
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(terminal, group)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
