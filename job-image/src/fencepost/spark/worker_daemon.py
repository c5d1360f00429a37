"""The daemon that Spark forks Python workers from, with the imports done before the fork.

Spark starts it by the name in `spark.python.daemon.module`.

A worker is then ready in a few ms instead of one to two seconds.  `gc.freeze` excludes what is imported from the full
collection that PySpark's daemon runs after each task.  None of these imports starts a thread that a fork would lose:
OpenBLAS is held to one, and clients of Kafka and Cassandra are created after the fork.
"""

from __future__ import annotations

import gc
import importlib
import os
from typing import Final

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

PRELOADED: Final = (
    "pyarrow",
    "pyarrow.compute",
    "numpy",
    "confluent_kafka",
    "cassandra.cluster",
    "cassandra.query",
    "pyspark.worker",
    "pyspark.cloudpickle",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.types",
    "fencepost.kafka.reader",
    "fencepost.spark.records",
    "fencepost.spark.source",
    "fencepost.sinks.writer",
)


def preload() -> None:
    """Import what every batch needs, and exclude it from garbage collection."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    importlib.import_module("pyspark.daemon").manager()
