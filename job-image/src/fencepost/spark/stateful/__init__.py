"""Spark with a state: the query, the stream it reads, and how a state is read that was stored."""
