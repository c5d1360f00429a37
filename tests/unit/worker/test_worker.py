"""What runs beside Spark's worker: executors' logs, bounded scratch, memory by process; on real files and processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fencepost.worker.executor_logs import ExecutorLogs
from fencepost.worker.exposition import Counted, WorkerCollector, exposition
from fencepost.worker.log_entry import LONGEST, entries
from fencepost.worker.processes import Kind, folders, processes
from fencepost.worker.scratch import KEPT, sweep, used
from harness.waiting import eventually
from present import present

APPLICATION = "app-20260101120000-0000"
HEADER = "2026-01-01T12:00:00.000Z"


def said(*lines: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entries(lines, executor="3", application=APPLICATION, stream="stderr")]


def test_a_line_of_text_is_one_object() -> None:
    found = said("task \u2028 failed", "\tat a.b.c(D.java:1)")
    assert [entry["message"] for entry in found] == ["task \u2028 failed", "\tat a.b.c(D.java:1)"]
    assert {entry["level"] for entry in found} == {"info"}


def test_a_line_that_is_json_already_gets_the_executor() -> None:
    line = {
        "time": HEADER,
        "level": "info",
        "logger": "a",
        "message": 'b"c',
        "exception": "no\n\tat a",
        "executor": "of another writer",
        "x": "y",
    }
    (found,) = said(json.dumps(line))
    assert found == {key: line[key] for key in ("time", "level", "logger", "message", "exception")} | {
        "executor": "3",
        "application": APPLICATION,
        "stream": "stderr",
    }
    assert said('{"time": oops')[0]["message"] == '{"time": oops'
    assert said('{"time": ' + "[" * 50_000)[0]["level"] == "info"


def test_no_text_of_an_executor_makes_a_second_line_or_an_endless_one() -> None:
    text = list(entries(["a\x9b\u2028b\u2029" + "x" * 100_000], executor="1", application="a", stream="stdout"))
    assert len(text) == 1
    assert len(text[0]) < LONGEST + 500
    assert text[0].isprintable()


class Place:
    """A worker's folder and what was written of it to stdout."""

    def __init__(self, work: Path) -> None:
        self.work, self.written = work, list[str]()
        self.logs = ExecutorLogs(work, self.written.append)

    def folder(self, executor: int) -> Path:
        path = self.work / APPLICATION / str(executor)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def occupied(self) -> set[str]:
        """The folders that processes work in."""
        return folders()

    def with_blocks(self) -> set[str]:
        """The executors that have blocks on the disk."""
        return {path.parent.name for path in self.work.glob("*/*/local")}

    def said(self) -> list[tuple[str, str]]:
        """The messages that are new, with their executors."""
        self.logs.look()
        found = [json.loads(line) for line in self.written]
        self.written.clear()
        return [(entry["executor"], entry["message"]) for entry in found]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "work")


def test_each_line_is_logged_once_and_a_killed_executors_last_one_too(place: Place) -> None:
    assert place.said() == []
    log = place.folder(7) / "stderr"
    log.write_text("first\nsecond, half")
    assert place.said() == [("7", "first")]
    with log.open("a") as file:
        file.write(" and half\n")
    assert place.said() == [("7", "second, half and half")]
    with log.open("a") as file:
        file.write("Killed in the middle of")
    lines = [line for _ in range(10) for line in place.said()]
    assert lines == [("7", "Killed in the middle of")]
    assert place.logs.started == 1


def test_a_folder_that_is_removed_is_logged_to_its_end(place: Place) -> None:
    folder = place.folder(1)
    (folder / "stdout").write_text("one\n")
    place.said()
    with (folder / "stdout").open("a") as file:
        file.write("two\nthr")
    (folder / "stdout").unlink()
    folder.rmdir()
    assert place.said() == [("1", "two"), ("1", "thr")]


def test_a_rolled_file_is_read_to_its_end_and_the_next_one_from_its_beginning(place: Place) -> None:
    log = place.folder(1) / "stderr"
    log.write_text("".join(f"line {number}\n" for number in range(5)))
    seen = place.said()
    for roll in range(1, 4):
        with log.open("a") as file:
            file.write(f"end {roll}\n")
        log.rename(log.with_name(f"stderr--{roll}"))
        log.write_text(f"begin {roll}\n")
        seen += [line for _ in range(3) for line in place.said()]
    assert [line for _, line in seen] == [
        *(f"line {number}" for number in range(5)),
        *(line for roll in range(1, 4) for line in (f"end {roll}", f"begin {roll}")),
    ]


