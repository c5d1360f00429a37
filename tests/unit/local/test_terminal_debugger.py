"""`breakpoint()` in a process whose streams are pipes, and that is not the job of the terminal."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from fencepost.local.request import DEBUGGER

AUTHORS = """
def transform(secret):
    breakpoint()
    return secret + 1

print(transform(41), flush=True)
"""
SHELL = f"""
import os, subprocess, sys
ended = subprocess.run(
    [sys.executable, "-c", {AUTHORS!r}], process_group=0, env={{**os.environ, "PYTHONBREAKPOINT": {DEBUGGER!r}}},
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
)
print("the answer is", ended.stdout, flush=True)
print("the shell reads", input(), flush=True)
"""


@pytest.mark.timeout(120)
def test_it_reads_commands_from_the_terminal_and_gives_it_back() -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", SHELL])  # noqa: S606 - no shell
    shown = until(terminal, "(Pdb)")
    os.write(terminal, b"p secret * 100\n")
    shown = until(terminal, "(Pdb)")
    assert "4100" in shown
    os.write(terminal, b"c\n")
    assert "the answer is 42" in until(terminal, "42")
    os.write(terminal, b"again\n")
    assert "the shell reads again" in until(terminal, "reads again")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0


def until(terminal: int, text: str) -> str:
    """Return what the terminal shows up to a text."""
    shown = ""
    while text not in shown:
        shown += os.read(terminal, 1024).decode()
    return shown
