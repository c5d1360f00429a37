"""Larger files in place of many small ones: what readers, rewinds, kills and replaced drivers see of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from fakes.s3_server import S3Server
from fencepost.contract import FilesSink
from fencepost.sinks import PurgeToken
from fencepost.sinks.files import compaction, files_sink, visible_files
from fencepost.sinks.files.manifest import Batch, Entry, Format
from fencepost.sinks.files.store import Place
from fencepost.sinks.files.stored_manifests import Manifests
from fencepost.testing.sinks import write_batch
from unit.sinks import test_files
from unit.sinks.test_files import CONTEXT, KEYS, Killed, kill_at, rows_of, token
from unit.sinks.test_files_folding import LETTERS, Play, few, manifests, opened, values, write, write_all

__all__ = ["few", "kill_at"]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete what was replaced ten batches ago."""
    monkeypatch.setattr(compaction, "GRACE", 100)


def shown(path: Path) -> list[str]:
    return [name.removeprefix(f"file://{path}/") for name in visible_files(f"file://{path}")]


def larger(path: Path) -> list[str]:
    return [name for name in shown(path) if "-compacted-" in name]


def request(until: int, number: int) -> PurgeToken:
    return PurgeToken(
        pipeline="test/test/test", epoch=number, token=number * 10, committed=(number - 1) * 10,
        offsets={"t/0": (until, 1000)},
    )  # fmt: skip


@pytest.mark.parametrize("batches_per_run", [17, 60])
def test_many_batches_leave_few_files(tmp_path: Path, batches_per_run: int) -> None:
    for first in range(1, 61, batches_per_run):
        write_all(opened(tmp_path), first, min(first + batches_per_run - 1, 60))
    assert values(tmp_path) == LETTERS[:60]
    assert len(larger(tmp_path)) >= 4
    assert len(shown(tmp_path)) < 30


