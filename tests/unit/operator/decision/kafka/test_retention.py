"""Before Kafka deletes unread records, the status says when, and the condition RetentionRisk what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.manifests import body
from fencepost.fence import FenceRow
from fencepost_operator.api import (
    FINALIZER,
    PAUSED_ANNOTATION,
    Condition,
    DataRisk,
    ReconcileConfig,
    Status,
    read_pipeline,
    read_status,
    write_status,
)
from fencepost_operator.decision.decide import decide
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.kafka.retention import BY_SIZE, BY_TIME, margin
from fencepost_operator.observation import (
    DRIVER_ONLY,
    Fact,
    Known,
    LogStart,
    Observation,
    References,
    Retention,
    Unknown,
    UnknownReason,
    UnreadRecords,
    Watermarks,
)
from present import present

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
POLICY = ReconcileConfig(cluster_uid="cluster-1")
ROW = FenceRow(
    pipeline="default/shop/orders", owner="cluster-1/uid-1", epoch=2, driver=None, version=9,
    offsets={"orders/0": 50, "orders/1": 50}, committed_at=NOW,
)  # fmt: skip
WEEK = Known(Retention(time=7 * DAY))
SILENT = Unknown(reason=UnknownReason.UNREACHABLE, message="no answer", remedy="wait")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A suspended pipeline and what is seen of its topic; partition 0 has 10 unread records."""

    retention: Fact[Retention] = WEEK
    ages: Mapping[str, timedelta] = field(default_factory=dict)
    starts: Mapping[str, int] = field(default_factory=dict)
    jumps: Mapping[str, LogStart] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=lambda: {"orders/0": 60, "orders/1": 50})
    marks: Mapping[str, int] = field(default_factory=dict)
    status: Status = field(default_factory=Status)
    now: datetime = NOW
    suspend: bool = True
    paused: bool = False
    row: Fact[FenceRow | None] = field(default_factory=lambda: Known(ROW))
    unread: Fact[UnreadRecords] | None = None
    source: Fact[Watermarks] | None = None

    def decide(self) -> Decision:
        annotations = {PAUSED_ANNOTATION: "true"} if self.paused else {}
        pipeline = replace(
            read_pipeline(body(suspend=self.suspend)),
            finalizers=(FINALIZER,), annotations=annotations, status=self.status,
        )  # fmt: skip
        known = UnreadRecords(
            retention={"orders": self.retention},
            oldest={key: NOW - age for key, age in self.ages.items()},
            log_starts=self.jumps,
        )
        observation = Observation(
            now=self.now,
            references=Known(References(hashes={})),
            release=Known(None),
            cluster=Known(None),
            runs=Known(()),
            fence=self.row,
            source=self.source or Known(Watermarks(ends=self.ends, starts=self.starts, high_watermarks=self.marks)),
            unread=self.unread or Known(known),
        )
        return decide(pipeline, observation, POLICY)

    def then(self, **changes: object) -> Scene:
        """Return what comes after this scene: its status was recorded."""
        return replace(self, status=self.decide().status, **changes)  # type: ignore[arg-type]


def condition(decision: Decision) -> Condition | None:
    return next((c for c in decision.status.conditions if c.type == "RetentionRisk"), None)


@pytest.mark.parametrize(
    ("kept", "warned"),
    [
        (timedelta(), timedelta()),
        (HOUR, HOUR / 2),
        (1 * DAY, 12 * HOUR),
        (3 * DAY, 24 * HOUR),
        (7 * DAY, 42 * HOUR),
        (30 * DAY, 7.5 * DAY),
    ],
)
def test_the_time_of_warning_is_a_day_or_a_quarter_and_at_most_half(kept: timedelta, warned: timedelta) -> None:
    assert margin(kept) == warned


@pytest.mark.parametrize(
    ("age", "reason"),
    [
        (timedelta(seconds=20), None),
        (5 * DAY, None),
        (7 * DAY - 43 * HOUR, None),
        (7 * DAY - 41 * HOUR, "DataExpiresSoon"),
        (9 * DAY, "DataExpiresSoon"),
    ],
)
def test_the_age_against_retention_ms(age: timedelta, reason: str | None) -> None:
    decision = Scene(ages={"orders/0": age}).decide()
    found, risk = condition(decision), decision.status.data_risk
    assert (found.reason if found else None) == reason
    if age < timedelta(minutes=1):
        assert risk is None
    else:
        assert risk is not None
        assert (risk.partition, risk.offset, risk.limit, risk.retention_ms) == ("orders/0", 50, BY_TIME, 604_800_000)
        assert (risk.oldest_uncommitted_at, risk.expires_at) == (NOW - age, NOW - age + 7 * DAY)
    assert decision.backlog is not None
    assert decision.backlog.time_lag == age.total_seconds()
    assert decision.backlog.time_to_loss == max(0, (7 * DAY - age).total_seconds())


