"""`fencepost state`: which state it reads, what it prints of an answer, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from fencepost.fence.row import EMPTY
from fencepost.state.progress import Committed
from fencepost.state.questions import (
    Answer,
    Export,
    ExportFormat,
    Operator,
    OperatorsQuestion,
    Rows,
    RowsQuestion,
    Store,
)
from fencepost.state.tree import StoredFile
from fencepost_cli.errors import CliError
from present import present
from unit.cli.world import World


def committed(batch: int) -> Committed:
    tree = StoredFile(UUID(int=batch), 10)
    return Committed(batch=batch, metadata="{}", offset_logs={batch: "v1"}, commit_log="v1", tree=tree)


OPERATORS = Answer(
    operators=(
        Operator(id=0, name="stateStoreSave", partitions=4, stores=(Store(name="default", rows=1200),)),
        Operator(id=1, name="symmetricHashJoin", partitions=4, stores=(Store(name="left"), Store(name="right"))),
    )
)
ROWS = Answer(
    rows=Rows(
        operator=0,
        store="default",
        columns=(("key", "name\x1b[2J"), ("value", "tags"), ("value", "count")),
        rows=(
            json.dumps({"key": {"name\x1b[2J": "a\x1b[31m"}, "value": {"tags": ["x", "y"], "count": 3}}),
            json.dumps({"key": {"name\x1b[2J": None}, "value": None}),
        ),
        more=True,
    )
)


@pytest.fixture
def world() -> World:
    made = World.usual()
    made.spec_changes = {"job": {"image": "image", "entrypoint": "job:stream", "mode": "Stateful"}}
    made.row = replace(present(made.row), checkpoint=committed(7).pack())
    made.snapshot_rows[0] = replace(made.snapshot_rows[0], checkpoint=committed(3).pack())
    return made


def test_operators_are_shown_with_stores_rows_and_bytes(world: World) -> None:
    world.answer = OPERATORS
    shown = world.json("state", "show", "shop/orders")
    row = present(world.row)
    assert {name: shown[name] for name in ("snapshot", "epoch", "version", "batch")} == {
        "snapshot": None, "epoch": row.epoch, "version": row.version, "batch": 7,
    }  # fmt: skip
    assert shown["operators"][0] == {
        "id": 0, "name": "stateStoreSave", "partitions": 4, "bytes": 4096,
        "stores": [{"name": "default", "rows": 1200}],
    }  # fmt: skip
    assert world.asked[-1] == (committed(7), OperatorsQuestion(counted=True))
    lines = world.run("state", "show", "shop/orders", "--no-rows").stdout.splitlines()
    assert [line.split() for line in lines[-3:]] == [
        ["0", "stateStoreSave", "4", "4,096", "default", "1,200"],
        ["1", "symmetricHashJoin", "4", "0", "left", "-"],
        ["1", "symmetricHashJoin", "4", "0", "right", "-"],
    ]
    assert world.asked[-1] == (committed(7), OperatorsQuestion(counted=False))


def test_rows_are_a_table_in_which_no_escape_sequence_is_left(world: World) -> None:
    world.answer = ROWS
    words = ("--operator", "0", "--store", "default", "--key", "name=a=b", "--key", "at.start=x", "--limit", "2")
    ended = world.run("state", "query", "shop/orders", *words)
    assert world.asked[-1] == (
        committed(7), RowsQuestion(operator=0, store="default", key={"name": "a=b", "at.start": "x"}, limit=2),
    )  # fmt: skip
    assert "\x1b" not in ended.stdout
    assert [line.split() for line in ended.stdout.splitlines()[2:]] == [["a", "[31m", '["x",', '"y"]', "3"], ["-"] * 3]
    assert "there are more rows" in ended.stderr
    found = world.json("state", "query", "shop/orders")
    assert [row["value"] for row in found["rows"]] == [{"tags": ["x", "y"], "count": 3}, None]
    assert found["more"]


def test_the_state_of_a_snapshot_is_read_by_name(world: World) -> None:
    world.answer = OPERATORS
    shown = world.json("state", "show", "shop/orders", "--snapshot", "before-the-sale")
    assert (shown["batch"], shown["snapshot"]) == (3, "before-the-sale")
    assert world.asked[-1][0] == committed(3)


def test_an_export_names_its_folder_and_an_incomplete_one_is_removed(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    words = ("state", "export", "shop/orders", "--format", "jsonl", "--to", str(folder))
    world.answer = Answer(rows=Rows(operator=0, store="default", exported=1200))
    assert world.json(*words)["rows"] == 1200
    assert world.asked[-1][1] == RowsQuestion(export=Export(format=ExportFormat.JSONL, folder=str(folder)))
    assert "1,200 rows of operator 0, batch 7" in world.run(*words).stdout

    def fail() -> None:
        folder.mkdir()
        raise CliError("no space", remedy="make room")

    world.before_answer = fail
    assert "no space" in world.refused(*words)
    assert not folder.exists()
    folder.mkdir()
    assert f"--to {folder}: the folder exists" in world.refused(*words)
    assert folder.exists()


def test_what_has_no_state_is_refused_by_name(world: World) -> None:
    show = ("state", "show", "shop/orders")
    assert "has no snapshot 'nothing'" in world.refused(*show, "--snapshot", "nothing")
    world.snapshot_rows[0] = replace(world.snapshot_rows[0], checkpoint=None)
    assert "snapshot 'before-the-sale' of shop/orders has no state" in world.refused(
        *show, "--snapshot", "before-the-sale"
    )
    for empty in (None, EMPTY):
        world.row = replace(present(world.row), checkpoint=empty)
        said = world.refused(*show)
        assert "the fence row of shop/orders has no state" in said
        assert "wait for the first commit" in said
    world.row = replace(present(world.row), checkpoint=b"nonsense")
    assert "unreadable" in world.refused(*show)
    world.spec_changes = {}
    assert "shop/orders has no state: its spec.job.mode is Stateless" in world.refused(*show)


@pytest.mark.parametrize("words", [("--key", "name"), ("--key", "=1"), ("--key", "a=1", "--key", "a=2")])
def test_a_key_that_is_no_value_of_a_field_is_refused(world: World, words: tuple[str, ...]) -> None:
    assert "write --key FIELD=VALUE, once per field" in world.refused("state", "query", "shop/orders", *words)
