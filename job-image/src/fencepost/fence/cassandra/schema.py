"""The fence's keyspace and tables: created where Cassandra says that they are missing, migrated by additions only.

Every statement is the answer to a read of system_schema.  Cassandra's schema changes race: two coordinators that create
one table at the same moment give it two ids, and one of them loses its data.  So a statement that is not needed is
never sent, the nodes agree on the schema before and after each one, and the caller lets one thread at a time create
the schema of a keyspace.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cassandra import InvalidRequest
from cassandra.cluster import Session

from fencepost.fence.history import HISTORY_DAYS

log = logging.getLogger(__name__)

AGREEMENT_LIMIT: Final = 10.0
"""Seconds to wait until the nodes agree on the schema; a node that is down never does."""
AGREEMENT_PAUSE: Final = 0.2
STATEMENT_LIMIT: Final = 20.0
"""Seconds for one schema change: the nodes make the files of a table while the client waits."""
USUAL_REPLICAS: Final = 3
"""Of a new keyspace in each datacenter: the least number of which one may be down while a majority answers."""

HINTS_KEPT: Final = 10_800
"""Seconds for which Cassandra keeps hints for a node that is down.

A deletion that a node misses for longer may return; in these two tables that leaves bytes that nothing reaches.
"""

_OFFSETS: Final = "frozen<map<text, bigint>>"
_LEADER_EPOCHS: Final = "frozen<map<text, int>>"
_IDS: Final = "frozen<map<text, text>>"
_NUMBERS: Final = "frozen<map<text, bigint>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: `columns` maps a name to its CQL type; `added` are the columns that the first release lacks."""

    name: str
    columns: Mapping[str, str]
    key: str
    options: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_columns(self) -> Mapping[str, str]:
        """The columns of this release, the keys first."""
        return {**self.columns, **self.added}

    def create(self, keyspace: str) -> str:
        """Return the CREATE TABLE statement; `keyspace` is written as in CQL."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.all_columns.items())
        options = " WITH " + " AND ".join(self.options) if self.options else ""
        return f"CREATE TABLE IF NOT EXISTS {keyspace}.{self.name} ({columns}, PRIMARY KEY ({self.key})){options}"


FENCE: Final = Table(
    name="fence",
    columns={
        "pipeline": "text",
        "owner": "text",
        "epoch": "bigint",
        "driver": "text",
        "version": "bigint",
        "clock": "bigint",
        "offsets": _OFFSETS,
        "planned": _OFFSETS,
        "topic_ids": _IDS,
        "code": "text",
        "committed_at": "timestamp",
        "records": "bigint",
        "duration_ms": "bigint",
    },
    key="pipeline",
    added={
        "leader_epochs": _LEADER_EPOCHS,
        "growth_barrier": _OFFSETS,
        "log_ends": _OFFSETS,
        "begun": _OFFSETS,
        "accepted_until": _OFFSETS,
        "growths": _OFFSETS,
        "epoch_starts": _OFFSETS,
        "dead_letters": "bigint",
        "last_dead_letter": "text",
        "watermark": "bigint",
        "late_rows": "bigint",
        "record_times": _OFFSETS,
        "state_bytes": "bigint",
        "figures": _NUMBERS,
        "checkpoint": "blob",
        "planned_log": "blob",
        "output_token": "bigint",
    },
)

CHANGES: Final = Table(
    name="fence_changes",
    columns={
        "pipeline": "text",
        "hour": "timestamp",
        "epoch": "bigint",
        "version": "bigint",
        "base": "boolean",
        "owner": "text",
        "driver": "text",
        "clock": "bigint",
        "offsets": _OFFSETS,
        "planned": _OFFSETS,
        "topic_ids": _IDS,
        "leader_epochs": _LEADER_EPOCHS,
        "growth_barrier": _OFFSETS,
        "code": "text",
        "committed_at": "timestamp",
        "records": "bigint",
        "duration_ms": "bigint",
    },
    key="(pipeline, hour), epoch, version",
    options=(
        "CLUSTERING ORDER BY (epoch DESC, version DESC)",
        f"default_time_to_live = {HISTORY_DAYS * 24 * 3600}",
        (
            "compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS',"
            " 'compaction_window_size': '1'}"
        ),
        # Consecutive changes name the same partitions: in long chunks they take a fraction of the space.
        "compression = {'class': 'ZstdCompressor', 'chunk_length_in_kb': '64'}",
    ),
    added={"committed": "boolean", "lag": "bigint", "figures": _NUMBERS, "state_bytes": "bigint"},
)

PROGRESS: Final = Table(
    name="fence_progress",
    columns={
        "pipeline": "text",
        "epoch": "bigint",
        "version": "bigint",
        "done": "bigint",
        "note": "text",
        "at": "timestamp",
    },
    key="pipeline",
)

DEAD_LETTERS: Final = Table(
    name="dead_letters",
    columns={
        "pipeline": "text",
        "topic": "text",
        "partition": "int",
        "topic_id": "text",
        "offset": "bigint",
        "epoch": "bigint",
        "at": "timestamp",
        "code": "text",
        "reason": "text",
        "error": "text",
        "traceback": "text",
        "timestamp": "timestamp",
        "key": "blob",
        "value": "blob",
        "headers": "text",
        "value_size": "bigint",
        "value_sha256": "text",
        "chunked": "frozen<map<text, bigint>>",
        "retried_at": "timestamp",
        "retried_by": "text",
        "retried_to": "text",
    },
    # By topic id before the offset: what a run removes of one topic leaves the letters of a deleted one of that name.
    key="(pipeline, topic, partition), topic_id, offset",
)

DEAD_LETTER_CHUNKS: Final = Table(
    name="dead_letter_chunks",
    columns={
        "pipeline": "text",
        "topic": "text",
        "partition": "int",
        "topic_id": "text",
        "offset": "bigint",
        "part": "text",
        "number": "int",
        "content": "blob",
    },
    key="(pipeline, topic, partition, topic_id, offset), part, number",
)

LOSSES: Final = Table(
    name="fence_losses",
    columns={
        "pipeline": "text",
        "committed_ms": "bigint",
        "id": "text",
        "epoch": "bigint",
        "reason": "text",
        "from_offsets": _OFFSETS,
        "until_offsets": _OFFSETS,
        "old_topic_ids": _IDS,
        "new_topic_ids": _IDS,
        "at": "timestamp",
        "accepted_by": "text",
        "accepted_at": "timestamp",
        "choice": "text",
    },
    # By the last commit before the loss: a claim reads what may apply to its row, however many losses there have been.
    key="pipeline, committed_ms, id",
)

ACCEPTED_LOSSES: Final = Table(
    name="accepted_losses",
    columns={
        "pipeline": "text",
        "topic": "text",
        "partition": "int",
        "from_offset": "bigint",
        "until_offset": "bigint",
        "accepted_by": "text",
        "at": "timestamp",
    },
    key="pipeline, topic, partition, from_offset",
    added={"loss": "text", "reason": "text", "choice": "text", "topic_id": "text", "new_topic_id": "text"},
)

LEFT_OUT: Final = Table(
    name="left_out_records",
    columns={
        "pipeline": "text",
        "topic": "text",
        "partition": "int",
        "topic_id": "text",
        "offset": "bigint",
        "leader_epoch": "int",
        "left_out_by": "text",
        "at": "timestamp",
    },
    key="pipeline, topic, partition, topic_id, offset, leader_epoch",
)

SNAPSHOTS: Final = Table(
    name="snapshots",
    columns={
        "pipeline": "text",
        "id": "timeuuid",
        "reason": "text",
        "epoch": "bigint",
        "version": "bigint",
        "offsets": _OFFSETS,
        "topic_ids": _IDS,
    },
    key="pipeline, id",
    options=("CLUSTERING ORDER BY (id DESC)",),
    added={
        "name": "text",
        "code": "text",
        "leader_epochs": _LEADER_EPOCHS,
        "growth_barrier": _OFFSETS,
        "checkpoint": "blob",
    },
)

CHECKPOINT_FILES: Final = Table(
    name="checkpoint_files",
    columns={"pipeline": "text", "first": "uuid", "remaining": "frozen<set<int>>"},
    key="pipeline, first",
    options=(f"gc_grace_seconds = {HINTS_KEPT}",),
    added={"unreached": "frozen<map<int, bigint>>"},
)

CHECKPOINT_CHUNKS: Final = Table(
    name="checkpoint_chunks",
    columns={"pipeline": "text", "file": "uuid", "part": "int", "content": "blob"},
    key="(pipeline, file), part",
    # Files live for seconds or for days.  Of a deleted one the bytes go when its deletion meets them in a compaction.
    options=(
        "compaction = {'class': 'LeveledCompactionStrategy'}",
        "compression = {'enabled': 'false'}",  # Spark has compressed them
        f"gc_grace_seconds = {HINTS_KEPT}",
    ),
)

TABLES: Final = (
    FENCE,
    CHANGES,
    PROGRESS,
    DEAD_LETTERS,
    DEAD_LETTER_CHUNKS,
    LOSSES,
    ACCEPTED_LOSSES,
    LEFT_OUT,
    SNAPSHOTS,
    CHECKPOINT_FILES,
    CHECKPOINT_CHUNKS,
)


def table_statements(keyspace: str) -> list[str]:
    """Return the CQL that creates the fence's tables in a keyspace, which is written as in CQL."""
    return [table.create(keyspace) for table in TABLES]


