"""One SQLite file that the threads and processes of one machine share.

The write-ahead log holds what was committed, in order: a process may be killed at any moment, and a power failure loses
the newest transactions alone, those of rows and of the fence alike.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fencepost.fence.errors import FenceSchemaInvalid, FenceUnavailable

BUSY: Final = 30.0
"""Seconds that a transaction waits for that of another process."""


def connect(path: Path | str) -> sqlite3.Connection:
    """Return a connection in autocommit mode, for any thread. Raises sqlite3.Error."""
    found = sqlite3.connect(path, timeout=BUSY, isolation_level=None, check_same_thread=False)
    found.execute("PRAGMA journal_mode = WAL")
    found.execute("PRAGMA synchronous = NORMAL")
    return found


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Apply the block as one transaction, or nothing of it. Raises sqlite3.Error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


class Database:
    """A connection that threads take in turn; `schema` creates the tables that are missing.

    Methods raise FenceUnavailable where the file is locked or cannot be read, FenceSchemaInvalid where it is no
    database or one with other tables.
    """

    def __init__(self, path: Path | str, schema: str) -> None:
        self._lock = threading.RLock()
        with _translated(path):
            self._connection = connect(path)
            self._connection.executescript(schema)
        self._path = path

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Take the connection for the block."""
        with self._lock, _translated(self._path):
            yield self._connection

    @contextmanager
    def changing(self) -> Iterator[sqlite3.Connection]:
        """Take the connection for the block, which is one transaction."""
        with self.reading() as connection, transaction(connection):
            yield connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextmanager
def _translated(path: Path | str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = FenceSchemaInvalid if str(error).startswith(("no such", "table ")) else FenceUnavailable
        raise kind(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise FenceSchemaInvalid(f"{path}: {error}") from error
