"""The Spark session of a run: its settings, its start, its executors."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from fencepost.contract import (
    BLOCK_MANAGER_PORT,
    DRIVER_PORT,
    TASK_ATTEMPTS,
    TASK_ATTEMPTS_SETTING,
    DriverConfig,
    Reason,
    StateConfig,
    Variable,
    spark_conf,
)
from fencepost.errors import KEY, KEY_VARIABLE, BadSpec, DependencyDown, ObjectChanged
from fencepost.spark.jvm import gateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_DRIVER_MEMORY: Final = "512m"

DEFAULTS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.warehouse.dir": "/tmp/fencepost-warehouse",  # noqa: S108 - the pod's scratch volume
    "spark.executor.heartbeatInterval": "5s",
    "spark.executor.heartbeat.maxFailures": "3",
    "spark.network.timeout": "60s",
    "spark.python.worker.reuse": "true",
    # A worker that a signal ends says so, except for SIGKILL: so a crash differs from too little memory.
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # Over TCP each task waits 40 ms for a delayed acknowledgement (a job of 1,000 records: p50 118 ms, and 78 so).
    "spark.python.unix.domain.socket.enabled": "true",
    # The sink has its own retries; a failed task is tried once more, on another executor.
    TASK_ATTEMPTS_SETTING: str(TASK_ATTEMPTS),
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.locality.wait": "0s",
    # With 10,000 records of 10 KB, the default limit, a sink's Python worker grew to 507 MB; with this one, to 155 MB.
    "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
    # For its web UI Spark keeps the last 1,000 queries and jobs, plans included. Here only the latest is read, for the
    # progress of a batch.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.retainedDeadExecutors": "10",
    "spark.sql.ui.retainedExecutions": "10",
}
"""Settings that the author may override."""


def settings(
    config: DriverConfig, environment: Mapping[str, str], *, checkpoint: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return Spark's configuration for a run: defaults, over them the author's, over them what safety depends on.

    `checkpoint` are those of the client that reaches the pipeline's checkpoint, or pinned states.
    Raises BadSpec for settings that a run cannot honour.
    """
    _refuse_unsupported(config.spark_conf)
    of_state = dict(checkpoint or {})
    if config.state is not None:
        of_state |= state_settings(config.state)
    elif config.pinned_states:
        of_state |= STATE_STORE
    _refuse_owned(config.spark_conf, of_state)
    authors = {key: value for key, value in config.spark_conf.items() if not spark_conf.is_reserved(key)}
    own = {
        "spark.master": config.spark_master,
        "spark.app.name": f"{config.pipeline}/{config.epoch}",
        "spark.python.daemon.module": "fencepost.spark.worker_daemon",
    }
    derived: dict[str, str] = {}
    if is_local(config):
        own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        own |= _cluster_settings(environment)
        derived = _lost_executor_settings(config)
    merged = {**DEFAULTS, **derived, **authors, **own, **of_state}
    class_path = _executor_class_path(merged.pop(spark_conf.EXECUTOR_CLASS_PATH, ""))
    return merged | class_path | _executor_options(merged)


def _refuse_unsupported(conf: Mapping[str, str]) -> None:
    """Raise BadSpec naming each setting without effect. The operator refuses them first; an older one may not know."""
    found = list(spark_conf.unsupported(conf))
    if found:
        raise BadSpec(
            f"spec.cluster.sparkConf: {'; '.join(f'{one.key} {one.problem}' for one in found)}",
            reason=Reason.SPARK_CONF_INVALID,
            remedy="; ".join(f"{one.key}: {one.remedy}" for one in found) + ".",
        )


STATE_STORE: Final[Mapping[str, str]] = {
    # Hadoop's FileContext, which Spark uses otherwise, asks for the defaults of the server before it opens a file, and
    # for the status of both names of one that it renames: 38 requests per batch of two partitions, not 20.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Each load of a store gets an id, which is in the names of its files and in the commit log.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Spark would read each key before it writes it, also where it replays a changelog, and so count the keys: a third
    # of what the first batch after a restart took with a gigabyte of state. No one reads the count.
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}
"""How the files of a state are written and read."""


