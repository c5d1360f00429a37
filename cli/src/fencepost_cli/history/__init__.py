"""The history of a fence row: read, checked against itself, and compared with the rows in the sinks."""
