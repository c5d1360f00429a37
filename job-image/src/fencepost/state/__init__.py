"""The checkpoint of a stateful pipeline: a directory that Spark sees, held by the fence row and by chunks in Cassandra.

`checkpoint` is the directory of one epoch: Spark's `offsets/N` is the fence's plan, its `commits/N` the fence's commit.
`tree` has the files that a commit makes visible, `chunks` their bytes, and `file_ids` the index of all files.
"""