def test_the_message_says_when_and_what_to_do() -> None:
    found = present(condition(Scene(ages={"orders/0": 6 * DAY}).decide()))
    assert found.message == (
        "Kafka may delete the oldest uncommitted record of orders/0, at offset 50, there since 2026-01-04 12:00 UTC, "
        "from 2026-01-11 12:00 UTC on (retention.ms=604800000). "
        'Run kubectl patch spl -n shop orders --type merge -p \'{"spec":{"suspend":false}}\' to resume; '
        "run fencepost retention extend shop/orders --topic orders --hours 168 to keep the records longer."
    )


def test_a_stalled_pipeline_is_warned_as_well() -> None:
    stalled = Scene(ages={"orders/0": 6 * DAY}, suspend=False, row=Known(replace(ROW, owner="other/uid"))).decide()
    assert any(c.type == "Stalled" for c in stalled.status.conditions)
    found = present(condition(stalled))
    assert "the condition Ready" in found.message


def test_the_event_comes_once_per_transition_and_nothing_is_written_while_nothing_changes() -> None:
    scene = Scene(ages={"orders/0": 5 * DAY})
    quiet = scene.then(now=NOW + 5 * HOUR)
    assert quiet.decide().status == quiet.status
    warned = replace(quiet, now=NOW + 7 * HOUR).decide()
    assert [event.reason for event in warned.events] == ["DataExpiresSoon"]
    for hours in (7, 8, 40, 100):
        again = replace(quiet, status=warned.status, now=NOW + timedelta(hours=hours)).decide()
        assert again.events == ()
        assert again.status == warned.status
    resumed = replace(quiet, status=warned.status, ends={"orders/0": 50, "orders/1": 50}).decide()
    assert (resumed.status.data_risk, condition(resumed), resumed.events) == (None, None, ())


def test_the_condition_ends_only_well_below_its_threshold() -> None:
    scene = Scene(ages={"orders/0": 7 * DAY - 41 * HOUR}).then()
    extended = replace(scene, ages={"orders/0": 7 * DAY - 43 * HOUR})
    assert condition(extended.decide()) is not None
    assert condition(replace(scene, ages={"orders/0": 7 * DAY - 50 * HOUR}).decide()) is None


def test_noise_of_the_measurement_is_not_written() -> None:
    scene = Scene(ages={"orders/0": 5 * DAY}).then(ages={"orders/0": 5 * DAY + HOUR})
    assert scene.decide().status == scene.status
    moved = replace(scene, ages={"orders/0": 5 * DAY + 5 * HOUR}).decide()
    assert moved.status != scene.status


def test_the_partition_that_expires_first_is_named() -> None:
    decision = Scene(ends={"orders/0": 60, "orders/1": 60}, ages={"orders/0": HOUR, "orders/1": 2 * HOUR}).decide()
    assert present(decision.status.data_risk).partition == "orders/1"
    assert decision.backlog is not None
    assert decision.backlog.lags == {"orders/0": 10, "orders/1": 10}


def test_records_behind_an_open_transaction_age_as_well() -> None:
    decision = Scene(ends={"orders/0": 50}, marks={"orders/0": 80}, ages={"orders/0": 6 * DAY}).decide()
    assert condition(decision) is not None


@pytest.mark.parametrize(
    ("retention", "reason"),
    [
        (Retention(time=71 * HOUR), "RetentionTooShort"),
        (Retention(time=72 * HOUR), None),
        (Retention(size=1), None),
        (Retention(), None),
    ],
)
def test_a_retention_under_three_days_is_a_standing_warning(retention: Retention, reason: str | None) -> None:
    scene = Scene(retention=Known(retention), ends={"orders/0": 50})
    decision = scene.decide()
    found = condition(decision)
    assert (found.reason if found else None) == reason
    assert decision.status.data_risk is None
    if found is not None:
        assert "orders for 71 h, which is less than 72 h" in found.message
        assert "--add-config retention.ms=604800000" in found.message
        for unseen in ({"source": SILENT, "unread": SILENT}, {"retention": SILENT}):
            assert condition(scene.then(**unseen).decide()) == found, "what cannot be seen changes nothing"
        for seen in ({"retention": WEEK}, {"unread": DRIVER_ONLY}):
            assert condition(scene.then(**seen).decide()) is None


