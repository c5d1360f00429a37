"""A stateful query on a checkpoint: python -m fakes.stateful_query LOCATION HEADER

It counts ROWS numbers per batch by their remainder, with the settings of a run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from fencepost.contract import StateConfig
from fencepost.spark.session import state_settings
from fencepost.state.webhdfs.client_settings import client_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS: Final = 1000
KEYS: Final = 500
SETTINGS: Final[Mapping[str, str]] = {
    **state_settings(StateConfig(partitions=2, max_bytes=1 << 30, data_port=0)),
    "spark.sql.streaming.stateStore.maintenanceInterval": "3s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "4",
}


def start(spark: SparkSession, location: str) -> StreamingQuery:
    """Start the query on its checkpoint."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and slow to import

    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("numPartitions", 2)
    counted = numbers.load().groupBy((F.col("value") % KEYS).alias("key")).agg(F.count("*").alias("n"))
    return (
        counted.writeStream.outputMode("update").foreachBatch(_consume).option("checkpointLocation", location).start()
    )


def total(spark: SparkSession, location: str) -> tuple[int, int]:
    """Return how many keys the state has, and how many numbers were counted."""
    found = spark.read.format("statestore").load(location).selectExpr("count(*) k", "sum(value.count) n").first()
    assert found is not None
    return found.k, found.n


def _consume(rows: DataFrame, _: int) -> None:
    rows.write.format("noop").mode("append").save()


def main(location: str, header: str) -> None:
    """Run the query until the process is killed."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").appName("stateful")
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.driver.memory": "1g"}
    for key, value in {**local, **quick, **SETTINGS, **client_settings(header, patience=30)}.items():
        builder = builder.config(key, value)
    query = start(builder.getOrCreate(), location)
    while query.isActive:
        time.sleep(0.1)
    sys.exit(str(query.exception()))


if __name__ == "__main__":
    main(*sys.argv[1:])
