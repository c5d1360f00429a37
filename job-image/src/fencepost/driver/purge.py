"""`fencepost purge`: counts or deletes the output of ranges of offsets, and reports in the termination log."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from fencepost.contract import CassandraSink, DriverConfig, ExitCode, Reason, Variable, Verdict
from fencepost.contract.purge import PURGE_FILE, PurgeReport, PurgeRequest
from fencepost.driver import verdict
from fencepost.driver.run import Environment
from fencepost.errors import BadSpec

log = logging.getLogger(__name__)


def purge(config: DriverConfig, request: PurgeRequest, environment: Environment) -> PurgeReport:
    """Do what is asked for. Raises BadSpec before anything is deleted when a sink cannot be purged, DependencyDown."""
    from fencepost.fence import tls  # noqa: PLC0415
    from fencepost.fence.cassandra_session import connect  # noqa: PLC0415
    from fencepost.sinks.purge import purgeable  # noqa: PLC0415 - a configuration that cannot be read needs no client

    began = time.monotonic()
    if other := [sink.name for sink in config.sinks if not isinstance(sink, CassandraSink)]:
        raise BadSpec(f"sink {other[0]!r} is no Cassandra table: its output cannot be deleted")
    session = connect(
        config.cassandra,
        credentials=environment.credentials,
        request_timeout=config.task_patience,
        consistency=config.consistency,
        tls=tls.of_folder(environment.cassandra_tls) if config.cassandra.tls is not None else None,
    )
    try:
        tables = [purgeable(session, sink) for sink in config.sinks if isinstance(sink, CassandraSink)]
        rows = left = 0
        for table in tables:
            for part in table.slices(request.ranges):
                found = table.count(part)
                rows += found
                if request.timestamp is not None:
                    table.delete(part, request.timestamp)
                left += table.count(part) if request.timestamp is not None else found
            log.info("sink %s: %d rows so far, %d of them left", table.sink, rows, left)
    finally:
        session.cluster.shutdown()
    return PurgeReport(rows=rows, left=left, seconds=round(time.monotonic() - began, 3))


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
