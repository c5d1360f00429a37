"""One manifest in place of many: kills before each change, replaced drivers at each moment, purges, torn lists."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyarrow import parquet

from fakes.s3_server import S3Server
from fencepost.contract import FilesSink
from fencepost.errors import DependencyDown
from fencepost.sinks import PurgeToken
from fencepost.sinks.files import compaction, files_sink, manifest, reading, stored_manifests, visible_files
from fencepost.sinks.files.files_sink import ManifestSink
from fencepost.sinks.files.store import LocalStore, Place
from fencepost.sinks.files.stored_manifests import Manifests
from unit.sinks import test_files
from unit.sinks.test_files import CONTEXT, KEYS, Killed, kill_at, rows_of, stored, token

__all__ = ["kill_at"]
MANY = 4
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" * 4


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold four manifests; one of seven batches is full."""
    monkeypatch.setattr(stored_manifests, "MANY", MANY)
    monkeypatch.setattr(files_sink, "MANY", MANY)
    monkeypatch.setattr(stored_manifests, "FULL", 1500)
    monkeypatch.setattr(stored_manifests, "PAUSE", 0)
    monkeypatch.setattr(reading, "PAUSE", 0)


@pytest.fixture(autouse=True)
def uncompacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge no files: test_files_compaction.py does."""
    monkeypatch.setattr(compaction, "chores", lambda *_: iter(()))


def opened(path: Path) -> ManifestSink:
    return test_files.opened(path, "jsonLines", ())


def write(sink: ManifestSink, number: int, offset: int, value: str, *, committed: int) -> None:
    """Write a batch of one record. Its token, and the committed one, follow from the numbers of batches."""
    batch = token(number, offset, offset + 1, committed=committed * 10)
    sink.begin(batch)
    list(sink.task().write([rows_of(value, start=offset)], batch))
    sink.finish(batch)


def write_all(sink: ManifestSink, first: int, last: int) -> None:
    """Write batches that are each committed; a letter per batch, from 'a' for number 1."""
    for number in range(first, last + 1):
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)


def values(path: Path) -> str:
    return "".join(row["value"] for row in sorted(stored(path), key=lambda row: int(row["offset"])))


def manifests(path: Path) -> list[Path]:
    return sorted((path / "_manifests").rglob("*.json"))


def hidden_files(path: Path) -> set[str]:
    shown = {name.removeprefix("file://") for name in visible_files(f"file://{path}")}
    return {str(file) for file in path.glob("*.jsonl")} - shown


@pytest.mark.parametrize("batches_per_run", [1, 3, 17, 60])
def test_many_batches_leave_few_manifests(tmp_path: Path, batches_per_run: int) -> None:
    for first in range(1, 61, batches_per_run):
        last = min(first + batches_per_run - 1, 60)
        write_all(opened(tmp_path), first, last)
        assert len(manifests(tmp_path)) <= 2 * MANY + 1 + last // 7
    assert values(tmp_path) == LETTERS[:60]
    assert not hidden_files(tmp_path)
    assert not list((tmp_path / "_tasks").rglob("*.json"))


def test_a_fold_reads_no_more_than_what_fills_a_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: manifests that are nearly full, as of batches with thousands of files."""
    monkeypatch.setattr(files_sink, "MANY", 100)  # not before the next start
    write_all(opened(tmp_path), 1, 12)
    most = max(path.stat().st_size for path in manifests(tmp_path))
    monkeypatch.setattr(stored_manifests, "FULL", most + 1)
    real, reads = Manifests.read, list[int]()

    def counted(self: Manifests, entries: Iterable[Any]) -> Any:
        asked = list(entries)
        reads.append(len(asked))
        return real(self, asked)

    monkeypatch.setattr(Manifests, "read", counted)
    write(opened(tmp_path), 13, 12, LETTERS[12], committed=12)
    assert max(reads) == 2
    assert len(manifests(tmp_path)) <= 12 / 2 + MANY
    assert values(tmp_path) == LETTERS[:13]
    assert not hidden_files(tmp_path)


