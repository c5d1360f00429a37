"""The sink of files on a real file system: the suite for sinks, kills at each write, a replaced driver, a purge."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from fakes.s3_server import S3Server
from fencepost.context import WARM_TOKEN
from fencepost.contract import FilesSink, Reason
from fencepost.errors import BadSpec, DependencyDown, PoisonRecord
from fencepost.sinks import BatchToken, PurgeToken, SinkContext
from fencepost.sinks.files import files_sink, visible_files
from fencepost.sinks.files.files_sink import ManifestSink
from fencepost.sinks.files.manifest import Entry, Format, chain, committed_head, gap
from fencepost.sinks.files.store import LocalStore, Place
from fencepost.testing.purges import PurgeContract
from fencepost.testing.sinks import SinkContract, Subject, write_batch, write_task

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])
CONTEXT = SinkContext(name="rows", pipeline="test/test/test", epoch=1, patience=5.0)


def rows_of(*values: str, start: int = 0, partition: int = 0) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": partition, "offset": start + i, "value": v} for i, v in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def opened(path: Path, form: Format = "parquet", folders: tuple[str, ...] = ("value",)) -> ManifestSink:
    return files_sink.bind(FilesSink(name="rows", path=f"file://{path}", format=form, folders=folders), {}, CONTEXT)


def stored(path: Path) -> list[dict[str, Any]]:
    """Read as docs/sinks.md says."""
    found: list[dict[str, Any]] = []
    for name in visible_files(f"file://{path}"):
        file = Path(name.removeprefix("file://"))
        if file.suffix == ".parquet":
            found += parquet.read_table(file, partitioning=None).to_pylist()
        else:
            found += [json.loads(line) for line in file.read_text().splitlines()]
    return found


def values(path: Path) -> str:
    return "".join(sorted(row["value"] for row in stored(path)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork in a process with threads
@pytest.mark.parametrize("form", ["parquet", "jsonLines"])
class TestFilesSink(SinkContract, PurgeContract):
    """The sink keeps to the contract, with folders and in both formats."""

    @pytest.fixture
    def subject(self, tmp_path: Path, form: Format) -> Subject:
        return Subject(
            open=lambda: opened(tmp_path, form),
            rows=rows_of("a", "b", "c", start=7),
            changed=rows_of("x", "y", "z", start=7),
            read=lambda: stored(tmp_path),
            misfits={
                "value": SCHEMA.remove(3),
                "nothing": SCHEMA.append(pa.field("nothing", pa.null())),
            },
        )


def token(number: int, start: int, until: int, *, committed: int = 0, partition: int = 0) -> BatchToken:
    return BatchToken(
        pipeline="test/test/test", epoch=number, version=number, token=number * 10,
        offsets={f"t/{partition}": (start, until)}, committed=committed,
    )  # fmt: skip


class Killed(BaseException):
    """In place of SIGKILL, where the process of the test plays a driver."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Kill the driver before its nth change of the store: what it would do after that does not happen."""
    left = [-1]

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def act(self: LocalStore, names: Any, *rest: Any) -> Any:
            for name in [names] if isinstance(names, str) else list(names):
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                change(self, name if isinstance(names, str) else [name], *rest)

        return act

    monkeypatch.setattr(LocalStore, "put", counted(LocalStore.put))
    monkeypatch.setattr(LocalStore, "delete", counted(LocalStore.delete))
    return lambda step: left.__setitem__(0, step)


def survives(path: Path, batch: BatchToken, rows: pa.RecordBatch) -> bool:
    """Write a batch as a driver that may be killed."""
    try:
        write_batch(opened(path), batch, [rows])
    except Killed:
        return False
    return True


