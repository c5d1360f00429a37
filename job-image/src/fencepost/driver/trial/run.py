"""The composition root of a trial: the driver's parts without fence, plan, commit and sinks."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Protocol
from uuid import UUID

from fencepost.contract import SESSION_LIMIT, CassandraSink, DriverConfig, Variable
from fencepost.contract.trial import TRIAL_FILE, Sample, SinkFindings, TrialReport, TrialRequest
from fencepost.driver.connections import Connections
from fencepost.driver.environment import Environment
from fencepost.driver.fence_store import CassandraStore, fence_tls, open_cassandra
from fencepost.driver.reporting import logs, verdict
from fencepost.driver.sizing.batch_limit import Limit
from fencepost.driver.trial.processes import Processes
from fencepost.driver.trial.ranges import Reach, Reading, reach
from fencepost.driver.trial.trying import Poison, Trying
from fencepost.errors import BadSpec
from fencepost.fence import FenceError, FenceMissing
from fencepost.fence.patience import Patience
from fencepost.spark import session
from fencepost.spark.jvm import gateway
from fencepost.state.webhdfs.authentication import Keys

if TYPE_CHECKING:
    from cassandra.cluster import Session
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.batch import Watermarks
    from fencepost.driver.trial.comparing import Comparing
    from fencepost.driver.trial.streaming import Streaming
    from fencepost.fence import FenceRow
    from fencepost.fence.cassandra.table import CassandraFenceTable
    from fencepost.kafka.log import KafkaLog
    from fencepost.sinks.comparison.compared_sink import ComparedSink
    from fencepost.sinks.comparison.findings import Findings
    from fencepost.spark.engine import SparkEngine
    from fencepost.spark.stateful.query import StatefulQuery

log = logging.getLogger(__name__)

CASSANDRA_LIMIT: Final = 60.0
"""Seconds for the first connection to Cassandra."""
REPORT_EVERY: Final = 5.0
"""Seconds between two reports of progress."""


class TrialDriver:
    """One trial. `run` does not return: it ends the process with a report or a verdict."""

    def __init__(self, config: DriverConfig, request: TrialRequest, environment: Environment) -> None:
        self._config = config
        self._request = request
        self._environment = environment
        self._end = time.monotonic() + request.seconds
        self._jvm: gateway.Gateway | None = None
        self._reported = 0.0
        self._keys = Keys(secrets.token_hex(32))

    def run(self) -> NoReturn:
        """Do everything, and end the process."""
        path = self._environment.termination_log
        try:
            text = self._work().to_json()
        except BaseException as error:
            log.exception("the trial failed")
            cause = self._jvm.cause(error) if self._jvm is not None else error
            verdict.leave(verdict.without(verdict.judge(cause), self._environment.secrets()), path=path)
        with suppress(OSError):
            path.write_text(text, encoding="utf-8")
        log.info("%s", text)
        sys.stdout.flush()
        os._exit(0)

    def _work(self) -> TrialReport:
        config, environment = self._config, self._environment
        conf = session.settings(config, environment.variables, checkpoint=self._checkpoint_client())
        session.forget_secret()
        jvm = self._jvm = gateway.Gateway.start(
            memory=session.driver_memory(config),
            options=session.driver_options(config),
            class_path=session.driver_class_path(config),
        )
        processes = Processes(jvm.process.pid)
        processes.follow()
        connections = Connections(config, environment, stopping=lambda: False, lap=_lap)
        source, properties = connections.kafka()
        decoding = connections.decoding()
        table = Patience(CASSANDRA_LIMIT).ask(self._table)
        row, watermarks = self._row(table), source.state()
        _check_topics(row, watermarks)
        jvm.connect(SESSION_LIMIT)
        spark = session.create(conf)
        _lap("session")
        with tempfile.TemporaryDirectory(prefix="fencepost-trial-") as scratch:
            from fencepost.driver.recovery.left_out import left_out  # noqa: PLC0415
            from fencepost.entrypoint import load  # noqa: PLC0415 - after the JVM, whose start it overlaps
            from fencepost.sinks.comparison.compared_sink import DiscardingSink  # noqa: PLC0415
            from fencepost.sinks.comparison.findings import Findings  # noqa: PLC0415
            from fencepost.spark.engine import SparkEngine  # noqa: PLC0415
            from fencepost.spark.runner import runner  # noqa: PLC0415

            folder, cores = Path(scratch) / "found", int(spark.sparkContext.defaultParallelism)
            comparing = self._comparing(table, folder, cores)
            sinks = comparing.sinks()
            engine = runner(
                load(config.entrypoint, environment.code_dir),
                spark=spark,
                config=config,
                sinks={name: DiscardingSink() if isinstance(sink, str) else sink for name, sink in sinks.items()},
                properties=properties,
                decoding=decoding,
                states=self._pinned_states(spark, table),
            )
            engine.warm()
            _lap("warm")
            engine.leave_out(left_out(row, CassandraStore(table, config)))
            findings, (left, lost) = (
                Findings(Path(scratch) / "findings.db"),
                reach(self._request.start, self._request.until, watermarks),
            )
            if isinstance(engine, SparkEngine):
                tried: Tried = self._batches(engine, findings, left, row, folder, table)
            else:
                tried = self._stream(engine, findings, source, properties, folder, table)
            trial = _Trial(
                config=config,
                request=self._request,
                comparing=comparing,
                findings=findings,
                processes=processes,
                tried=tried,
            )
            return trial.report(sinks, left, lost, lambda: self._row(table))

    def _checkpoint_client(self) -> dict[str, str]:
        config = self._config
        if config.state is None and not config.pinned_states:
            return {}
        from fencepost.driver.stateful import checkpoint_service  # noqa: PLC0415 - few trials need it

        return checkpoint_service.client(config, self._keys)

    def _pinned_states(self, spark: SparkSession, table: CassandraFenceTable) -> Mapping[str, DataFrame]:
        """Return the rows that the pipeline's runs read, too: a snapshot is never changed."""
        if not self._config.pinned_states:
            return {}
        from fencepost.driver import pinned_states  # noqa: PLC0415 - few trials need it

        found = pinned_states.stored(spark, self._config, self._keys, host=None, session=table.session)
        _lap("pinned states")
        return found

    def _batches(
        self,
        engine: SparkEngine,
        findings: Findings,
        left: Reach,
        row: FenceRow,
        folder: Path,
        table: CassandraFenceTable,
    ) -> Trying:
        """Return the loop of a stateless pipeline."""
        request = self._request
        grown = frozenset(request.until.keys() - request.start.keys())
        return Trying(
            pipeline=self._config.pipeline, engine=engine, findings=findings,
            reading=Reading(left, grown=grown, topic_ids=row.topic_ids),
            limit=Limit(self._config.source, reduced=None, now=time.monotonic), folder=folder,
            is_over=lambda: time.monotonic() > self._end, now=time.monotonic,
            report=lambda done: self._progress(table, done),
        )  # fmt: skip

    def _stream(
        self,
        query: StatefulQuery,
        findings: Findings,
        source: KafkaLog,
        properties: Mapping[str, str],
        folder: Path,
        table: CassandraFenceTable,
    ) -> Streaming:
        """Return the query of a stateful pipeline, which begins with the state of a snapshot. Raises BadSpec."""
        from fencepost.driver.trial.streaming import Streaming  # noqa: PLC0415 - most trials need none of it
        from fencepost.fence.cassandra.snapshots import SnapshotTable  # noqa: PLC0415
        from fencepost.kafka.record import KafkaRecords  # noqa: PLC0415
        from fencepost.state.cassandra import CassandraChunks  # noqa: PLC0415

        config, request = self._config, self._request
        snapshots, patience = SnapshotTable(table.session, config.fence_keyspace), Patience(config.patience)
        found = patience.ask(lambda: snapshots.read(config.pipeline, UUID(request.snapshot)))
        if found is None:
            raise BadSpec(
                f"snapshot {request.snapshot} is gone", remedy="Name one that `fencepost snapshots list` has."
            )
        return Streaming(
            config=config,
            snapshot=found,
            start=request.start,
            until=request.until,
            query=query,
            source=source,
            records=KafkaRecords(properties, config.patience),
            chunks=CassandraChunks(table.session, config.fence_keyspace, config.pipeline),
            keys=self._keys,
            findings=findings,
            folder=folder,
            scratch=folder.parent,
            seconds=max(1.0, self._end - time.monotonic()),
            report=lambda done: self._progress(table, done),
        )

    def _table(self) -> CassandraFenceTable:
        from fencepost.fence.cassandra.table import CassandraFenceTable  # noqa: PLC0415

        return CassandraFenceTable.over(self._connected(), self._config.fence_keyspace)

    def _connected(self) -> Session:
        return open_cassandra(self._config, self._environment, request_timeout=self._config.task_patience)

    def _row(self, table: CassandraFenceTable) -> FenceRow:
        row = Patience(self._config.patience).ask(lambda: table.read(self._config.pipeline))
        if row is None or row.is_released:
            raise FenceMissing(f"no fence row for {self._config.pipeline!r}")
        return row

    def _comparing(self, table: CassandraFenceTable, folder: Path, cores: int) -> Comparing:
        from fencepost.driver.trial.comparing import Comparing  # noqa: PLC0415
        from fencepost.sinks.comparison.stored_rows import raw  # noqa: PLC0415

        return Comparing(
            config=self._config,
            request=self._request,
            session=table.session,
            raw=raw(Patience(CASSANDRA_LIMIT).ask(self._connected)),
            credentials=self._environment.credentials,
            tls=fence_tls(self._config, self._environment),
            folder=folder,
            cores=cores,
        )

    def _progress(self, table: CassandraFenceTable, done: int) -> None:
        """Report progress in a partition of the trial's own; the trial continues without it."""
        now = time.monotonic()
        if not self._request.progress_key or now - self._reported < REPORT_EVERY:
            return
        self._reported = now
        with suppress(FenceError):
            table.report_progress(self._request.progress_key, epoch=0, version=0, done=done)


