"""Whether the code of a folder is the code that a run had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fencepost_operator.adapters.kubernetes.objects import content_hash

_HASH: Final = re.compile("[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class RunCode:
    """The code as the fence row names it; `digest` is of its ConfigMap, None where it was in the image."""

    image: str
    entrypoint: str
    digest: str | None

    @classmethod
    def of(cls, text: str) -> RunCode:
        """Read what a fence row has."""
        image, entrypoint, *more = [*text.split(" "), "", ""]
        return cls(image, entrypoint, next((word for word in more if _HASH.fullmatch(word)), None))

    def is_in(self, folder: Path, config_map: Mapping[str, str]) -> bool | None:
        """Return whether a folder has it, None where that is not known; `config_map` has the names of its modules."""
        if self.digest is None:
            return None
        return content_hash({"data": {name: _text(folder / name) for name in config_map}}) == self.digest

    def changed(self, folder: Path, config_map: Mapping[str, str]) -> list[str]:
        """Return the modules of the folder that differ, where the ConfigMap still is what the run had."""
        if content_hash({"data": dict(config_map)}) != self.digest:
            return []
        return sorted(name for name, text in config_map.items() if _text(folder / name) != text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
