"""A program: an application whose executors are killed by their own tasks, each one after it has written shuffle files.

usage: killed_executors.py MASTER COUNT — prints the number of each executor that was killed, then the rows of a last
job, and for each line on its standard input those that its shuffle files have.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fencepost.spark import session
from fencepost.spark.jvm import gateway
from harness.spark_cluster import SECRET

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 20_000
REPEATED: Final = 3
"""Times 128 characters in a row, which make shuffle files of 3 MB."""


def start(master: str) -> SparkSession:
    """Return the session, with the settings that a driver has on a cluster."""
    jvm = gateway.Gateway.start(memory="512m", options=["-XX:TieredStopAtLevel=1"])
    jvm.connect(300)
    made = session.create(
        {
            **session.DEFAULTS,
            "spark.master": master,
            "spark.app.name": "killed-executors",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.authenticate": "true",
            "spark.authenticate.secret": SECRET,
            "spark.network.crypto.enabled": "true",
            "spark.network.crypto.cipher": "AES/GCM/NoPadding",
            "spark.network.crypto.saslFallback": "false",
        }
    )
    made._gateway_of_the_test = jvm  # type: ignore[attr-defined]
    return made


def jvm_of_executor() -> int:
    """Return the id of the JVM: the parent of the daemon that forked this Python worker."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


def killing(first: int) -> Any:
    """Return a function for mapInArrow that kills its executor, unless that has the number `first` or a later one.

    An executor's number is the name of the folder that its processes work in.
    """

    def run(rows: Iterator[Any]) -> Iterator[Any]:
        yield from rows
        if int(Path.cwd().name) < first:
            os.kill(jvm_of_executor(), signal.SIGKILL)

    return run


def shuffled(spark: SparkSession, first: int) -> DataFrame:
    """Return rows behind a shuffle, whose reader kills its executor as in `killing`."""
    wide = spark.range(ROWS, numPartitions=2).selectExpr("id", f"repeat(sha2(cast(id as string), 512), {REPEATED}) w")
    return wide.repartition(1, "id").mapInArrow(killing(first), wide.schema)


def main(master: str, count: int) -> None:
    """Run jobs until so many executors were killed; each job's second try, on the next executor, succeeds."""
    spark = start(master)
    for number in range(1, count + 1):
        assert shuffled(spark, number).count() == ROWS
        print(number, flush=True)
    last = shuffled(spark, 0).rdd
    print("done", last.count(), flush=True)
    for _ in sys.stdin:
        print("again", last.count(), flush=True)  # the stage before the shuffle is skipped


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)
