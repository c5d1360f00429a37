"""The driver's composition root: starts everything at once, joins it in order, and ends in exactly one way.

Order: the JVM first (it takes longest), then the fence and Kafka beside the session; then a session that has planned
a batch, and a first executor, before the claim. New code runs an empty batch before it claims: a mistake leaves no
planned batch behind for other code.
"""

from __future__ import annotations

# PySpark and the clients of the fence and Kafka, which threads import beside it, all need these. Where two threads come
# to them from different sides, Python raises that their locks would wait for each other, and the run ends.
import importlib.abc
import importlib.resources  # noqa: F401
import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from fencepost.contract import (
    SESSION_LIMIT,
    WARM_FILE,
    DriverConfig,
    ExitCode,
    KafkaSink,
    Reason,
    Variable,
    Verdict,
)
from fencepost.driver import signals
from fencepost.driver.connections import Connections
from fencepost.driver.environment import Environment, config_text
from fencepost.driver.fence_store import FenceStore, cassandra_of, fence_tls
from fencepost.driver.loop import Loop, ignore
from fencepost.driver.ports import Engine
from fencepost.driver.recovery.poison import Isolator
from fencepost.driver.reporting import logs, metrics_endpoint, verdict
from fencepost.driver.reporting.commit_figures import DriverMemory, Measure, unmeasured
from fencepost.driver.reporting.commit_report import Report, log_committed
from fencepost.driver.reporting.run_metrics import RunMetrics
from fencepost.driver.reporting.telemetry.run_telemetry import RunTelemetry
from fencepost.driver.sizing.record_size import with_size
from fencepost.driver.supervision import Supervision
from fencepost.errors import BatchFailed, DependencyDown, DriverError, OutOfMemory
from fencepost.fence import Fence, Fenced, FenceMissing
from fencepost.spark import pandas_version, session
from fencepost.spark.jvm import gateway
from fencepost.state.webhdfs.authentication import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.driver.stateful.run import StatefulRun
    from fencepost.fence import FenceRow
    from fencepost.formats.decoding import Decoding
    from fencepost.kafka.log import KafkaLog
    from fencepost.kafka.mirror import GroupMirror
    from fencepost.kafka.record import KafkaRecords
    from fencepost.spark.runner import Runner
    from fencepost.spark.stateful.query import StatefulQuery

log = logging.getLogger(__name__)

MEASURING_LIMIT: Final = 5.0
"""Seconds that Kafka has to give the record that ran out of memory."""
EXERCISES: Final = 5
"""Before a run that awaits its epoch counts as warm: the JVMs compile by then what each batch does."""
GRACE_RESERVE: Final = 2.0
"""Seconds of the grace period kept for the verdict."""


