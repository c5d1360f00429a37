"""The fence in a SQLite file: two processes, one of which is killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from fencepost.fence import Fence, Fenced, FenceError, FenceRow, FenceSchemaInvalid, FenceUnavailable, Starting
from fencepost.fence.errors import FenceRowInvalid
from fencepost.fence.sqlite import database as sqlite_database
from fencepost.fence.sqlite.database import Database
from fencepost.fence.sqlite.table import SCHEMA, SqliteFenceTable
from present import present

PIPELINE = "local/shop/orders"


def committing(path: str) -> None:
    """Claim, and commit until killed; print the version of each commit after it."""
    fence = Fence(SqliteFenceTable(Database(path, SCHEMA)), PIPELINE)
    epoch = fence.take_over(fence.create("local"), owner="local").epoch
    row = fence.claim(epoch=epoch, driver=f"driver-{epoch}", code="c", start=resumed)
    while True:
        row = fence.commit(row, offsets={"a/0": row.version}, planned={"a/0": row.version}, records=1, duration_ms=1)
        sys.stdout.write(f"{row.version}\n")
        sys.stdout.flush()


def resumed(row: FenceRow) -> Starting:
    return Starting(offsets=row.offsets, planned=row.planned, topic_ids={"a": "id"})


def test_a_killed_process_leaves_its_last_commit_or_the_one_after_it(tmp_path: Path) -> None:
    path, choice = tmp_path / "fence.sqlite", random.Random(4711)
    with closing(Database(path, SCHEMA)) as database:
        table = SqliteFenceTable(database)
        for epoch in range(1, 6):
            command = f"from unit.fence.test_sqlite_table import committing; committing({str(path)!r})"
            paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            with subprocess.Popen(
                [sys.executable, "-c", command], stdout=subprocess.PIPE, text=True, env=paths
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(choice.uniform(0, 0.05))
                process.send_signal(signal.SIGKILL)
                said = [int(line) for line in process.stdout if line.endswith("\n")]
            row = present(table.read(PIPELINE))
            assert row.epoch == epoch
            assert row.version - (said[-1] if said else row.version) in {0, 1}
            assert row.offsets == {"a/0": row.version - 1}
        with database.reading() as connection:
            changes = connection.execute("SELECT version FROM fencepost_changes ORDER BY version").fetchall()
    assert [version for (version,) in changes] == list(range(row.version + 1))


def test_the_driver_of_an_older_epoch_is_fenced_in_another_connection(tmp_path: Path) -> None:
    path = tmp_path / "fence.sqlite"
    with closing(Database(path, SCHEMA)) as mine, closing(Database(path, SCHEMA)) as theirs:
        fence, other = (Fence(SqliteFenceTable(each), PIPELINE) for each in (mine, theirs))
        fence.take_over(fence.create("local"), owner="local")
        held = fence.claim(epoch=1, driver="me", code="c", start=resumed)
        other.take_over(held, owner="local")
        with pytest.raises(Fenced):
            fence.commit(held, offsets={"a/0": 1}, planned={"a/0": 1}, records=1, duration_ms=1)


def test_a_file_that_stays_locked_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_database, "BUSY", 0.05)
    path = tmp_path / "fence.sqlite"
    with closing(Database(path, SCHEMA)) as database, closing(sqlite3.connect(path)) as other:
        table = SqliteFenceTable(database)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FenceUnavailable, match="locked"):
            table.insert(FenceRow(pipeline=PIPELINE, owner="local"))
        other.rollback()
        assert table.insert(FenceRow(pipeline=PIPELINE, owner="local"))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no database " * 100)
    with pytest.raises(FenceSchemaInvalid, match=r"notes\.txt"):
        Database(path, SCHEMA)


def test_a_row_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "fence.sqlite", SCHEMA)) as database:
        table = SqliteFenceTable(database)
        table.insert(FenceRow(pipeline=PIPELINE, owner="local"))
        with database.changing() as connection:
            connection.execute("UPDATE fencepost_fence SET content = '{}'")
        with pytest.raises(FenceRowInvalid, match="pipeline"):
            table.read(PIPELINE)


def test_threads_take_turns(tmp_path: Path) -> None:
    failures: list[FenceError] = []
    with closing(Database(tmp_path / "fence.sqlite", SCHEMA)) as database:
        table = SqliteFenceTable(database)

        def report(number: int) -> None:
            try:
                for done in range(50):
                    table.report_progress(PIPELINE, epoch=number, version=0, done=done)
                    table.read(PIPELINE)
            except FenceError as error:
                failures.append(error)

        threads = [threading.Thread(target=report, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
