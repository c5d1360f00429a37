"""A local run is killed at random moments, and continued: its rows are those that follow from the records."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from fakes.driver_configs import USUAL
from fencepost.contract import KafkaSource, SqliteSink, StateConfig
from fencepost.local.request import PROCESS, Event, RecordFile, Request

RECORDS, BATCH = 400, 50
SEED = 28
SPARK = {
    "spark.driver.memory": "512m",
    "spark.executor.heartbeat.maxFailures": "600",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True)
class Runs:
    """Runs of one pipeline on one file."""

    folder: Path
    name: str
    stateful: bool

    @property
    def database(self) -> Path:
        return self.folder / f"{self.name}.sqlite"

    def request(self) -> Request:
        key = ("key",) if self.stateful else None
        config = replace(
            USUAL,
            entrypoint="counting:stream" if self.stateful else "counting:transform",
            source=KafkaSource(bootstrap_servers="", topics=("t",), max_records_per_batch=BATCH),
            sinks=(SqliteSink(name="rows", path=str(self.database), table="rows", key=key),),
            batch_interval=0.0,
            spark_master="local[2]",
            spark_conf=SPARK,
            state=StateConfig(partitions=1, max_bytes=1 << 28, data_port=0) if self.stateful else None,
        )
        return Request(
            config=config,
            database=str(self.database),
            code=str(Path(__file__).parent),
            scratch=str(self.folder),
            log=str(self.folder / "spark.log"),
            files=(RecordFile(path=str(self.folder / "t.jsonl"), topic="t"),),
        )

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", PROCESS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(f"{self.request().to_json()}\n")
        process.stdin.flush()
        return process

    def until_the_end(self) -> list[Event]:
        with self.start() as process:
            assert process.stdout is not None
            events = [Event.from_json(line) for line in process.stdout]
        ended = events[-1].ended
        assert ended is not None, "no verdict"
        assert ended.exit_code == 0, f"{ended.message}\n{(self.folder / 'spark.log').read_text()[-3000:]}"
        return events

    def until_killed(self, commits: int, after: float) -> None:
        """Kill the driver so many seconds after a commit; its JVM and its workers may live on for a while."""
        with self.start() as process:
            assert process.stdout is not None
            while commits and (line := process.stdout.readline()):
                commits -= Event.from_json(line).committed is not None
            time.sleep(after)
            process.send_signal(signal.SIGKILL)
            process.stdout.read()
        assert process.returncode == -signal.SIGKILL, "it ended before it was killed"

    def rows(self) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(self.database)) as database:
            database.row_factory = sqlite3.Row
            found = [dict(row) for row in database.execute("SELECT * FROM rows")]
        return [{name: value for name, value in row.items() if not name.startswith("fencepost_")} for row in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = [{"key": f"k{n % 7}", "value": f"v{n}", "partition": n % 2} for n in range(RECORDS)]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return tmp_path


def expected(*, stateful: bool) -> list[dict[str, Any]]:
    """Return the rows that follow from the records of `folder`, in order."""
    if stateful:
        seen = Counter(f"k{n % 7}" for n in range(RECORDS))
        return [{"key": key, "count": count} for key, count in sorted(seen.items())]
    rows = [(n % 2, n // 2, f"k{n % 7}", f"v{n}") for n in range(RECORDS)]
    names = ("partition", "offset", "key", "v")
    return [{"topic": "t", **dict(zip(names, row, strict=True))} for row in sorted(rows)]


@pytest.mark.timeout(1200)  # up to four starts of Spark
@pytest.mark.parametrize(
    ("stateful", "kills"),
    [
        pytest.param(False, 1, id="stateless"),
        pytest.param(False, 3, marks=pytest.mark.long, id="stateless-3"),
        pytest.param(True, 2, marks=pytest.mark.long, id="stateful"),
    ],
)
def test_a_run_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    folder: Path, *, stateful: bool, kills: int
) -> None:
    choice = random.Random(SEED)
    runs = Runs(folder, "killed", stateful)
    for _ in range(kills):
        runs.until_killed(choice.randint(1, 2), choice.uniform(0, 0.4))
    runs.until_the_end()
    order = itemgetter("key") if stateful else itemgetter("partition", "offset")
    assert sorted(runs.rows(), key=order) == expected(stateful=stateful)
