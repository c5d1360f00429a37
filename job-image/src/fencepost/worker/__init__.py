"""What runs beside Spark's worker in its container: executors' logs on stdout, their scratch bounded, metrics, and a
stateful pipeline's data service.

Spark's worker writes the output of an executor to files, keeps them until the application ends, and has no figures of
Python workers.
"""
