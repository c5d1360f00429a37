"""The departures transform under Spark's own Structured Streaming, with foreachBatch and the Cassandra connector.

Arguments: one JSON object. Prints one line `BATCH {json}` per batch: its number, its records, and when it ended, in
seconds since 1970.  Stays when `total` records are written, so that its CPU time can be read.
"""

import json
import os
import sys
import time
from typing import Any

import departures  # type: ignore[import-not-found]  # from the ConfigMap
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

TUNED = {
    "spark.cassandra.output.batch.grouping.key": "partition",
    "spark.cassandra.output.batch.size.bytes": "65536",
    "spark.cassandra.output.concurrent.writes": "16",
    "spark.cassandra.output.batch.grouping.buffer.size": "1000",
}
"""Found by measurement: what made the connector fastest on this table."""


def main() -> None:
    """Read, transform, write, until everything is done."""
    given = json.loads(sys.argv[1])
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.cassandra.connection.host": given["cassandra"],
        "spark.cassandra.connection.port": str(given["port"]),
        "spark.cassandra.auth.username": os.environ["CASSANDRA_USERNAME"],
        "spark.cassandra.auth.password": os.environ["CASSANDRA_PASSWORD"],
        "spark.cassandra.output.consistency.level": "LOCAL_QUORUM",
        **(TUNED if given["tuned"] else {}),
    }
    builder = SparkSession.builder.master(f"local[{given['cores']}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Spark 3.5 has this function in SQL alone.
    f.timestamp_diff = lambda unit, start, end: f.expr(f"timestampdiff({unit}, {start}, {end})")
    ended: dict[int, float] = {}

    def each(frame: DataFrame, number: int) -> None:
        rows = departures.transform(frame, None)
        target = rows.write.format("org.apache.spark.sql.cassandra")
        target.options(keyspace=given["keyspace"], table=given["table"]).mode("append").save()
        ended[number] = time.time()

    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given["kafka"])
        .option("subscribe", given["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given["per_batch"])
        .option("includeHeaders", "true")
        .load()
        .writeStream.foreachBatch(each)
        .option("checkpointLocation", "/tmp/checkpoint")  # noqa: S108 - the container's own
        .trigger(processingTime="0 seconds")
        .start()
    )
    done, printed = 0, 0
    while done < given["total"] and query.exception() is None:
        time.sleep(0.2)
        progress = query.recentProgress
        for batch in progress[printed:]:
            records = sum(
                position(source["endOffset"]) - position(source["startOffset"]) for source in batch["sources"]
            )
            if records:
                line = {"batch": batch["batchId"], "records": records, "ended": ended[batch["batchId"]]}
                print("BATCH " + json.dumps(line), flush=True)
            done += records
        printed = len(progress)
    if query.exception() is not None:
        raise SystemExit(str(query.exception()))
    time.sleep(3600)


def position(offsets: Any) -> int:
    """Return the records up to the offsets of a progress report: by topic and partition, or nothing yet."""
    return sum(sum(topic.values()) for topic in offsets.values()) if isinstance(offsets, dict) else 0


main()
