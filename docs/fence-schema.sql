-- Fencepost's schema and tables, for checkpoint.postgresql.createSchema: false. Run it once per release in the database of
-- checkpoint.postgresql, with an account that may create them: psql -f fence-schema.sql. What exists is kept. Replace "fencepost" by
-- checkpoint.postgresql.schema, and pipelines by the account of the pipelines.
CREATE SCHEMA IF NOT EXISTS "fencepost";

CREATE TABLE IF NOT EXISTS "fencepost".fence (
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
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS "fencepost".fence_changes (
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
);

CREATE TABLE IF NOT EXISTS "fencepost".fence_progress (
  pipeline text PRIMARY KEY,
  epoch bigint NOT NULL,
  version bigint NOT NULL,
  done bigint NOT NULL,
  note text NOT NULL DEFAULT '',
  at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS "fencepost".fence_losses (
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
);

CREATE TABLE IF NOT EXISTS "fencepost".accepted_losses (
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
);

CREATE TABLE IF NOT EXISTS "fencepost".dead_letters (
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
);

CREATE TABLE IF NOT EXISTS "fencepost".left_out_records (
  pipeline text,
  topic text,
  partition int,
  topic_id text,
  "offset" bigint,
  leader_epoch int,
  left_out_by text NOT NULL,
  at timestamptz NOT NULL,
  PRIMARY KEY (pipeline, topic, partition, topic_id, "offset", leader_epoch)
);

CREATE TABLE IF NOT EXISTS "fencepost".snapshots (
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
);

GRANT USAGE ON SCHEMA "fencepost" TO pipelines;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "fencepost" TO pipelines;
