"""Compares rows that new code produces with those that a Cassandra table has, for a trial, and writes none.

`compared_sink` is the sink that compares, in the tasks, `cells` says when two cells are the same, `stored_rows` reads
the table, `findings` keeps what was found of each key, and `missing_rows` looks for what the new code does not write.
"""
