"""Running other programs: into a step's transcript, or as a quiet probe."""

import os
import shlex
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Appended to PATH: an ordinary user's PATH on Debian lacks the folders of dockerd, iptables and debootstrap."""

_running: set[subprocess.Popen[bytes]] = set()
_running_guard = threading.Lock()


class CommandError(Exception):
    """A program ended with a code other than 0, could not be started, or took too long."""

    def __init__(self, command: Sequence[str], outcome: str) -> None:
        super().__init__(f"{shlex.join(command)}: {outcome}")
        self.command = tuple(command)
        self.outcome = outcome


def variables(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment with the system's folders on PATH, and `extra` over it."""
    merged = {**os.environ, "LC_ALL": "C.UTF-8"}
    merged["PATH"] = f"{merged.get('PATH', '')}:{SYSTEM_PATH}".lstrip(":")
    return merged | dict(extra or {})


def probe(command: Sequence[str], *, seconds: float = 30, env: Mapping[str, str] | None = None) -> str | None:
    """What a program prints, or None when it fails in any way: for asking how things stand."""
    try:
        result = subprocess.run(command, capture_output=True, timeout=seconds, env=variables(env), check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode(errors="replace") if result.returncode == 0 else None


def terminate_children() -> None:
    """End every program a transcript is running; used when the command itself receives a signal to end."""
    with _running_guard:
        children = list(_running)
    for child in children:
        child.terminate()


@contextmanager
def _time_limit(
    command: Sequence[str], children: Sequence[subprocess.Popen[bytes]], seconds: float | None
) -> Iterator[None]:
    """Kill `children` after `seconds`, and say so.  Raises CommandError."""
    if seconds is None:
        yield
        return
    late = threading.Event()

    def end() -> None:
        late.set()
        for child in children:
            child.kill()

    timer = threading.Timer(seconds, end)
    timer.start()
    try:
        yield
    except CommandError as error:
        if late.is_set():
            raise CommandError(command, f"took more than {seconds:.0f} s") from error
        raise
    finally:
        timer.cancel()


def _copy(reader: subprocess.Popen[bytes], writers: Sequence[subprocess.Popen[bytes]]) -> None:
    assert reader.stdout is not None
    try:
        while chunk := reader.stdout.read(1 << 20):
            for writer in writers:
                assert writer.stdin is not None
                writer.stdin.write(chunk)
    except BrokenPipeError:
        reader.terminate()


@dataclass(frozen=True, slots=True)
class Transcript:
    """A step's log file; programs run through it write there."""

    path: Path

    def note(self, text: str) -> None:
        """Add a line of the testbed's own."""
        with self.path.open("a") as log:
            log.write(f"{text}\n")

    def run(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        text: str | None = None,
        stdin: IO[bytes] | None = None,
        seconds: float | None = None,
    ) -> None:
        """Run a program to its end, its output into the log.

        `text` or `stdin` is its standard input; without either it has none.  Raises CommandError.
        """
        self.note(f"$ {shlex.join(command)}")
        with self.path.open("ab") as log:
            source = subprocess.PIPE if text is not None else stdin if stdin is not None else subprocess.DEVNULL
            child = self._start(command, env=env, cwd=cwd, stdin=source, stdout=log, stderr=log)
            self._finish(command, child, text, seconds)

    def output(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        seconds: float | None = None,
    ) -> str:
        """Run a program to its end and return what it prints; its errors go into the log.  Raises CommandError."""
        self.note(f"$ {shlex.join(command)}")
        with self.path.open("ab") as log:
            child = self._start(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
            return self._finish(command, child, None, seconds).decode(errors="replace")

    def pour(self, source: Sequence[str], sinks: Sequence[Sequence[str]], *, seconds: float | None = None) -> None:
        """Copy one program's output to the input of all `sinks` at once; wait for all of them.  Raises CommandError."""
        self.note(f"$ {shlex.join(source)} | {' & '.join(shlex.join(sink) for sink in sinks)}")
        with self.path.open("ab") as log:
            reader = self._start(source, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
            writers = [self._start(sink, stdin=subprocess.PIPE, stdout=log, stderr=log) for sink in sinks]
            children = [*writers, reader]
            with _time_limit(source, children, seconds):
                _copy(reader, writers)
                for command, child in zip([*sinks, source], children, strict=True):
                    self._finish(command, child, None, None)

    def _start(
        self,
        command: Sequence[str],
        *,
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: IO[bytes],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        try:
            child = subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=variables(env))
        except OSError as error:
            raise CommandError(command, str(error)) from error
        with _running_guard:
            _running.add(child)
        return child

    def _finish(
        self, command: Sequence[str], child: subprocess.Popen[bytes], text: str | None, seconds: float | None
    ) -> bytes:
        try:
            printed, _ = child.communicate(None if text is None else text.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            raise CommandError(command, f"took more than {seconds:.0f} s") from None
        except BrokenPipeError:
            child.wait()
            printed = b""
        finally:
            with _running_guard:
                _running.discard(child)
        if child.returncode != 0:
            raise CommandError(command, f"ended with code {child.returncode}")
        return printed or b""
