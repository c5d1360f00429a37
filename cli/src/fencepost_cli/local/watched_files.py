"""The files whose change starts a local run over."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fencepost.local.request import Request
from fencepost_cli.checking.cql_schema import files_beside
from fencepost_cli.local.request import Pipeline


@dataclass
class WatchedFiles:
    """What is noticed since this object was made: a file that changes, and a module or CQL that is new or deleted."""

    manifest: Path
    code: Path
    """The folder of the modules; those of a virtual environment in it are not the author's."""
    records: Sequence[Path] = ()
    _seen: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def of(cls, pipeline: Pipeline, request: Request) -> Self:
        """Watch the manifest, the CQL beside it, the modules, and the files of records."""
        return cls(pipeline.path, Path(request.code), [Path(each.path) for each in request.files])

    def __post_init__(self) -> None:
        self._seen = self._now()

    def have_changed(self) -> bool:
        """Return whether one has."""
        return self._now() != self._seen

    def _now(self) -> dict[Path, int]:
        paths = [self.manifest, *files_beside(self.manifest), *_modules(self.code), *self.records]
        return {path: path.stat().st_mtime_ns if path.exists() else 0 for path in paths}


def _modules(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if _is_the_authors(Path(place, name))]
        yield from (Path(place, name) for name in files if name.endswith(".py"))


def _is_the_authors(folder: Path) -> bool:
    return not folder.name.startswith((".", "__")) and not (folder / "pyvenv.cfg").exists()
