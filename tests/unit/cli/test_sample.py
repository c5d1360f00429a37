"""`fencepost sample`: which records it takes, what is in the file, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencepost.batch import Watermarks
from fencepost.contract import Reason
from fencepost.local.record_files import read_file
from fencepost.local.record_lines import FileRecord
from fencepost_cli.accepted_loss import AcceptedLoss
from present import present
from unit.cli.world import World

VALUE = '{"name": "Ann", "n": 12}'
SECRET = b"\x00\xffsecret"


def record(offset: int, partition: int = 0) -> FileRecord:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    value = SECRET if offset % 2 else VALUE.encode()
    headers = (("trace", b"\xfe"), ("trace", None))
    return FileRecord(
        topic="orders", partition=partition, offset=offset, timestamp=at, key=b"k", value=value, headers=headers
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Offsets [0, 12) of partition 0 are committed; partition 1 has one record, and partition 2 none that is."""
    monkeypatch.chdir(tmp_path)
    world = World.usual()
    world.row = replace(present(world.row), offsets={"orders/0": 12, "orders/1": 1})
    world.log = Watermarks(
        begins={"orders/0": 2, "orders/1": 0, "orders/2": 0}, ends={"orders/0": 15, "orders/1": 1, "orders/2": 9},
        topic_ids={"orders": "id"},
    )  # fmt: skip
    world.kafka_records = [record(offset) for offset in range(15)] + [record(0, 1)]
    return world


def offsets(path: Path) -> list[tuple[int, int | None]]:
    return [(one.partition, one.offset) for one in read_file(path)]


def test_the_last_committed_records_of_each_partition_are_in_the_file(world: World, tmp_path: Path) -> None:
    ended = world.run("sample", "shop/orders", "--records", "6")
    assert ended.exit_code == 0, ended.output
    assert list(read_file(tmp_path / "orders.jsonl")) == [record(offset) for offset in range(7, 12)] + [record(0, 1)]
    assert "6 records are in orders.jsonl" in ended.output
    assert (tmp_path / "orders.jsonl").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["orders.jsonl"]


def test_no_content_is_printed(world: World) -> None:
    ended = world.run("sample", "shop/orders")
    assert all(word not in ended.output for word in ("Ann", "secret", "trace"))


def test_parquet_has_the_same_records(world: World, tmp_path: Path) -> None:
    printed = world.json("sample", "shop/orders", "--into", str(tmp_path / "a.parquet"))
    assert (printed["records"], printed["partitions"][0]) == (
        11, {"partition": "orders/0", "from": 2, "until": 12, "records": 10},
    )  # fmt: skip
    assert list(read_file(tmp_path / "a.parquet")) == [record(offset) for offset in range(2, 12)] + [record(0, 1)]


@pytest.mark.parametrize(
    ("place", "start", "until"), [("orders/0@8", 6, 10), ("orders/0@2", 2, 6), ("orders/0/14", 11, 15)]
)
def test_records_around_one_are_of_its_partition(
    world: World, tmp_path: Path, place: str, start: int, until: int
) -> None:
    world.json("sample", "shop/orders", "--records", "4", "--around", place)
    assert offsets(tmp_path / "orders.jsonl") == [(0, offset) for offset in range(start, until)]


def test_a_topic_that_the_fence_row_does_not_know_is_read_to_its_end(world: World, tmp_path: Path) -> None:
    world.row = None
    world.json("sample", "shop/orders", "--records", "3")
    assert (0, 14) in offsets(tmp_path / "orders.jsonl")


def test_a_record_that_the_pipeline_leaves_out_is_not_in_the_file(world: World, tmp_path: Path) -> None:
    reason = str(Reason.POISON_RECORD)
    world.accepted_losses = [
        AcceptedLoss(partition="orders/0", start=11, until=12, reason=reason, topic_id="id"),
        AcceptedLoss(partition="orders/0", start=10, until=11, reason=reason, topic_id="of an earlier topic"),
    ]
    assert world.json("sample", "shop/orders", "--records", "4")["leftOut"] == 1
    assert (0, 11) not in offsets(tmp_path / "orders.jsonl")
    assert (0, 10) in offsets(tmp_path / "orders.jsonl")
    world.json("sample", "shop/orders", "--around", "orders/0@11", "--into", "b.jsonl")
    assert (0, 11) in offsets(tmp_path / "b.jsonl")


@pytest.mark.parametrize(
    ("topic", "file"), [("-rf", "rf.jsonl"), (".profile", "profile.jsonl"), ("-.-", "orders.jsonl")]
)
def test_a_topic_s_name_makes_neither_an_option_nor_a_hidden_file(topic: str, file: str, world: World) -> None:
    world.spec_changes = {"source": {"kafka": {"bootstrapServers": "kafka:9092", "topics": [topic]}}}
    world.log = Watermarks(begins={f"{topic}/0": 0}, ends={f"{topic}/0": 1}, topic_ids={topic: "id"})
    world.kafka_records = [replace(record(0), topic=topic)]
    assert world.json("sample", "shop/orders")["file"] == file


def test_the_bytes_are_bounded(world: World) -> None:
    world.kafka_records = [FileRecord(topic="orders", offset=at, value=b"x" * 400_000) for at in range(9, 12)]
    printed = world.json("sample", "shop/orders", "--max-mib", "1")
    assert (printed["isCut"], printed["records"], printed["bytes"]) == (True, 2, 800_000)


def test_masks_are_those_of_the_secret(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.kafka_records = [record(10)]
    monkeypatch.setenv("FENCEPOST_MASK_KEY", "a secret")
    for name in ("a.jsonl", "b.jsonl"):
        assert world.json("sample", "shop/orders", "--mask", "name", "--into", name)["masked"] == ["value.name"]
    assert (tmp_path / "a.jsonl").read_text() == (tmp_path / "b.jsonl").read_text()
    assert "Ann" not in (tmp_path / "a.jsonl").read_text()
    monkeypatch.delenv("FENCEPOST_MASK_KEY")
    ended = world.run("sample", "shop/orders", "--mask", "name", "--into", "c.jsonl")
    assert "set FENCEPOST_MASK_KEY" in ended.stderr
    assert (tmp_path / "a.jsonl").read_text() != (tmp_path / "c.jsonl").read_text()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--around", "orders/0@15"], "Kafka has the offsets [2, 15) of orders/0"),
        (["--around", "other/0@1"], "the pipeline reads no partition other/0"),
        (["--into", "orders.csv"], "neither JSON lines nor Parquet"),
        (["--into", "absent/orders.jsonl"], "folder absent does not exist"),
        (["--mask", "emial"], "it is in something else than a JSON object"),
        (["--mask", "headers.absent"], "no record of the sample has it"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_file(
    world: World, tmp_path: Path, words: list[str], problem: str
) -> None:
    assert problem in world.refused("sample", "shop/orders", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_kept(world: World, tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text("mine")
    assert "orders.jsonl exists" in world.refused("sample", "shop/orders")
    assert (tmp_path / "orders.jsonl").read_text() == "mine"


def test_offsets_without_a_record_are_named(world: World) -> None:
    world.kafka_records = []
    assert "these offsets have no record" in world.refused("sample", "shop/orders")
