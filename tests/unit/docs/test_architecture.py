"""docs/architecture.md names files that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from generators.reference import ROOT

FOLDERS: Final = {"operator": "operator/src/fencepost_operator", "job": "job-image/src/fencepost"}
_, PATHS = (ROOT / "docs/architecture.md").read_text().split("## Five paths through the code")


def test_each_file_of_the_five_paths_exists() -> None:
    folder, found = Path(), 0
    for name in re.findall(r"`([\w./-]+\.(?:py|yaml))`", PATHS):
        first, _, rest = name.partition("/")
        beside = folder / name
        path = ROOT / FOLDERS[first] / rest if first in FOLDERS else beside if beside.exists() else ROOT / name
        assert path.is_file(), name
        folder, found = path.parent, found + 1
    assert found > 30
