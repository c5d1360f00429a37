"""Programs that a test starts beside itself: on free ports of the loopback, with a log, ended by their own id."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.waiting import eventually


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    *command: str, log: Path, ready: str, env: Mapping[str, str] | None = None, seconds: float = 60
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends; begin when `ready` answers, a URL or host:port. Raises AssertionError."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            cwd=log.parent,
        )
    try:
        eventually(f"{Path(command[0]).name} answers", lambda: _answers(child, ready, log), seconds=seconds, pause=0.1)
        yield child
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """End a process in order, by force after ten seconds."""
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _answers(child: subprocess.Popen[bytes], ready: str, log: Path) -> bool:
    if child.poll() is not None:
        raise RuntimeError(f"{child.args!r} ended with code {child.returncode}: {tail(log)}")
    if not ready.startswith("http"):
        host, _, port = ready.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0
    try:
        with urllib.request.urlopen(ready, timeout=5) as answer:  # noqa: S310 - a program of ours
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def tail(log: Path, lines: int = 15) -> str:
    """Return the end of a program's log, for failures."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def ask(url: str, body: object | None = None) -> Any:
    """Return the JSON that a URL answers, to a POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers)  # noqa: S310 - a program of ours
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        text = answer.read()
    return json.loads(text) if text else None


def killed(act: Callable[[], None], arrange: Callable[[Callable[[], None]], object], *, at: int) -> bool:
    """Fork a process that does `act` and is killed at its `at`th step; return whether it was.

    `arrange` gets what counts a step, and has it called around whatever is to be interrupted. Raises AssertionError
    when `act` fails.
    """
    child = os.fork()
    if child == 0:
        left = at

        def step() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            arrange(step)
            act()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the process failed"
    return os.WIFSIGNALED(status)
