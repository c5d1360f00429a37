"""The files whose change starts a local run over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from fencepost.local.request import Request
from fencepost_cli.local.request import Pipeline


@dataclass
class WatchedFiles:
    """Files of which a change is noticed since this object was made."""

    paths: Sequence[Path]
    _seen: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def of(cls, pipeline: Pipeline, request: Request) -> Self:
        """Watch the manifest, the modules that are there now, and the files of records."""
        modules = sorted(Path(request.code).rglob("*.py"))
        return cls([pipeline.path, *modules, *(Path(each.path) for each in request.files)])

    def __post_init__(self) -> None:
        self._seen = self._now()

    def have_changed(self) -> bool:
        """Return whether one has."""
        return self._now() != self._seen

    def _now(self) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns if path.exists() else 0 for path in self.paths}
