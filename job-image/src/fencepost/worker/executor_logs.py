"""Follows the files into which Spark's worker writes what executors print, and writes each line to stdout as JSON.

A line is read at most a quarter of a second after it was written, so what a killed executor said last is there too.
Spark rolls a file by renaming it: it is read to its end through the descriptor that is open.  A file that is rolled
twice between two looks, which takes 20 MiB in that time, loses its middle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fencepost.worker.executor_folders import Executor, executors
from fencepost.worker.log_entry import LONGEST, entries

STREAMS: Final = ("stderr", "stdout")
MOST: Final = 1 << 20
"""Bytes of one file at one look: the others get their turn."""
PATIENCE: Final = 8
"""Reads after which a line counts as complete without its end."""


@dataclass(slots=True)
class _File:
    """A file that is followed. `rest` is the beginning of a line whose end is not written yet."""

    path: Path
    descriptor: int
    rest: bytes = b""
    idle: int = 0

    def lines(self) -> list[str]:
        """Return the complete lines that are new."""
        found = os.read(self.descriptor, MOST)
        self.idle = 0 if found else self.idle + 1
        text = self.rest + found
        whole, end, self.rest = text.rpartition(b"\n")
        if len(self.rest) > LONGEST or (self.idle >= PATIENCE and self.rest):
            whole, end, self.rest = text, b"\n", b""
        return whole.decode("utf-8", "replace").split("\n") if end else []

    def is_rolled(self) -> bool:
        """Return whether the path names another file by now, or none."""
        try:
            there, here = self.path.stat(), os.fstat(self.descriptor)
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)


@dataclass(slots=True)
class ExecutorLogs:
    """The files of all executors. `write` takes one line of JSON."""

    work: Path
    write: Callable[[str], object]
    lines: int = 0
    """Since the process began."""
    started: int = 0
    """Executors that were seen."""
    _files: dict[tuple[Executor, str], _File] = field(default_factory=dict)
    _seen: set[Executor] = field(default_factory=set)

    def look(self) -> None:
        """Write what is new."""
        there = set(executors(self.work))
        self.started += len(there - self._seen)
        self._seen = there
        for executor in sorted(there):
            for stream in STREAMS:
                self._follow(executor, stream)
        for key in [key for key in self._files if key[0] not in there]:
            self._close(key)

    def _follow(self, executor: Executor, stream: str) -> None:
        key = executor, stream
        file = self._files.get(key) or self._open(key)
        if file is None:
            return
        is_rolled = file.is_rolled()  # asked first: what is written before the rename is read below
        self._tell(executor, stream, file.lines())
        if is_rolled and file.idle:
            self._close(key)

    def _open(self, key: tuple[Executor, str]) -> _File | None:
        path = key[0].path / key[1]
        try:
            # No link: executors, which an author programs, may write here too.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        self._files[key] = _File(path, descriptor)
        return self._files[key]

    def _close(self, key: tuple[Executor, str]) -> None:
        file = self._files.pop(key)
        left = file.lines() + ([file.rest.decode("utf-8", "replace")] if file.rest else [])
        os.close(file.descriptor)
        self._tell(*key, left)

    def _tell(self, executor: Executor, stream: str, lines: list[str]) -> None:
        said = [line for line in lines if line.strip()]
        number = str(executor.number)
        for line in entries(said, executor=number, application=executor.application, stream=stream):
            self.write(line)
            self.lines += 1