def migration_statements(keyspace: str) -> list[str]:
    """Return the CQL that adds what the tables of the first release lack; it may run twice."""
    return [
        f"ALTER TABLE {keyspace}.{table.name} ADD IF NOT EXISTS {name} {kind}"
        for table in TABLES
        for name, kind in table.added.items()
    ]


def first_page(answer: Any) -> list[Any]:  # noqa: ANN401 - the library is untyped
    """Return the rows of an answer that fits into one page: a tenant's own Cassandra could return pages forever."""
    return list(answer.current_rows)


def columns_of(session: Session, keyspace: str, table: str) -> Mapping[str, str]:
    """Return the types of a table's columns by name, empty when Cassandra has no such keyspace or table now."""
    select = "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"
    return {row.column_name: row.type for row in first_page(session.execute(select, (keyspace, table)))}


def has_keyspace(session: Session, keyspace: str) -> bool:
    """Return whether Cassandra has the keyspace now."""
    select = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = %s"
    return session.execute(select, (keyspace,)).one() is not None


def nodes(session: Session) -> Mapping[str, int]:
    """Return how many nodes each datacenter has, as the asked node knows. Raises the Cassandra driver's errors."""
    return dict(Counter(name for name in _of_each_node(session, "data_center") if name))


def _of_each_node(session: Session, column: str) -> list[Any]:
    """Return a column of system.local and of the peers: Cassandra from 4.0 on has them in another table than others."""
    rows = first_page(session.execute(f"SELECT {column} FROM system.local"))
    try:
        rows += first_page(session.execute(f"SELECT {column} FROM system.peers_v2"))
    except InvalidRequest:
        rows += first_page(session.execute(f"SELECT {column} FROM system.peers"))
    return [getattr(row, column) for row in rows]