def test_a_driver_that_is_killed_before_any_change_leaves_each_row_once(
    tmp_path: Path, kill_at: Callable[[int], None]
) -> None:
    """Injected: the driver ends before its nth change of the store, and its successor, with other cuts, too."""
    for first, second in itertools.product(range(12), range(12)):
        path = tmp_path / f"{first}-{second}"
        write_batch(opened(path), token(1, 0, 2), [rows_of("a", "b")])
        kill_at(first)
        survives(path, token(2, 2, 6, committed=10), rows_of(*"cdef", start=2))
        kill_at(second)
        survives(path, token(3, 2, 4, committed=10), rows_of(*"CD", start=2))
        kill_at(-1)
        successor = opened(path)
        write_batch(successor, token(4, 2, 5, committed=10), [rows_of(*"cde", start=2)])
        assert values(path) == "abcde", (first, second)
        write_batch(successor, token(5, 5, 6, committed=40), [rows_of("f", start=5)])
        assert values(path) == "abcdef", (first, second)
        assert not list((path / "_tasks").rglob("*.json"))
        left = {f"file://{file}" for file in path.rglob("*.parquet")} - {*visible_files(f"file://{path}")}
        assert not left or 0 in {first, second}  # of a task that has not listed its files


def test_a_commit_that_was_applied_before_the_driver_ended_is_kept(tmp_path: Path) -> None:
    """The successor begins after the batch, and also after offsets that went back into it."""
    write_batch(opened(tmp_path), token(1, 0, 4), [rows_of(*"abcd")])
    write_batch(opened(tmp_path), token(2, 4, 5, committed=10), [rows_of("e", start=4)])
    assert values(tmp_path) == "abcde"
    write_batch(opened(tmp_path), token(3, 2, 3, committed=20), [rows_of("C", start=2)])  # rewound, output kept
    assert values(tmp_path) == "Cabcde"


def test_a_zombie_at_each_moment_changes_nothing(tmp_path: Path) -> None:
    """Injected: a replaced driver and its tasks continue beside, and after, each step of its successor."""
    for moment in range(4):
        path = tmp_path / str(moment)
        write_batch(opened(path), token(1, 0, 1), [rows_of("a")])
        zombie, late = opened(path), token(2, 1, 3, committed=10)
        zombie.begin(late)
        write_task(zombie, late, [rows_of("x", start=1)])

        def wake(now: int, moment: int = moment, zombie: ManifestSink = zombie, late: BatchToken = late) -> None:
            if now == moment:
                write_task(zombie, late, [rows_of("x", "y", start=1)])
                zombie.finish(late)

        successor, now = opened(path), token(3, 1, 3, committed=10)
        wake(0)
        successor.begin(now)
        wake(1)
        write_task(successor, now, [rows_of("b", "c", start=1)])
        wake(2)
        successor.finish(now)
        wake(3)
        assert values(path) == "abc", moment
        write_batch(opened(path), token(4, 3, 4, committed=30), [rows_of("d", start=3)])
        assert values(path) == "abcd", moment


def test_a_witness_that_was_written_and_not_committed_is_replaced(tmp_path: Path) -> None:
    """A run that looks for a poison record writes a later record first, under the same token as the suspect."""
    sink = opened(tmp_path)
    write_batch(sink, token(1, 0, 1), [rows_of("a")])
    write_batch(sink, token(2, 3, 4, committed=10), [rows_of("d", start=3)])
    write_batch(sink, token(2, 1, 2, committed=10), [rows_of("b", start=1)])
    assert values(tmp_path) == "ab"
    write_batch(sink, token(3, 2, 4, committed=20), [rows_of("c", "d", start=2)])
    assert values(tmp_path) == "abcd"


def test_a_batch_without_records_is_kept_once(tmp_path: Path) -> None:
    """Of a stateful pipeline: a window closes, and no record is read."""
    timer = replace(token(2, 0, 0, committed=10), offsets={})
    write_batch(opened(tmp_path), token(1, 0, 1), [rows_of("a")])
    write_batch(opened(tmp_path), timer, [rows_of("w")])
    write_batch(opened(tmp_path), replace(timer, token=30), [rows_of("w")])  # the first one was not committed
    write_batch(opened(tmp_path), replace(timer, token=40, committed=30), [rows_of("v")])
    assert values(tmp_path) == "avw"