def test_without_retention_there_is_no_loss() -> None:
    decision = Scene(retention=Known(Retention()), ages={"orders/0": 400 * DAY}).decide()
    assert (decision.status.data_risk, condition(decision)) == (None, None)
    assert decision.backlog is not None
    assert (decision.backlog.time_lag, decision.backlog.time_to_loss) == (400 * 86_400, None)


def by_size(**changes: object) -> Scene:
    """A log of 3600 offsets that loses one per second, with an hour from its start to its end."""
    jump = LogStart(offset=0, at=NOW - timedelta(minutes=10), per_second=1.0)
    scene = Scene(
        retention=Known(Retention(size=1 << 30)),
        row=Known(replace(ROW, offsets={"orders/0": 1800})),
        ends={"orders/0": 3600},
        jumps={"orders/0": jump},
        ages={"orders/0": HOUR},
    )
    return replace(scene, **changes)  # type: ignore[arg-type]


def test_retention_bytes_is_estimated_by_the_speed_of_the_logs_start() -> None:
    decision = by_size().decide()
    risk, found = decision.status.data_risk, condition(decision)
    assert risk is not None
    assert (risk.limit, risk.retention_bytes, risk.expires_at) == (BY_SIZE, 1 << 30, NOW + timedelta(minutes=20))
    assert found is not None
    assert "retention.bytes=1073741824, estimated by" in found.message
    assert "fencepost retention extend shop/orders --topic orders --to 7d --lift-size to keep" in found.message


def test_an_operator_that_restarted_keeps_the_estimate_until_it_has_its_own() -> None:
    scene = by_size().then(jumps={}, ages={})
    assert scene.decide().status == scene.status
    assert replace(scene, row=Known(replace(ROW, offsets={"orders/0": 2500}))).decide().status.data_risk is None
    longer = replace(scene, retention=Known(Retention(size=1 << 40))).decide()
    assert longer.status.data_risk is None, "a user has extended it"


def test_a_partition_without_a_leader_keeps_what_was_known_of_it() -> None:
    scene = Scene(ages={"orders/0": 6 * DAY}).then(ends={"orders/1": 60}, ages={"orders/1": HOUR})
    assert scene.decide().status.data_risk == scene.status.data_risk


@pytest.mark.parametrize("reason", UnknownReason)
def test_a_retention_that_is_not_described_any_more_ends_no_warning(reason: UnknownReason) -> None:
    unknown = Unknown(reason=reason, message="no answer", remedy="wait")
    scene = Scene(ages={"orders/0": 6 * DAY}).then(retention=unknown)
    decision = scene.decide()
    assert replace(present(decision.status.data_risk), unknown=None) == scene.status.data_risk
    assert condition(decision) is not None
    read_on = replace(scene, row=Known(replace(ROW, offsets={"orders/0": 55, "orders/1": 50})))
    assert condition(read_on.decide()) is None


def test_records_that_are_gone_are_counted_and_their_loss_dated_once() -> None:
    scene = Scene(starts={"orders/0": 57}, ages={"orders/0": DAY}).then(now=NOW + HOUR)
    risk, found = scene.status.data_risk, condition(scene.decide())
    assert risk is not None
    assert (risk.lost_records, risk.expires_at) == (7, NOW)
    assert found is not None
    assert (found.reason, "deleted 7 records of orders/0 from offset 50" in found.message) == ("DataExpired", True)
    assert scene.decide().status == scene.status
    decision = scene.decide()
    assert present(decision.backlog).time_to_loss == 0


def test_a_loss_that_was_foreseen_keeps_its_moment() -> None:
    scene = Scene(ages={"orders/0": 6 * DAY}).then(starts={"orders/0": 52}, now=NOW + 2 * DAY)
    risk = present(scene.decide().status.data_risk)
    assert risk.expires_at == NOW + DAY


@pytest.mark.parametrize("unknown", [{"source": SILENT, "unread": SILENT}, {"row": SILENT}, {"unread": SILENT}])
def test_what_cannot_be_seen_changes_nothing(unknown: Mapping[str, Unknown]) -> None:
    scene = Scene(ages={"orders/0": 6 * DAY})
    unseen_scene = scene.then(**unknown)
    decision = unseen_scene.decide()
    assert decision.status.data_risk == unseen_scene.status.data_risk
    assert condition(decision) == condition(scene.decide())


