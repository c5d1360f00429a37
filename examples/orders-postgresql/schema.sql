-- The table of the orders, in the database of spec.checkpoint.postgresql. The operator creates the fence's own tables beside it: the account
-- needs GRANT CREATE ON DATABASE shop for that, and GRANT INSERT ON orders; with SELECT and DELETE a rewind can delete what it repeats.
-- No key and no token: a batch's rows are inserted by the statement that commits its offsets, so each order is here once.
CREATE TABLE IF NOT EXISTS orders (
  topic text NOT NULL,
  partition int NOT NULL,
  "offset" bigint NOT NULL,
  id text NOT NULL,
  customer text NOT NULL,
  cents bigint NOT NULL,
  placed_at timestamptz NOT NULL
);

-- For such a rewind, which looks for the rows of records.
CREATE INDEX IF NOT EXISTS orders_by_record ON orders (topic, partition, "offset");
