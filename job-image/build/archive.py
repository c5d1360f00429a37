# ruff: noqa: INP001 - a script of the image build, no package
"""The class-data-sharing archive of the image, from the classes that a small cluster loads.

usage: archive.py {write,check}

Runs a master, a worker, a driver and an executor on this machine. `write` lets each JVM list its classes, and dumps
their union.  One archive serves them all: their class paths begin alike.  A JVM that cannot use it runs without,
with 1.6 times the CPU time until its second job, and does not say so: `check` fails then.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fencepost.contract import DriverConfig, KafkaSource, Variable
from fencepost.contract.spark_conf import DRIVER_CLASS_PATH, EXECUTOR_CLASS_PATH
from fencepost.kafka.reader import read
from fencepost.spark import session, source
from fencepost.spark.interpreting import Interpreting
from fencepost.spark.jvm import gateway
from fencepost.spark.tasks.counts import ReadCounts
from fencepost.testing.streams import StreamTest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

    from fencepost import StreamContext

SECRET = "only-while-the-image-is-built"  # noqa: S105 - of a cluster that runs for a minute
MASTER = "spark://127.0.0.1:7077"


def main(command: str) -> None:
    """Write the archive, or check that each JVM uses it."""
    with tempfile.TemporaryDirectory() as name:
        {"write": write, "check": check}[command](Path(name))


def write(folder: Path) -> None:
    """Run a cluster, merge the lists of classes, write the archive."""
    with running(folder, lambda jvm: f"-XX:DumpLoadedClassList={folder}/{jvm}.lst", {}) as spark:
        exercise(spark)
        exercise_state(spark)
    classes = folder / "classes"
    classes.write_text("\n".join(merged(folder)) + "\n")
    dump(classes)


def check(folder: Path) -> None:
    """Run a cluster of JVMs that do not start without the archive, with an author's jar.

    Raises SystemExit or a DriverError.
    """
    jar = folder / "authors.jar"
    with zipfile.ZipFile(jar, "w") as empty:
        empty.writestr("authors", "")
    with running(folder, lambda _: "-Xshare:on", dict.fromkeys((DRIVER_CLASS_PATH, EXECUTOR_CLASS_PATH), str(jar))):
        pass


@contextmanager
def running(folder: Path, option: Callable[[str], str], authors: Mapping[str, str]) -> Iterator[SparkSession]:
    """Run a cluster and a driver; yield its session once there is an executor.

    `option` is by the JVM's name: master, worker, driver, executor. `authors` are settings.
    """
    (folder / "spark-defaults.conf").write_text(
        "spark.authenticate true\nspark.network.crypto.enabled true\n"
        "spark.network.crypto.cipher AES/GCM/NoPadding\nspark.master.rest.enabled false\n"
        f"spark.deploy.recoveryMode FILESYSTEM\nspark.deploy.recoveryDirectory {folder}/recovery\n"
    )
    common = {
        **os.environ,
        "SPARK_CONF_DIR": str(folder),
        "_SPARK_AUTH_SECRET": SECRET,
        "SPARK_MASTER_HOST": "127.0.0.1",
        "SPARK_MASTER": MASTER,
        "SPARK_WORKER_CORES": "2",
        "SPARK_WORKER_MEMORY": "1g",
        "SPARK_WORKER_DIR": f"{folder}/work",
        "SPARK_LOCAL_DIRS": str(folder),
    }
    daemons = []
    try:
        for name in ("master", "worker"):
            options = {"SPARK_DAEMON_JAVA_OPTS": option(name)}
            daemons.append(subprocess.Popen([f"/opt/fencepost/bin/spark-{name}"], env=common | options))
            session.await_master(MASTER, timeout=60)
        with driver(option, authors) as spark:
            yield spark
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(30)


@contextmanager
def driver(option: Callable[[str], str], authors: Mapping[str, str]) -> Iterator[SparkSession]:
    """Run a driver's JVM, as a run does."""
    config = DriverConfig(
        pipeline="build", epoch=1, entrypoint="", args=(), code="", sinks=(), fence_keyspace="", executors=1,
        source=KafkaSource(bootstrap_servers="", topics=()),
        consistency="ONE", batch_interval=0, spark_master=MASTER, termination_grace=1,
        spark_conf={
            **authors,
            "spark.executor.memory": "512m",
            "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
            "spark.sql.streaming.stateStore.minDeltasForSnapshot": "1",
            "spark.executor.extraJavaOptions": option("executor"),
        },
    )  # fmt: skip
    conf = session.settings(config, {Variable.SPARK_AUTH_SECRET: SECRET, Variable.POD_IP: "127.0.0.1"})
    jvm = gateway.Gateway.start(memory="512m", options=[option("driver")], class_path=session.driver_class_path(config))
    jvm.connect()
    spark = session.create(conf)
    if not session.wait_for_executor(spark, timeout=120):
        raise SystemExit("no executor: Java's or Spark's message is above")
    yield spark
    spark.stop()
    jvm.process.communicate(timeout=60)  # its standard input closes, and it ends


