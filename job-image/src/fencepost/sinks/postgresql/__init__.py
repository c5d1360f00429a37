"""The PostgreSQL sink: rows become visible in the transaction that commits their offsets."""
