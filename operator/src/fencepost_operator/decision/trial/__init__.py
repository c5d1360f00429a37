"""A trial: new code beside a pipeline. Pure: each pass finds the next step from facts.

`deciding` has the steps, `asked` the Job's configuration, `result` the status of what was found, and `promotion`
whether the code becomes the pipeline's.
"""