def test_a_fence_that_has_forgotten_its_commits_hides_nothing(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    write_batch(sink, token(1, 0, 1), [rows_of("a")])
    write_batch(sink, token(2, 1, 2, committed=10), [rows_of("b", start=1)])
    write_batch(opened(tmp_path), token(3, 2, 3), [rows_of("c", start=2)])
    assert values(tmp_path) == "abc"


@pytest.mark.parametrize("purged_before", [False, True])
def test_a_purge_for_a_fence_without_a_token_keeps_the_last_batch(tmp_path: Path, *, purged_before: bool) -> None:
    """Injected: the fence was restored without output_token, and no manifest follows one that could show it."""
    purge = PurgeToken(pipeline="test/test/test", epoch=5, token=50, offsets={"t/0": (1, 9)})
    if purged_before:
        write_batch(opened(tmp_path), token(1, 0, 2), [rows_of("a", "b")])
        opened(tmp_path).purge(replace(purge, token=20, committed=10, offsets={"t/0": (0, 2)}))
    write_batch(opened(tmp_path), token(3, 0, 1, committed=10 if purged_before else 0), [rows_of("a")])
    opened(tmp_path).purge(purge)
    assert values(tmp_path) == "a"


@pytest.mark.parametrize("form", ["parquet", "jsonLines"])
def test_a_purge_keeps_other_partitions_and_ends_what_was_not_committed(tmp_path: Path, form: Format) -> None:
    sink = opened(tmp_path, form)
    write_batch(sink, token(1, 0, 2), [rows_of("a", "b")])
    write_batch(sink, token(2, 0, 2, committed=10, partition=1), [rows_of("p", "q", partition=1)])
    write_batch(sink, token(3, 2, 4, committed=20), [rows_of("c", "d", start=2)])
    write_batch(sink, token(4, 2, 3, committed=30, partition=1), [rows_of("r", start=2, partition=1)])
    purge = PurgeToken(pipeline="test/test/test", epoch=5, token=50, offsets={"t/0": (1, 9)}, committed=30)
    assert sink.count(purge.offsets) == 3
    opened(tmp_path, form).purge(purge)
    assert values(tmp_path) == "apq"
    assert sink.count(purge.offsets) == 0
    again = opened(tmp_path, form)
    write_batch(again, token(6, 1, 2, committed=30), [rows_of("b", start=1)])
    write_batch(again, token(7, 2, 3, committed=60, partition=1), [rows_of("r", start=2, partition=1)])
    assert values(tmp_path) == "abpqr"
    assert len(list(tmp_path.rglob("value=*/*"))) == len(stored(tmp_path))
    opened(tmp_path, form).purge(replace(purge, token=80, committed=70, offsets={"t/0": (0, 1), "t/1": (1, 9)}))
    assert values(tmp_path) == "bp"


def test_a_purge_that_needs_coordinates_is_refused_without_them(tmp_path: Path) -> None:
    for form in ("parquet", "jsonLines"):
        path = tmp_path / form
        sink = opened(path, form)
        write_batch(sink, token(1, 0, 4), [rows_of(*"abcd").select(["value"])])
        assert sink.count({"t/0": (0, 4)}) == 4
        with pytest.raises(BadSpec, match="no column topic, partition, offset"):
            sink.count({"t/0": (2, 4)})


def test_folders_are_named_after_values_that_cannot_leave_them(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    rows = pa.RecordBatch.from_pylist([{"value": value} for value in ("../../x", "a b/c", "", None)], SCHEMA)
    write_batch(sink, token(1, 0, 4), [rows])
    names = [name.removeprefix(f"file://{tmp_path}/") for name in visible_files(f"file://{tmp_path}")]
    folders = {name.rpartition("/")[0] for name in names}
    assert folders == {"value=..%2F..%2Fx", "value=a%20b%2Fc", "value=", "value=__HIVE_DEFAULT_PARTITION__"}
    assert {row["value"] for row in stored(tmp_path)} == {"../../x", "a b/c", "", None}


def test_a_value_that_is_too_long_for_a_folder_is_poison_also_in_a_rehearsal(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    for rehearsed in (False, True):
        batch = replace(token(1, 0, 1), token=WARM_TOKEN) if rehearsed else token(1, 0, 1)
        with pytest.raises(PoisonRecord, match="the value of column value is too long to name a folder"):
            write_task(sink, batch, [rows_of("x" * 300)])


def test_folders_that_are_too_long_together_are_poison_also_in_a_rehearsal(tmp_path: Path) -> None:
    columns = tuple("abcdef")
    sink = opened(tmp_path, folders=columns)
    for length, is_poison in ((50, False), (240, True)):
        rows = pa.RecordBatch.from_pydict({name: ["x" * length] for name in columns})
        for batch in (token(1, 0, 1), replace(token(1, 0, 1), token=WARM_TOKEN)):
            with pytest.raises(PoisonRecord, match="a, b, c, d, e, f are too long") if is_poison else nullcontext():
                write_task(sink, batch, [rows])


def test_each_file_is_progress(tmp_path: Path) -> None:
    task = opened(tmp_path).task()
    assert list(task.write([rows_of("a", "b", "c")], token(1, 0, 3))) == [3, 0, 0, 0]


def test_files_of_others_among_the_lists_of_tasks_are_left_alone(tmp_path: Path) -> None:
    strays = [tmp_path / "_tasks/test/test/test/rows" / name for name in (".DS_Store", "old/notes.txt", "1-x-0.json")]
    for stray in strays:
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.touch()
    write_batch(opened(tmp_path), token(1, 0, 1), [rows_of("a")])
    assert (values(tmp_path), all(stray.exists() for stray in strays)) == ("a", True)


def test_a_store_that_cannot_be_written_is_down(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DependencyDown, match="Not a directory"):
        write_batch(opened(tmp_path / "file"), token(1, 0, 1), [rows_of("a")])


@pytest.fixture
def bucket() -> Iterator[S3Server]:
    with S3Server.running("lake") as server:
        yield server


def in_bucket(server: S3Server, path: str = "s3://lake/orders") -> FilesSink:
    return FilesSink(name="rows", path=path, folders=("value",), endpoint=server.endpoint)


KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def test_an_s3_compatible_store_has_each_row_once(bucket: S3Server) -> None:
    """A crash, a repetition with other cuts, a zombie and a purge, by Arrow's own client over HTTP."""
    sink = in_bucket(bucket)
    zombie, late = files_sink.bind(sink, KEYS, CONTEXT), token(1, 0, 4)
    zombie.begin(late)
    write_task(zombie, late, [rows_of(*"wxyz")])
    write_batch(files_sink.bind(sink, KEYS, CONTEXT), token(2, 0, 3), [rows_of(*"abc")])
    zombie.finish(late)
    last = files_sink.bind(sink, KEYS, CONTEXT)
    write_batch(last, token(3, 3, 5, committed=20), [rows_of(*"de", start=3)])

    def seen() -> str:
        client = Place(sink="rows", path=sink.path, endpoint=sink.endpoint, credentials=KEYS).client()
        names = [name.removeprefix("s3://") for name in visible_files("s3://lake/orders", client)]
        tables = [parquet.read_table(name, filesystem=client, partitioning=None) for name in names]
        return "".join(sorted(row for table in tables for row in table["value"].to_pylist()))

    assert seen() == "abcde"
    purge = PurgeToken(pipeline="test/test/test", epoch=4, token=40, offsets={"t/0": (1, 9)}, committed=30)
    assert last.count(purge.offsets) == 4
    last.purge(purge)
    assert (seen(), last.count(purge.offsets)) == ("a", 0)
    assert len([name for name in bucket.objects if name.endswith(".parquet")]) == 1


def test_a_bucket_that_is_not_there_or_does_not_answer_is_down(bucket: S3Server) -> None:
    with pytest.raises(DependencyDown, match="bucket other does not exist") as caught:
        files_sink.bind(in_bucket(bucket, "s3://other/orders"), KEYS, CONTEXT)
    assert caught.value.reason == Reason.SINK_NOT_FOUND
    sink = files_sink.bind(in_bucket(bucket), KEYS, CONTEXT)
    bucket.refuses = True
    with pytest.raises(DependencyDown, match="ACCESS_DENIED"):
        write_batch(sink, token(1, 0, 1), [rows_of("a")])


def test_a_secret_with_other_keys_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="has the keys password"):
        files_sink.bind(FilesSink(name="rows", path=f"file://{tmp_path}"), {"password": "x"}, CONTEXT)


def test_times_decimals_bytes_and_maps_are_written_as_json(tmp_path: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    types = {"at": pa.timestamp("us", "UTC"), "price": pa.decimal128(9, 2), "map": pa.map_(pa.string(), pa.int32())}
    rows = pa.RecordBatch.from_pylist(
        [{"at": at, "price": Decimal("1.20"), "raw": b"\0\1", "map": {"a": 1}, "nan": float("nan")}],
        pa.schema([*types.items(), ("raw", pa.binary()), ("nan", pa.float64())]),
    )
    write_batch(opened(tmp_path, "jsonLines", ()), token(1, 0, 1), [rows])
    assert stored(tmp_path) == [
        {"at": "2026-01-02T03:04:05.006000Z", "price": "1.20", "map": {"a": 1}, "raw": "AAE=", "nan": None}
    ]


def entries(*pairs: tuple[int, int | None]) -> list[Entry]:
    return [Entry(token, previous) for token, previous in pairs]


@pytest.mark.parametrize(
    ("found", "committed", "expected"),
    [
        ([], 0, 0),
        ([(10, 0)], 0, 0),
        ([(10, 0)], 10, 10),
        ([(10, 0), (20, 10)], 10, 10),
        ([(10, 0), (20, 10), (30, 10)], 20, 20),
        ([(10, 0), (20, None)], 10, 20),
        ([(10, 0), (20, None), (30, 20)], 10, 20),
        ([(10, 0), (20, 10), (30, 20)], 0, 30),
        ([(10, 0)], 15, 10),
        ([(10, 0), (20, 10), (20, 0), (30, 20)], 20, 20),
        ([(20, 0), (30, 20), (40, 30)], 0, 40),
    ],
    ids=[
        "empty",
        "open",
        "committed",
        "one-open",
        "zombie",
        "purge",
        "open-after-purge",
        "forgotten",
        "no-manifest",
        "folded",
        "folded-and-forgotten",
    ],
)
def test_the_committed_head(found: list[tuple[int, int | None]], committed: int, expected: int) -> None:
    assert committed_head(entries(*found), committed) == expected


def test_a_chain_ends_at_a_purge_and_is_finite() -> None:
    found = entries((10, 0), (20, None), (30, 20), (40, 30), (50, 99), (60, 60))
    assert [entry.token for entry in chain(found, 40)] == [40, 30, 20]
    assert [entry.token for entry in chain(found, 50)] == [50]
    assert [entry.token for entry in chain(found, 60)] == [60]
    assert [gap(chain(found, token)) for token in (0, 10, 40, 50)] == [0, 0, 0, 50]


def test_of_manifests_with_one_token_that_with_the_oldest_batches_counts() -> None:
    found = entries((30, 20), (20, 10), (20, 5), (10, 5), (5, 0), (10, 0), (40, 30))
    assert [(one.token, one.previous) for one in chain(found, 40)] == [(40, 30), (30, 20), (20, 5), (5, 0)]
