"""Deletes the output of ranges of offsets, for a rewind: from Cassandra tables, and from sinks of other packages."""
