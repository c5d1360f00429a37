"""A rewind: the pipeline goes back to offsets that it had before. Pure: each pass finds the next step from facts.

`queue` says which rewind it is about, `machine` has the steps, `target` where the pipeline goes back to, and `progress`
how all this is told in the rewind's status.
"""
