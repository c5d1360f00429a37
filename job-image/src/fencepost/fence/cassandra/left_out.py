"""The records that users let a pipeline leave out: rows of `accepted_losses` with the reason PoisonRecord.

Each is one offset of a topic with one id.  A run reads the rows once it has claimed its epoch, and leaves these records
out of what it reads: also of a batch that an earlier run planned, and after a rewind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cassandra import ConsistencyLevel
from cassandra.cluster import Session

from fencepost.contract import Reason, offset_key
from fencepost.fence import FenceSchemaMissing
from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import translated

MOST: Final = 10_000
"""Records that one pipeline leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A record by its place in the topic with this id, and who leaves it out since when."""

    topic: str
    partition: int
    offset: int
    topic_id: str
    by: str
    at: datetime


class LeftOutRecords:
    """Those of one pipeline. Methods raise FenceError."""

    def __init__(self, session: Session, keyspace: str, pipeline: str) -> None:
        self._session = session
        self._keyspace = keyspace
        self._pipeline = pipeline
        self._table = f'"{keyspace}".{schema.ACCEPTED_LOSSES.name}'

    def add(self, record: LeftOut) -> None:
        """Record one at a quorum; done twice, it is done once."""
        values = {
            "pipeline": self._pipeline,
            "topic": record.topic,
            "partition": record.partition,
            "from_offset": record.offset,
            "until_offset": record.offset + 1,
            "accepted_by": record.by,
            "at": record.at,
            "reason": str(Reason.POISON_RECORD),
            "topic_id": record.topic_id,
        }
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with translated("leaving out a record"):
            self._check_table()
            insert = self._session.prepare(f"INSERT INTO {self._table} ({names}) VALUES ({marks})")
            insert.consistency_level = ConsistencyLevel.LOCAL_QUORUM
            self._session.execute(insert, tuple(values.values()))

    def offsets(self, topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[int]]:
        """Return the offsets by 'topic/partition', of topics with these ids; none without the table."""
        with translated("reading which records are left out"):
            try:
                self._check_table()
            except FenceSchemaMissing:
                return {}
            select = self._session.prepare(
                f"SELECT topic, partition, from_offset, topic_id FROM {self._table}"
                f" WHERE pipeline = ? AND reason = ? LIMIT {MOST} ALLOW FILTERING"
            )
            select.fetch_size = MOST
            # One page: a Cassandra that a tenant runs could return pages forever.
            rows = self._session.execute(select, (self._pipeline, str(Reason.POISON_RECORD))).current_rows[:MOST]
        found: dict[str, set[int]] = {}
        for row in rows:
            if row.topic_id is not None and topic_ids.get(row.topic) == row.topic_id:
                found.setdefault(offset_key(row.topic, row.partition), set()).add(row.from_offset)
        return {key: frozenset(offsets) for key, offsets in found.items()}

    def _check_table(self) -> None:
        if not schema.columns_of(self._session, self._keyspace, schema.ACCEPTED_LOSSES.name):
            raise FenceSchemaMissing(f"{self._keyspace}.{schema.ACCEPTED_LOSSES.name} does not exist")