def exercise(spark: SparkSession) -> None:
    """Do what a run does, less Kafka and Cassandra: Python workers, JSON, an Arrow sink."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as every Spark program has it

    reading = partial(read, properties={"bootstrap.servers": "127.0.0.1:1"}, patience=1.0)
    counts, interpreting = ReadCounts(spark.sparkContext), Interpreting(spark, {})
    for _ in range(2):
        batch = source.frame(spark, [(), ()], reading, counts.begin())
        value = F.from_json(F.col("value").cast("string"), "a int, b double, c string, d timestamp")
        rows = batch.select("topic", "partition", "offset", "timestamp", value.alias("v"))
        rows = rows.select("topic", "partition", "offset", "v.*").where("a is null or a > 0")
        rows.mapInArrow(_count, "sink string, rows long").union(
            rows.mapInArrow(_count, "sink string, rows long")
        ).collect()
        rows.groupBy("topic").agg(F.sum("b"), F.count("*")).collect()
        interpreting.end()


def exercise_state(spark: SparkSession) -> None:
    """Do what runs of stateful pipelines do: count in windows, and in a processor; end, and resume from the state."""
    for stream in (_in_windows, _in_a_processor):
        StreamTest(spark, stream, partitions=2).check_restarts([[{"value": b"1"}, {"value": b"2"}]] * 4, cuts=2)


def _in_windows(events: DataFrame, _: StreamContext) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as every Spark program has it

    keyed = events.select(F.from_json(F.col("value").cast("string"), "a int").alias("v"), "timestamp")
    windows = keyed.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute"), "v.a").count()
    return windows.select("window.start", "a", "count")


def _in_a_processor(events: DataFrame, _: StreamContext) -> DataFrame:
    from pyspark.sql import Row  # noqa: PLC0415 - as above
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor  # noqa: PLC0415 - as above

    class Counting(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._total = handle.getValueState("total", "n long")

        def handleInputRows(  # noqa: N802 - PySpark's name
            self,
            key: Any,  # noqa: ANN401 - as there
            rows: Iterator[Any],
            timerValues: TimerValues,  # noqa: ARG002, N803 - as there
        ) -> Iterator[Any]:
            total = (self._total.get() or (0,))[0] + sum(1 for _ in rows)
            self._total.update((total,))
            yield Row(key=key[0], count=total)

        def close(self) -> None:
            pass

    keyed = events.selectExpr("cast(value as string) key").groupBy("key")
    return keyed.transformWithState(Counting(), "key string, count long", outputMode="Update", timeMode="None")


def _count(batches: Iterator[object]) -> Iterator[object]:
    yield from batches


def merged(folder: Path) -> Iterator[str]:
    """Yield every line of the lists once, in order: the order of loading makes a compact archive."""
    seen: set[str] = set()
    for path in sorted(folder.glob("*.lst")):
        for line in path.read_text().splitlines():
            # A class of a loader of its own is listed with a number of that run.
            if line and not line.startswith("#") and " id:" not in line and line not in seen:
                seen.add(line)
                yield line


def dump(classes: Path) -> None:
    """Let Java write the archive; its warnings name classes that cannot be shared, which is normal."""
    home = gateway.spark_home()
    command = [
        "java", "-Xshare:dump", "-XX:+UseSerialGC", f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={gateway.ARCHIVE}", "-cp", f"{gateway.CONF_DIR}/:{home}/jars/*",
        "-Xlog:cds=off,cds+dynamic=off",
    ]  # fmt: skip
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
