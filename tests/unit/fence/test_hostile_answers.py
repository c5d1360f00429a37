"""A Cassandra that a tenant runs may answer with pages that never end, and with columns of other types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import uuid1

import pytest

from fencepost.fence.cassandra import schema
from fencepost.fence.cassandra.snapshots import MOST, SnapshotTable
from fencepost.fence.snapshots import Trigger


@dataclass(frozen=True, slots=True)
class Pages:
    """An answer whose first page is this, and whose next one never ends."""

    current_rows: list[Any]

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("it asks for the next page")


SOUND = {"id": uuid1(), "reason": "Schedule", "epoch": 3, "version": 7, "name": None, "code": "image 1"}


@dataclass(frozen=True, slots=True)
class Session:
    """Answers every statement with one page."""

    rows: list[Any] = field(default_factory=list)

    def prepare(self, text: str) -> str:
        return text

    def execute(self, statement: str, _values: object = None) -> Any:
        if "system_schema.columns" in statement:
            return Pages([SimpleNamespace(column_name=name, type="text") for name in SOUND])
        return Pages(self.rows)


def snapshots(*rows: dict[str, Any]) -> SnapshotTable:
    session: Any = Session([SimpleNamespace(**row) for row in rows])
    return SnapshotTable(session, "k")


def test_one_page_of_snapshots_is_read() -> None:
    found = snapshots(*[SOUND] * (MOST + 1)).newest("p")
    assert len(found) == MOST
    assert (found[0].trigger, found[0].version) == (Trigger.SCHEDULE, 7)


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "one"},
        {"id": None},
        {"reason": 1},
        {"epoch": "x"},
        {"version": 2**64},
        {"name": b"\xff"},
        {"code": [1]},
        {"checkpoint": "x"},
    ],
)
def test_a_row_of_other_types_is_not_a_snapshot(wrong: dict[str, Any]) -> None:
    assert [one.id for one in snapshots({**SOUND, **wrong}, SOUND).newest("p")] == [SOUND["id"]]


def test_one_page_of_nodes_is_counted() -> None:
    session: Any = Session([SimpleNamespace(data_center="east"), SimpleNamespace(data_center=None)])
    assert schema.nodes(session) == {"east": 2}
