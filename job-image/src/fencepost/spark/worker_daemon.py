"""The daemon that Spark forks Python workers from, with the imports done before the fork.

Spark starts it by the name in `spark.python.daemon.module`.

A worker is then ready in a few ms instead of one to two seconds.  PySpark's daemon runs a full garbage collection after
each task, which took 10 CPU-ms with pandas loaded, a third of a worker's time for a batch of 1,000 records.  So what is
imported before the fork is excluded from it by `gc.freeze`, and so is what a worker's first task leaves: the author's
modules and the clients.  None of these imports starts a thread that a fork would lose: OpenBLAS is held to one, and
clients of Kafka and Cassandra are created after the fork.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_P = ParamSpec("_P")
_T = TypeVar("_T")

PRELOADED: Final = (
    "pyarrow",
    "pyarrow.compute",
    "numpy",
    "pandas",  # PySpark imports it in the first task
    "confluent_kafka",
    "cassandra.cluster",
    "cassandra.query",
    "pyspark.worker",
    "pyspark.cloudpickle",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "fencepost.kafka.reader",
    "fencepost.spark.record_batches",
    "fencepost.spark.source",
    "fencepost.sinks.cassandra.writer",
)


def preload() -> None:
    """Import what every batch needs, and exclude it from garbage collection."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def frozen_after_first(task: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return `task`, which excludes what its first call leaves in this process from garbage collection."""
    is_first = True

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        nonlocal is_first
        done = task(*args, **kwargs)
        if is_first:
            is_first = False
            gc.collect()
            gc.freeze()
        return done

    return run


def sealed(handle: Callable[..., None]) -> Callable[..., None]:
    """Return PySpark's `handle_worker_exception`, which sends the driver what the exception means beside its text.

    The text quotes records; what it means is for the exception's type to say, and that is known here alone.
    """
    from fencepost.errors import WorkerError, as_worker_error  # noqa: PLC0415 - after the variables of the threads
    from fencepost.spark.failures import of_worker  # noqa: PLC0415

    def run(error: BaseException, *rest: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, WorkerError):
            handle(error, *rest)
            return
        try:
            raise as_worker_error(of_worker(error)) from error
        except WorkerError as translated:
            handle(translated, *rest)

    return run


def main() -> None:
    """Be PySpark's daemon."""
    preload()
    from fencepost.sinks import writers  # noqa: PLC0415 - after the variables of the threads

    writers.prepare()
    worker = importlib.import_module("pyspark.worker")
    setattr(worker, "handle_worker_exception", sealed(worker.handle_worker_exception))  # noqa: B010
    daemon = importlib.import_module("pyspark.daemon")
    setattr(daemon, "worker", frozen_after_first(daemon.worker))  # noqa: B010 - called once per task, in a fork
    daemon.manager()


if __name__ == "__main__":
    main()