class Tried(Protocol):
    """New code on the records of a trial. `note` is why it ended early, '' where it read everything."""

    note: str
    poison: Poison

    @property
    def done(self) -> int:
        """How many offsets are read."""
        ...

    def ranges(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Yield what is read, 'topic/partition' and [start, until)."""
        ...

    def run(self) -> None:
        """Try everything that there is. Raises DriverError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The parts of a trial that is ready."""

    config: DriverConfig
    request: TrialRequest
    comparing: Comparing
    findings: Findings
    processes: Processes
    tried: Tried

    def report(
        self, sinks: Mapping[str, ComparedSink | str], left: Reach, lost: int, read_row: Callable[[], FenceRow]
    ) -> TrialReport:
        """Try all records, and return what was found. Raises DriverError."""
        request, began, tried = self.request, time.monotonic(), self.tried
        tried.run()
        seconds = time.monotonic() - began
        offsets = read_row().offsets
        has_moved = any(offsets.get(key) != end for key, end in request.until.items())
        found = [
            self._found(sink.name, sink, sinks[sink.name], dict(tried.ranges()), has_moved=has_moved)
            for sink in self.config.sinks
        ]
        peak, limit = self.processes.container
        notes = [tried.note, f"Kafka has deleted {lost} of the records" if lost else ""]
        return TrialReport(
            records=tried.done,
            total=left.records,
            seconds=round(seconds, 3),
            is_complete=not tried.note,
            note="; ".join(filter(None, notes)),
            sinks=tuple(one for one, _ in found),
            samples=tuple(sample for _, samples in found for sample in samples),
            poison=tried.poison.count,
            first_poison=tried.poison.first[:300],
            poison_error=tried.poison.error[:500],
            processes=self.processes.figures(),
            peak_memory=peak,
            memory_limit=limit,
        )

    def _found(
        self,
        name: str,
        declared: object,
        sink: ComparedSink | str,
        ranges: Mapping[str, tuple[int, int]],
        *,
        has_moved: bool,
    ) -> tuple[SinkFindings, list[Sample]]:
        if isinstance(sink, str) or not isinstance(declared, CassandraSink):
            return SinkFindings(name=name, is_compared=False, message=str(sink)[:1000]), []
        return self.comparing.found(declared, sink, self.findings, ranges, has_moved=has_moved)


def _check_topics(row: FenceRow, log: Watermarks) -> None:
    for topic, found in row.topic_ids.items():
        if topic in log.topic_ids and log.topic_ids[topic] != found:
            raise BadSpec(
                f"topic {topic} was recreated since the pipeline committed its offsets",
                remedy="Let the pipeline continue in the new topic, and create another PipelineTrial then.",
            )


def _lap(name: str) -> None:
    log.info("ready: %s", name)


def run(variables: Mapping[str, str], *, termination_log: Path) -> NoReturn:
    """Try what the mounted files say, and end the process: 0 with a report, whatever that found."""
    try:
        file = Path(variables[Variable.CONFIG_FILE])
        config = DriverConfig.from_json(file.read_text(encoding="utf-8"))
        request = TrialRequest.from_json(file.with_name(TRIAL_FILE).read_text(encoding="utf-8"))
    except Exception as error:  # noqa: BLE001 - the process ends here, with its verdict
        verdict.leave(verdict.judge(error), path=termination_log)
    logs.set_up(pipeline=config.pipeline.partition("/")[2])
    TrialDriver(config, request, Environment.read(variables, termination_log=termination_log)).run()
