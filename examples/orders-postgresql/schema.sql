-- The table of the orders, in the database of spec.checkpoint.postgresql. The operator creates the fence's own tables beside it: the account
-- needs GRANT CREATE ON DATABASE shop for that, and these rights on the table.
CREATE TABLE IF NOT EXISTS orders (
  topic text,
  partition int,
  "offset" bigint,
  id text NOT NULL,
  customer text NOT NULL,
  cents bigint NOT NULL,
  placed_at timestamptz NOT NULL,
  token bigint NOT NULL, -- which batch wrote the row: a replaced driver's late write loses
  PRIMARY KEY (topic, partition, "offset")
);
