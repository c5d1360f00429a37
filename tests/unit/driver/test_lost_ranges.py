"""What is lost of the log, and where reading continues once that is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.batch import Watermarks
from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss, StartingOffsets, TopicChange
from fencepost.driver.planning.plan import starting
from fencepost.driver.recovery import lost_ranges
from fencepost.errors import BadSpec, DataLoss, as_worker_error, from_text
from fencepost.fence import FenceRow, Starting
from present import present

AT = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
ROW = FenceRow(
    pipeline="p",
    owner="o",
    offsets={"t/0": 10, "t/1": 20},
    planned={"t/0": 18, "t/1": 26},
    topic_ids={"t": "id"},
    leader_epochs={"t/0": 3, "t/1": 3},
    epoch_starts={"t/0": 2, "t/1": 4},
    log_ends={"t/0": 40, "t/1": 50},
    committed_at=AT,
)
LOG = Watermarks(
    begins={"t/0": 0, "t/1": 0}, ends={"t/0": 40, "t/1": 50}, topic_ids={"t": "id"}, leader_epochs={"t/0": 5, "t/1": 5}
)


def claim(row: FenceRow, log: Watermarks, *reports: ReportedLoss, topics: tuple[str, ...] = ("t",)) -> Starting:
    """Return what a claim records, as the loop does it."""
    remaining = lost_ranges.without_accepted(row, reports, log)
    return starting(remaining.row, log, topics, StartingOffsets(position="latest"), 100, replaced=remaining.starts)


def loss_of(row: FenceRow, log: Watermarks, *reports: ReportedLoss) -> Loss:
    with pytest.raises(DataLoss) as caught:
        claim(row, log, *reports)
    found = present(lost_ranges.completed(caught.value, row).loss)
    assert found.reason == caught.value.reason
    return found


def accepted(loss: Loss, choice: str = "", *, epoch: int = 1) -> ReportedLoss:
    return ReportedLoss(
        loss=loss,
        epoch=epoch,
        at=AT,
        acceptance=Acceptance(by="kim", choice=choice, at=datetime(2026, 1, 3, tzinfo=UTC)),
    )


def after(row: FenceRow, start: Starting) -> FenceRow:
    """Return the row that a claim leaves."""
    return replace(row, **{name: getattr(start, name) for name in Starting.__slots__})


def test_every_lost_range_of_one_look_is_in_the_loss() -> None:
    found = loss_of(ROW, replace(LOG, begins={"t/0": 15, "t/1": 30}))
    assert found.ranges == {"t/0": (10, 15), "t/1": (20, 30)}
    assert (found.reason, found.records, found.topics) == ("OffsetOutOfRange", 15, {"t": TopicChange("id", "id")})
    cut = loss_of(ROW, replace(LOG, ends={"t/0": 7, "t/1": 11}))
    assert (cut.reason, cut.ranges) == ("LogTruncated", {"t/0": (7, 10), "t/1": (11, 20)})


def test_a_thousand_partitions_are_one_loss_with_a_short_message() -> None:
    keys = [f"t/{number}" for number in range(1000)]
    row = replace(ROW, offsets=dict.fromkeys(keys, 5), planned={}, leader_epochs={}, log_ends={})
    log = Watermarks(begins=dict.fromkeys(keys, 9), ends=dict.fromkeys(keys, 9), topic_ids={"t": "id"})
    with pytest.raises(DataLoss, match=r"4000 offsets of 1000 partitions .* and 995 more$") as caught:
        claim(row, log)
    assert caught.value.loss is not None
    assert len(caught.value.loss.ranges) == 1000
    start = claim(row, log, accepted(lost_ranges.completed(caught.value, row).loss or caught.value.loss))
    assert start.offsets == dict.fromkeys(keys, 9)


def test_an_id_names_the_content_whatever_its_order() -> None:
    loss = loss_of(ROW, replace(LOG, begins={"t/0": 15, "t/1": 30}))
    assert loss.id == replace(loss, ranges=dict(sorted(loss.ranges.items(), reverse=True))).id
    others: list[dict[str, Any]] = [
        {"reason": Reason.LOG_TRUNCATED},
        {"ranges": {**loss.ranges, "t/0": (10, 16)}},
        {"ranges": {"t/0": (10, 15)}},
        {"topics": {"t": TopicChange("other", "other")}},
        {"committed_ms": loss.committed_ms + 1},
    ]
    assert len({replace(loss, **other).id for other in others} | {loss.id}) == 6
    assert loss.committed_ms == int(AT.timestamp() * 1000)


def test_after_retention_reading_continues_where_the_log_begins_and_the_planned_batch_is_cut() -> None:
    log = replace(LOG, begins={"t/0": 15, "t/1": 30})
    start = claim(ROW, log, accepted(loss_of(ROW, log)))
    assert start.offsets == {"t/0": 15, "t/1": 30}
    assert start.planned == {"t/0": 18, "t/1": 30}  # of t/1 nothing of the planned batch is left
    assert (start.leader_epochs, start.epoch_starts) == ({"t/0": 5, "t/1": 5}, {})


def test_a_partition_that_lost_nothing_keeps_its_part_of_the_planned_batch() -> None:
    log = replace(LOG, begins={"t/0": 15, "t/1": 0})
    start = claim(ROW, log, accepted(loss_of(ROW, log)))
    assert (start.offsets, start.planned) == ({"t/0": 15, "t/1": 20}, {"t/0": 18, "t/1": 26})
    assert (start.leader_epochs, start.epoch_starts) == ({"t/0": 5, "t/1": 3}, {"t/1": 4})


def test_after_a_truncation_reading_goes_back_and_what_the_log_has_now_is_read() -> None:
    loss = loss_of(ROW, replace(LOG, ends={"t/0": 7, "t/1": 50}))
    grown = replace(LOG, ends={"t/0": 12, "t/1": 50})
    start = claim(ROW, grown, accepted(loss))
    assert (start.offsets, start.planned) == ({"t/0": 7, "t/1": 20}, {"t/0": 7, "t/1": 26})
    assert start.epoch_starts == {"t/1": 4}  # what is left of t/0 may be of an earlier epoch
    assert start.leader_epochs["t/0"] == 3  # a leader after the one that was accepted may have cut it once more


def test_a_truncation_among_records_that_are_not_committed_moves_nothing() -> None:
    """A reader saw t/0 cut at 12 when it had read up to 15 of a batch that began at 10."""
    error = DataLoss(
        "cut", reason=Reason.LOG_TRUNCATED, loss=Loss(reason=Reason.LOG_TRUNCATED, ranges={"t/0": (12, 15)})
    )
    crossed = from_text(f"Job aborted: {as_worker_error(error)}")
    assert isinstance(crossed, DataLoss)
    loss = present(lost_ranges.completed(crossed, ROW).loss)
    assert loss.ranges == {"t/0": (12, 15)}
    start = claim(ROW, LOG, accepted(loss))
    assert start.offsets == ROW.offsets
    assert start.planned["t/0"] == 12  # up to there the log has what was planned


@pytest.mark.parametrize("end", [4, 400], ids=["shorter", "longer"])
def test_a_recreated_topic_is_read_from_its_beginning_with_nothing_of_the_old_one(end: int) -> None:
    log = Watermarks(begins={"t/0": 0}, ends={"t/0": end}, topic_ids={"t": "new"}, leader_epochs={"t/0": 0})
    row = replace(ROW, growth_barrier={"t/0": 99, "t/2": 0})
    loss = loss_of(row, log)
    assert (loss.reason, loss.topics) == ("TopicRecreated", {"t": TopicChange("id", "new")})
    assert loss.ranges == {"t/0": (10, 40), "t/1": (20, 50)}
    start = claim(row, log, accepted(loss, "earliest"))
    assert (start.offsets, start.planned) == ({"t/0": 0}, {"t/0": min(end, 100)})
    assert (start.topic_ids, start.growth_barrier, start.leader_epochs) == ({"t": "new"}, {}, {"t/0": 0})
    assert start.log_ends == {"t/0": end}


def test_a_recreated_topic_continues_at_the_accepted_offsets_and_elsewhere_at_its_beginning() -> None:
    log = replace(LOG, begins={"t/0": 1, "t/1": 2}, topic_ids={"t": "new"})
    loss = loss_of(ROW, log)
    assert claim(ROW, log, accepted(loss, "t/0:12")).offsets == {"t/0": 12, "t/1": 2}


@pytest.mark.parametrize("at", [0, 4000])
def test_a_map_beyond_the_log_is_the_acceptances_fault_and_the_same_loss_again(at: int) -> None:
    log = replace(LOG, begins={"t/0": 1, "t/1": 2}, topic_ids={"t": "new"})
    loss = loss_of(ROW, log)
    with pytest.raises(DataLoss, match=rf"t/0:{at}; that is outside the log, which holds \[1, 40\)") as caught:
        claim(ROW, log, accepted(loss, f"t/1:4,t/0:{at}"))
    assert caught.value.loss == loss
    assert "startingOffsets" not in f"{caught.value} {caught.value.remedy}"
    assert "continue=" in caught.value.remedy


def test_a_map_with_a_partition_that_the_new_topic_does_not_have_is_refused_by_its_field() -> None:
    log = replace(LOG, topic_ids={"t": "new"}, leaderless=frozenset({"t/2"}))
    loss = loss_of(ROW, log)
    assert claim(ROW, log, accepted(loss, "t/0:4,t/2:9")).offsets == {"t/0": 4, "t/1": 0}
    with pytest.raises(DataLoss, match="continue=t/7:4; topic t has 3 partitions") as caught:
        claim(ROW, log, accepted(loss, "t/0:4,t/7:4"))
    assert caught.value.loss == loss
    assert "from 0 to 2, or continue=earliest" in caught.value.remedy


def test_losses_that_overlap_are_accepted_as_one() -> None:
    """A retry found the loss again after retention had deleted more: both are accepted, and nothing else is asked."""
    first = loss_of(ROW, replace(LOG, begins={"t/0": 15, "t/1": 30}))
    later = replace(LOG, begins={"t/0": 15, "t/1": 33})
    second = loss_of(ROW, later)
    reports = accepted(first), accepted(second, epoch=2)
    for ordered in (reports, [replace(each, epoch=3 - each.epoch) for each in reports]):
        start = claim(ROW, later, *ordered)
        assert start.offsets == {"t/0": 15, "t/1": 33}
        claimed = after(ROW, start)
        assert lost_ranges.without_accepted(claimed, ordered, later).accepted == ()


def test_an_abandoned_topic_is_as_one_that_was_never_read() -> None:
    two = replace(ROW, offsets={**ROW.offsets, "u/0": 7}, topic_ids={"t": "id", "u": "u-id"})
    other = {"begins": {"u/0": 0}, "ends": {"u/0": 9}, "topic_ids": {"u": "u-id"}}
    gone = Watermarks(missing={"t": 31.0}, **other)  # type: ignore[arg-type]
    with pytest.raises(DataLoss) as caught:
        claim(two, gone, topics=("t", "u"))
    loss = present(lost_ranges.completed(caught.value, two).loss)
    assert (loss.reason, loss.topics) == ("TopicDeleted", {"t": TopicChange("id", None)})
    report = accepted(loss, "abandon")
    with pytest.raises(BadSpec, match="does not exist"):
        claim(two, gone, report, topics=("t", "u"))
    left = claim(two, Watermarks(**other), report, topics=("u",))  # type: ignore[arg-type]
    assert (left.offsets, left.topic_ids) == ({"u/0": 7}, {"u": "u-id"})
    back = replace(LOG, topic_ids={"t": "newer", "u": "u-id"})
    assert claim(two, back, report, topics=("t", "u")).offsets == {"t/0": 40, "t/1": 50, "u/0": 7}  # at startingOffsets


def test_a_topic_that_vanishes_while_it_is_read_loses_what_was_seen_of_it() -> None:
    """Kafka says for half a minute that there is no topic; a claim in that time keeps how far the log went."""
    gone = Watermarks(begins={}, ends={}, topic_ids={}, missing={"t": 3.0})
    claimed = after(ROW, claim(ROW, gone))
    assert claimed.log_ends == ROW.log_ends
    loss = loss_of(claimed, replace(gone, missing={"t": 31.0}))
    assert (loss.reason, loss.ranges) == ("TopicDeleted", {"t/0": (10, 40), "t/1": (20, 50)})


def test_a_topic_that_is_recreated_once_more_is_another_loss() -> None:
    loss = loss_of(ROW, replace(LOG, topic_ids={"t": "new"}))
    again = loss_of(ROW, replace(LOG, topic_ids={"t": "newer"}), accepted(loss, "earliest"))
    assert again.id != loss.id


def test_what_is_lost_besides_is_another_loss_from_where_the_accepted_one_ends() -> None:
    first = accepted(loss_of(ROW, replace(LOG, begins={"t/0": 15, "t/1": 0})))
    later = replace(LOG, begins={"t/0": 19, "t/1": 0})
    second = loss_of(ROW, later, first)
    assert second.ranges == {"t/0": (15, 19)}
    start = claim(ROW, later, accepted(second, epoch=2), first)  # in whatever order they are read
    assert start.offsets["t/0"] == start.planned["t/0"] == 19


def test_an_acceptance_is_used_up_by_a_commit() -> None:
    """Injected: t/0 is truncated to 7 and accepted; the pipeline then commits 10 again, and restarts there."""
    loss = loss_of(ROW, replace(LOG, ends={"t/0": 7, "t/1": 50}))
    claimed = after(ROW, claim(ROW, LOG, accepted(loss)))
    assert claim(claimed, LOG, accepted(loss)).offsets == claimed.offsets  # a claim without a commit: nothing more
    later = replace(claimed, offsets=ROW.offsets, committed_at=datetime(2026, 2, 1, tzinfo=UTC))
    assert claim(later, LOG, accepted(loss)).offsets == ROW.offsets


@pytest.mark.parametrize(
    "report",
    [
        lambda loss: replace(accepted(loss), acceptance=None),
        lambda loss: accepted(loss, "latest"),
        lambda loss: accepted(replace(loss, committed_ms=0)),
        lambda loss: accepted(replace(loss, topics={"t": TopicChange("other", "other")})),
        lambda loss: accepted(replace(loss, ranges={"t/0": (9, 15)})),
    ],
    ids=["not accepted", "a choice that there is not", "another commit", "another topic", "another offset"],
)
def test_only_the_acceptance_of_this_loss_counts(report: Any) -> None:
    log = replace(LOG, begins={"t/0": 15, "t/1": 0})
    loss = loss_of(ROW, log)
    assert loss_of(ROW, log, report(loss)) == loss


def test_a_held_partition_that_is_truncated_does_not_go_back_to_what_retention_deleted() -> None:
    row = replace(ROW, offsets={"t/0": 10}, planned={}, growth_barrier={"t/0": 30, "t/1": 6})
    log = replace(LOG, begins={"t/0": 0, "t/1": 3}, ends={"t/0": 40, "t/1": 5})
    truncated = loss_of(row, log)
    assert (truncated.reason, truncated.ranges) == ("LogTruncated", {"t/1": (5, 6)})
    claimed = claim(row, log, accepted(truncated))
    assert (claimed.offsets, claimed.growth_barrier) == ({"t/0": 10}, {"t/0": 30, "t/1": 5})


def test_a_held_partition_starts_after_its_accepted_loss_and_is_still_held() -> None:
    row = replace(ROW, offsets={"t/0": 10}, planned={}, growth_barrier={"t/0": 30, "t/1": 0})
    log = replace(LOG, begins={"t/0": 0, "t/1": 6})
    loss = loss_of(row, log)
    assert loss.ranges == {"t/1": (0, 6)}
    claimed = after(row, claim(row, log, accepted(loss)))
    assert (claimed.offsets, claimed.growth_barrier) == ({"t/0": 10}, {"t/0": 30, "t/1": 6})
    reached = replace(claimed, offsets={"t/0": 30})
    assert claim(reached, log).offsets == {"t/0": 30, "t/1": 6}


def test_a_truncated_partition_does_not_hold_new_ones_forever() -> None:
    row = replace(ROW, offsets={"t/0": 10}, planned={}, growth_barrier={"t/0": 30, "t/1": 0})
    loss = loss_of(row, replace(LOG, ends={"t/0": 7, "t/1": 50}))
    assert claim(row, replace(LOG, ends={"t/0": 7, "t/1": 50}), accepted(loss)).offsets == {"t/0": 7, "t/1": 0}


@pytest.mark.parametrize(
    "ranges",
    [
        {"x/0": [1, 2]},
        {"t/0": [5, 2]},
        {"t/0": [-1, 2]},
        {"t/0": [0, 2**63]},
        {"t/0": 7},
        {"t/0": ["a", "b"]},
        [1],
        "t",
    ],
)
def test_ranges_that_an_author_made_up_are_no_loss(ranges: object) -> None:
    error = DataLoss("x", reason=Reason.LOG_TRUNCATED, loss=Loss(reason=Reason.LOG_TRUNCATED, ranges={"t/0": (1, 2)}))
    object.__setattr__(error.loss, "ranges", ranges)
    found = from_text(str(as_worker_error(error)))
    assert found is None or (isinstance(found, DataLoss) and lost_ranges.completed(found, ROW).loss is None)


Offsets = st.dictionaries(st.sampled_from(["t/0", "t/1", "t/2"]), st.integers(0, 50), min_size=1)


@given(offsets=Offsets, planned=Offsets, begins=Offsets, ends=Offsets)
def test_accepting_what_is_lost_always_leads_on(
    offsets: Mapping[str, int], planned: Mapping[str, int], begins: Mapping[str, int], ends: Mapping[str, int]
) -> None:
    """From any row and log, a few acceptances lead to a claim within the log, and no record of the log is left out."""
    begins = {key: min(begins.get(key, 0), end) for key, end in ends.items()}
    log = Watermarks(begins=begins, ends=ends, topic_ids={"t": "id"})
    row = replace(ROW, offsets=offsets, planned={key: max(planned.get(key, 0), at) for key, at in offsets.items()})
    row, reports = replace(row, leader_epochs={}, log_ends={}), list[ReportedLoss]()
    while True:
        try:
            start = claim(row, log, *reports)
        except DataLoss as error:
            assert len(reports) < 3
            loss = present(lost_ranges.completed(error, row).loss)
            reports.append(accepted(loss, epoch=len(reports)))
            continue
        break
    for key, at in start.offsets.items():
        if key in ends:
            assert begins[key] <= at <= ends[key]
            assert at == (max(begins[key], min(offsets.get(key, 0), ends[key])))
            assert at <= start.planned.get(key, at) <= ends[key]
