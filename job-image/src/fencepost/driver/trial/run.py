"""The composition root of a trial: the driver's parts without fence, plan, commit and sinks."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from fencepost.contract import SESSION_LIMIT, CassandraSink, DriverConfig, Variable
from fencepost.contract.trial import TRIAL_FILE, Sample, SinkFindings, TrialReport, TrialRequest
from fencepost.driver.connections import Connections
from fencepost.driver.environment import Environment
from fencepost.driver.reporting import logs, verdict
from fencepost.driver.sizing.batch_limit import Limit
from fencepost.driver.trial.processes import Processes
from fencepost.driver.trial.ranges import Reading, reach
from fencepost.driver.trial.trying import Trying
from fencepost.errors import BadSpec
from fencepost.fence import FenceError, FenceMissing
from fencepost.fence.patience import Patience
from fencepost.spark import session
from fencepost.spark.jvm import gateway

if TYPE_CHECKING:
    from cassandra.cluster import Session

    from fencepost.batch import Watermarks
    from fencepost.driver.trial.comparing import Comparing
    from fencepost.fence import FenceRow
    from fencepost.fence.cassandra.table import CassandraFenceTable
    from fencepost.sinks.comparison.compared_sink import ComparedSink
    from fencepost.sinks.comparison.findings import Findings
    from fencepost.spark.engine import SparkEngine

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

    def run(self) -> NoReturn:
        """Do everything, and end the process."""
        path = self._environment.termination_log
        try:
            text = self._work().to_json()
        except BaseException as error:
            log.exception("the trial failed")
            cause = self._jvm.cause(error) if self._jvm is not None else error
            verdict.leave(verdict.judge(cause), path=path)
        with suppress(OSError):
            path.write_text(text, encoding="utf-8")
        log.info("%s", text)
        sys.stdout.flush()
        os._exit(0)

    def _work(self) -> TrialReport:
        config, environment = self._config, self._environment
        conf = session.settings(config, environment.variables)
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

            folder, cores = Path(scratch) / "found", int(spark.sparkContext.defaultParallelism)
            comparing = self._comparing(table, connections, folder, cores)
            sinks = comparing.sinks()
            engine = SparkEngine(
                spark=spark,
                config=config,
                transform=load(config.entrypoint, environment.code_dir),
                sinks={name: DiscardingSink() if isinstance(sink, str) else sink for name, sink in sinks.items()},
                properties=properties,
            )
            engine.warm()
            _lap("warm")
            engine.leave_out(left_out(row, config, table.session))
            trial = _Trial(
                config=config,
                request=self._request,
                comparing=comparing,
                findings=Findings(Path(scratch) / "findings.db"),
                engine=engine,
                processes=processes,
                end=self._end,
                folder=folder,
                progress=lambda done: self._progress(table, done),
            )
            return trial.report(sinks, watermarks, row, lambda: self._row(table))

    def _table(self) -> CassandraFenceTable:
        from fencepost.fence.cassandra.table import CassandraFenceTable  # noqa: PLC0415

        return CassandraFenceTable.over(self._connected(), self._config.fence_keyspace)

    def _connected(self) -> Session:
        from fencepost.fence.cassandra import tls  # noqa: PLC0415
        from fencepost.fence.cassandra.session import connect  # noqa: PLC0415

        config, environment = self._config, self._environment
        return connect(
            config.cassandra,
            credentials=environment.credentials,
            request_timeout=config.task_patience,
            consistency=config.consistency,
            tls=tls.of_folder(environment.cassandra_tls) if config.cassandra.tls is not None else None,
        )

    def _row(self, table: CassandraFenceTable) -> FenceRow:
        row = Patience(self._config.patience).ask(lambda: table.read(self._config.pipeline))
        if row is None or row.is_released:
            raise FenceMissing(f"no fence row for {self._config.pipeline!r}")
        return row

    def _comparing(self, table: CassandraFenceTable, connections: Connections, folder: Path, cores: int) -> Comparing:
        from fencepost.driver.trial.comparing import Comparing  # noqa: PLC0415
        from fencepost.sinks.comparison.stored_rows import raw  # noqa: PLC0415

        return Comparing(
            config=self._config,
            request=self._request,
            session=table.session,
            raw=raw(Patience(CASSANDRA_LIMIT).ask(self._connected)),
            credentials=self._environment.credentials,
            tls=connections.tls(),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """The parts of a trial that is ready."""

    config: DriverConfig
    request: TrialRequest
    comparing: Comparing
    findings: Findings
    engine: SparkEngine
    processes: Processes
    end: float
    folder: Path
    progress: Callable[[int], None]

    def report(
        self,
        sinks: Mapping[str, ComparedSink | str],
        watermarks: Watermarks,
        row: FenceRow,
        read_row: Callable[[], FenceRow],
    ) -> TrialReport:
        """Try all records, and return what was found. Raises DriverError."""
        request, began = self.request, time.monotonic()
        left, lost = reach(request.start, request.until, watermarks)
        grown = frozenset(request.until.keys() - request.start.keys())
        reading = Reading(left, grown=grown, topic_ids=row.topic_ids)
        trying = Trying(
            pipeline=self.config.pipeline, engine=self.engine, findings=self.findings, reading=reading,
            limit=Limit(self.config.source, reduced=None, now=time.monotonic), folder=self.folder,
            is_over=lambda: time.monotonic() > self.end, now=time.monotonic, report=self.progress,
        )  # fmt: skip
        trying.run()
        seconds = time.monotonic() - began
        offsets = read_row().offsets
        has_moved = any(offsets.get(key) != end for key, end in request.until.items())
        found = [
            self._found(sink.name, sink, sinks[sink.name], dict(reading.ranges()), has_moved=has_moved)
            for sink in self.config.sinks
        ]
        peak, limit = self.processes.container
        notes = [trying.note, f"Kafka has deleted {lost} of the records" if lost else ""]
        return TrialReport(
            records=reading.done,
            total=left.records,
            seconds=round(seconds, 3),
            is_complete=not trying.note,
            note="; ".join(filter(None, notes)),
            sinks=tuple(one for one, _ in found),
            samples=tuple(sample for _, samples in found for sample in samples),
            poison=trying.poison.count,
            first_poison=trying.poison.first[:300],
            poison_error=trying.poison.error[:500],
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
