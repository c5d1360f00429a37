"""Parquet files, written by a process of its own: the command does without Arrow."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fencepost_cli.errors import CliError

WRITER: Final = "fencepost.local.parquet"


def write_parquet(lines: Path, to: Path) -> None:
    """Write the records of a file of JSON lines to a Parquet file. Raises CliError."""
    if find_spec("pyarrow") is None:
        raise CliError(
            "Parquet needs the package pyarrow, which is not installed",
            remedy="name a file that ends with .jsonl, or install the command with its extra:"
            " uv tool install './cli[spark]'",
        )
    # -P: no module of the folder in which the command is called.
    ended = subprocess.run(
        [sys.executable, "-P", "-m", WRITER, str(lines), str(to)], capture_output=True, text=True, check=False
    )
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise CliError(
            f"the process that writes Parquet ended with {ended.returncode}: {last}",
            remedy="name a file that ends with .jsonl",
        )