def test_an_executor_cannot_have_other_files_read(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password\n")
    (place.folder(1) / "stdout").symlink_to(secret)
    os.mkfifo(place.folder(2) / "stderr")
    elsewhere = place.work / "app-x" / "1"
    elsewhere.mkdir(parents=True)
    (elsewhere / "stdout").write_text("other\n")
    assert place.said() == []


def test_five_hundred_crashes_leave_a_small_scratch_volume(place: Place) -> None:
    """The folder of the executor that lives stays, also an old one; what Spark keeps elsewhere stays too."""
    long_ago = time.time() - 3600
    for number in range(500):
        for stream in ("stdout", "stderr"):
            path = place.folder(number) / stream
            path.write_bytes(bytes(64 * 1024))
            os.utime(path, (long_ago, long_ago))
        os.utime(place.folder(number), (long_ago, long_ago))
    other = place.work / "driver-1"
    other.mkdir()
    full = used(place.work)
    assert full > 500 * 128 * 1024
    lives = subprocess.Popen([sys.executable, "-c", "input()"], cwd=place.folder(5), stdin=subprocess.PIPE)
    try:
        assert str(place.folder(5)) in place.occupied()
        assert sweep(place.work, place.occupied) == 500 - 1 - KEPT
    finally:
        lives.communicate(b"\n")
    left = {path.name for path in (place.work / APPLICATION).iterdir()}
    assert left == {"5", "497", "498", "499"}
    assert other.exists()
    assert used(place.work) < full / 100


def test_a_folder_that_has_just_changed_stays(place: Place) -> None:
    for number in range(10):
        place.folder(number)
    assert sweep(place.work, tuple) == 0  # their executors may be about to start
    assert sweep(place.work, tuple, now=time.time() + 60) == 10 - KEPT


def test_blocks_go_at_once_with_the_last_process_of_their_executor(place: Place) -> None:
    """The executor is a real process with a Python worker, which is left when the executor is killed."""
    for number in range(4):
        blocks = place.folder(number) / "local" / f"blockmgr-{number}" / "0c"
        blocks.mkdir(parents=True)
        (blocks / "shuffle_0_0_0.data").write_bytes(bytes(1 << 20))
        (place.folder(number) / "stderr").write_text("last words\n")
    executor = """if True:
        import subprocess, sys
        worker = subprocess.Popen([sys.executable, "-c", "input()"])
        print(worker.pid, flush=True)
        worker.wait()
    """
    lives = subprocess.Popen(
        [sys.executable, "-c", executor], cwd=place.folder(1), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    worker = int(present(lives.stdout).readline())
    try:
        assert sweep(place.work, place.occupied) == 0
        assert place.with_blocks() == {"1"}
        lives.kill()
        lives.wait()
        assert sweep(place.work, place.occupied) == 0
        assert place.with_blocks() == {"1"}, "its Python worker may still write there"
    finally:
        os.kill(worker, signal.SIGKILL)
        lives.kill()
        lives.communicate()
    eventually("the Python worker is gone", lambda: str(place.folder(1)) not in place.occupied(), seconds=30)
    assert sweep(place.work, place.occupied) == 0
    assert place.with_blocks() == set()
    assert {path.parent.name for path in place.work.glob("*/*/stderr")} == {"0", "1", "2", "3"}, "nothing had settled"


def test_nothing_is_deleted_where_the_kernel_lists_no_processes(place: Place, tmp_path: Path) -> None:
    (place.folder(1) / "local").mkdir()
    proc = tmp_path / "proc"
    (proc / "1").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        sweep(place.work, lambda: folders(proc))
    assert place.with_blocks() == {"1"}


def test_an_executor_that_starts_while_the_sweep_looks_keeps_its_blocks(place: Place) -> None:
    """Its folder, which Spark's worker makes, is in the list; its process and its blocks come after that."""
    folder = place.folder(1)
    found: list[subprocess.Popen[bytes]] = []

    def late() -> set[str]:
        seen = place.occupied()
        (folder / "local").mkdir()
        found.append(subprocess.Popen([sys.executable, "-c", "input()"], cwd=folder, stdin=subprocess.PIPE))
        return seen

    try:
        assert sweep(place.work, late) == 0
        assert place.with_blocks() == {"1"}
    finally:
        found[0].communicate(b"\n")


def test_a_growing_python_worker_is_seen_by_its_memory(place: Place) -> None:
    grow = """if True:
        import sys
        kept = []
        for line in sys.stdin:
            kept.append(bytearray(b"x") * int(line))
            print(1, flush=True)
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", grow], cwd=place.folder(1), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdin is not None
    collector = WorkerCollector(Counted(scratch=7, swept=2), lambda: processes(place.work))
    sizes = []
    for size in (1, 64 << 20, 64 << 20):
        worker.stdin.write(f"{size}\n")
        worker.stdin.flush()
        present(worker.stdout).readline()
        found = {
            (sample.name, sample.labels.get("process")): sample.value
            for family in text_string_to_metric_families(exposition(collector)().decode())
            for sample in family.samples
        }
        sizes.append(found["fencepost_worker_resident_memory_bytes", Kind.PYTHON])
        assert found["fencepost_worker_processes", Kind.PYTHON] == 1
        assert found["fencepost_worker_processes", Kind.EXECUTOR] == 0
    worker.communicate()
    assert sizes[1] - sizes[0] > 60 << 20
    assert sizes[2] - sizes[1] > 60 << 20
    assert found["fencepost_worker_scratch_bytes", None] == 7
    assert found["fencepost_worker_executor_folders_removed_total", None] == 2
