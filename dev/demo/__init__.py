"""`make demo`: a year of flights through one pipeline, its driver killed halfway, and every row accounted for.

`scene` is all that the demo and the bench have in the cluster, `watching` what is seen of it, `play` the acts.
"""
