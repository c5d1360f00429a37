"""Real input, and the proof that all of it arrived once.

`dataset` turns the packaged flights and weather of 2013 into events, `loader` produces them to Kafka and writes down in
a `ledger` which event went where, `expectation` says what the examples make of an event, `reconciliation` compares a
sink's table with the ledger row by row, and `history` checks the fence's own story of the commits.
"""
