"""Prometheus metrics and the health of the loops.

Per pipeline, labels `namespace` and `name`; names are stable and documented, alerts use them.  A pipeline is reported
by the replica that reconciles it, as long as that holds its leases: what it remembers otherwise may be out of date.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics import disable_created_metrics
from prometheus_client.process_collector import ProcessCollector

from fencepost.fence import FenceRow
from fencepost_operator.api import ObjectKey, Reason, State, Status
from fencepost_operator.decision.durability import SETTINGS
from fencepost_operator.decision.kafka.throughput import catch_up_seconds
from fencepost_operator.observation import Backlog
from fencepost_operator.runtime.metrics.batches import BatchHistograms
from fencepost_operator.runtime.metrics.container_memory import MemoryCollector
from fencepost_operator.runtime.metrics.partitions import MOST_SERIES, PartitionGauge, SeriesBudget
from fencepost_operator.runtime.metrics.passes import Passes
from fencepost_operator.runtime.metrics.restarts import RestartCounter
from fencepost_operator.runtime.metrics.series import Series, Values

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series of each counter, which no alert reads
CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
MOST_PARTITIONS: Final = 4096
"""Partitions of one pipeline that get a series. The fence row is in the tenant's Cassandra: it may name any number."""
MOST_LAGS: Final = 1000
"""Partitions of one pipeline whose lag gets a series, those with the largest one first."""
RETENTION_REASONS: Final = (Reason.DATA_EXPIRES_SOON, Reason.DATA_EXPIRED, Reason.RETENTION_TOO_SHORT)
_PIPELINE: Final = ("namespace", "name")
_SILENT: Final = (
    (
        "fencepost_silent_drivers",
        "Drivers with records to read that are without a heartbeat, or were within the last minute.",
    ),
    (
        "fencepost_replacements_queued",
        "Silent drivers that wait for their turn to be replaced, because many are silent at once.",
    ),
)
_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180)


