"""A wall clock of its own for each container, by a preloaded library that adds an offset from a file."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock.c")
OFFSETS: Final = (-600.0, -60.0, -5.0, -0.3, 0.3, 5.0, 60.0, 600.0)
"""Seconds that faults set a clock apart: within what the fence corrects, and beyond what it refuses (300 s)."""


def compile_library(target: Path, *, offset_file: str) -> None:
    """Compile the library for LD_PRELOAD that reads its offset from a file. Raises CalledProcessError."""
    words = ["cc", "-O2", "-s", "-shared", "-fPIC", f'-DCLOCK_FILE="{offset_file}"', "-o", str(target), str(SOURCE)]
    subprocess.run([*words, "-ldl", "-pthread"], check=True, capture_output=True, text=True)


def packed(offset: float) -> bytes:
    """Return what the file holds for an offset in seconds."""
    return struct.pack("=q", round(offset * 1e9))
