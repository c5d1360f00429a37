"""The fence's invariants, each broken alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.memory import MemoryFenceTable
from fencepost_cli.history.checks import check_history
from flights.history import HistoryRow, commits
from flights.reconciliation import Writers

Story = list[HistoryRow]


def story() -> Story:
    """Two runs: created, taken over, claimed, two commits; taken over, claimed, one commit."""
    none: dict[str, int] = {}
    start, first, second, third = {"t/0": 0}, {"t/0": 5}, {"t/0": 9}, {"t/0": 12}
    return [
        HistoryRow(epoch=0, driver=None, version=0, clock=0),
        HistoryRow(epoch=1, driver=None, version=1, clock=100, offsets=none),
        HistoryRow(epoch=1, driver="a", version=2, clock=100, offsets=start, planned=first),
        HistoryRow(epoch=1, driver="a", version=3, clock=101, offsets=first, planned=second, records=5),
        HistoryRow(epoch=1, driver="a", version=4, clock=102, offsets=second, planned=third, records=4),
        HistoryRow(epoch=2, driver=None, version=5, clock=200, offsets=second, planned=third),
        HistoryRow(epoch=2, driver="b", version=6, clock=200, offsets=second, planned=third),
        HistoryRow(epoch=2, driver="b", version=7, clock=201, offsets=third, planned=third, records=3),
    ]


def test_a_correct_history_has_no_violations() -> None:
    found = check_history(reversed(story()))

    assert found.violations == ()
    assert (found.changes, found.commits, found.takeovers, found.gaps) == (8, 3, 2, 0)
    assert (found.first_epoch, found.last_epoch) == (0, 2)
    assert found.committed == {"t/0": 12}
    assert found.lines() == ["3 commits, 2 takeovers, epochs 0 to 2, 0 changes not on record"]


def rewound(**changes: object) -> Story:
    """The story goes back to 3 after it, and a run commits from there."""
    last = story()[-1]
    taken = replace(last, epoch=3, driver=None, version=8, clock=300)
    back = replace(taken, version=9, clock=302, offsets={"t/0": 3}, planned={"t/0": 3})
    claim = replace(back, driver="c", version=10, planned={"t/0": 6})
    commit = replace(claim, version=11, clock=303, offsets={"t/0": 6}, planned={"t/0": 6}, records=3)
    return [*story(), taken, replace(back, **changes), claim, commit]  # type: ignore[arg-type]


def test_a_rewind_moves_offsets_back() -> None:
    found = check_history(rewound())
    assert found.violations == ()
    assert (found.rewinds, found.takeovers, found.commits) == (1, 3, 4)


@pytest.mark.parametrize(
    ("changes", "violation"),
    [
        ({"clock": 301}, "a rewind moved the clock by less than two"),
        ({"planned": {"t/0": 9}}, "a rewind planned a batch"),
        ({"offsets": {"t/0": 13}, "planned": {"t/0": 13}}, "a rewind moved t/0 on"),
        ({"driver": "c"}, "t/0 went back from 12 to 3"),
    ],
)
def test_an_impossible_rewind_is_a_violation(changes: dict[str, object], violation: str) -> None:
    assert any(violation in found for found in check_history(rewound(**changes)).violations)


def test_a_rewind_may_set_the_state_alone() -> None:
    taken = replace(story()[-1], epoch=3, driver=None, version=8, clock=300)
    back = replace(taken, version=9, clock=302)
    found = check_history([*story(), taken, back, replace(back, driver="c", version=10)])
    assert found.violations == ()
    assert found.rewinds == 1


def test_offsets_that_are_committed_again_have_the_last_commits_timestamp() -> None:
    writers = Writers.of(rewound())
    assert [writers.timestamp("t/0", offset) for offset in (0, 2, 3, 5)] == [101, 101, 303, 303]
    assert writers.timestamp("t/0", 7) is None


def test_an_empty_history_has_no_violations() -> None:
    assert check_history([]).ok


def test_the_commit_before_a_kill_may_be_off_the_record() -> None:
    rows = story()
    del rows[4]

    found = check_history(rows)

    assert found.ok
    assert found.gaps == 1


def test_an_aborted_run_leaves_a_takeover_after_a_takeover() -> None:
    rows = story()[:2]
    rows.append(replace(rows[1], epoch=2, version=2, clock=102))

    assert check_history(rows).ok


def test_a_plan_moves_nothing_and_is_not_a_commit() -> None:
    rows = story()
    idle = replace(rows[-1], version=8, clock=202, planned={"t/0": 20}, records=0)
    batch = replace(idle, version=9, clock=203, offsets={"t/0": 20}, records=8)

    found = check_history([*rows, idle, batch])

    assert found.violations == ()
    assert (found.commits, found.plans) == (4, 1)
    assert commits([*rows, idle, batch])[-1] == (idle, batch)


def test_a_planned_batch_may_be_cut_and_not_enlarged() -> None:
    rows = story()
    whole = replace(rows[-1], version=8, clock=202, planned={"t/0": 20}, records=0)
    piece = replace(whole, version=9, clock=203, planned={"t/0": 16})
    done = replace(piece, version=10, clock=204, offsets={"t/0": 16}, records=4)
    assert check_history([*rows, whole, piece, done]).ok
    found = check_history([*rows, whole, replace(piece, planned={"t/0": 21})])
    assert "did not end where it was planned" in found.violations[0]


def two_of_one_version(rows: Story) -> None:
    rows.append(replace(rows[4], driver="zombie"))


def commit_under_an_old_epoch(rows: Story) -> None:
    rows.append(replace(rows[4], version=8, clock=202))


def epoch_skipped(rows: Story) -> None:
    rows[5:] = [replace(row, epoch=3) for row in rows[5:]]


def offsets_back(rows: Story) -> None:
    rows[7] = replace(rows[7], offsets={"t/0": 8}, records=-1)


def partition_forgotten(rows: Story) -> None:
    rows[7] = replace(rows[7], offsets={"t/1": 3})


def more_records_than_offsets(rows: Story) -> None:
    rows[7] = replace(rows[7], records=4)


def not_as_planned(rows: Story) -> None:
    rows[7] = replace(rows[7], offsets={"t/0": 11}, records=2)


def another_driver(rows: Story) -> None:
    rows[4] = replace(rows[4], driver="twin")


def clock_stands_still(rows: Story) -> None:
    rows[7] = replace(rows[7], clock=200)


def takeover_with_a_small_step(rows: Story) -> None:
    rows[5:] = [replace(row, clock=103) for row in rows[5:6]]


def takeover_with_a_driver(rows: Story) -> None:
    rows[5] = replace(rows[5], driver="b")


def takeover_moves_offsets(rows: Story) -> None:
    rows[5] = replace(rows[5], offsets={"t/0": 10})


def claim_skips(rows: Story) -> None:
    rows[6] = replace(rows[6], offsets={"t/0": 10})


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        (two_of_one_version, "version 4 is there twice"),
        (commit_under_an_old_epoch, "the epoch went from 2 to 1"),
        (epoch_skipped, "the epoch went from 1 to 3"),
        (offsets_back, "t/0 went back from 9 to 8"),
        (partition_forgotten, "t/0 is gone from the offsets"),
        (more_records_than_offsets, "a commit of 4 records moved the offsets by 3"),
        (not_as_planned, "did not end where it was planned: t/0"),
        (another_driver, "neither takeover, claim nor commit (driver a to twin)"),
        (clock_stands_still, "a commit moved the clock by 0"),
        (takeover_with_a_small_step, "a takeover moved the clock by less than two"),
        (takeover_with_a_driver, "epoch 2 began with a driver, b"),
        (takeover_moves_offsets, "a takeover moved the offsets"),
        (claim_skips, "a claim skipped records of t/0"),
    ],
)
def test_a_broken_invariant_is_named(breaking: Callable[[Story], None], words: str) -> None:
    rows = story()
    breaking(rows)

    found = check_history(rows)

    assert not found.ok
    assert any(words in violation for violation in found.violations)


def test_commits_come_with_what_was_before() -> None:
    assert [(before.version, commit.version) for before, commit in commits(story())] == [(2, 3), (3, 4), (6, 7)]


def test_the_fence_itself_writes_a_correct_history() -> None:
    rows: list[FenceRow] = []
    fence = Fence(MemoryFenceTable(), "scope/ns/name")
    row = fence.create("owner")
    rows.append(row)
    for epoch in (1, 2, 3):
        row = fence.take_over(row, owner="owner")
        rows.append(row)

        def start(seen: FenceRow) -> Starting:
            at = dict(seen.offsets) or {"t/0": 0}
            return Starting(offsets=at, planned={"t/0": at["t/0"] + 10}, topic_ids={"t": "id"})

        row = fence.claim(epoch=epoch, driver=f"pod-{epoch}", code="code", start=start)
        rows.append(row)
        for _ in range(3):
            end = row.planned["t/0"]
            row = fence.commit(row, offsets={"t/0": end}, planned={"t/0": end + 10}, records=10, duration_ms=1)
            rows.append(row)

    found = check_history(rows)

    assert found.violations == ()
    assert (found.commits, found.takeovers) == (9, 3)
