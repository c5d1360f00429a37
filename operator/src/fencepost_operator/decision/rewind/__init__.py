"""A rewind: the pipeline goes back to offsets that it had before. Pure: each pass finds the next step from facts.

`queue` chooses the rewind, `machine` has the steps, `target` the offsets to return to, and `step_status` the status of
the rewind.
"""
