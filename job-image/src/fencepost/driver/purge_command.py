"""`fencepost purge`: counts or deletes the output of ranges of offsets, and reports in the termination log."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol

from fencepost.contract import CassandraSink, DriverConfig, ExitCode, PluginSink, Reason, Variable, Verdict
from fencepost.contract.purge_request import PURGE_FILE, PurgeReport, PurgeRequest
from fencepost.driver.environment import Environment
from fencepost.driver.reporting import verdict
from fencepost.errors import BadSpec
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
    with _outputs(config, environment) as outputs:
        for output in outputs.values():
            output.check(request.ranges)
        rows = left = 0
        for name, output in outputs.items():
            done = output.purge(request.ranges, request.timestamp)
            rows, left = rows + done.rows, left + done.left
            log.info("sink %s: %d rows, %d of them left", name, done.rows, done.left)
    return PurgeReport(rows=rows, left=left, seconds=round(time.monotonic() - began, 3))


@contextmanager
def _outputs(config: DriverConfig, environment: Environment) -> Iterator[dict[str, Output]]:
    """Open what can be purged of each sink, by its name. Raises BadSpec naming a sink of which nothing can."""
    from fencepost.fence.cassandra import tls  # noqa: PLC0415
    from fencepost.fence.cassandra.session import connect  # noqa: PLC0415
    from fencepost.sinks.purge.cassandra_output import purgeable  # noqa: PLC0415 - a configuration that cannot be read needs no client
    from fencepost.sinks.purge.plugin_output import open_purgeable  # noqa: PLC0415

    if other := [sink.name for sink in config.sinks if not isinstance(sink, CassandraSink | PluginSink)]:
        raise BadSpec(
            f"sink {other[0]!r}: its output cannot be deleted: it is neither a Cassandra table nor a sink of a package",
            reason=Reason.SINK_INVALID,
            remedy="Set deleteOutput to false.",
        )
    session = None
    try:
        found: dict[str, Output] = {}
        for sink in config.sinks:
            if isinstance(sink, PluginSink):
                found[sink.name] = open_purgeable(config, sink, environment.sink_options)
            elif isinstance(sink, CassandraSink):
                session = session or connect(
                    config.cassandra,
                    credentials=environment.credentials,
                    request_timeout=config.task_patience,
                    consistency=config.consistency,
                    tls=tls.of_folder(environment.cassandra_tls) if config.cassandra.tls is not None else None,
                )
                found[sink.name] = purgeable(session, sink, config)
        yield found
    finally:
        if session is not None:
            session.cluster.shutdown()


def run(variables: Mapping[str, str], *, termination_log: Path) -> NoReturn:
    """Purge as the mounted files say, and end the process: 0 when nothing is left, or nothing was to be deleted."""
    try:
        folder = Path(variables[Variable.CONFIG_FILE])
        config = DriverConfig.from_json(folder.read_text(encoding="utf-8"))
        request = PurgeRequest.from_json(folder.with_name(PURGE_FILE).read_text(encoding="utf-8"))
        report = purge(config, request, Environment.read(variables, termination_log=termination_log))
    except Exception as error:
        log.exception("the purge failed")
        verdict.leave(verdict.judge(error), path=termination_log)
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
