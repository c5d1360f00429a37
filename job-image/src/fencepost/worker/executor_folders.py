"""The folders of executors: `<worker's folder>/<application>/<executor>`, each with the files stdout and stderr."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_APPLICATION: Final = re.compile(r"app-[0-9]{14}-[0-9]{4,9}")
_EXECUTOR: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """An executor by its application and number; it is `path` that its processes work in."""

    application: str
    number: int
    path: Path

    @property
    def local(self) -> Path:
        """Its blocks, shuffle files and temporary files: job-image/executor/bin/java puts them there."""
        return self.path / "local"

    def is_occupied(self, folders: Collection[str]) -> bool:
        """Return whether one of the folders that processes work in is its own."""
        return any(folder == str(self.path) or folder.startswith(f"{self.path}/") for folder in folders)


def executors(work: Path) -> Iterator[Executor]:
    """Yield the executors that have a folder, in no order."""
    for application in _children(work):
        if _APPLICATION.fullmatch(application.name):
            for folder in _children(application):
                if _EXECUTOR.fullmatch(folder.name):
                    yield Executor(application.name, int(folder.name), folder)


def _children(folder: Path) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.is_dir() and not child.is_symlink()]
    except OSError:  # it is being removed, or not made yet
        return []
