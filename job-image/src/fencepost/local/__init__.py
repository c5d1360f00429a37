"""A run on one machine: the driver's own loop and query, with fence, state, records and rows in one SQLite file."""