def test_a_retention_that_may_not_be_described_is_said_to_be_unknown() -> None:
    denied = Unknown(reason=UnknownReason.DENIED, message="the account may not", remedy="grant it DescribeConfigs")
    decision = Scene(retention=denied, ages={"orders/0": 6 * DAY}).decide()
    risk = present(decision.status.data_risk)
    assert (risk.unknown, risk.expires_at) == ("the account may not. Grant it DescribeConfigs.", None)
    assert risk.oldest_uncommitted_at == NOW - 6 * DAY
    assert condition(decision) is None


def test_where_only_the_driver_may_connect_it_is_unknown() -> None:
    decision = Scene(unread=DRIVER_ONLY).decide()
    assert "only the driver may connect" in (present(decision.status.data_risk).unknown or "")
    assert decision.backlog is not None
    assert (decision.backlog.time_lag, decision.backlog.time_to_loss) == (None, None)
    assert Scene(unread=DRIVER_ONLY).then().decide().status == Scene(unread=DRIVER_ONLY).then().status


moments = st.datetimes(datetime(1970, 1, 2), datetime(2126, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - see timezones
offsets = st.integers(0, 2**63 - 1)
retentions = st.builds(
    Retention, time=st.none() | st.timedeltas(timedelta(), timedelta(days=36_500)), size=st.none() | offsets
)
jumps = st.builds(LogStart, offset=offsets, at=moments, per_second=st.floats(1e-300, 1e300))
keys = st.sampled_from(["orders/0", "orders/1", "orders/2"])


@given(
    retention=retentions.map(Known) | st.just(SILENT),
    oldest=st.dictionaries(keys, moments),
    log_starts=st.dictionaries(keys, jumps),
    ends=st.dictionaries(keys, offsets, min_size=1),
    starts=st.dictionaries(keys, offsets),
    now=moments,
    before=st.none()
    | st.builds(
        DataRisk, partition=st.none() | keys, offset=st.none() | offsets, expires_at=st.none() | moments,
        warn_at=st.none() | moments, limit=st.sampled_from([None, BY_TIME, BY_SIZE]), lost_records=st.none() | offsets,
    ),
)  # fmt: skip
def test_whatever_kafka_answers_the_status_can_be_written_and_settles(
    retention: Fact[Retention],
    oldest: Mapping[str, datetime],
    log_starts: Mapping[str, LogStart],
    ends: Mapping[str, int],
    starts: Mapping[str, int],
    now: datetime,
    before: DataRisk | None,
) -> None:
    unread = UnreadRecords(retention={"orders": retention}, oldest=oldest, log_starts=log_starts)
    scene = Scene(unread=Known(unread), ends=ends, starts=starts, now=now, status=Status(data_risk=before))
    decision = scene.decide()
    raw = json.loads(json.dumps(write_status(decision.status)))
    assert read_status(raw).data_risk == decision.status.data_risk
    assert len(json.dumps(raw.get("dataRisk", {}))) < 2048
    assert replace(scene, status=decision.status).decide().status.data_risk == decision.status.data_risk
    backlog = present(decision.backlog)
    assert all(figure is None or figure >= 0 for figure in (backlog.time_lag, backlog.time_to_loss))


def test_a_paused_pipeline_whose_data_is_about_to_expire_says_so() -> None:
    """Nothing is done for it; that Kafka deletes records has to be known all the same."""
    before = Scene(suspend=False).decide()
    scene = Scene(suspend=False, paused=True, status=before.status, ages={"orders/0": 7 * DAY - HOUR})
    decision = scene.decide()
    found = present(condition(decision))
    assert found.reason == "DataExpiresSoon"
    assert "Run kubectl annotate spl -n shop orders streaming.fencepost.dev/paused- to continue" in found.message
    assert (decision.action, decision.reason) == (None, "Paused")
    assert [event.reason for event in decision.events] == ["Paused", "DataExpiresSoon"]
    assert present(decision.backlog).time_to_loss == HOUR.total_seconds()
    again = replace(scene, status=decision.status).decide()
    assert (again.status, again.events) == (decision.status, ()), "written and reported once"
    over = replace(scene, status=decision.status, ages={"orders/0": HOUR}).decide()
    assert condition(over) is None
    unseen = replace(scene, status=decision.status, source=SILENT).decide()
    assert condition(unseen) == found, "what cannot be seen changes nothing"
