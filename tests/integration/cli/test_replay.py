"""`fencepost replay` on the testbed's Kafka and Cassandra, with Spark on this machine."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from integration.cli.scene import DELETE, WRITE, Scene
from integration.driver.support import Kafka

pytestmark = pytest.mark.integration

CODE = """
def transform(batch, context):
    return batch.selectExpr("topic", "partition", "offset", "1 AS n", f"{context.version} AS version")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "departures.py").write_text(CODE)
    return tmp_path


def test_a_past_batch_has_its_rows_again_and_the_table_is_compared(scene: Scene, folder: Path) -> None:
    """Injected: two rows deleted by hand."""
    for partition in (0, 1):
        scene.session.execute(DELETE, (scene.topic, partition, 9))
    into, version = folder / "batch.sqlite", scene.row.version
    words = ("--version", str(version), "--code", str(folder), "--into", str(into), "--compare")
    try:
        printed = scene.json("replay", str(scene.key), *words, code=1)
    finally:
        for partition in (0, 1):
            scene.session.execute(WRITE, (scene.topic, partition, 9))
    assert printed["offsets"] == {f"{scene.topic}/{partition}": {"from": 8, "until": 16} for partition in (0, 1)}
    assert (printed["version"], printed["committed"], printed["records"]) == (version - 1, version, 16)
    assert printed["code"].startswith("of image image: whether ")
    (table,) = printed["tables"]
    assert [table[name] for name in ("equal", "changed", "missing", "newer")] == [14, 0, 2, 0]
    with closing(sqlite3.connect(into)) as database:
        rows = database.execute('SELECT partition, "offset", version FROM orders').fetchall()
    assert rows == [(partition, offset, version - 1) for partition in (0, 1) for offset in range(8, 16)]


def test_records_that_retention_deleted_are_named(scene: Scene, folder: Path) -> None:
    kafka, version = Kafka(scene.environment.kafka_host), scene.row.version
    kafka.delete_records(scene.topic, partition=0, before=10)
    ended = scene.fencepost("replay", str(scene.key), "--version", str(version), "--code", str(folder))
    assert ended.returncode == 2
    assert f"{scene.topic}/0 [8, 10)" in ended.stderr
