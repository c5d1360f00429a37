"""A fence row that was written by hand is refused by the column's name."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.fence import FenceRow, FenceRowInvalid, FenceSchemaInvalid
from fencepost.fence.cassandra import schema
from fencepost.fence.sealed_epochs import sealed
from fencepost.fence.stored_rows import fence_row

NOW = datetime(2026, 1, 1)  # noqa: DTZ001 - as the driver returns it


def stored(**changed: object) -> Any:
    """A row as the driver returns it: empty maps are null."""
    offsets = {"flights.v1/0": 7}
    row: dict[str, object] = {
        "pipeline": "p", "owner": "me", "epoch": 3, "driver": "d", "version": 9, "clock": 11, "offsets": offsets,
        "planned": {"flights.v1/0": 8}, "topic_ids": {"flights.v1": "id"}, "code": None, "committed_at": NOW,
        "records": 1, "duration_ms": None, "leader_epochs": sealed({"flights.v1/0": 2}, offsets, {"flights.v1": "id"}),
        "growth_barrier": None, "log_ends": None, "begun": None, "accepted_until": None, "growths": None,
        "epoch_starts": None,
    }  # fmt: skip
    return SimpleNamespace(**{**row, **changed})


def test_a_row_of_the_fence_is_read() -> None:
    row = fence_row(stored())
    assert (row.epoch, row.version, row.clock, row.offsets) == (3, 9, 11, {"flights.v1/0": 7})
    assert row.leader_epochs == {"flights.v1/0": 2}
    assert row.committed_at == NOW.replace(tzinfo=UTC)


def test_a_released_row_is_read() -> None:
    empty = dict.fromkeys(("driver", "offsets", "planned", "topic_ids", "committed_at", "records", "leader_epochs"))
    assert fence_row(stored(owner="", **empty)) == FenceRow(pipeline="p", owner="", epoch=3, version=9, clock=11)


def test_a_table_of_the_first_release_has_no_newer_columns() -> None:
    row = stored()
    for column in ("leader_epochs", "growth_barrier", "log_ends"):
        delattr(row, column)
    assert fence_row(row).log_ends == {}


def test_dead_letters_are_counted_from_none() -> None:
    assert fence_row(stored(dead_letters=None, last_dead_letter=None)).dead_letters == 0
    row = fence_row(stored(dead_letters=2, last_dead_letter="flights.v1/0@6"))
    assert (row.dead_letters, row.last_dead_letter) == (2, "flights.v1/0@6")


def test_late_rows_are_counted_from_none() -> None:
    assert fence_row(stored(watermark=None, late_rows=None, record_times=None)).late_rows == 0
    row = fence_row(stored(watermark=7, late_rows=2, record_times={"flights.v1/0": 5}))
    assert (row.watermark, row.late_rows, row.record_times) == (7, 2, {"flights.v1/0": 5})


def test_figures_are_read_by_the_names_that_are_known() -> None:
    assert fence_row(stored(figures=None)).figures == {}
    assert fence_row(stored(figures={"bytes": 7, "of a later release": 1})).figures == {"bytes": 7}


def test_a_checkpoint_is_read_as_it_is_stored() -> None:
    assert fence_row(stored(checkpoint=None)).checkpoint is None
    assert fence_row(stored(checkpoint=b"\0")).checkpoint == b"\0"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("growths", {"a/0": 1}), ("growths", [{}]), ("growths", {"a/0@2": 1}), ("growths", {"a/0@1": -1}),
        ("growths", {"a/0@0": 1}), ("growths", {5: 1}),
        ("epoch", None), ("version", None), ("clock", None), ("owner", None), ("epoch", -1),
        ("version", -1),
        ("clock", -1), ("epoch", "3"), ("epoch", True), ("clock", 2**63), ("driver", 1), ("code", b"x"),
        ("records", -1), ("duration_ms", "x"), ("committed_at", 5), ("offsets", {"flights": 1}),
        ("offsets", {"flights/": 1}), ("offsets", {"/0": 1}), ("offsets", {"a/-1": 1}), ("offsets", {"a/0": -1}),
        ("offsets", {"a/0": None}), ("offsets", {"a/1_0": 1}), ("offsets", {"a/b/0": 1}), ("offsets", {5: 1}),
        ("offsets", [1]), ("planned", {"x": 1}), ("log_ends", {"x": 1}), ("growth_barrier", {"x": 1}),
        ("leader_epochs", {"x": 1}), ("topic_ids", {"flights": 5}), ("topic_ids", {5: "id"}),
        ("state_bytes", -1), ("state_bytes", "2"),
        ("figures", 5), ("figures", {"bytes": -1}), ("figures", {"bytes": "2"}),
        ("watermark", -1), ("late_rows", -1), ("late_rows", "2"), ("record_times", {"x": 1}),
        ("record_times", {"a/0": -1}),
        ("dead_letters", -1), ("dead_letters", "2"), ("last_dead_letter", 5), ("last_dead_letter", "x" * 9000),
        ("checkpoint", "text"), ("checkpoint", bytes(2**20 + 1)), ("planned_log", {}),
        ("last_dead_letter", "flights/0"), ("last_dead_letter", "flights/0@-1"), ("last_dead_letter", "a/0@1\n"),
    ],
)  # fmt: skip
def test_a_value_that_the_fence_never_writes_is_refused_by_its_column(column: str, value: object) -> None:
    with pytest.raises(FenceRowInvalid, match=rf"^column {column} of the fence row holds") as caught:
        fence_row(stored(**{column: value}))
    assert isinstance(caught.value, FenceSchemaInvalid)
    assert len(str(caught.value)) < 200


def test_no_column_nests_a_collection_which_the_operators_connection_refuses() -> None:
    plain = re.compile(r"\w+|(frozen<)?(map|set|list)<\w+(, \w+)?>>?")
    assert [kind for kind in schema.FENCE.all_columns.values() if not plain.fullmatch(kind)] == []