def state_settings(state: StateConfig) -> dict[str, str]:
    """Return what the protocol of a checkpoint depends on.

    Not the encoding avro, which lets schemas evolve: Spark has it for transformWithState alone, and refuses aggregates.
    """
    return {
        # It runs the first stages of a batch before `write` begins: as jobs of no attempt, whose errors no one decodes.
        "spark.sql.adaptive.streaming.stateless.enabled": "false",
        "spark.sql.shuffle.partitions": str(state.partitions),
        "spark.sql.streaming.offsetLog.formatVersion": "1",
        # A second file beside each, with requests of its own. What Spark and RocksDB write there has checksums inside.
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        # Of RocksDB's files on the worker's disk. With Hadoop's 512 bytes a copy takes a quarter more CPU time.
        "spark.hadoop.file.bytes-per-checksum": "65536",
        **STATE_STORE,
    }


def _refuse_owned(conf: Mapping[str, str], owned: Mapping[str, str]) -> None:
    """Raise BadSpec naming each setting of a stateful pipeline that Fencepost itself sets."""
    found = sorted(conf.keys() & owned.keys())
    if found:
        raise BadSpec(
            f"spec.cluster.sparkConf: Fencepost itself sets {', '.join(found)} for the state",
            reason=Reason.SPARK_CONF_INVALID,
            remedy="Remove it. spec.state.partitions is the number of partitions.",
        )


def is_local(config: DriverConfig) -> bool:
    """Return whether Spark runs inside the driver's own process: on a laptop and in tests."""
    return config.spark_master.startswith("local")


def _lost_executor_settings(config: DriverConfig) -> dict[str, str]:
    """Return when an executor that sends no heartbeats counts as lost, so that its tasks begin again elsewhere.

    Not by spark.network.timeout, which also limits RPC and transfers; an author who sets that one sets this one too, as
    in Spark. Spark checks only once per minute unless configured.
    """
    if "spark.network.timeout" in config.spark_conf:
        return {}
    seconds = min(max(config.patience, LOST_EXECUTOR[0]), LOST_EXECUTOR[1])
    return {
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{seconds:.0f}s",
        "spark.network.timeoutInterval": "5s",
    }


LOST_EXECUTOR: Final = (20.0, 60.0)
"""Least and most seconds without a heartbeat: on a busy node some are late, and 60 s is spark.network.timeout."""


def _cluster_settings(environment: Mapping[str, str]) -> dict[str, str]:
    secret = environment.get(Variable.SPARK_AUTH_SECRET)
    if not secret:
        raise ObjectChanged(f"{Variable.SPARK_AUTH_SECRET} is not set: the Secret of the Spark cluster is empty")
    return {
        "spark.driver.host": environment.get(Variable.POD_IP) or "127.0.0.1",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104 - authenticated and encrypted, and the pod's only address
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_MANAGER_PORT),
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.cipher": "AES/GCM/NoPadding",
        "spark.network.crypto.saslFallback": "false",
    }


def _executor_class_path(authors: str) -> dict[str, str]:
    """Return the setting that puts the author's class path after Spark's jars.

    Spark would put it first: the executor then runs without the archive, and its start takes 1.6 times the CPU time.
    """
    return {"spark.executorEnv.SPARK_DIST_CLASSPATH": authors} if authors else {}


