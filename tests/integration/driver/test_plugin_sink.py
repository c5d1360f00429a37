"""The PostgreSQL example under the real driver: killed at each step, every record is in the table once; then purged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fencepost_postgresql
import psycopg
import pytest

from fencepost.contract import PluginSink, Variable
from fencepost.contract.purge_request import PURGE_FILE, PurgeReport, PurgeRequest
from harness.waiting import eventually
from integration.driver.support import Pipeline, Run
from present import present

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

PLUGINS = Path(__file__).with_name("plugins")
PACKAGES = "/opt/test-packages"
TABLE = 'CREATE TABLE {} (topic text, partition int, "offset" bigint, bucket bigint, n bigint, x float8, city text)'
STEPS = ("begun", "staging", "staged", "stored")
RECORDS = 1_000
"""Records that are produced between two kills: five batches."""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with an installed package whose sink halts where the test sets."""
    folder = tmp_path / "packages"
    described = folder / "halting-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: halting\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[fencepost.sinks]\nhalting = halting_sink:HaltingSink\n")
    (folder / "halting_sink.py").symlink_to(PLUGINS / "halting_sink.py")
    return folder


def volumes(packages: Path, socket: str) -> dict[str, Path]:
    """What the container has besides the image: the packages of this checkout, and PostgreSQL's socket."""
    site = Path(psycopg.__file__).parent.parent
    folders = [
        *site.glob("psycopg*"),
        *site.glob("typing_extensions.py"),
        *packages.glob("*.dist-info"),
        Path(fencepost_postgresql.__file__).parent,
    ]
    found = {f"{PACKAGES}/{path.name}": path for path in (*folders, PLUGINS / "halting_sink.py")}
    return {**found, socket: Path(socket)}


def test_killed_at_each_step_every_record_is_stored_once_and_purged(
    pipeline: Callable[..., Pipeline], postgresql: str, packages: Path, tmp_path: Path
) -> None:
    one = pipeline(max_records_per_batch=200)
    dsn = f"{postgresql} options='-c search_path={one.topic}'"
    execute(dsn, f"CREATE SCHEMA {one.topic}", TABLE.format(one.topic), "CREATE TABLE halted (step text)")
    sink = PluginSink(name="rows", plugin="halting", options={"dsn": dsn, "table": one.topic})
    one.config = replace(one.config, entrypoint="parse:placed", sinks=(sink,))
    one.volumes = volumes(packages, socket_of(postgresql))
    produced = 0
    for step in STEPS:
        one.kafka.produce(one.topic, RECORDS, start=produced)
        produced += RECORDS
        run = one.start(PYTHONPATH=PACKAGES, HALT_AT=step)
        await_halt(dsn, step, run)
        run.kill()
    run = one.start(PYTHONPATH=PACKAGES)
    one.wait_committed(produced)
    run.end()
    per_partition = produced // 4
    wanted = [(one.topic, part, offset, 4 * offset + part) for part in range(4) for offset in range(per_partition)]
    query = f'SELECT topic, partition, "offset", n FROM {one.topic} ORDER BY partition, "offset"'  # noqa: S608
    assert execute(dsn, query) == wanted

    row, middle = one.row(), per_partition // 2
    after = one.fence.take_over(row, owner="test/test")
    request = PurgeRequest(
        ranges={f"{one.topic}/{part}": (middle, per_partition) for part in range(4)}, timestamp=after.write_timestamp
    )
    report = purge(replace(one, config=replace(one.config, epoch=after.epoch)), request, packages, tmp_path)
    assert (report.rows, report.left) == (produced // 2, 0)
    assert execute(dsn, query) == [found for found in wanted if found[2] < middle]


def await_halt(dsn: str, step: str, run: Run) -> None:
    """Wait until the driver is at a step."""

    def is_there() -> bool:
        return (step,) in execute(dsn, "SELECT step FROM halted")

    eventually(f"the driver is at {step}", lambda: is_there() or run.process.poll() is not None, seconds=120)
    assert is_there(), run.log.read_text()[-4000:]


def purge(one: Pipeline, request: PurgeRequest, packages: Path, folder: Path) -> PurgeReport:
    """Run `fencepost purge` in a process of its own."""
    (folder / "config.json").write_text(one.config.to_json())
    (folder / PURGE_FILE).write_text(request.to_json())
    last = folder / "purged"
    path = os.pathsep.join([str(packages), str(Path(fencepost_postgresql.__file__).parent.parent)])
    variables = {Variable.CONFIG_FILE: str(folder / "config.json"), "PYTHONPATH": path}
    command = [sys.executable, "-m", "fencepost", "purge", f"--termination-log={last}"]
    ended = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr.decode()[-2000:]
    return present(PurgeReport.from_json(last.read_text()))


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements; return the rows of the last one, if it has some."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def socket_of(dsn: str) -> str:
    """The folder of PostgreSQL's socket."""
    return next(part.removeprefix("host=") for part in dsn.split() if part.startswith("host="))
