"""Which Python workers of an executor write to sinks: each holds a lock while it does.

Spark counts a task as ended once it has asked the daemon to kill the worker, and on a busy machine the worker lives on
for a moment.  The kernel releases the locks of a process when none of its threads runs any more.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

LOOK_EVERY: Final = 0.05
"""Seconds between two looks."""
_files: Final = list[IO[bytes]]()
"""The one file whose bytes are locked, each by the process with that number."""
_threads: Final = [0]
"""How many threads of this process write."""
_guard: Final = threading.Lock()


def prepare() -> None:
    """Make the file of the locks: in the daemon, before it forks the workers. Without it, no worker holds a lock."""
    _files[:] = [tempfile.TemporaryFile()]  # noqa: SIM115 - open for as long as the process


@contextmanager
def writing() -> Iterator[None]:
    """Hold the lock of this process in the block."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def others_have_ended(*, patience: float) -> bool:
    """Wait until no other worker of this executor writes; return False when `patience` seconds did not suffice."""
    deadline = time.monotonic() + patience
    for file in _files:
        while not _is_free(file):
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY)
    return True


def _count(more: int) -> None:
    with _guard:
        before, _threads[0] = _threads[0], _threads[0] + more
        if 0 in {before, _threads[0]}:
            for file in _files:
                fcntl.lockf(file, fcntl.LOCK_EX if more > 0 else fcntl.LOCK_UN, 1, os.getpid())


def _is_free(file: IO[bytes]) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # another process has locked a byte
        return False
    fcntl.lockf(file, fcntl.LOCK_UN)
    return True