def test_replaced_files_are_kept_for_readers_and_go_after_that(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    listed = {number: set[str]() for number in range(1, 61)}
    for number in listed:
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
        listed[number] = set(shown(tmp_path))
        there = {path.name for path in tmp_path.glob("*.jsonl")}
        assert all(listed[past] <= there for past in range(max(1, number - 9), number))
    assert len(there) < 45
    assert len(there - listed[60]) < 25


@pytest.mark.parametrize("form", ["parquet", "jsonLines"])
def test_files_are_merged_by_folder_format_and_columns(tmp_path: Path, form: Format) -> None:
    """Some batches have another column, and a row of another folder."""
    for number in range(1, 31):
        if number in {1, 5, 6}:
            sink = test_files.opened(tmp_path, "jsonLines" if number == 5 else form, ("value",))
        rows = rows_of("a", "b" if number % 3 else "c", start=2 * number)
        if number > 20:
            rows = rows.append_column("more", pa.array([number, None]))
        write_batch(sink, token(number, 2 * number, 2 * number + 2, committed=(number - 1) * 10), [rows])
    found = test_files.stored(tmp_path)
    assert sorted(row["offset"] for row in found) == list(range(2, 62))
    assert {row.get("more") for row in found} == {None, *range(21, 31)}
    assert {name.rpartition("/")[0] for name in larger(tmp_path)} >= {"value=a", "value=b"}
    for name in larger(tmp_path):
        if form == "parquet" and name.endswith(".parquet"):
            table = parquet.read_table(tmp_path / name, partitioning=None)
            assert {f"value={value}" for value in table["value"].to_pylist()} == {name.rpartition("/")[0]}


def without_coordinates(number: int) -> pa.RecordBatch:
    return rows_of(LETTERS[number]).select(["value"])


def of_an_earlier_record(number: int) -> pa.RecordBatch:
    """As of a window that began with another record."""
    return rows_of(LETTERS[number], start=max(0, number - 2))


def without_offset(number: int) -> pa.RecordBatch:
    rows = {"topic": "t", "partition": 0, "offset": None, "value": LETTERS[number]}
    return pa.RecordBatch.from_pylist([rows], test_files.SCHEMA)


@pytest.mark.parametrize("form", ["parquet", "jsonLines"])
@pytest.mark.parametrize("rows", [without_coordinates, of_an_earlier_record, without_offset])
def test_rows_that_only_their_batch_can_place_stay_in_its_file(
    tmp_path: Path, rows: Callable[[int], pa.RecordBatch], form: Format
) -> None:
    """A purge deletes batches as a whole: of a larger file it could not."""
    sink = test_files.opened(tmp_path, form, ())
    for number in range(1, 32):
        write_batch(sink, token(number, number - 1, number, committed=(number - 1) * 10), [rows(number)])
    assert not larger(tmp_path)
    assert any(path.name.count("-") == 2 for path in manifests(tmp_path))
    test_files.opened(tmp_path, form, ()).purge(request(12, 32))
    assert test_files.values(tmp_path) == "".join(sorted(LETTERS[1:13]))


@pytest.mark.parametrize("form", ["parquet", "jsonLines"])
def test_a_file_that_is_gone_or_broken_stops_no_batch(tmp_path: Path, form: Format) -> None:
    """Injected: someone has deleted one file of rows, and cut another."""
    sink = test_files.opened(tmp_path, form, ())
    for number in range(1, 41):
        write_batch(sink, token(number, number, number + 1, committed=(number - 1) * 10), [rows_of("a", start=number)])
        if number == 2:
            gone, cut = sorted(path for path in tmp_path.glob("0*") if path.is_file())
            gone.unlink()
            cut.write_bytes(cut.read_bytes()[:20])
    assert gone.name in shown(tmp_path)
    assert len(larger(tmp_path)) > 1
    assert {path.name for path in tmp_path.glob("*-compacted-*")} == set(larger(tmp_path))


def test_a_pause_within_a_compaction_shortens_no_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: no batch for longer than the grace, while files are merged."""
    merged, real = list[Any](), compaction._own_rows

    def counted(content: bytes, form: Format, batch: Batch) -> Any:
        merged.append(batch)
        return real(content, form, batch)

    monkeypatch.setattr(compaction, "_own_rows", counted)
    monkeypatch.setattr(compaction, "STEP", 2)
    sink, number = opened(tmp_path), 0
    while not merged:
        number += 1
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
    listed, offset = set(shown(tmp_path)), number
    assert not larger(tmp_path)
    write(sink, 100, offset, LETTERS[offset], committed=number)
    for later in range(101, 109):
        write(sink, later, offset + later - 100, LETTERS[offset + later - 100], committed=later - 1)
    assert larger(tmp_path)
    assert listed <= {path.name for path in tmp_path.glob("*.jsonl")}


@pytest.mark.parametrize("until", [0, 3, 7, 10, 18, 30])
def test_a_rewind_deletes_of_larger_files_what_it_would_have_deleted_of_batches(tmp_path: Path, until: int) -> None:
    write_all(opened(tmp_path), 1, 31)
    assert larger(tmp_path)
    assert opened(tmp_path).count(request(until, 32).offsets) == 31 - until
    opened(tmp_path).purge(request(until, 32))
    assert values(tmp_path) == LETTERS[:until]
    sink = opened(tmp_path)
    for number in range(33, 70):
        offset = until + number - 33
        write(sink, number, offset, LETTERS[offset], committed=number - 1 if number > 33 else 31)
    assert values(tmp_path) == LETTERS[: until + 37]


def test_a_purge_reads_no_file_of_a_compacted_manifest_that_stays(tmp_path: Path) -> None:
    write_all(opened(tmp_path), 1, 45)
    before = larger(tmp_path)
    opened(tmp_path).purge(request(40, 46))
    assert larger(tmp_path) == before
    assert values(tmp_path) == LETTERS[:40]


def test_a_driver_that_is_killed_before_any_change_of_a_compaction_loses_and_doubles_nothing(
    tmp_path: Path, kill_at: Callable[[int], None]
) -> None:
    """Injected: it ends before its nth change of the store, amid folds, compactions and deletions of old files."""
    changes, path = 0, tmp_path / "0"
    while True:
        kill_at(-1)
        write_all(opened(path), 1, 20)
        kill_at(changes)
        written, sink = 20, opened(path)
        with suppress(Killed):
            for number in range(21, 46):
                write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
                written = number
        kill_at(-1)
        found = values(path)
        assert found in {LETTERS[:written], LETTERS[: written + 1]}, changes
        if written == 45:
            break
        successor = opened(path)
        write(successor, 50, written, LETTERS[written], committed=written)
        for number in range(51, 71):
            offset = written + number - 50
            write(successor, number, offset, LETTERS[offset], committed=number - 1)
        assert values(path) == LETTERS[: written + 21], changes
        changes += 7
        path = tmp_path / str(changes)
    assert changes > 100
    assert larger(path)


@pytest.mark.parametrize("seed", range(6))
def test_replaced_drivers_that_compact_late_lose_and_double_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: drivers stop before a call of the store, and take their other steps amid those of their successors."""
    deleted, real = list[Entry](), compaction._delete

    def counted(stored: Manifests, replaced: Entry, by: Entry) -> Iterator[None]:
        deleted.append(replaced)
        return real(stored, replaced, by)

    monkeypatch.setattr(compaction, "GRACE", 10)  # one batch
    monkeypatch.setattr(compaction, "_delete", counted)
    play = Play(tmp_path, seed, most=16)
    for _ in range(play.dice.randint(2, 4)):
        play.driver()
        if play.dice.random() < 0.3:
            play.purge()
    while not deleted:
        play.driver()
    play.end()


def test_what_a_replaced_driver_compacts_late_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: it stops before its manifest, and puts it when the small files that it names are deleted."""
    late, real = list[tuple[Any, Any, Any]](), Manifests.put

    def stopping(self: Any, entry: Any, made: Any) -> None:
        if entry.compacted:
            late.append((self, entry, made))
        else:
            real(self, entry, made)

    with monkeypatch.context() as patch:
        patch.setattr(Manifests, "put", stopping)
        write_all(opened(tmp_path), 1, 20)
    assert late
    sink = opened(tmp_path)
    for number in range(21, 61):
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
    before = shown(tmp_path)
    for call in late:
        real(*call)
    assert shown(tmp_path) == before
    for number in range(61, 90):
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
    assert values(tmp_path) == LETTERS[:89]
    assert not {call[1].name for call in late} & {path.name for path in manifests(tmp_path)}


def test_a_full_manifest_that_a_replaced_driver_puts_again_does_not_count(tmp_path: Path) -> None:
    """Injected: a fold of a driver that was replaced before the compaction ends after the small files are deleted."""
    sink, kept = opened(tmp_path), dict[Path, bytes]()
    for number in range(1, 81):
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
        kept |= {path: path.read_bytes() for path in manifests(tmp_path) if path.name.count("-") == 1}
    for path, content in kept.items():
        if not path.exists() and len(json.loads(content)["batches"]) > 1:
            path.write_bytes(content)
    assert values(tmp_path) == LETTERS[:80]
    sink = opened(tmp_path)
    for number in range(81, 100):
        write(sink, number, number - 1, LETTERS[number - 1], committed=number - 1)
    assert values(tmp_path) == LETTERS[:99]
    opened(tmp_path).purge(replace(request(50, 101), committed=990))
    assert values(tmp_path) == LETTERS[:50]


def test_an_s3_compatible_store_keeps_few_files() -> None:
    """Also across drivers; a purge deletes from a larger object row by row."""
    with S3Server.running("lake") as server:
        sink = FilesSink(name="rows", path="s3://lake/orders", endpoint=server.endpoint)
        for first in range(1, 61, 20):
            write_all(files_sink.bind(sink, KEYS, CONTEXT), first, first + 19)
        client = Place(sink="rows", path=sink.path, endpoint=sink.endpoint, credentials=KEYS).client()

        def names() -> list[str]:
            return [name.removeprefix("s3://") for name in visible_files("s3://lake/orders", client)]

        def found() -> str:
            tables = [parquet.read_table(name, filesystem=client, partitioning=None) for name in names()]
            rows = [row for table in tables for row in table.select(["offset", "value"]).to_pylist()]
            return "".join(row["value"] for row in sorted(rows, key=lambda row: int(row["offset"])))

        assert found() == LETTERS[:60]
        assert len([name for name in names() if "-compacted-" in name]) >= 4
        assert len(names()) < 30
        assert len([name for name in server.objects if name.endswith(".parquet")]) < 45
        files_sink.bind(sink, KEYS, CONTEXT).purge(request(12, 61))
        assert found() == LETTERS[:12]
