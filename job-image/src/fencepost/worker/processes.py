"""The processes of the container and their memory, by what they are: from /proc, which costs them nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from fencepost.memory import PROC, resident


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
    """A process, its resident memory in bytes (pages that processes share count for each), and where it works."""

    kind: Kind
    resident: int
    folder: str


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
            yield Process(_kind(Path(program).name, is_inside=folder.startswith(f"{work}/")), size, folder)


def _kind(program: str, *, is_inside: bool) -> Kind:
    if program == "java":
        return Kind.EXECUTOR if is_inside else Kind.WORKER
    return Kind.PYTHON if is_inside and program.startswith("python") else Kind.OTHER