def replication(nodes: Mapping[str, int], *, strategy: str, factor: int | None) -> Mapping[str, str | int]:
    """Return CQL's map for a new keyspace; without a factor, USUAL_REPLICAS or as many as there are nodes."""
    if factor is not None:
        return {"class": strategy, "replication_factor": factor}
    if strategy == "SimpleStrategy":
        return {"class": strategy, "replication_factor": min(USUAL_REPLICAS, sum(nodes.values()))}
    return {"class": strategy, **{name: min(USUAL_REPLICAS, count) for name, count in nodes.items()}}


def missing_statements(session: Session, keyspace: str, replication: Mapping[str, str | int]) -> Iterator[str]:
    """Yield the statements that the keyspace needs now, each after a read that says so."""
    quoted = f'"{keyspace}"'
    if not has_keyspace(session, keyspace):
        options = ", ".join(f"{_literal(key)}: {_literal(value)}" for key, value in replication.items())
        log.info("creating keyspace %s with replication {%s}", keyspace, options)
        yield f"CREATE KEYSPACE IF NOT EXISTS {quoted} WITH replication = {{{options}}}"
    for table in TABLES:
        found = columns_of(session, keyspace, table.name)
        if not found:
            yield table.create(quoted)
            continue
        for name, kind in table.added.items():
            if name not in found:
                yield f"ALTER TABLE {quoted}.{table.name} ADD {name} {kind}"


def _literal(value: str | int) -> str:
    """Return CQL's text; a datacenter's name is what the nodes say."""
    return "'" + str(value).replace("'", "''") + "'"


def apply_missing(session: Session, keyspace: str, replication: Mapping[str, str | int]) -> None:
    """Create and add what is missing. Raises the Cassandra driver's errors."""
    for number, statement in enumerate(missing_statements(session, keyspace, replication)):
        if number == 0:
            await_agreement(session)
        session.execute(statement, timeout=STATEMENT_LIMIT)
        await_agreement(session)


def await_agreement(session: Session) -> None:
    """Wait until all nodes have one schema, at most AGREEMENT_LIMIT seconds."""
    end = time.monotonic() + AGREEMENT_LIMIT
    while True:
        seen = {version for version in _of_each_node(session, "schema_version") if version is not None}
        if len(seen) <= 1:
            return
        if time.monotonic() > end:
            log.warning("the Cassandra nodes have %d schemas after %.0f s; continuing", len(seen), AGREEMENT_LIMIT)
            return
        time.sleep(AGREEMENT_PAUSE)