def _executor_options(merged: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the executors' JVMs; with the image's archive also the empty configuration folder."""
    sharing = gateway.sharing_options()
    authors = merged.get("spark.executor.extraJavaOptions", "")
    options = (*sharing, *gateway.LATE_C2, gateway.FIRST_HEAP, gateway.EXIT_WITHOUT_MEMORY, authors)
    found = {"spark.executor.extraJavaOptions": " ".join(options).strip()}
    return found | {"spark.executorEnv.SPARK_CONF_DIR": str(gateway.CONF_DIR)} if sharing else found


def driver_memory(config: DriverConfig) -> str:
    """Return the heap of the driver's JVM, in Java's notation."""
    return config.spark_conf.get("spark.driver.memory", DEFAULT_DRIVER_MEMORY)


def driver_options(config: DriverConfig) -> list[str]:
    """Return the author's options for the driver's JVM, as words.

    Raises BadSpec when a quote in them is not closed.
    """
    words: list[str] = []
    for key in spark_conf.DRIVER_JAVA_OPTIONS:
        try:
            words += shlex.split(config.spark_conf.get(key, ""))
        except ValueError as error:
            raise BadSpec(
                f"spec.cluster.sparkConf.{key}: {error}",
                reason=Reason.SPARK_CONF_INVALID,
                remedy="Close the quote.",
            ) from error
    return words


def driver_class_path(config: DriverConfig) -> str:
    """Return the author's class path for the driver's JVM, in Java's notation; empty without one."""
    return config.spark_conf.get(spark_conf.DRIVER_CLASS_PATH, "")


def await_master(master: str, *, timeout: float) -> None:
    """Return when the master's port answers, or after `timeout` seconds; at once in local mode.

    A Spark application that finds no master asks again after 20 s. The driver of a new cluster starts beside it.
    """
    address = urlsplit(master)
    if address.scheme != "spark" or not address.hostname or not address.port:
        return
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            socket.create_connection((address.hostname, address.port), timeout=MASTER_ANSWER).close()
        except OSError:
            time.sleep(MASTER_CHECK)
        else:
            return


MASTER_ANSWER: Final = 2.0
"""Seconds for one connection to the master."""
MASTER_CHECK: Final = 0.1
"""Seconds between two tries."""


def create(conf: Mapping[str, str]) -> SparkSession:
    """Return the session, through the gateway that PySpark's variables name.

    Raises DependencyDown when the master refuses or does not answer (it may also hang, so run it under a deadline), and
    BadSpec when Spark cannot work with the settings.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - Spark's imports overlap the JVM's start
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    # Executors of a cluster run the same image; in local mode they use this interpreter.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in {**conf, f"spark.executorEnv.{KEY_VARIABLE}": KEY}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        if refuses_settings(error):
            raise BadSpec(
                f"Spark refuses its settings: {first_line(error)}",
                reason=Reason.SPARK_CONF_INVALID,
                remedy="Correct spec.cluster.sparkConf or spec.job.memory.",
            ) from error
        raise DependencyDown(
            f"no Spark session at {conf['spark.master']}: {first_line(error)}", reason=Reason.SPARK_UNREACHABLE
        ) from error


def refuses_settings(error: BaseException) -> bool:
    """Return whether an error of Java is about a setting, and not about a master that did not answer.

    A context whose master never answers ends with an IllegalArgumentException too: 'requirement failed: Can only call
    getServletHandlers on a running MetricsSystem'.
    """
    text = str(error)
    return "requirement failed" not in text and any(
        kind in text for kind in ("IllegalArgumentException", "NumberFormatException")
    )


def executors(spark: SparkSession) -> int:
    """Return how many executors are registered; in local mode the driver counts as one."""
    context = spark.sparkContext
    infos = len(context._jsc.sc().statusTracker().getExecutorInfos())  # noqa: SLF001 - Spark's public JVM API
    return infos if str(context.master).startswith("local") else infos - 1


def jvm_resources(spark: SparkSession) -> dict[str, int]:
    """Return what the driver's JVM uses: heap and metaspace in MiB, loaded classes, threads. Some ten round trips."""
    management = spark.sparkContext._jvm.java.lang.management.ManagementFactory  # type: ignore[union-attr]  # noqa: SLF001
    pools = {pool.getName(): pool.getUsage().getUsed() for pool in management.getMemoryPoolMXBeans()}
    return {
        "heap_mib": management.getMemoryMXBean().getHeapMemoryUsage().getUsed() >> 20,
        "metaspace_mib": pools.get("Metaspace", 0) >> 20,
        "classes": management.getClassLoadingMXBean().getLoadedClassCount(),
        "jvm_threads": management.getThreadMXBean().getThreadCount(),
    }


def wait_for_executor(spark: SparkSession, *, timeout: float) -> bool:
    """Wait for the first executor; return whether there is one. `timeout` in seconds."""
    deadline = time.monotonic() + timeout
    while executors(spark) < 1:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def first_line(error: BaseException) -> str:
    """Return the first line of an error, without Java's stack trace."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    caused = [line for line in lines if line.startswith("Caused by:") or "Exception:" in line]
    return (caused or lines or [type(error).__name__])[0].strip()[:500]


def forget_secret() -> None:
    """Drop the cluster's secret from the environment: the author's subprocesses do not need it."""
    os.environ.pop(Variable.SPARK_AUTH_SECRET, None)
