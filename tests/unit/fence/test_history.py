"""The history keeps differences, and gives back every row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from fencepost.fence import FenceRow
from fencepost.fence.history import change, hour_of, restored

NOW = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
START = FenceRow(
    pipeline="p",
    owner="me",
    epoch=2,
    driver="pod",
    version=7,
    offsets={"a/0": 1, "a/1": 1},
    planned={"a/0": 1, "a/1": 1},
)
OFFSETS = st.dictionaries(st.sampled_from(["a/0", "a/1", "a/2", "b/0"]), st.integers(0, 9))


@given(st.lists(st.tuples(OFFSETS, OFFSETS, st.sampled_from(["plan", "commit", "takeover", "any"])), max_size=8))
def test_every_row_comes_back_from_its_differences(steps: list[tuple[dict[str, int], dict[str, int], str]]) -> None:
    rows = [START]
    for offsets, planned, kind in steps:
        last = rows[-1]
        after = replace(last, version=last.version + 1, planned={**last.planned, **planned})
        if kind == "commit":
            after = replace(after, offsets=last.planned, records=3)
        elif kind == "takeover":
            after = replace(after, epoch=last.epoch + 1, driver=None)
        elif kind == "any":
            after = replace(after, offsets=offsets, planned=planned, topic_ids={"a": str(len(rows))})
        rows.append(after)
    records = [change(before, after, NOW) for before, after in zip([None, *rows], rows, strict=False)]
    assert [row for _, row in restored("p", reversed(records))] == rows


def test_a_commit_names_no_partition_and_its_plan_names_each_once() -> None:
    planned = replace(START, version=8, planned={"a/0": 5, "a/1": 1})
    committed = replace(planned, version=9, offsets=planned.planned, records=4)
    plan, commit = change(START, planned, NOW), change(planned, committed, NOW)
    assert (plan.base, plan.offsets, plan.planned) == (False, {}, {"a/0": 5})
    assert (commit.base, commit.committed, commit.offsets, commit.planned) == (False, True, {}, {})
    assert commit.owner is None


def test_a_commit_names_only_the_figures_that_changed() -> None:
    first = replace(START, version=8, figures={"bytes": 7, "driver_jvm": 90}, state_bytes=5)
    second = replace(first, version=9, figures={"bytes": 8, "driver_jvm": 90}, state_bytes=6)
    records = [change(None, START, NOW), change(START, first, NOW), change(first, second, NOW)]
    assert (records[2].figures, records[2].state_bytes) == ({"bytes": 8}, 6)
    assert [row for _, row in restored("p", records)] == [START, first, second]


def test_what_comes_before_the_first_complete_record_is_left_out() -> None:
    planned = replace(START, version=8, planned={"a/0": 5, "a/1": 1})
    assert list(restored("p", [change(START, planned, NOW)])) == []


def test_a_change_has_the_lag_that_the_driver_saw() -> None:
    ends = {"a/0": 5, "a/1": 1, "a/2": 900}
    assert change(None, START, NOW).lag is None
    assert change(None, replace(START, log_ends=ends), NOW).lag == 4
    assert change(START, replace(START, version=8, offsets={"a/0": 7, "a/1": 0}, log_ends=ends), NOW).lag == 1


def test_an_hour_is_a_partition() -> None:
    assert hour_of(NOW) == datetime(2026, 11, 21, 14, tzinfo=UTC)
