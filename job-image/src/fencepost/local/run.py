"""The composition root of a local run: the driver's loop, or its stateful query, on stores in one SQLite file.

The process may be killed at any moment: the next run takes over the fence row, and repeats the batch that was planned.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from fencepost.batch import between
from fencepost.contract import DriverConfig, ExitCode, Reason, Verdict
from fencepost.driver import signals
from fencepost.driver.loop import Loop
from fencepost.driver.ports import Records, TimedLog
from fencepost.driver.reporting import verdict
from fencepost.driver.reporting.commit_report import Report
from fencepost.errors import BadSpec
from fencepost.fence import Fence, FenceRow
from fencepost.fence.sqlite import left_out, table
from fencepost.fence.sqlite.database import Database
from fencepost.fence.sqlite.left_out import LeftOutRecords
from fencepost.fence.sqlite.table import SqliteFenceTable
from fencepost.local import record_log
from fencepost.local.record_files import RecordsInvalid
from fencepost.local.record_log import NoRecords, RecordLog
from fencepost.local.request import Committed, Event, PastBatch, Request
from fencepost.spark import session
from fencepost.spark.jvm import gateway
from fencepost.state import sqlite as state_tables
from fencepost.state.webhdfs.authentication import Keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.driver.stateful.run import StatefulRun
    from fencepost.formats.decoding import Decoding
    from fencepost.spark.runner import Runner
    from fencepost.spark.source import Read

log = logging.getLogger(__name__)

OWNER: Final = "local"
START: Final = 300.0
"""Seconds for the JVM to start, on a machine that is busy."""
COLLECT_EVERY: Final = 30.0
"""Seconds between two deletions of files of a state that nothing reaches."""


class LocalRun:
    """One run. `run` does not return: it ends the process with a verdict, which is also the last event."""

    def __init__(self, request: Request, events: TextIO) -> None:
        self._request = request
        self._events = events
        self._stop = threading.Event()
        self._ending = threading.Lock()
        self._jvm: gateway.Gateway | None = None
        self._keys = Keys(secrets.token_hex(32))
        self._loop: Loop | StatefulRun | None = None
        self._until_read = UntilRead(self._stop)

    def run(self) -> NoReturn:
        """Do everything, and end the process."""
        signals.listen([signal.SIGTERM, signal.SIGINT], lambda _number: self._asked_to_stop())
        threading.Thread(target=self._watch_input, name="input", daemon=True).start()
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the process ends here, with its verdict
            self._end(error)
        self._leave(Verdict(exit_code=int(ExitCode.STOPPED), reason=Reason.STOPPED, message="stopped", remedy=""))

    def _asked_to_stop(self) -> None:
        """Stop after the batch in progress; at once before the claim, and when asked again."""
        is_asked_again = self._stop.is_set()
        self._stop.set()
        if is_asked_again or self._loop is None:
            message = "stopped; the next run repeats the batch in progress"
            self._leave(Verdict(exit_code=int(ExitCode.STOPPED), reason=Reason.STOPPED, message=message, remedy=""))

    def _watch_input(self) -> None:
        """Stop when the command that started this process has ended."""
        while sys.stdin.read(4096):
            pass
        self._asked_to_stop()

    def _end(self, error: BaseException) -> NoReturn:
        loop = self._loop
        if self._jvm is not None:
            error = self._jvm.cause(error)
        judged = verdict.judge(error, epoch=None if loop is None or loop.version is None else loop.row.epoch)
        if judged.exit_code == ExitCode.FAILED:
            log.error("the run failed", exc_info=error)
        self._leave(judged)

    def _leave(self, last: Verdict) -> NoReturn:
        self._ending.acquire()  # a second thread waits here for the end
        with suppress(OSError):
            self._emit(Event(ended=last))
        os._exit(last.exit_code)

    def _emit(self, event: Event) -> None:
        self._events.write(f"{event.to_json()}\n")
        self._events.flush()

    def _work(self) -> None:
        request = self._request
        # Before the JVM, which passes it on to the Python workers.
        paths = filter(None, [request.code, os.environ.get("PYTHONPATH")])
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        schema = table.SCHEMA + left_out.SCHEMA + record_log.SCHEMA + state_tables.SCHEMA
        database = Database(request.database, schema)
        fence = Fence(SqliteFenceTable(database), request.config.pipeline, patience=request.config.patience)
        with _printing_to(request.log):
            self._jvm = gateway.Gateway.start(
                memory=session.driver_memory(request.config),
                options=[*session.driver_options(request.config), f"-Djava.io.tmpdir={request.scratch}"],
                class_path=session.driver_class_path(request.config),
            )
        import pyspark.sql  # noqa: F401, PLC0415 - while the JVM starts

        self._load_records(database)
        LeftOutRecords(database).add(request.left_out)
        if request.past is not None:
            self._jvm.connect(START)
            self._repeat(request.past, database)
            return
        row = fence.take_over(fence.create(OWNER), owner=OWNER)
        config = replace(request.config, epoch=row.epoch, owner=OWNER)
        self._jvm.connect(START)
        spark = self._session(config)
        self._loop = self._composed(config, spark, database, fence)
        if not self._stop.is_set():
            self._loop.run()

    def _load_records(self, database: Database) -> None:
        files, records = self._request.files, RecordLog(database, self._request.config.source.topics)
        try:
            loaded = sum(records.load(Path(each.path), each.topic) for each in files)
        except (RecordsInvalid, OSError) as error:
            raise BadSpec(str(error), remedy="Correct --records, or start over with --fresh.") from error
        if files:
            self._emit(Event(loaded=loaded))

    def _session(self, config: DriverConfig) -> SparkSession:
        checkpoint: Mapping[str, str] = {}
        if config.state is not None:
            from fencepost.driver.stateful import checkpoint_service  # noqa: PLC0415 - a stateless run needs none of it

            checkpoint = checkpoint_service.client(config, self._keys)
        conf = session.settings(config, {}, checkpoint=checkpoint)
        spark = session.create(
            {
                **conf,
                "spark.sql.warehouse.dir": f"{self._request.scratch}/warehouse",
                # A socket's path has at most 104 bytes, and a user's folder of temporary files can be longer.
                "spark.python.unix.domain.socket.enabled": "false",
            }
        )
        spark.sparkContext.setLogLevel("WARN")
        return spark

    def _composed(
        self, config: DriverConfig, spark: SparkSession, database: Database, fence: Fence
    ) -> Loop | StatefulRun:
        """Return the loop, or the run of the query, with the author's code and the sinks."""
        from fencepost.spark.engine import SparkEngine  # noqa: PLC0415 - Spark's imports overlap the JVM's start

        source, records, properties, read = self._source(config, database)
        driver, wait = f"process-{os.getpid()}", self._until_read.wait if self._request.ends else None
        engine = self._engine(config, spark, properties, read)
        if isinstance(engine, SparkEngine):
            return Loop(
                config=config, driver=driver, fence=fence, source=source, records=records, engine=engine,
                stop=self._stop, report=self._committed, claimed=self._until_read.claimed, wait=wait,
            )  # fmt: skip
        from fencepost.driver.stateful import checkpoint_service  # noqa: PLC0415
        from fencepost.driver.stateful.run import StatefulRun  # noqa: PLC0415

        run = StatefulRun(
            config=config, driver=driver, fence=fence, source=source, records=records, query=engine,
            serve=partial(checkpoint_service.serve, config, self._keys, host=None),
            chunks=state_tables.SqliteChunks(database, config.pipeline),
            index=state_tables.SqliteFileIndex(database, config.pipeline),
            snapshots=lambda: (), stop=self._stop, report=self._committed, end=self._end,
            claimed=self._until_read.claimed, wait=wait,
        )  # fmt: skip
        threading.Thread(target=self._collect, args=[run.collect], name="files", daemon=True).start()
        return run

    def _engine(
        self, config: DriverConfig, spark: SparkSession, properties: Mapping[str, str], read: Read | None
    ) -> Runner:
        """Return what runs the author's function, which fits the sinks. Raises BadSpec."""
        from fencepost.entrypoint import load  # noqa: PLC0415
        from fencepost.sinks.opening import open_sinks  # noqa: PLC0415
        from fencepost.spark.runner import runner  # noqa: PLC0415

        code = Path(self._request.code)
        function = load(config.entrypoint, code)
        sinks = open_sinks(config, session=None, credentials=None, kafka_properties=properties, code_dir=code)
        engine = runner(
            function,
            spark=spark,
            config=config,
            sinks=sinks,
            properties=properties,
            records=read,
            decoding=self._decoding(config),
        )
        engine.check()
        return engine

    def _repeat(self, past: PastBatch, database: Database) -> None:
        """Run a batch of a stateless pipeline as it was run once."""
        from fencepost.spark.engine import SparkEngine  # noqa: PLC0415

        config = self._request.config
        _, _, properties, read = self._source(config, database)
        engine = self._engine(config, self._session(config), properties, read)
        if not isinstance(engine, SparkEngine):
            raise BadSpec("a batch of a stateful pipeline cannot be run alone", remedy="Run it with its state.")
        until = {key: end for key, (_, end) in past.spans.items()}
        batch = between({key: start for key, (start, _) in past.spans.items()}, until)
        row = FenceRow(
            pipeline=config.pipeline, owner=config.owner, epoch=config.epoch, version=past.version, clock=past.clock
        )
        began = time.monotonic()
        written = engine.write(replace(batch, is_repeated=past.is_repeated), row)
        milliseconds = round((time.monotonic() - began) * 1000)
        self._emit(Event(committed=Committed(records=written.records, rows=written.rows, milliseconds=milliseconds)))

    def _source(
        self, config: DriverConfig, database: Database
    ) -> tuple[TimedLog, Records, Mapping[str, str], Read | None]:
        """Return the log, single records, librdkafka's properties, and what reads for the tasks; None is Kafka's."""
        if self._request.files:
            read = partial(record_log.read, self._request.database)
            return RecordLog(database, config.source.topics), NoRecords(), {}, read
        from fencepost.kafka.log import KafkaLog, client_properties  # noqa: PLC0415
        from fencepost.kafka.record import KafkaRecords  # noqa: PLC0415

        properties = client_properties(config.source, Path(self._request.scratch) / "no-secret")
        source = KafkaLog(properties, config.source.topics, patience=config.patience, stopping=self._stop.is_set)
        return source, KafkaRecords(properties, config.patience), properties, None

    def _decoding(self, config: DriverConfig) -> Decoding:
        from fencepost.formats.opening import open_decoding  # noqa: PLC0415 - Spark's imports overlap the JVM's start

        folder = Path(self._request.registry_credentials or f"{self._request.scratch}/no-secret")
        return open_decoding(config.source, folder, patience=config.patience, task_patience=config.task_patience)

    def _committed(self, report: Report) -> None:
        self._until_read.committed()
        rows = {sink: work.rows for sink, work in report.work.items()}
        self._emit(
            Event(committed=Committed(records=report.records, rows=rows, milliseconds=report.phases.get("total", 0)))
        )

    def _collect(self, collect: Callable[[], bool]) -> None:
        while True:
            time.sleep(COLLECT_EVERY)
            with suppress(Exception):  # the next one collects more
                collect()


class UntilRead:
    """Stops a run that has read everything: twice in a row it finds nothing, and has committed nothing in between.

    A stateful query may commit once more after its last record, where the watermark has moved.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._commits = 0
        self._commits_when_idle: int | None = None
        self._is_claimed = False

    def claimed(self, _row: FenceRow) -> None:
        """Begin: until the claim, a wait is for Kafka."""
        self._is_claimed = True

    def committed(self) -> None:
        """Count a batch."""
        self._commits += 1

    def wait(self, seconds: float) -> None:
        """Wait, or stop."""
        if self._is_claimed and self._commits == self._commits_when_idle:
            self._stop.set()
        self._commits_when_idle = self._commits
        self._stop.wait(seconds)


@contextmanager
def _printing_to(path: str) -> Iterator[None]:
    """Let a process that starts in the block, and its children, print to a file."""
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)
