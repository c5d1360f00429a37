"""The records that a local run leaves out: offsets of partitions, for all later runs on the same file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from fencepost.fence.sqlite.database import Database

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS fencepost_left_out (
  partition TEXT, offset INTEGER, PRIMARY KEY (partition, offset)
) STRICT, WITHOUT ROWID;
"""


class LeftOutRecords:
    """Those of a database with the table of SCHEMA. Methods raise FenceError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, offsets: Mapping[str, Collection[int]]) -> None:
        """Leave out offsets by 'topic/partition'; done twice, it is done once."""
        rows = [(key, offset) for key, found in offsets.items() for offset in found]
        with self._database.changing() as connection:
            connection.executemany("INSERT OR IGNORE INTO fencepost_left_out VALUES (?, ?)", rows)

    def offsets(self) -> Mapping[str, frozenset[int]]:
        """Return them by 'topic/partition'."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT partition, offset FROM fencepost_left_out").fetchall()
        found: dict[str, set[int]] = {}
        for key, offset in rows:
            found.setdefault(key, set()).add(offset)
        return {key: frozenset(offsets) for key, offsets in found.items()}
