"""`make demo`: a year of flights through one pipeline, its driver killed halfway, and every row accounted for.
`make demo-stateful`: views of a shop, their sessions, and the state too.

`scene` is all that the demo and the bench have in the cluster, `watching` what is seen of it, `play` the acts.
`example` and `sessions` are what is played.
"""