def test_a_driver_that_is_killed_before_any_change_of_a_fold_leaves_each_row_once(
    tmp_path: Path, kill_at: Callable[[int], None]
) -> None:
    """Injected: the driver ends before its nth change of the store, and so does its successor."""
    for first in range(12):
        for second in (2, 5, 7):
            path = tmp_path / f"{first}-{second}"
            write_all(opened(path), 1, 3)
            write_all(opened(path), 4, 5)
            for number, step in ((6, first), (7, second)):
                kill_at(step)
                with suppress(Killed):
                    write(opened(path), number, 5, "!", committed=5)
            kill_at(-1)
            successor = opened(path)
            write(successor, 8, 5, "f", committed=5)
            assert values(path) == "abcdef", (first, second)
            write(successor, 9, 6, "g", committed=8)
            assert values(path) == "abcdefg", (first, second)
            assert len(manifests(path)) <= MANY


def test_a_fence_that_has_forgotten_its_commits_hides_nothing_that_was_folded(tmp_path: Path) -> None:
    for first, last in ((1, 3), (4, 5)):
        write_all(opened(tmp_path), first, last)
    sink = opened(tmp_path)
    sink.begin(token(6, 5, 6, committed=50))
    assert len(manifests(tmp_path)) == 2
    write(opened(tmp_path), 7, 5, "f", committed=0)
    assert values(tmp_path) == "abcdef"


