"""Other programs, run to their end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.version import ROOT, ReleaseError


def output_of(words: Sequence[str | Path], *, env: Mapping[str, str] | None = None, text: str | None = None) -> str:
    """Return what a program prints. Raises ReleaseError with its last lines."""
    ended = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        last = "\n".join((ended.stdout + ended.stderr).strip().splitlines()[-15:])
        raise ReleaseError(f"{' '.join(map(str, words[:4]))} … ended with {ended.returncode}:\n{last}")
    return ended.stdout
