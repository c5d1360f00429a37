"""The fence in one SQLite file, for a run on a single machine."""
