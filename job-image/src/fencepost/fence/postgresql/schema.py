"""The fence's tables in PostgreSQL, created where the database says that they are missing."""

from __future__ import annotations

from typing import Any, Final

from psycopg.types.json import Jsonb

from fencepost.fence.errors import FenceSchemaMissing
from fencepost.fence.postgresql.session import Session

TABLES: Final = {
    # Half of each page is free: the row's next versions stay in it, and no index changes.
    "fence": """
  pipeline text PRIMARY KEY,
  owner text NOT NULL,
  epoch bigint NOT NULL,
  driver text,
  version bigint NOT NULL,
  clock bigint NOT NULL,
  offsets jsonb NOT NULL,
  planned jsonb NOT NULL,
  begun jsonb NOT NULL,
  accepted_until jsonb NOT NULL,
  topic_ids jsonb NOT NULL,
  leader_epochs jsonb NOT NULL,
  epoch_starts jsonb NOT NULL,
  growth_barrier jsonb NOT NULL,
  growths jsonb NOT NULL,
  log_ends jsonb NOT NULL,
  code text,
  committed_at timestamptz,
  records bigint,
  duration_ms bigint,
  dead_letters bigint NOT NULL,
  last_dead_letter text,
  watermark bigint,
  late_rows bigint NOT NULL,
  record_times jsonb NOT NULL,
  state_bytes bigint,
  figures jsonb NOT NULL,
  checkpoint bytea,
  planned_log bytea,
  output_token bigint NOT NULL
) WITH (fillfactor = 50""",
    "fence_changes": """
  pipeline text,
  hour timestamptz,
  epoch bigint,
  version bigint,
  base boolean NOT NULL,
  owner text,
  driver text,
  clock bigint NOT NULL,
  offsets jsonb,
  planned jsonb,
  topic_ids jsonb,
  leader_epochs jsonb,
  growth_barrier jsonb,
  figures jsonb,
  code text,
  committed_at timestamptz,
  records bigint,
  duration_ms bigint,
  state_bytes bigint,
  committed boolean NOT NULL,
  lag bigint,
  written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (pipeline, hour, epoch, version)
""",
    "fence_progress": """
  pipeline text PRIMARY KEY,
  epoch bigint NOT NULL,
  version bigint NOT NULL,
  done bigint NOT NULL,
  note text NOT NULL DEFAULT '',
  at timestamptz NOT NULL
) WITH (fillfactor = 50""",
    "fence_losses": """
  pipeline text,
  committed_ms bigint,
  id text,
  epoch bigint NOT NULL,
  reason text NOT NULL,
  from_offsets jsonb NOT NULL,
  until_offsets jsonb NOT NULL,
  old_topic_ids jsonb NOT NULL,
  new_topic_ids jsonb NOT NULL,
  at timestamptz NOT NULL,
  accepted_by text,
  accepted_at timestamptz,
  choice text,
  PRIMARY KEY (pipeline, committed_ms, id)
""",
    "accepted_losses": """
  pipeline text,
  topic text,
  partition int,
  from_offset bigint,
  until_offset bigint NOT NULL,
  accepted_by text NOT NULL,
  at timestamptz NOT NULL,
  loss text NOT NULL,
  reason text NOT NULL,
  choice text NOT NULL,
  topic_id text,
  new_topic_id text,
  PRIMARY KEY (pipeline, topic, partition, from_offset)
""",
    "dead_letters": """
  pipeline text,
  topic text,
  partition int,
  topic_id text,
  "offset" bigint,
  epoch bigint NOT NULL,
  at timestamptz NOT NULL,
  code text,
  reason text,
  error text,
  traceback text,
  timestamp timestamptz,
  key bytea,
  value bytea,
  headers text,
  value_size bigint,
  value_sha256 text,
  retried_at timestamptz,
  retried_by text,
  retried_to text,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (pipeline, topic, partition, "offset", topic_id)
""",
    "left_out_records": """
  pipeline text,
  topic text,
  partition int,
  topic_id text,
  "offset" bigint,
  leader_epoch int,
  left_out_by text NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (pipeline, topic, partition, topic_id, "offset", leader_epoch)
""",
    "snapshots": """
  pipeline text,
  id uuid,
  at timestamptz NOT NULL,
  reason text NOT NULL,
  name text,
  epoch bigint NOT NULL,
  version bigint NOT NULL,
  code text,
  offsets jsonb NOT NULL,
  topic_ids jsonb NOT NULL,
  leader_epochs jsonb NOT NULL,
  growth_barrier jsonb NOT NULL,
  checkpoint bytea,
  PRIMARY KEY (pipeline, id)
""",
}
"""The columns of each table."""
LOCK: Final = 0x66656E6365706F73
"""Of pg_advisory_xact_lock: two sessions that create one table at the same moment would both fail."""


def statements(schema: str) -> list[str]:
    """Return the SQL that creates the schema and its tables; it may run twice."""
    tables = [f"CREATE TABLE IF NOT EXISTS {name_of(schema, table)} ({columns})" for table, columns in TABLES.items()]
    return [f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}", *tables]


def create_schema(session: Session, schema: str) -> None:
    """Create the schema and the tables that are missing, all or none. Raises FenceError."""
    doing = f"creating the tables of schema {schema}"
    wanted = [quoted(schema), *(name_of(schema, table) for table in TABLES)]
    found = session.run(
        doing,
        "SELECT to_regnamespace(n) IS NOT NULL, ARRAY(SELECT to_regclass(t) IS NOT NULL FROM unnest(%s::text[])"
        " WITH ORDINALITY AS u (t, i) ORDER BY i) FROM (VALUES (%s)) AS s (n)",
        (wanted[1:], wanted[0]),
    )
    there = [bool(found[0][0]), *map(bool, found[0][1])]
    missing = [statement for statement, is_there in zip(statements(schema), there, strict=True) if not is_there]
    if missing:  # one message without values is one transaction
        session.run(doing, "; ".join([f"SELECT pg_advisory_xact_lock({LOCK})", *missing]))


def drop_schema(session: Session, schema: str) -> None:
    """Drop the schema with all that is in it; nothing to do without one. Raises FenceError."""
    session.run(f"dropping schema {schema}", f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")


def check_there(session: Session, schema: str) -> None:
    """Raise FenceSchemaMissing where the fence's table does not exist, and FenceError."""
    ((found,),) = session.run("looking for the fence", "SELECT to_regclass(%s)::text", (name_of(schema, "fence"),))
    if found is None:
        raise FenceSchemaMissing(f"table {schema}.fence does not exist")


def quoted(name: str) -> str:
    """Return an identifier as in SQL."""
    return '"' + name.replace('"', '""') + '"'


def name_of(schema: str, table: str) -> str:
    """Return a table's name as in SQL."""
    return f"{quoted(schema)}.{table}"


def bound(value: Any) -> Any:  # noqa: ANN401 - of a column of any type
    """Return what is bound for a value: a map is JSON."""
    return Jsonb(dict(value)) if isinstance(value, dict) else value