class Gate:
    """A thread that waits before each of its calls to the store until the test lets it take the next step."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._events = Queue[bool]()
        self._next = threading.Semaphore(0)
        self._one = threading.Lock()
        self._act = act
        self.is_done = False
        self.error: Exception | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self.is_done = self._events.get(timeout=30)

    def step(self) -> None:
        """Let the next call happen."""
        self._next.release()
        self.is_done = self._events.get(timeout=30)

    def pass_through(self, call: Callable[..., Any], *arguments: object) -> Any:
        with self._one:
            self._events.put(False)
            self._next.acquire()
            return call(*arguments)

    def _run(self) -> None:
        try:
            self._act()
        except DependencyDown as error:
            self.error = error
        self._events.put(True)


class GatedStore(LocalStore):
    """A store whose calls wait at a gate, once there is one."""

    gate: Gate | None = None

    def list(self, folder: str) -> dict[str, int]:
        return super().list(folder) if self.gate is None else self.gate.pass_through(super().list, folder)

    def read(self, name: str) -> bytes:
        return super().read(name) if self.gate is None else self.gate.pass_through(super().read, name)

    def put(self, name: str, content: bytes) -> None:
        if self.gate is None:
            super().put(name, content)
        else:
            self.gate.pass_through(super().put, name, content)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            if self.gate is None:
                super().delete([name])
            else:
                self.gate.pass_through(super().delete, [name])


class Play:
    """Drivers in one folder, each of which may stop anywhere and continue after it was replaced."""

    def __init__(self, path: Path, seed: int, *, most: int = 9) -> None:
        self.path, self.most = path, most
        self.dice = random.Random(seed)
        self.zombies = list[Gate]()
        self.rows = ""
        """What is committed."""
        self.number = self.committed = 0

    def gated(self) -> tuple[ManifestSink, GatedStore]:
        sink = opened(self.path)
        store = GatedStore(sink._store.place, str(self.path))
        sink._store, sink._manifests = store, Manifests(store, sink._owner)
        return sink, store

    def driver(self) -> None:
        """Commit some batches, and stop within one."""
        sink, store = self.gated()
        for _ in range(self.dice.randint(1, self.most)):
            self._write(sink, store, LETTERS[len(self.rows)])
            self.rows += LETTERS[len(self.rows)]
            self.committed = self.number
        last = self._begin(sink, store, "!")
        for _ in range(self.dice.randint(0, 20)):
            self._step(last)
        self.zombies.append(last)

    def purge(self) -> None:
        """Delete what follows a record."""
        until = self.dice.randint(0, len(self.rows))
        self.number += 1
        request = PurgeToken(
            pipeline="test/test/test", epoch=self.number, token=self.number * 10, committed=self.committed * 10,
            offsets={"t/0": (until, 1000)},
        )  # fmt: skip
        while True:
            sink, store = self.gated()
            gate = store.gate = Gate(lambda sink=sink: sink.purge(request))  # type: ignore[misc]
            gate.start()
            while not gate.is_done:
                self._step(gate)
                self._disturb()
                assert values(self.path).startswith(self.rows[:until])
            if gate.error is None:
                break
        self.rows = self.rows[:until]
        assert values(self.path) == self.rows

    def end(self) -> None:
        """Let every driver end, and another one write another batch."""
        while waiting := [zombie for zombie in self.zombies if not zombie.is_done]:
            self._step(self.dice.choice(waiting))
        sink, store = self.gated()
        self._write(sink, store, ".")
        assert values(self.path) == self.rows + "."

    def _begin(self, sink: ManifestSink, store: GatedStore, value: str) -> Gate:
        self.number += 1
        number, offset, committed = self.number, len(self.rows), self.committed
        store.gate = Gate(lambda: write(sink, number, offset, value, committed=committed))
        store.gate.start()
        return store.gate

    def _write(self, sink: ManifestSink, store: GatedStore, value: str) -> None:
        while True:
            gate = self._begin(sink, store, value)
            while not gate.is_done:
                self._step(gate)
                self._disturb()
                found = values(self.path)
                assert found.startswith(self.rows)
                assert len(found) <= len(self.rows) + 1
            if gate.error is None:
                assert values(self.path) == self.rows + value
                return
            sink, store = self.gated()

    def _disturb(self) -> None:
        for zombie in self.zombies:
            if self.dice.random() < 0.2:
                self._step(zombie)

    def _step(self, gate: Gate) -> None:
        if not gate.is_done:
            gate.step()


@pytest.mark.parametrize("seed", range(24))
def test_replaced_drivers_that_fold_late_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """Injected: drivers stop before a call of the store, and take their other steps amid those of their successors."""
    play = Play(tmp_path, seed)
    for _ in range(play.dice.randint(2, 5)):
        play.driver()
        if play.dice.random() < 0.3:
            play.purge()
    play.end()


@pytest.mark.parametrize("until", [0, 3, 11, 18, 30])
def test_a_purge_that_is_killed_before_any_change_is_completed_by_the_next(
    tmp_path: Path, kill_at: Callable[[int], None], until: int
) -> None:
    """Injected: it ends before its nth change of the store. There are full manifests, and one that is not."""
    request = PurgeToken(pipeline="test/test/test", epoch=32, token=320, committed=310, offsets={"t/0": (until, 1000)})
    for step in range(0, 12, until % 2 + 1):
        path = tmp_path / str(step)
        sink = opened(path)
        write_all(sink, 1, 31)
        kill_at(step)
        with suppress(Killed):
            opened(path).purge(request)
        kill_at(-1)
        assert opened(path).count(request.offsets) in {0, 31 - until}
        opened(path).purge(request)
        assert values(path) == LETTERS[:until], step
        assert not hidden_files(path)
        again = opened(path)
        write(again, 33, until, "!", committed=31)
        assert values(path) == LETTERS[:until] + "!", step


def test_a_purge_reads_no_file_of_a_full_manifest_that_stays(tmp_path: Path) -> None:
    write_all(opened(tmp_path), 1, 31)
    before = {path.name for path in manifests(tmp_path)}
    request = PurgeToken(pipeline="test/test/test", epoch=32, token=320, committed=310, offsets={"t/0": (20, 1000)})
    opened(tmp_path).purge(request)
    after = {path.name for path in manifests(tmp_path)}
    assert after & before == set(sorted(before)[:2])
    second = PurgeToken(pipeline="test/test/test", epoch=33, token=330, committed=310, offsets={"t/0": (9, 1000)})
    opened(tmp_path).purge(second)
    assert values(tmp_path) == LETTERS[:9]
    assert not hidden_files(tmp_path)


def test_a_purge_copies_no_full_manifest_because_of_a_batch_without_records(tmp_path: Path) -> None:
    """As of a window that closed: which records its rows are of, only its files say."""
    sink = opened(tmp_path)
    for number in range(1, 32):
        batch = token(number, number - 1, number, committed=(number - 1) * 10)
        batch = replace(batch, offsets={}) if number == 2 else batch
        sink.begin(batch)
        list(sink.task().write([rows_of(LETTERS[number - 1], start=number - 1)], batch))
        sink.finish(batch)
    before = {path.name for path in manifests(tmp_path)}
    request = PurgeToken(pipeline="test/test/test", epoch=32, token=320, committed=310, offsets={"t/0": (20, 1000)})
    opened(tmp_path).purge(request)
    assert {path.name for path in manifests(tmp_path)} & before == set(sorted(before)[:2])
    assert values(tmp_path) == LETTERS[:20]


def test_a_list_that_lacks_a_manifest_deletes_nothing_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: each list lacks one manifest, as one that is made while a replaced driver folds may."""
    write_all(opened(tmp_path), 1, 3)
    everything, lacking = LocalStore.list, manifests(tmp_path)[1].name
    monkeypatch.setattr(
        LocalStore, "list", lambda *call: {n: size for n, size in everything(*call).items() if lacking not in n}
    )
    write(opened(tmp_path), 4, 3, "d", committed=3)
    monkeypatch.undo()
    assert values(tmp_path) == "abcd"
    assert not hidden_files(tmp_path)


