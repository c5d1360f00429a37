"""Records for the stateful examples of `examples/shop`, and what plain Python makes of them.

`feeds` are the records by number, `expectation` the tables that belong to a log.
"""
