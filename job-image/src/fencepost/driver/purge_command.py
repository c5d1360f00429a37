"""`fencepost purge`: counts or deletes the output of ranges of offsets, and reports in the termination log."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn, Protocol

from fencepost.contract import (
    CassandraSink,
    DriverConfig,
    ExitCode,
    FilesSink,
    PluginSink,
    PostgresqlSink,
    Reason,
    Variable,
    Verdict,
)
from fencepost.contract.purge_request import PURGE_FILE, PurgeReport, PurgeRequest
from fencepost.driver.environment import Environment
from fencepost.driver.fence_store import fence_tls, open_cassandra, open_store
from fencepost.driver.reporting import verdict
from fencepost.errors import BadSpec
from fencepost.sinks.interface import PurgeableSink
from fencepost.sinks.purge.purged_sink import Purged

log = logging.getLogger(__name__)


class Output(Protocol):
    """What can be purged of one sink."""

    def check(self, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Raise BadSpec where the rows of these records cannot all be found."""
        ...

    def purge(self, ranges: Mapping[str, tuple[int, int]], timestamp: int | None) -> Purged:
        """Delete the rows of these records at a timestamp in µs; None only counts. Raises DriverError."""
        ...


def purge(config: DriverConfig, request: PurgeRequest, environment: Environment) -> PurgeReport:
    """Do what is asked for. Raises BadSpec before anything is deleted when a sink cannot be purged, DependencyDown."""
    began = time.monotonic()
    with _outputs(config, environment, committed=request.committed) as outputs:
        for output in outputs.values():
            output.check(request.ranges)
        rows = left = 0
        for name, output in outputs.items():
            done = output.purge(request.ranges, request.timestamp)
            rows, left = rows + done.rows, left + done.left
            log.info("sink %s: %d rows, %d of them left", name, done.rows, done.left)
    return PurgeReport(rows=rows, left=left, seconds=round(time.monotonic() - began, 3))


@contextmanager
def _outputs(config: DriverConfig, environment: Environment, *, committed: int) -> Iterator[dict[str, Output]]:
    """Open what can be purged of each sink, by its name. Raises BadSpec naming a sink of which nothing can."""
    from fencepost.sinks.purge.cassandra_output import purgeable  # noqa: PLC0415 - a configuration that cannot be read needs no client
    from fencepost.sinks.purge.plugin_output import PluginOutput, open_purgeable  # noqa: PLC0415

    purged = CassandraSink | PluginSink | FilesSink | PostgresqlSink
    if other := [sink.name for sink in config.sinks if not isinstance(sink, purged)]:
        raise BadSpec(
            f"sink {other[0]!r}: its output cannot be deleted: it is not a table, files or a sink of a package",
            reason=Reason.SINK_INVALID,
            remedy="Set deleteOutput to false.",
        )
    session = None
    with ExitStack() as opened:
        found: dict[str, Output] = {}
        for sink in config.sinks:
            if isinstance(sink, PluginSink | FilesSink):
                found[sink.name] = open_purgeable(config, sink, environment.sink_options, committed=committed)
            elif isinstance(sink, PostgresqlSink):
                table = opened.enter_context(_beside_fence(config, sink, environment))
                found[sink.name] = PluginOutput(table, sink.name, config.pipeline, config.epoch, committed)
            elif isinstance(sink, CassandraSink):
                if session is None:
                    session = open_cassandra(config, environment, request_timeout=config.task_patience)
                    opened.callback(session.cluster.shutdown)
                found[sink.name] = purgeable(session, sink, config)
        yield found


@contextmanager
def _beside_fence(config: DriverConfig, sink: PostgresqlSink, environment: Environment) -> Iterator[PurgeableSink]:
    """Open a table in the database of the fence."""
    from fencepost.sinks.postgresql.postgresql_sink import open_beside  # noqa: PLC0415 - few sinks need the client

    fences = open_store(config, environment).postgresql
    with ExitStack() as opened:
        if fences is not None:
            opened.callback(fences.close)
        yield open_beside(sink, config, fences, environment.credentials, fence_tls(config, environment))


def run(variables: Mapping[str, str], *, termination_log: Path) -> NoReturn:
    """Purge as the mounted files say, and end the process: 0 when nothing is left, or nothing was to be deleted."""
    environment = Environment.read(variables, termination_log=termination_log)
    try:
        folder = Path(variables[Variable.CONFIG_FILE])
        config = DriverConfig.from_json(folder.read_text(encoding="utf-8"))
        request = PurgeRequest.from_json(folder.with_name(PURGE_FILE).read_text(encoding="utf-8"))
        report = purge(config, request, environment)
    except Exception as error:
        log.exception("the purge failed")
        verdict.leave(verdict.without(verdict.judge(error), environment.secrets()), path=termination_log)
    if request.timestamp is not None and report.left:
        verdict.leave(_left(report), path=termination_log)
    termination_log.write_text(report.to_json(), encoding="utf-8")
    log.info("%s", report.to_json())
    sys.stdout.flush()
    os._exit(0)


def _left(report: PurgeReport) -> Verdict:
    return Verdict(
        exit_code=int(ExitCode.FAILED),
        reason=Reason.PURGE_FAILED,
        message=f"{report.left} of {report.rows} rows are still there: they have newer write timestamps than the fence",
        remedy="find out who else writes to the tables, and delete these rows",
    )
