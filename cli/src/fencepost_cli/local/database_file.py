"""The SQLite file of a local run: what may be deleted of what stands at its path."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from fencepost_cli.errors import CliError

OWN: Final = "fencepost_"
"""How the names of our own tables and columns begin."""


def delete(path: Path) -> None:
    """Delete the file of an earlier run. Raises CliError for a file that no run has made."""
    if path.is_file() and path.stat().st_size:
        names = tables(path)
        if names and not any(name.startswith(OWN) for name in names):
            raise CliError(
                f"--into {path} has no table of a run, and is kept; it has {', '.join(names)}",
                remedy="name another file, or delete this one",
            )
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def quoted(name: str) -> str:
    """Return a table's name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def tables(path: Path) -> list[str]:
    """Return the names of a file's tables. Raises CliError."""
    try:
        with closing(sqlite3.connect(path)) as database:
            found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    except sqlite3.Error as error:
        raise CliError(f"--into {path} cannot be read, and is kept: {error}", remedy="name another file") from error
    return [name for (name,) in found]