def test_a_reader_lists_again_what_was_folded_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: its first list lacks a manifest."""
    write_all(opened(tmp_path), 1, 3)
    (_, second, _), real, lists = manifests(tmp_path), manifest.chain, [0]

    def torn(entries: Any, newest: int) -> Any:
        lists[0] += 1
        return real([one for one in entries if lists[0] > 1 or one.name != second.name], newest)

    monkeypatch.setattr(reading, "chain", torn)
    assert values(tmp_path) == "abc"
    second.unlink()
    assert values(tmp_path) == "c"  # for good


def test_an_s3_compatible_store_keeps_few_objects() -> None:
    """Markers of empty folders, which Arrow's client and consoles leave, are neither rows nor manifests."""
    with S3Server.running("lake") as server:
        sink = FilesSink(name="rows", path="s3://lake/orders", endpoint=server.endpoint)
        owner = "test/test/test/rows"
        for marker in ("", "_manifests/", f"_manifests/{owner}/", "_tasks/", f"_tasks/{owner}/"):
            server.objects[f"lake/orders/{marker}"] = b""
        for run in range(3):
            one = files_sink.bind(sink, KEYS, CONTEXT)
            write_all(one, 1 + 10 * run, 10 + 10 * run)
        client = Place(sink="rows", path=sink.path, endpoint=sink.endpoint, credentials=KEYS).client()
        names = [name.removeprefix("s3://") for name in visible_files("s3://lake/orders", client)]
        tables = [parquet.read_table(name, filesystem=client, partitioning=None) for name in names]
        assert sorted(row for table in tables for row in table["value"].to_pylist()) == sorted(LETTERS[:30])
        rest = [name for name in server.objects if not name.endswith(".parquet")]
        assert len([name for name in rest if name.endswith(".json")]) <= 2 * MANY + 30 // 7
        assert len([name for name in rest if name.endswith("/")]) <= 6
