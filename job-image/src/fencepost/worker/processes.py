"""The processes of the container and their memory, by what they are: from /proc, which costs them nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fencepost.memory_use import PROC, resident

PROGRAMS: Final = ("java", "python")
"""What processes of executors run."""


class Kind(StrEnum):
    """What a process is: executors and Python workers work in an executor's folder."""

    WORKER = "worker"
    """Spark's worker itself."""
    EXECUTOR = "executor"
    PYTHON = "python"
    """The Python workers of executors, and the daemons that fork them."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Process:
    """A process and its resident memory in bytes; pages that processes share count for each."""

    kind: Kind
    resident: int


def processes(work: Path, proc: Path = PROC) -> Iterator[Process]:
    """Yield the processes that this user may look at; one that ends meanwhile is left out."""
    for entry in proc.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            program, folder = os.readlink(entry / "exe"), os.readlink(entry / "cwd")  # noqa: PTH115 - may not exist
        except OSError:
            continue
        if (size := resident(int(entry.name), proc)) is not None:
            yield Process(_kind(Path(program).name, is_inside=folder.startswith(f"{work}/")), size)


def folders(proc: Path = PROC) -> set[str]:
    """Return the folders that processes work in.

    Raises OSError where the kernel does not show that for an executor, or of this process: none that lives is taken for
    one that ended.
    """
    found = {os.readlink(proc / "self" / "cwd")}  # noqa: PTH115 - may not exist
    for entry in proc.iterdir():
        if entry.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                try:
                    found.add(os.readlink(entry / "cwd"))  # noqa: PTH115
                except PermissionError:
                    if (entry / "comm").read_text(encoding="utf-8").startswith(PROGRAMS):
                        raise
    return found


def _kind(program: str, *, is_inside: bool) -> Kind:
    if program == "java":
        return Kind.EXECUTOR if is_inside else Kind.WORKER
    return Kind.PYTHON if is_inside and program.startswith("python") else Kind.OTHER
