"""`fencepost replay`: which batch it finds, what it gives the local run, and how rows are compared."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from fencepost.batch import Watermarks
from fencepost.contract import ExitCode, Reason, SqliteSink, Verdict
from fencepost.local.record_files import read_file
from fencepost.local.record_lines import FileRecord
from fencepost.local.request import Committed, Event, PastBatch, Request
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.history.table_rows import compare
from fencepost_cli.ports import Column
from fencepost_operator.adapters.kubernetes.objects import content_hash
from present import present
from unit.cli.world import World, history, story

STOPPED = Verdict(exit_code=int(ExitCode.STOPPED), reason=Reason.STOPPED, message="stopped", remedy="")
AMOUNT = 2.5


@dataclass
class Run:
    """A local run that writes one row for each record."""

    request: Request | None = None
    records: list[FileRecord] = field(default_factory=list)

    def __call__(self, request: Request, show: Callable[[Event], object]) -> Verdict:
        self.request = request
        (file,), (sink,) = request.files, request.config.sinks
        self.records = list(read_file(Path(file.path)))
        assert isinstance(sink, SqliteSink)
        with closing(sqlite3.connect(sink.path)) as database, database:
            database.execute('CREATE TABLE orders (topic, partition, "offset", amount, fencepost_written_at)')
            rows = [(one.topic, one.partition, one.offset, AMOUNT, 1) for one in self.records]
            database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
        show(Event(committed=Committed(records=len(rows), rows={"orders": len(rows)}, milliseconds=5)))
        return STOPPED


@dataclass
class Scene:
    world: World
    run: Run

    def replay(self, version: int, *words: str, code: int = 0) -> Any:
        return self.world.json("replay", "shop/orders", "--version", str(version), *words, code=code)

    def refused(self, version: int, *words: str) -> str:
        return self.world.refused("replay", "shop/orders", "--version", str(version), *words)


@pytest.fixture
def scene() -> Scene:
    world, run = World.usual(), Run()
    world.kafka_records = [FileRecord(topic="orders", offset=offset, value=b"v") for offset in range(15)]
    world.local = run
    return Scene(world, run)


@pytest.mark.parametrize(
    ("version", "begun", "epoch", "start", "until", "is_repeated"),
    [(3, 2, 1, 0, 5, False), (4, 3, 1, 5, 9, False), (7, 6, 2, 9, 12, True), (6, 6, 2, 9, 12, True)],
)
def test_a_batch_is_run_as_the_history_has_it(
    scene: Scene, version: int, begun: int, epoch: int, start: int, until: int, is_repeated: bool
) -> None:
    printed = scene.replay(version)
    row = story()[begun]
    assert (printed["epoch"], printed["version"], printed["isRepeated"]) == (epoch, begun, is_repeated)
    assert printed["committed"] == (None if version == begun else version)
    assert [one.offset for one in scene.run.records] == list(range(start, until))
    made = present(scene.run.request)
    past = present(made.past)
    assert past == PastBatch(
        version=begun, clock=past.clock, spans={"orders/0": (start, until)}, is_repeated=is_repeated
    )
    assert (printed["token"], made.config.epoch, made.config.pipeline) == (past.clock + 1, row.epoch, row.pipeline)
    assert (printed["records"], printed["rows"]) == (until - start, {"orders": until - start})


def test_the_history_of_days_is_read_for_the_hour_of_the_batch_alone(scene: Scene) -> None:
    scene.world.records = history(story(), every=timedelta(hours=3))
    assert scene.replay(4)["offsets"] == {"orders/0": {"from": 5, "until": 9}}
    assert scene.replay(7)["isRepeated"]


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        (99, "the history of default/shop/orders has no version 99"),
        (5, "no batch ended or began with version 5"),
    ],
)
def test_a_version_without_a_batch_is_refused(scene: Scene, version: int, problem: str) -> None:
    assert problem in scene.refused(version)


def test_a_commit_whose_predecessor_is_not_on_record_is_refused(scene: Scene) -> None:
    scene.world.records = [one for one in history(story(), every=timedelta(hours=2)) if one.version != 3]
    assert "has version 4, and not the one before it" in scene.refused(4)


@pytest.mark.parametrize(
    ("log", "problem"),
    [
        (Watermarks({"orders/0": 7}, {"orders/0": 15}, {"orders": "id"}), "orders/0 [5, 7)"),
        (Watermarks({"orders/0": 10}, {"orders/0": 15}, {"orders": "id"}), "orders/0 [5, 9)"),
        (Watermarks({"orders/0": 0}, {"orders/0": 8}, {"orders": "id"}), "orders/0 [8, 9)"),
        (
            Watermarks({"orders/0": 0}, {"orders/0": 9}, {"orders": "other"}),
            "orders/0 [5, 9) of a topic that was deleted",
        ),
        (Watermarks({}, {}, {"orders": "id"}), "orders/0 [5, 9), which has no leader now"),
    ],
)
def test_what_kafka_no_longer_has_is_named(scene: Scene, log: Watermarks, problem: str) -> None:
    scene.world.log = log
    assert f"any more: {problem}" in scene.refused(4)
    assert scene.run.request is None


def test_records_that_were_skipped_are_left_out(scene: Scene) -> None:
    reason = str(Reason.POISON_RECORD)
    scene.world.accepted_losses = [
        AcceptedLoss(partition="orders/0", start=6, until=7, reason=reason, topic_id="id"),
        AcceptedLoss(partition="orders/0", start=7, until=8, reason=reason, topic_id="of an earlier topic"),
        AcceptedLoss(partition="orders/0", start=8, until=9, reason=str(Reason.OFFSET_OUT_OF_RANGE), topic_id="id"),
    ]
    scene.replay(4)
    assert present(scene.run.request).left_out == {"orders/0": (6,)}


@pytest.mark.parametrize(
    ("changes", "words", "problem"),
    [
        ({"job": {"image": "i", "entrypoint": "m:f", "mode": "Stateful"}}, (), "shop/orders is stateful"),
        ({}, ("--into", "there.sqlite"), "--into there.sqlite exists"),
        ({}, ("--debug",), "--debug needs a terminal"),
        ({}, ("--max-mib", "1"), "the batch has more than 1 MiB"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], words: tuple[str, ...],
    problem: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("there.sqlite").touch()
    scene.world.spec_changes = changes
    if "--max-mib" in words:
        scene.world.kafka_records = [FileRecord(topic="orders", offset=6, value=b"x" * 2_000_000)]
    assert problem in scene.refused(4, *words)


def test_a_failure_ends_the_command_with_its_remedy(scene: Scene) -> None:
    failed = Verdict(exit_code=1, reason=Reason.FAILED, message="it broke", remedy="correct it")
    scene.world.local = lambda _request, _show: failed
    assert "error: it broke\nremedy: correct it" in scene.refused(4)


class TestCode:
    @pytest.fixture
    def folder(self, scene: Scene, tmp_path: Path) -> Path:
        """A folder with the modules of the ConfigMap that the run had."""
        modules = {"job.py": "one", "more.py": "two"}
        for name, text in modules.items():
            (tmp_path / name).write_text(text)
        digest = content_hash({"data": modules})
        rows = [replace(row, code=row.code and f"image job:f {digest} orders-0123456789abcdef0123") for row in story()]
        scene.world.records = history(rows)
        scene.world.config_maps["code"] = modules
        scene.world.spec_changes = {
            "job": {"image": "image", "entrypoint": "job:f", "codeFrom": {"configMapName": "code"}}
        }
        return tmp_path

    def said(self, scene: Scene, folder: Path) -> str:
        return str(scene.replay(4, "--code", str(folder))["code"])

    def test_of_the_run(self, scene: Scene, folder: Path) -> None:
        assert self.said(scene, folder).startswith("that of the run, ")

    def test_that_differs_in_a_module(self, scene: Scene, folder: Path) -> None:
        (folder / "more.py").write_text("another")
        assert self.said(scene, folder).endswith(", in more.py")

    def test_that_differs_as_the_config_map_does_now(self, scene: Scene, folder: Path) -> None:
        scene.world.config_maps["code"] = {"job.py": "newer"}
        assert self.said(scene, folder).endswith("and so does ConfigMap code now")

    def test_of_an_image(self, scene: Scene, tmp_path: Path) -> None:
        said = self.said(scene, tmp_path)
        assert said.startswith("of image image: whether ")
        assert said.endswith("; the run called job:transform, and the spec names orders.job:transform")


class TestCompare:
    def test_rows_are_looked_up_by_their_key(self, scene: Scene) -> None:
        token = scene.replay(4)["token"]
        rows = {("orders", 0, offset): (token, {"amount": AMOUNT}) for offset in (5, 6, 7)}
        rows["orders", 0, 6] = (token, {"amount": 3.0})
        rows["orders", 0, 7] = (token + 1, {"amount": 3.0})
        scene.world.rows_of["shop.orders"] = rows
        (table,) = scene.replay(4, "--compare", code=1)["tables"]
        assert [table[name] for name in ("equal", "changed", "newer", "missing")] == [1, 1, 1, 1]
        ended = scene.world.run("replay", "shop/orders", "--version", "4", "--compare")
        assert ended.exit_code == 1
        assert "shop.orders, topic orders, partition 0, offset 6: amount is 3.0, and again 2.5" in ended.output
        assert "shop.orders, topic orders, partition 0, offset 8: is not there" in ended.output

    def test_rows_that_are_not_looked_up_are_counted(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fencepost_cli.commands.authoring.replay.MOST_COMPARED", 3)
        (table,) = scene.replay(4, "--compare", code=1)["tables"]
        assert (table["missing"], table["rowsBeyond"]) == (3, 1)
        ended = scene.world.run("replay", "shop/orders", "--version", "4", "--compare")
        assert "shop.orders: 1 more rows were not looked up" in ended.stderr

    def test_a_table_that_does_not_exist_is_named(self, scene: Scene) -> None:
        scene.world.tables = {}
        (table,) = scene.replay(4, "--compare")["tables"]
        assert table["skipped"] == "the table does not exist"

    def test_values_are_equal_in_their_types(self, scene: Scene) -> None:
        """What SQLite stores of a row beside what Cassandra's driver returns."""
        at, one = datetime(2026, 1, 2, 3, 4, 5, 678_000), UUID(int=5)  # noqa: DTZ001 - as the driver has it
        values: dict[str, tuple[str, Any, Any]] = {
            "id": ("uuid", str(one), one),
            "at": ("timestamp", "2026-01-02 03:04:05.678", at),
            "ok": ("boolean", 1, True),
            "small": ("float", 0.1, 0.10000000149011612),
            "sum": ("decimal", "1.50", Decimal("1.5")),
            "raw": ("blob", b"\x00", b"\x00"),
            "none": ("text", None, None),
            "tags": ("list<text>", '["a"]', ["b"]),
        }
        kinds = {"id": "partition_key", "at": "clustering"}
        scene.world.tables["ks.t"] = [
            Column(name, kinds.get(name, "regular"), 0, kind) for name, (kind, _, _) in values.items()
        ]
        there = {name: value for name, (_, _, value) in values.items()}
        scene.world.rows_of["ks.t"] = {(one, at): (1, there)}
        access: Any = None
        with scene.world._store(access) as store:
            found = compare(store, "ks", "t", [{name: value for name, (_, value, _) in values.items()}], token=1)
        assert (found.equal, found.changed, found.missing, found.left_out) == (1, 0, 0, ("tags",))
