"""The records that users let a pipeline leave out: rows of `left_out_records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cassandra import ConsistencyLevel
from cassandra.cluster import Session

from fencepost.fence import FenceSchemaMissing
from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.errors import translated
from fencepost.fence.left_out import MOST, LeftOut, by_partition


class LeftOutRecords:
    """Those of one pipeline. Methods raise FenceError."""

    def __init__(self, session: Session, keyspace: str, pipeline: str) -> None:
        self._session = session
        self._keyspace = keyspace
        self._pipeline = pipeline
        self._table = f'"{keyspace}".{schema.LEFT_OUT.name}'

    def add(self, record: LeftOut) -> None:
        """Record one at a quorum; done twice, it is done once."""
        values = {
            "pipeline": self._pipeline,
            "topic": record.topic,
            "partition": record.partition,
            "topic_id": record.topic_id,
            "offset": record.offset,
            "leader_epoch": record.leader_epoch,
            "left_out_by": record.by,
            "at": record.at,
        }
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        with translated("leaving out a record"):
            self._check_table()
            insert = self._session.prepare(f"INSERT INTO {self._table} ({names}) VALUES ({marks})")
            insert.consistency_level = ConsistencyLevel.LOCAL_QUORUM
            self._session.execute(insert, tuple(values.values()))

    def all(self) -> Sequence[LeftOut]:
        """Return them by place, of all topics; none without the table."""
        with translated("reading which records are left out"):
            try:
                self._check_table()
            except FenceSchemaMissing:
                return ()
            select = self._session.prepare(
                f"SELECT topic, partition, topic_id, offset, leader_epoch, left_out_by, at FROM {self._table}"
                f" WHERE pipeline = ? LIMIT {MOST}"
            )
            select.fetch_size = MOST
            # One page: a Cassandra that a tenant runs could return pages forever.
            rows = self._session.execute(select, (self._pipeline,)).current_rows[:MOST]
        return tuple(
            LeftOut(
                topic=row.topic,
                partition=row.partition,
                offset=row.offset,
                topic_id=row.topic_id,
                leader_epoch=row.leader_epoch,
                by=row.left_out_by or "",
                at=row.at,
            )
            for row in rows
        )

    def of_topics(self, topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Return offsets and leader epochs by 'topic/partition', of topics with these ids."""
        return by_partition(self.all(), topic_ids)

    def _check_table(self) -> None:
        if not schema.columns_of(self._session, self._keyspace, schema.LEFT_OUT.name):
            raise FenceSchemaMissing(f"{self._keyspace}.{schema.LEFT_OUT.name} does not exist")
