"""`fencepost sample` with the testbed's Kafka: the file has what Kafka has, byte for byte."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from fencepost.local.record_files import read_file
from fencepost.local.record_lines import EPOCH, FileRecord
from integration.cli.scene import Scene
from integration.driver.support import Kafka

pytestmark = pytest.mark.integration

SENT: tuple[dict[str, Any], ...] = (
    {
        "key": b"\x00\xff",
        "value": b'{"id": 1}',
        "timestamp": 1_767_323_045_678,
        "headers": [("a", b"\xfe"), ("a", None)],
    },
    {"key": None, "value": None, "timestamp": 1},
    {"key": b"", "value": b"\xf0\x9f\x8c\x8a \xc3", "timestamp": 1_767_323_045_000},
)


def test_the_last_committed_records_of_both_partitions(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    ended = scene.fencepost("sample", str(scene.key), "--records", "10", "--into", str(path))
    assert ended.returncode == 0, ended.stderr
    assert '"city"' not in ended.stdout + ended.stderr
    found = sorted((one.partition, one.offset) for one in read_file(path))
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(11, 16)]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_binary_records_headers_and_timestamps_are_kept(scene: Scene, tmp_path: Path, suffix: str) -> None:
    kafka, path = Kafka(scene.environment.kafka_host), tmp_path / f"orders.{suffix}"
    start = scene.json("offsets", str(scene.key))["partitions"][1]["end"]
    kafka.send(scene.topic, [{**one, "partition": 1} for one in SENT])
    words = ("--around", f"{scene.topic}/1@{start + 1}", "--records", "3", "--into", str(path))
    printed = scene.json("sample", str(scene.key), *words)
    assert printed["partitions"] == [{"partition": f"{scene.topic}/1", "from": start, "until": start + 3, "records": 3}]
    assert list(read_file(path)) == [
        FileRecord(
            topic=scene.topic, partition=1, offset=start + number, key=one["key"], value=one["value"],
            timestamp=EPOCH + timedelta(milliseconds=one["timestamp"]),
            headers=tuple(one.get("headers", ())),
        )
        for number, one in enumerate(SENT)
    ]  # fmt: skip


def test_offsets_without_a_record_end_the_read(scene: Scene, tmp_path: Path) -> None:
    """The markers of two transactions take an offset each, the last one at the end of the log."""
    kafka, path = Kafka(scene.environment.kafka_host), tmp_path / "orders.jsonl"
    start = scene.json("offsets", str(scene.key))["partitions"][0]["end"]
    for number, ends in enumerate(("commit_transaction", "abort_transaction")):
        transaction(kafka, scene.topic, b"%d" % number, ends)
    words = ("--around", f"{scene.topic}/0@{start}", "--records", "8", "--into", str(path))
    printed = scene.json("sample", str(scene.key), *words)
    (part,) = printed["partitions"]
    assert (part["until"], printed["records"]) == (start + 4, 1 + start - part["from"])
    assert [one.value for one in read_file(path)][-1] == b"0"


def transaction(kafka: Kafka, topic: str, value: bytes, ends: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": f"{topic}-{ends}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value, partition=0)
    producer.flush(30)
    getattr(producer, ends)(30)


def test_the_fields_that_are_masked_are_not_in_the_file(scene: Scene, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    words = ("--mask", "city", "--mask", "key", "--records", "10", "--into", str(path))
    assert scene.json("sample", str(scene.key), *words)["masked"] == ["value.city", "key"]
    cities = {json.loads(one.value or b"")["city"] for one in read_file(path)}
    assert all(re.fullmatch(r"[a-z]\d", city) for city in cities)
    assert not cities <= {f"c{number}" for number in range(7)}