class Driver:
    """One run. `run` does not return: it ends the process with a verdict."""

    def __init__(self, config: DriverConfig, environment: Environment) -> None:
        self._config = config
        self._environment = environment
        self._stop = threading.Event()
        self._loop: Loop | StatefulRun | None = None
        self._jvm: gateway.Gateway | None = None
        self._started = time.monotonic()
        self._records: KafkaRecords | None = None
        # In local mode there is no secret, and all services are in this process.
        self._keys = Keys(environment.variables.get(Variable.SPARK_AUTH_SECRET) or secrets.token_hex(32))
        self._ending = threading.Lock()
        self._leaving = threading.Lock()
        self._connections = Connections(config, environment, stopping=self._stop.is_set, lap=self._lap)
        self._supervision = Supervision(config, end=self.end, lap=self._lap)
        # librdkafka retries sends on its own, and does not count them.
        producers = [sink.name for sink in config.sinks if isinstance(sink, KafkaSink)]
        self._run_metrics = RunMetrics([sink.name for sink in config.sinks], uncounted=producers)
        self._telemetry = RunTelemetry(config, environment.driver, environment.telemetry_credentials)

    def run(self) -> NoReturn:
        """Do everything, and end the process."""
        signals.listen([signal.SIGTERM, signal.SIGINT], self._on_signal)
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the process ends here, with its verdict
            self.end(error)
        self._leave(self._stopped())

    def _stopped(self) -> Verdict:
        finishes = bool(self._config.finish_until) and not self._stop.is_set()
        return Verdict(
            exit_code=int(ExitCode.STOPPED),
            reason=Reason.STOPPED,
            message="finished what this code began"
            if finishes
            else "stopped on request; the batch in progress is committed",
            remedy="",
            epoch=self._config.epoch,
            version=self._loop.version if self._loop else None,
        )

    def end(self, error: BaseException) -> NoReturn:
        """End the process for `error`, from any thread."""
        loop = self._loop
        if self._jvm is not None and not isinstance(error, (Fenced, FenceMissing)):
            error = self._jvm.cause(error)
        if isinstance(error, OutOfMemory) and loop is not None and self._records is not None:
            error = with_size(error, loop.hand, self._records)
        judged = verdict.judge(
            error,
            epoch=self._config.epoch,
            version=loop.version if loop else None,
            batch=loop.hand.spans() if loop else None,
            database=verdict.database_of(self._config),
        )
        self._leave(judged, error)

    def _leave(self, last: Verdict, error: BaseException | None = None) -> NoReturn:
        """Write the verdict and end the process.

        A driver that is fenced gathers and sends nothing, and waits for no thread that does: its executors write on
        meanwhile.
        """
        if last.exit_code != ExitCode.FENCED:
            self._ending.acquire()  # the first word is the last one; a second thread waits here for the end
            with suppress(Exception):  # which would keep the lock, and so the process
                last = verdict.without(last, self._environment.secrets())
                self._telemetry.ended(last, self._loop.in_progress if self._loop else None)
                last = self._with_log(last, error)
                self._telemetry.wait()
        self._leaving.acquire()
        with suppress(Exception):
            level = logging.INFO if last.exit_code == 0 else logging.ERROR
            log.log(level, "%s: %s", last.reason, last.message, extra={"fields": {"exit_code": last.exit_code}})
        verdict.leave(last, path=self._environment.termination_log)

    def _with_log(self, last: Verdict, error: BaseException | None) -> Verdict:
        """Return the verdict with the log's last lines; the exception comes after what the JVM said before it."""
        if not last.exit_code:
            return last
        self._supervision.read_last_lines()
        if last.exit_code == ExitCode.FAILED:
            log.error("the run failed", exc_info=error)
        return replace(last, log=logs.LAST.without(self._environment.secrets()))

    def _work(self) -> None:
        config = self._config
        conf = session.settings(config, self._environment.variables, checkpoint=self._checkpoint_client())
        session.forget_secret()
        jvm = self._jvm = gateway.Gateway.start(
            memory=session.driver_memory(config),
            options=session.driver_options(config),
            class_path=session.driver_class_path(config),
        )
        with ThreadPoolExecutor(max_workers=3, thread_name_prefix="start") as pool:
            fence = pool.submit(self._connections.fence)
            kafka = pool.submit(self._connections.kafka)
            schemas = pool.submit(self._connections.decoding)
            for part in (fence, kafka, schemas):
                # An epoch that is over, a wrong password or an absent topic need not wait for Spark to be known.
                part.add_done_callback(self._end_if_failed)
            # While the JVM starts. The last is what Py4J's converters import at their first use.
            import pyspark.sql  # noqa: PLC0415

            pandas_version.check_once_imported()
            import pyspark.testing.utils  # noqa: F401, PLC0415

            with self._limit(SESSION_LIMIT, _no_session(config)):
                jvm.connect(SESSION_LIMIT)
                session.await_master(config.spark_master, timeout=SESSION_LIMIT)
                spark = session.create(conf)
            self._lap("session")
            store = fence.result()
            source, properties = kafka.result()
            decoding = schemas.result()
        self._supervision.fence(lambda: self._connections.check_held(store.table.read(self._config.pipeline)))
        self._compose(spark, store, source, properties, decoding)
        store.finish_history()

    def _checkpoint_client(self) -> dict[str, str]:
        if self._config.state is None and not self._config.pinned_states:
            return {}
        from fencepost.driver.stateful import checkpoint_service  # noqa: PLC0415 - most stateless runs need none of it

        return checkpoint_service.client(self._config, self._keys)

    def _compose(
        self,
        spark: SparkSession,
        store: FenceStore,
        source: KafkaLog,
        properties: Mapping[str, str],
        decoding: Decoding,
    ) -> None:
        """Join the parts: the author's code and tables, executors, an empty batch, then the loop."""
        from fencepost.driver.recovery.dead_letters import remove_uncommitted  # noqa: PLC0415
        from fencepost.driver.recovery.left_out import left_out  # noqa: PLC0415
        from fencepost.kafka.record import KafkaRecords  # noqa: PLC0415 - Spark's imports overlap the JVM's start
        from fencepost.spark.engine import SparkEngine  # noqa: PLC0415

        config = self._config
        self._supervision.executors(spark)
        engine = self._runner(spark, store, properties, decoding)
        self._supervision.jvm(spark)
        self._prepare(engine)
        self._lap("warm")
        pause = self._run_metrics.pausing(time.sleep)
        fence = Fence(store.table, config.pipeline, patience=config.patience, sleep=pause)
        self._records = KafkaRecords(properties, MEASURING_LIMIT)
        records = KafkaRecords(properties, config.patience)
        mirror = self._mirror(properties)
        show = mirror.show if mirror is not None else ignore

        def claimed(row: FenceRow) -> None:
            self._telemetry.claimed()
            engine.leave_out(left_out(row, store))
            if config.state is None:
                remove_uncommitted(row, store)

        if isinstance(engine, SparkEngine):
            self._loop = Loop(
                config=config,
                driver=self._environment.driver,
                fence=fence,
                source=source,
                records=records,
                engine=engine,
                stop=self._stop,
                report=self._committed,
                isolator=self._isolator(engine, store, source, records) if config.isolate else None,
                claimed=claimed,
                mirror=show,
                memory=self._memory(),
            )
            progress = engine.progress
        else:
            self._loop = stateful = self._stateful(engine, store, fence, source, records, claimed=claimed, mirror=show)
            progress = stateful.progress
        self._supervision.loop(self._loop, progress, fence)
        self._serve_metrics(spark)
        if config.awaits_epoch:
            if isinstance(self._loop, Loop):
                for _ in range(EXERCISES):
                    self._loop.exercise()
                self._lap("exercised")
            Path(WARM_FILE).touch()
        if not self._stop.is_set():
            self._loop.run()
        if mirror is not None:
            mirror.end()

    def _runner(
        self,
        spark: SparkSession,
        store: FenceStore,
        properties: Mapping[str, str],
        decoding: Decoding,
    ) -> Runner:
        """Return what runs the author's function, on sinks that are open and pinned states that are read."""
        from fencepost.entrypoint import load  # noqa: PLC0415
        from fencepost.sinks.opening import open_sinks  # noqa: PLC0415 - Spark's imports overlap the JVM's start
        from fencepost.spark.runner import runner  # noqa: PLC0415

        config = self._config
        states = self._pinned_states(spark, store)
        function = load(config.entrypoint, self._environment.code_dir)
        sinks = open_sinks(
            config,
            session=store.cassandra,
            fences=store.postgresql,
            credentials=self._environment.credentials,
            tls=fence_tls(config, self._environment),
            kafka_properties=properties,
            code_dir=self._environment.code_dir,
            options_dir=self._environment.sink_options,
        )
        return runner(
            function,
            spark=spark,
            config=config,
            sinks=sinks,
            properties=properties,
            decoding=decoding,
            states=states,
        )

    def _pinned_states(self, spark: SparkSession, store: FenceStore) -> Mapping[str, DataFrame]:
        if not self._config.pinned_states:
            return {}
        from fencepost.driver import pinned_states  # noqa: PLC0415 - few runs need it

        host = self._serving_host()
        found = pinned_states.stored(spark, self._config, self._keys, host=host, session=cassandra_of(store))
        self._lap("pinned states")
        return found

    def _serving_host(self) -> str | None:
        """Return the pod's address for the executors, None where all tasks are in this pod."""
        return None if session.is_local(self._config) else self._environment.variables.get(Variable.POD_IP)

    def _stateful(
        self,
        query: StatefulQuery,
        store: FenceStore,
        fence: Fence,
        source: KafkaLog,
        records: KafkaRecords,
        *,
        claimed: Callable[[FenceRow], None],
        mirror: Callable[[Mapping[str, int]], None],
    ) -> StatefulRun:
        from fencepost.driver.stateful import checkpoint_service  # noqa: PLC0415 - a stateless run needs none of it
        from fencepost.driver.stateful.run import StatefulRun  # noqa: PLC0415
        from fencepost.fence.cassandra.snapshots import SnapshotTable  # noqa: PLC0415
        from fencepost.state.cassandra import CassandraChunks, CassandraFileIndex  # noqa: PLC0415

        config, keyspace = self._config, self._config.fence_keyspace
        session = cassandra_of(store)
        snapshots = SnapshotTable(session, keyspace)
        run = StatefulRun(
            config=config,
            driver=self._environment.driver,
            fence=fence,
            source=source,
            records=records,
            query=query,
            serve=partial(checkpoint_service.serve, config, self._keys, host=self._serving_host()),
            chunks=CassandraChunks(session, keyspace, config.pipeline),
            index=CassandraFileIndex(session, keyspace, config.pipeline),
            snapshots=lambda: snapshots.checkpoints(config.pipeline),
            stop=self._stop,
            report=self._committed,
            end=self.end,
            claimed=claimed,
            mirror=mirror,
            memory=self._memory(),
        )
        self._supervision.files(run.collect)
        return run

    def _prepare(self, engine: Runner) -> None:
        """Make sure that a batch can be run before the claim.

        Not after the first executor but before it: what Spark loads for the empty batch overlaps the executor's start.
        Code that has claimed before has passed the warm-up, and its first batch does what an empty one would do.  A run
        that awaits its epoch has the time for it.
        """
        if not self._connections.has_claimed_before or self._config.isolate or self._config.awaits_epoch:
            engine.warm()
            return
        engine.begin_workers()
        engine.check()
        self._supervision.await_executor()

    def _committed(self, report: Report) -> None:
        self._run_metrics.committed(report)
        log_committed(report)
        self._telemetry.committed(report)

    def _memory(self) -> Measure:
        return unmeasured if self._jvm is None else DriverMemory(self._jvm.process.pid)

    def _serve_metrics(self, spark: SparkSession) -> None:
        jvm = self._jvm.process.pid if self._jvm is not None else None
        variables, epoch = self._environment.variables, self._config.epoch
        metrics_endpoint.start(
            self._run_metrics, spark, variables, epoch=epoch, jvm_process=jvm, sent=self._telemetry.sent
        )

    def _mirror(self, properties: Mapping[str, str]) -> GroupMirror | None:
        from fencepost.kafka.mirror import ConsumerGroup, GroupMirror  # noqa: PLC0415

        name = self._config.source.mirror_to_group
        return GroupMirror(ConsumerGroup(name, properties), name) if name else None

    def _isolator(self, engine: Engine, store: FenceStore, source: KafkaLog, records: KafkaRecords) -> Isolator:
        from fencepost.driver.recovery.dead_letters import stored_letters  # noqa: PLC0415 - few runs isolate a record

        letters = stored_letters(self._config, store)
        return Isolator(engine=engine, source=source, records=records, letters=letters, stopping=self._stop.is_set)

    @contextmanager
    def _limit(self, seconds: float, error: DriverError) -> Iterator[None]:
        """End the process for `error` when the block takes longer."""
        timer = threading.Timer(seconds, self.end, [error])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _on_signal(self, number: int) -> None:
        """Ask the loop to stop; a batch that outlives the grace period ends uncommitted, with a verdict of its own."""
        if self._stop.is_set():
            return
        self._stop.set()
        if self._loop is None:
            # Nothing is claimed, so nothing is in progress; what is starting need not be waited for.
            self._leave(self._stopped())
        left = max(1.0, self._config.termination_grace - GRACE_RESERVE)
        overdue = BatchFailed(
            f"signal {number}: the batch in progress did not end within {left:.0f} s; it is not committed",
            reason=Reason.STOP_TIMED_OUT,
            remedy="Nothing is lost; a longer terminationGracePeriodSeconds or smaller batches let it finish.",
        )
        timer = threading.Timer(left, self.end, [overdue])
        timer.daemon = True
        timer.start()
        log.info("stopping after the batch in progress")

    def _end_if_failed(self, part: Future[Any]) -> None:
        error = part.exception()
        if error is not None:
            self.end(error)

    def _lap(self, name: str) -> None:
        log.info("ready: %s", name, extra={"fields": {"seconds": round(time.monotonic() - self._started, 2)}})


def _no_session(config: DriverConfig) -> DependencyDown:
    return DependencyDown(
        f"no Spark session at {config.spark_master} within {SESSION_LIMIT:.0f} s: the master is not reachable, or its"
        " secret is another one",
        reason=Reason.SPARK_UNREACHABLE,
    )


def run(variables: Mapping[str, str], *, termination_log: Path, parse: Callable[[str], DriverConfig]) -> NoReturn:
    """Run the driver that the environment describes, and end the process."""
    try:
        config = parse(config_text(variables))
    except Exception as error:  # noqa: BLE001 - the process ends here, with its verdict
        verdict.leave(verdict.judge(error), path=termination_log)
    logs.set_up(pipeline=config.pipeline.partition("/")[2])
    Driver(config, Environment.read(variables, termination_log=termination_log)).run()
