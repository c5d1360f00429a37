"""A PostgreSQL sink for Fencepost: every record's rows are stored exactly once."""
