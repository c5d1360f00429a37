"""The same program under other hash seeds, which order sets and dicts of strings differently."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def outputs(code: str) -> frozenset[str]:
    """Return what Python code prints under two hash seeds, with the tests' packages on its path."""
    path = ":".join(str(folder) for folder in (Path(__file__).parents[1], *map(Path, sys.path)))
    return frozenset(
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": path},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    )
