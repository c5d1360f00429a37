"""The fence on a Cassandra of several nodes: real protocol code, nodes that fail, and a checker of what was seen."""
