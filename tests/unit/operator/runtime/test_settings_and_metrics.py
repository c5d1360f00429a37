"""Settings from the environment, series per pipeline, lines of logs."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fencepost.fence import FenceRow
from fencepost_operator.api import (
    AutoscaleStatus,
    Condition,
    DeadLettersStatus,
    EventTimeStatus,
    FailureStatus,
    ObjectKey,
    OpenTransaction,
    Reason,
    State,
    Status,
    StoredStateStatus,
    ThroughputStatus,
    read_status,
    write_status,
)
from fencepost_operator.logs import PIPELINE, JsonFormatter
from fencepost_operator.observation import Backlog
from fencepost_operator.runtime.metrics.registry import MOST_LAGS, PrometheusMetrics
from fencepost_operator.settings import Settings, SettingsError

KEY = ObjectKey("n", "a")
AT = '{name="a",namespace="n"}'
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def test_nothing_set_means_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"FENCEPOST_SCOPE": " ", "PATH": "/bin"}) == Settings()


def test_everything_can_be_set() -> None:
    found = Settings.from_environment(
        {
            "FENCEPOST_SCOPE": "production",
            "FENCEPOST_WATCH_NAMESPACES": "b, a,,b",
            "FENCEPOST_CLUSTER_DOMAIN": "example.internal",
            "FENCEPOST_RESYNC_SECONDS": "2.5",
            "FENCEPOST_LOG_LEVEL": "debug",
            "FENCEPOST_CHART": "/chart",
            "FENCEPOST_HELM": "/helm",
            "FENCEPOST_METRICS_PORT": "9090",
        }
    )
    assert found == Settings(
        scope="production",
        watch_namespaces=("b", "a"),
        cluster_domain="example.internal",
        resync_seconds=2.5,
        log_level=logging.DEBUG,
        chart=Path("/chart"),
        helm=Path("/helm"),
        metrics_port=9090,
    )


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("SCOPE", "a/b", "lower-case letters"),
        ("WATCH_NAMESPACES", "a,B", "separated by commas"),
        ("CLUSTER_DOMAIN", "https://a", "cluster.local"),
        ("RESYNC_SECONDS", "soon", "1 to 60"),
        ("RESYNC_SECONDS", "0", "1 to 60"),
        ("RESYNC_SECONDS", "61", "1 to 60"),
        ("RESYNC_SECONDS", "nan", "1 to 60"),
        ("MAX_CONCURRENT_RESTARTS", "-1", "0 (no limit)"),
        ("MAX_CONCURRENT_RESTARTS", "many", "0 (no limit)"),
        ("SHARDS", "0", "1 to 32"),
        ("SHARDS", "33", "1 to 32"),
        ("LOG_LEVEL", "loud", "DEBUG, INFO"),
        ("CHART", "chart", "absolute path"),
        ("HELM", "helm", "absolute path"),
        ("METRICS_PORT", "70000", "1 to 65535"),
        ("METRICS_PORT", "-1", "1 to 65535"),
        ("RUNBOOK_URL", "docs", "address of docs/runbooks"),
        ("PAGERDUTY_URL", "events", "Events API v2"),
    ],
)
def test_a_bad_value_names_its_variable_and_what_to_set(name: str, value: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment({f"FENCEPOST_{name}": value})
    assert str(caught.value).startswith(f"FENCEPOST_{name}='{value}'")
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "remedy"),
    [
        ({"SHARDS": "3"}, "FENCEPOST_SHARDS=3 needs FENCEPOST_LEASE"),
        ({"SHARDS": "6", "LEASE": "fencepost"}, "FENCEPOST_MAX_CONCURRENT_RESTARTS=5 is less than FENCEPOST_SHARDS=6"),
    ],
)
def test_shards_need_leases_and_a_part_of_the_planned_restarts_each(variables: dict[str, str], remedy: str) -> None:
    given = {f"FENCEPOST_{name}": value for name, value in variables.items()}
    with pytest.raises(SettingsError) as caught:
        Settings.from_environment(given)
    assert str(caught.value).startswith(remedy)
    settled = {"FENCEPOST_LEASE": "fencepost", "FENCEPOST_MAX_CONCURRENT_RESTARTS": "0"}
    assert Settings.from_environment({**given, **settled}).shards == int(variables["SHARDS"])


def status(*, lag: int | None = 5, ready: str = "True") -> Status:
    condition = Condition(
        type="Ready", status=ready, reason="Streaming", message="", last_transition_time=BEGUN, observed_generation=1
    )
    return Status(state=State.RUNNING, conditions=(condition,), epoch=3, restarts=2, lag=lag)


def series(metrics: PrometheusMetrics) -> dict[str, float]:
    lines = metrics.exposition().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith("fencepost_pipeline"))
    return {name: float(value) for name, value in pairs}


@pytest.fixture
def metrics() -> Iterator[PrometheusMetrics]:
    """Return metrics that have no series once the pipeline is forgotten, twice."""
    made = PrometheusMetrics()
    yield made
    made.leads(range(1), lambda _shard: True, is_sure=lambda: True)
    for _ in range(2):
        made.forget(KEY)
        assert series(made) == {}


def test_a_pipeline_has_its_series(metrics: PrometheusMetrics) -> None:
    at = AT[:-1]
    metrics.heartbeat(KEY, BEGUN)
    metrics.observed(KEY, status(), {"t/0": 7, "a.b/1": 9}, None)
    found = series(metrics)
    assert found[f"fencepost_pipeline_ready{at}}}"] == 1
    assert found[f"fencepost_pipeline_lag_records{at}}}"] == 5
    assert found[f"fencepost_pipeline_epoch{at}}}"] == 3
    assert found[f'fencepost_pipeline_restarts_total{at},reason="Earlier"}}'] == 2
    assert found[f"fencepost_pipeline_open_transaction_records{at}}}"] == 0
    assert found[f"fencepost_pipeline_transaction_stalled{at}}}"] == 0
    assert found[f'fencepost_pipeline_committed_offset{at},partition="0",topic="t"}}'] == 7
    assert found[f'fencepost_pipeline_committed_offset{at},partition="1",topic="a.b"}}'] == 9
    assert [name for name, value in found.items() if "_state" in name and value] == [
        f'fencepost_pipeline_state{at},state="Running"}}'
    ]


def test_the_event_time_of_a_stateful_pipeline_is_exported(metrics: PrometheusMetrics) -> None:
    at = AT[:-1]
    stuck = Condition(
        type="WatermarkStuck", status="True", reason="WatermarkStuck", message="", last_transition_time=BEGUN,
        observed_generation=1,
    )  # fmt: skip
    metrics.observed(KEY, status(), {}, None)
    assert f"fencepost_pipeline_late_rows{at}}}" not in series(metrics)
    assert series(metrics)[f"fencepost_pipeline_watermark_stuck{at}}}"] == 0
    figures = EventTimeStatus(watermark=BEGUN, late_rows=7)
    metrics.observed(KEY, replace(status(), conditions=(stuck,), event_time=figures), {}, None)
    found = series(metrics)
    assert found[f"fencepost_pipeline_watermark_stuck{at}}}"] == 1
    assert found[f"fencepost_pipeline_watermark_timestamp_seconds{at}}}"] == BEGUN.timestamp()
    assert found[f"fencepost_pipeline_late_rows{at}}}"] == 7


def test_the_size_of_a_state_is_exported(metrics: PrometheusMetrics) -> None:
    at = AT[:-1]
    metrics.observed(KEY, replace(status(), stored_state=StoredStateStatus(bytes=70, max_bytes=100)), {}, None)
    found = series(metrics)
    assert found[f"fencepost_pipeline_state_bytes{at}}}"] == 70
    assert found[f"fencepost_pipeline_state_max_bytes{at}}}"] == 100
    metrics.observed(KEY, status(), {}, None)
    assert not any("_bytes" in name for name in series(metrics) if name.startswith("fencepost_pipeline"))


def test_a_replica_that_does_not_hold_the_lease_exports_no_pipeline() -> None:
    metrics, held = PrometheusMetrics(), True
    metrics.leads(range(2), lambda shard: held and shard == 1, is_sure=lambda: held)
    metrics.heartbeat(KEY, BEGUN)
    metrics.observed(KEY, status(), {"t/0": 7}, None)
    assert series(metrics)
    held = False
    assert series(metrics) == {}
    assert 'fencepost_operator_leader{shard="1"} 0.0' in metrics.exposition().decode()
    held = True
    assert 'fencepost_operator_leader{shard="1"} 1.0' in metrics.exposition().decode()
    assert 'fencepost_operator_leader{shard="0"} 0.0' in metrics.exposition().decode()
    assert series(metrics)


def test_an_open_transaction_has_its_series(metrics: PrometheusMetrics) -> None:
    now = BEGUN
    stalled = replace(status().conditions[0], type="TransactionStalled", reason="TransactionStalled")
    waiting = tuple(OpenTransaction(partition=f"t/{n}", offset=5, since=now, records=30) for n in range(2))
    metrics.observed(KEY, replace(status(), open_transactions=waiting, conditions=(stalled,)), {}, None)
    found = series(metrics)
    assert found[f"fencepost_pipeline_open_transaction_records{AT}"] == 60
    assert found[f"fencepost_pipeline_transaction_stalled{AT}"] == 1


def test_dead_letters_have_their_series(metrics: PrometheusMetrics) -> None:
    for letters, figure in ((None, 0), (DeadLettersStatus(count=4, last="t/0@7"), 4)):
        metrics.observed(KEY, replace(status(), dead_letters=letters), {}, None)
        assert series(metrics)[f"fencepost_pipeline_dead_letters{AT}"] == figure
    metrics.observed(KEY, replace(status(), epoch=None), {}, None)  # no fence row was seen: 0 would be a guess
    assert f"fencepost_pipeline_dead_letters{AT}" not in series(metrics)


def test_unreadable_progress_has_its_series(metrics: PrometheusMetrics) -> None:
    found = replace(status().conditions[0], type="ProgressUnreadable", reason="ProgressUnreadable")
    for conditions, figure in (((found,), 1), ((), 0)):
        metrics.observed(KEY, replace(status(), conditions=conditions), {}, None)
        assert series(metrics)[f"fencepost_pipeline_progress_unreadable{AT}"] == figure


def test_the_backlog_has_its_series_while_it_is_known(metrics: PrometheusMetrics) -> None:
    at = AT[:-1]
    risk = replace(status().conditions[0], type="RetentionRisk", reason="DataExpiresSoon")
    backlog = Backlog(time_lag=60.0, time_to_loss=0.0, lags={"t/0": 5, "t/1": 0, "no partition": 1})
    metrics.observed(KEY, replace(status(), conditions=(risk,)), {}, backlog)
    found = series(metrics)
    assert found[f"fencepost_pipeline_time_lag_seconds{at}}}"] == 60
    assert found[f"fencepost_pipeline_time_to_data_loss_seconds{at}}}"] == 0
    assert found[f'fencepost_pipeline_partition_lag{at},partition="0",topic="t"}}'] == 5
    assert found[f'fencepost_pipeline_partition_lag{at},partition="1",topic="t"}}'] == 0
    assert {name: value for name, value in found.items() if "retention_risk" in name} == {
        f'fencepost_pipeline_retention_risk{at},reason="{reason}"}}': reason == "DataExpiresSoon"
        for reason in ("DataExpiresSoon", "DataExpired", "RetentionTooShort")
    }
    metrics.observed(KEY, status(), {}, replace(backlog, time_lag=None, time_to_loss=None, lags={"t/1": 2}))
    metrics.observed(KEY, status(), {}, None)
    assert not any("partition_lag" in name or "time_" in name for name in series(metrics))
    metrics.observed(KEY, status(), {}, backlog)


def test_the_estimate_has_a_series_while_an_end_is_in_sight(metrics: PrometheusMetrics) -> None:
    since = BEGUN
    behind = replace(status().conditions[0], type="FallingBehind", reason="FallingBehind")
    metrics.observed(
        KEY, replace(status(), throughput=ThroughputStatus(since=since, estimated_catch_up="1h20m")), {}, None
    )
    assert series(metrics)[f"fencepost_pipeline_catch_up_seconds{AT}"] == 4800
    assert series(metrics)[f"fencepost_pipeline_falling_behind{AT}"] == 0
    metrics.observed(KEY, replace(status(), throughput=ThroughputStatus(since=since), conditions=(behind,)), {}, None)
    assert f"fencepost_pipeline_catch_up_seconds{AT}" not in series(metrics)
    assert series(metrics)[f"fencepost_pipeline_falling_behind{AT}"] == 1


def test_the_workers_that_were_chosen_have_a_series(metrics: PrometheusMetrics) -> None:
    limited = replace(status().conditions[0], type="ScalingLimited", reason="ScalingLimited")
    chosen = AutoscaleStatus(workers=3, since=BEGUN, records_per_second=250.0)
    metrics.observed(KEY, replace(status(), autoscale=chosen, conditions=(limited,)), {}, None)
    found = series(metrics)
    assert found[f"fencepost_pipeline_autoscale_workers{AT}"] == 3
    assert found[f"fencepost_pipeline_autoscale_worker_records_per_second{AT}"] == 250
    assert found[f"fencepost_pipeline_scaling_limited{AT}"] == 1
    metrics.observed(KEY, status(), {}, None)
    assert not any("_autoscale_" in name for name in series(metrics))


def test_only_the_partitions_that_lag_most_have_a_series() -> None:
    metrics = PrometheusMetrics()
    metrics.observed(KEY, status(), {}, Backlog(lags={f"t/{number}": number for number in range(MOST_LAGS + 5)}))
    found = {name: value for name, value in series(metrics).items() if "partition_lag" in name}
    assert (len(found), min(found.values())) == (MOST_LAGS, 5)


def test_restarts_are_a_counter_that_survives_the_operator_by_the_status() -> None:
    metrics = PrometheusMetrics()
    assert "# TYPE fencepost_pipeline_restarts_total counter" in metrics.exposition().decode()
    counted = []
    for restarts in (2, 2, 5, 0, 1):
        metrics.observed(KEY, replace(status(), restarts=restarts), {}, None)
        counted.append(sum(restarts_by_reason(metrics).values()))
    assert counted == [2, 2, 5, 0, 1]


def test_a_step_without_a_page_is_planned() -> None:
    """FencepostPipelineNotReady leaves it out, as pages and Argo CD do."""
    at = BEGUN

    def planned(kind: str, since: datetime | None) -> float:
        metrics, condition = PrometheusMetrics(), replace(status().conditions[0], type=kind)
        metrics.observed(KEY, replace(status(), conditions=(condition,), not_ready_since=since), {}, None)
        return series(metrics)['fencepost_pipeline_planned_step{name="a",namespace="n"}']

    assert [planned("Reconciling", None), planned("Reconciling", at), planned("Ready", None)] == [1, 0, 0]


def test_restarts_have_the_reason_of_the_failed_run_and_no_text_of_a_tenant(metrics: PrometheusMetrics) -> None:
    for restarts, reason in ((2, "Killed"), (3, "Killed"), (5, "OutOfMemory"), (6, 'x"} 1\nfake{a="'), (6, "Killed")):
        failure = FailureStatus(count=1, epoch=1, at=BEGUN, reason=Reason.KILLED, message="", remedy="")
        written = write_status(replace(status(), restarts=restarts, failure=failure))
        written["failure"]["reason"] = reason
        metrics.observed(KEY, read_status(written), {}, None)
    assert restarts_by_reason(metrics) == {
        "Earlier": 2,
        "Drained": 0,  # the alert on a loop sees it grow from here
        "Killed": 1,
        "OutOfMemory": 2,
        "RunFailed": 1,
    }
    metrics.observed(KEY, status(), {}, None)  # the status was lost
    assert restarts_by_reason(metrics) == {"Earlier": 2, "Drained": 0}


def restarts_by_reason(metrics: PrometheusMetrics) -> dict[str, float]:
    start = 'fencepost_pipeline_restarts_total{name="a",namespace="n",reason="'
    return {name[len(start) : -2]: value for name, value in series(metrics).items() if name.startswith(start)}


def test_each_commit_that_is_seen_counts_once_in_the_histograms_of_batches(metrics: PrometheusMetrics) -> None:
    at, begun = AT[:-1], BEGUN
    row = FenceRow(pipeline="p", owner="o", committed_at=begun, records=7, duration_ms=50)
    metrics.committed(KEY, row)  # from before this process
    assert not any("batch" in name for name in series(metrics))
    second = replace(row, version=2, committed_at=begun + timedelta(seconds=1), records=2_000, duration_ms=1_500)
    planned = replace(second, version=3, planned={"t/0": 9})
    third = replace(planned, version=4, committed_at=begun + timedelta(seconds=2), records=1, duration_ms=-5)
    for each in (second, second, planned, third, replace(third, version=5), replace(third, committed_at=None)):
        metrics.committed(KEY, each)
    found = series(metrics)
    assert found[f"fencepost_pipeline_batch_duration_seconds_count{at}}}"] == 2
    assert found[f"fencepost_pipeline_batch_duration_seconds_sum{at}}}"] == 1.5
    assert found['fencepost_pipeline_batch_duration_seconds_bucket{le="2.5",name="a",namespace="n"}'] == 2
    assert found['fencepost_pipeline_batch_duration_seconds_bucket{le="1.0",name="a",namespace="n"}'] == 1
    assert found[f"fencepost_pipeline_batch_records_sum{at}}}"] == 2_001
    assert "_created" not in metrics.exposition().decode()


def test_the_age_of_the_last_success_begins_with_the_loop_and_only_a_success_ends_it() -> None:
    metrics, begun = PrometheusMetrics(), BEGUN
    name, later = (
        'fencepost_pipeline_last_success_timestamp_seconds{name="a",namespace="n"}',
        begun + timedelta(hours=1),
    )
    metrics.heartbeat(KEY, begun)
    metrics.heartbeat(KEY, later)
    assert series(metrics)[name] == begun.timestamp()
    metrics.succeeded(KEY, later)
    assert series(metrics)[name] == later.timestamp()
    metrics.forget(KEY)
    metrics.heartbeat(KEY, later + timedelta(hours=1))
    assert series(metrics)[name] == (later + timedelta(hours=1)).timestamp()


def test_a_figure_that_is_not_known_has_no_series() -> None:
    metrics = PrometheusMetrics()
    metrics.observed(KEY, status(), {"t/0": 7, "t/1": 8}, None)
    metrics.observed(KEY, status(lag=None, ready="False"), {"t/1": 8}, None)
    found = series(metrics)
    assert not any("lag_records" in name or 'partition="0"' in name for name in found)
    assert found['fencepost_pipeline_ready{name="a",namespace="n"}'] == 0


def test_a_line_of_log_is_json_with_the_pipeline_and_the_reason() -> None:
    record = logging.LogRecord("a", logging.WARNING, "", 1, "epoch %d began", (3,), None)
    record.reason = "Fenced"
    token = PIPELINE.set("n/a")
    try:
        line = json.loads(JsonFormatter().format(record))
    finally:
        PIPELINE.reset(token)
    assert {key: line[key] for key in ("level", "logger", "message", "pipeline", "reason")} == {
        "level": "warning",
        "logger": "a",
        "message": "epoch 3 began",
        "pipeline": "n/a",
        "reason": "Fenced",
    }


def test_a_line_of_log_holds_the_whole_exception() -> None:
    try:
        int("what\nhappened")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 1, "failed", (), sys.exc_info())
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert "ValueError: invalid literal" in json.loads(text)["exception"]