class PrometheusMetrics:
    """Implements the Metrics port over a registry of its own."""

    def __init__(self, *, most_series: int = MOST_SERIES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._registry = CollectorRegistry()
        self._pipelines: list[Series] = []
        self._is_leading: Callable[[], bool] = lambda: True
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(MemoryCollector())
        self._gauges: dict[Series, Collection[Values]] = {}
        """Those of pipelines, with the values that labels besides these may have."""
        registry = self._registry
        self._reconciles = Counter(
            "fencepost_reconcile", "Passes of the loop, by outcome.", ["outcome"], registry=registry
        )
        self._durations = Histogram(
            "fencepost_reconcile_duration_seconds", "Duration of a pass.", buckets=_SECONDS, registry=registry
        )
        self._helm = Histogram(
            "fencepost_helm_duration_seconds", "Duration of a helm call.", ["operation"], buckets=_SECONDS,
            registry=registry,
        )  # fmt: skip
        self._leader = Gauge(
            "fencepost_operator_leader", "1 while this replica of the operator holds the lease of the shard, else 0.",
            ["shard"], registry=registry,
        )  # fmt: skip
        self._restarting = Gauge(
            "fencepost_planned_restarts", "Healthy pipelines that are being restarted by plan.", registry=registry
        )
        self._queued = Gauge(
            "fencepost_planned_restarts_queued", "Healthy pipelines that wait for their turn to be restarted.",
            registry=registry,
        )  # fmt: skip
        self._silent, self._replacements_queued = (Gauge(name, words, registry=registry) for name, words in _SILENT)
        self._ready = self._gauge("ready", "1 when the pipeline's Ready condition is True, else 0.")
        self._planned_step = self._gauge(
            "planned_step",
            "1 while a change, the queue for its restart, a rewind or a deletion keeps the pipeline from being Ready.",
        )
        self._lag = self._gauge("lag_records", "Records in Kafka past the committed offsets.")
        self._catch_up = self._gauge(
            "catch_up_seconds", "Estimated time until the lag is worked off; no series while no end is in sight."
        )
        self._falling_behind = self._gauge(
            "falling_behind", "1 when the pipeline's FallingBehind condition is True, else 0."
        )
        self._workers = self._gauge(
            "autoscale_workers", "Workers that the operator has chosen; no series without cluster.autoscale."
        )
        self._worker_rate = self._gauge(
            "autoscale_worker_records_per_second",
            "Records per second that one worker does of a backlog; no series without cluster.autoscale or before one.",
        )
        self._scaling_limited = self._gauge(
            "scaling_limited", "1 when the pipeline's ScalingLimited condition is True, else 0."
        )
        self._unobserved = self._gauge(
            "unobserved", "1 when the pipeline's Unobserved condition is True, else 0: the run may hang unseen."
        )
        self._offline = self._gauge(
            "offline_partitions", "Partitions for which no leader answers; lag_records does not count them."
        )
        self._paused = self._gauge("paused", "1 while an annotation keeps the operator from reconciling the pipeline.")
        self._epoch = self._gauge("epoch", "Epoch of the fence.")
        self._restarts = RestartCounter(self._pipelines)
        self._batches = BatchHistograms(self._pipelines)
        self._beats = self._gauge("heartbeat_timestamp_seconds", "When the pipeline's loop last began a pass.")
        self._successes = self._gauge(
            "last_success_timestamp_seconds",
            "When a pass over the pipeline last succeeded; before the first one has, when its loop began.",
        )
        self._open_records = self._gauge(
            "open_transaction_records", "Records that open transactions of producers keep from being read."
        )
        self._stalled_transactions = self._gauge(
            "transaction_stalled", "1 when the pipeline's TransactionStalled condition is True, else 0."
        )
        self._progress_unreadable = self._gauge(
            "progress_unreadable", "1 when the pipeline's ProgressUnreadable condition is True, else 0."
        )
        self._retention_risk = self._gauge(
            "retention_risk",
            "1 for the reason of the pipeline's RetentionRisk condition, else 0.",
            reason=RETENTION_REASONS,
        )
        self._time_lag = self._gauge("time_lag_seconds", "Age of the oldest record that is not committed.")
        self._time_to_loss = self._gauge(
            "time_to_data_loss_seconds", "Time until Kafka may delete the first record that is not committed."
        )
        self._budget = SeriesBudget(self._pipelines, most=most_series)
        self._lags = PartitionGauge(
            "fencepost_pipeline_partition_lag",
            "Records past the committed offset, for the partitions with most.",
            self._pipelines, self._budget,
        )  # fmt: skip
        self._dead_letters = self._gauge(
            "dead_letters", "Records set aside as dead letters, as the fence row counts them."
        )
        self._watermark = self._gauge(
            "watermark_timestamp_seconds", "Watermark of a stateful pipeline; no series without one."
        )
        self._watermark_stuck = self._gauge(
            "watermark_stuck", "1 when the pipeline's WatermarkStuck condition is True, else 0."
        )
        self._late_rows = self._gauge(
            "late_rows",
            "Rows that a stateful pipeline dropped as older than its watermark, as the fence row counts them.",
        )
        self._state_bytes = self._gauge(
            "state_bytes", "Stored files of a stateful pipeline's state at the last commit; no series without one."
        )
        self._state_max_bytes = self._gauge(
            "state_max_bytes", "Bytes of the state that every worker has room for, spec.state.maxBytes."
        )
        self._durability_at_risk = self._gauge(
            "durability_at_risk", "1 for a setting that the DurabilityAtRisk condition names, else 0.", setting=SETTINGS
        )
        self._state = self._gauge("state", "1 for the state that the pipeline is in.", state=State)
        self._offsets = PartitionGauge(
            "fencepost_pipeline_committed_offset", "Next offset to read, as committed.", self._pipelines, self._budget
        )
        self.passes = Passes(monotonic)

    def reconciled(self, key: ObjectKey, *, outcome: str, seconds: float) -> None:  # noqa: ARG002 - by outcome only
        """Count a pass and its duration."""
        self._reconciles.labels(outcome).inc()
        self._durations.observe(seconds)

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of what is not of a pipeline, for metrics that have a module of their own."""
        return self._registry

    def leads(self, shards: Iterable[int], is_held: Callable[[int], bool], *, is_sure: Callable[[], bool]) -> None:
        """Ask at each scrape which of all shards' leases this replica holds, and whether it is sure of all it has."""
        self._is_leading = is_sure
        for shard in shards:
            self._leader.labels(str(shard)).set_function(functools.partial(is_held, shard))

    def helm_took(self, operation: str, seconds: float) -> None:
        """Count a helm call and its duration."""
        self._helm.labels(operation).observe(seconds)

    def observed(self, key: ObjectKey, status: Status, committed: Mapping[str, int], backlog: Backlog | None) -> None:
        """Set the pipeline's gauges; a figure that is not known has no series, rather than an old value."""
        labels = (key.namespace, key.name)
        true = {c.type: c.reason for c in status.conditions if c.status == "True"}
        letters = status.dead_letters.count if status.dead_letters else 0
        event_time, stored, chosen = status.event_time, status.stored_state, status.autoscale
        watermark = event_time.watermark if event_time is not None else None
        figures = {
            self._ready: "Ready" in true,
            self._planned_step: "Reconciling" in true and status.not_ready_since is None,
            self._open_records: sum(found.records for found in status.open_transactions),
            self._stalled_transactions: "TransactionStalled" in true,
            self._progress_unreadable: "ProgressUnreadable" in true,
            self._falling_behind: "FallingBehind" in true,
            self._workers: chosen.workers if chosen is not None else None,
            self._worker_rate: chosen.records_per_second if chosen is not None else None,
            self._scaling_limited: "ScalingLimited" in true,
            self._unobserved: "Unobserved" in true,
            self._offline: len(status.offline_partitions),
            self._paused: "Paused" in true,
            self._lag: status.lag,
            self._epoch: status.epoch,
            self._dead_letters: letters if status.epoch is not None else None,
            self._watermark_stuck: "WatermarkStuck" in true,
            self._watermark: watermark.timestamp() if watermark is not None else None,
            self._late_rows: event_time.late_rows if event_time is not None else None,
            self._state_bytes: stored.bytes if stored is not None else None,
            self._state_max_bytes: stored.max_bytes if stored is not None else None,
            self._catch_up: catch_up_seconds(status.throughput),
            self._time_lag: backlog.time_lag if backlog is not None else None,
            self._time_to_loss: backlog.time_to_loss if backlog is not None else None,
        }
        for gauge, figure in figures.items():
            if figure is None:
                gauge.remove(labels)
            else:
                gauge.set(labels, figure)
        for reason in RETENTION_REASONS:
            self._retention_risk.set((*labels, reason), true.get("RetentionRisk") == reason)
        weak = {each.setting for each in status.durability.weak} if status.durability else set()
        for setting in SETTINGS:
            self._durability_at_risk.set((*labels, setting), setting in weak)
        for state in State:
            self._state.set((*labels, state.value), state is status.state)
        self._restarts.observed(key, status)
        lags = backlog.lags if backlog is not None else {}
        worst = sorted(lags.items(), key=lambda each: (-each[1], each[0]))[:MOST_LAGS]
        self._lags.set(key, worst)
        self._offsets.set(key, sorted(committed.items())[:MOST_PARTITIONS])

    def committed(self, key: ObjectKey, row: FenceRow) -> None:
        """Count the last commit of the fence row, if it was not counted before."""
        self._batches.observed(key, row)

    def heartbeat(self, key: ObjectKey, now: datetime) -> None:
        """Say that the pipeline's loop is alive: it begins a pass."""
        if self.passes.began(key):  # a pipeline whose passes fail from the first one on must have an age as well
            self._successes.set((key.namespace, key.name), now.timestamp())
        self._beats.set((key.namespace, key.name), now.timestamp())

    def succeeded(self, key: ObjectKey, now: datetime) -> None:
        """Say that a pass did all that it is there for."""
        self.passes.succeeded(key)
        self._successes.set((key.namespace, key.name), now.timestamp())

    def recorded(self) -> None:
        """Say that a status was written."""
        self.passes.recorded()

    def restarts(self, *, in_progress: int, queued: int) -> None:
        """Set how many pipelines are restarted by plan, and how many wait."""
        self._restarting.set(in_progress)
        self._queued.set(queued)

    def silent_drivers(self, *, silent: int, waiting: int) -> None:
        """Set how many drivers are missed, and how many of them wait for their turn to be replaced."""
        self._silent.set(silent)
        self._replacements_queued.set(waiting)

    def forget(self, key: ObjectKey) -> None:
        """Drop the pipeline's series."""
        self.passes.forget(key)
        for gauge, values in self._gauges.items():
            for value in values:
                gauge.remove((key.namespace, key.name, *value))
        self._restarts.forget(key)
        self._batches.forget(key)
        self._offsets.forget(key)
        self._lags.forget(key)

    def exposition(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        return generate_latest(self._registry) + (self._of_pipelines() if self._is_leading() else b"")

    async def rendered(self) -> bytes:
        """Return the same, with the series of pipelines rendered in a thread: there may be many thousands.

        The others ask the loop's own objects for their figures.
        """
        own = generate_latest(self._registry)
        return own + (await asyncio.to_thread(self._of_pipelines) if self._is_leading() else b"")

    def _of_pipelines(self) -> bytes:
        return "".join([each.text() for each in self._pipelines]).encode()

    def _gauge(self, name: str, words: str, **label: Iterable[str]) -> Series:
        """Return a gauge with a series for each pipeline, or for each value that one label more may have."""
        gauge = Series(f"fencepost_pipeline_{name}", words, (*_PIPELINE, *label))
        self._pipelines.append(gauge)
        self._gauges[gauge] = tuple(itertools.product(*label.values()))
        return gauge
