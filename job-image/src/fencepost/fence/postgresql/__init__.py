"""The fence in PostgreSQL: one conditional UPDATE for each change of the row."""
