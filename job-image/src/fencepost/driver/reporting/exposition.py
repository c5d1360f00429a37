"""The driver's metrics, as Prometheus reads them: docs/metrics.md has each one.

Labels are bounded: phases, sinks of the spec, pools and collectors of a JVM, executors that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

from fencepost.driver.reporting.run_metrics import Counts, RunMetrics
from fencepost.driver.reporting.telemetry.outbox import Sent
from fencepost.memory_use import ContainerMemory, resident
from fencepost.spark.jvm.metrics import Area, Executor, JvmMetrics


class DriverCollector:
    """Formats the figures at a scrape; `jvm` returns None while they are not known."""

    def __init__(
        self,
        run_metrics: RunMetrics,
        *,
        epoch: int,
        jvm: Callable[[], JvmMetrics | None],
        jvm_process: int | None,
        memory: Callable[[], ContainerMemory] = ContainerMemory.here,
        sent: Callable[[], Mapping[str, Sent]] = dict,
    ) -> None:
        self._run_metrics = run_metrics
        self._epoch = epoch
        self._jvm = jvm
        self._jvm_process = jvm_process
        self._memory = memory
        self._sent = sent

    def collect(self) -> Iterator[Metric]:
        """Yield each metric."""
        yield _gauge("fencepost_driver_epoch", "Epoch that this driver runs under.", self._epoch)
        with self._run_metrics.still() as counts:
            found = [*_counted(counts, self._run_metrics.uncounted), *_newest(counts)]
        yield from found
        yield _telemetry(self._sent())
        yield from self._memory().metrics("driver")
        if self._jvm_process is not None and (memory := resident(self._jvm_process)) is not None:
            words = "Resident memory of the driver's JVM; process_resident_memory_bytes is its Python."
            yield _gauge("fencepost_driver_jvm_resident_memory_bytes", words, memory)
        if (jvm := self._jvm()) is not None:
            yield from _of_jvm(jvm)
            yield _gauge("fencepost_driver_executors", "Executors that are there.", jvm.executor_count)
            yield from _of_executors(jvm.executors)


def exposition(collector: DriverCollector) -> Callable[[], bytes]:
    """Return what makes the text of a scrape, with the figures of this Python process."""
    registry = CollectorRegistry()
    registry.register(collector)
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return lambda: generate_latest(registry)


def _counted(counts: Counts, uncounted: Collection[str]) -> Iterator[Metric]:
    yield _counter("fencepost_driver_batches", "Committed batches.", counts.batches)
    yield _counter("fencepost_driver_records", "Offsets of committed batches, as in the fence row.", counts.records)
    yield _counter("fencepost_driver_read_bytes", "Keys, values and headers of the records read.", counts.size)
    yield _counter("fencepost_driver_dead_letters", "Records that this run set aside.", counts.dead_letters)
    late = "Rows that stateful operators dropped as older than the watermark, without those of the last batch."
    yield _counter("fencepost_driver_late_rows", late, counts.late_rows)
    retries = "Requests to the fence that were repeated, because Cassandra did not answer or its answer was lost."
    yield _counter("fencepost_driver_fence_retries", retries, counts.fence_retries)
    rows = CounterMetricFamily("fencepost_driver_rows", "Rows of committed batches.", labels=["sink"])
    size = CounterMetricFamily(
        "fencepost_driver_written_bytes", "Bytes of these rows in Arrow's format.", labels=["sink"]
    )
    seconds = CounterMetricFamily(
        "fencepost_driver_task_seconds",
        "Seconds of tasks: while they read and transformed rows, and while the sink wrote them.",
        labels=["sink", "phase"],
    )
    words = "Requests that tasks repeated to write these rows; none of a Kafka sink, whose client does not count them."
    repeated = CounterMetricFamily("fencepost_driver_sink_retries", words, labels=["sink"])
    for sink, work in counts.work.items():
        rows.add_metric([sink], work.rows)
        size.add_metric([sink], work.size)
        if sink not in uncounted:
            repeated.add_metric([sink], work.retries)
        seconds.add_metric([sink, "read"], work.reading)
        seconds.add_metric([sink, "write"], work.writing)
    yield from (rows, size, repeated, seconds)
    durations = HistogramMetricFamily("fencepost_driver_batch_duration_seconds", "From the plan to the commit.")
    durations.add_metric([], counts.durations.cumulative(), counts.durations.total)
    sizes = HistogramMetricFamily("fencepost_driver_batch_records", "Offsets of a committed batch.")
    sizes.add_metric([], counts.sizes.cumulative(), counts.sizes.total)
    phases = HistogramMetricFamily(
        "fencepost_driver_phase_duration_seconds", "Phases of committed batches.", labels=["phase"]
    )
    for name, spread in counts.phases.items():
        phases.add_metric([name], spread.cumulative(), spread.total)
    yield from (durations, sizes, phases)


def _telemetry(sent: Mapping[str, Sent]) -> Metric:
    words = "Traces and events of lineage, by outcome: dropped are those that the receiver did not take in time."
    found = CounterMetricFamily("fencepost_driver_telemetry_items", words, labels=["receiver", "outcome"])
    for receiver, counts in sent.items():
        found.add_metric([receiver, "delivered"], counts.delivered)
        found.add_metric([receiver, "dropped"], counts.dropped)
    return found


def _newest(counts: Counts) -> Iterator[Metric]:
    """Yield what the last commit said; nothing before the first one."""
    if (report := counts.newest) is None:
        return
    yield _gauge("fencepost_driver_fence_version", "Version of the fence row after the last commit.", report.version)
    yield _gauge("fencepost_driver_batch_limit_records", "Records that the next batch may have.", report.limit)
    yield _gauge(
        "fencepost_driver_unavailable_partitions",
        "Partitions without a leader, left out of the last batch.",
        len(report.unavailable),
    )
    if report.lag is not None:
        yield _gauge("fencepost_driver_lag_records", "Records beyond the last commit, as they were then.", report.lag)
    if report.event_time is not None and report.event_time.watermark is not None:
        words = "Watermark of the query, before the last batch."
        yield _gauge("fencepost_driver_watermark_timestamp_seconds", words, report.event_time.watermark / 1000)
    if report.state is not None:
        words = "Stored files of the state at the last commit."
        yield _gauge("fencepost_driver_state_bytes", words, report.state.used)
        words = "Bytes of the state that every worker has room for, spec.state.maxBytes."
        yield _gauge("fencepost_driver_state_max_bytes", words, report.state.room)
    if report.clock_skew_ms is not None:
        words = "How far this node's clock was from Cassandra's at the last commit."
        yield _gauge("fencepost_driver_clock_skew_seconds", words, report.clock_skew_ms / 1000)


def _of_jvm(jvm: JvmMetrics) -> Iterator[Metric]:
    """Yield the JVM's figures under the names of Prometheus' own client for Java."""
    for part, label, areas in (("memory", "area", jvm.areas), ("memory_pool", "pool", jvm.pools)):
        yield from _memory(part, label, areas)
    collections = SummaryMetricFamily("jvm_gc_collection_seconds", "Collections of the JVM's garbage.", labels=["gc"])
    for name, spent in jvm.collections.items():
        collections.add_metric([name], spent.count, spent.seconds)
    yield collections
    yield _gauge("jvm_threads_current", "Threads of the JVM.", jvm.threads)
    yield _gauge("jvm_classes_currently_loaded", "Classes in the JVM.", jvm.classes)


def _memory(part: str, label: str, areas: dict[str, Area]) -> Iterator[Metric]:
    used = GaugeMetricFamily(f"jvm_{part}_used_bytes", "Memory in use.", labels=[label])
    committed = GaugeMetricFamily(f"jvm_{part}_committed_bytes", "Memory that the JVM has taken.", labels=[label])
    limit = GaugeMetricFamily(f"jvm_{part}_max_bytes", "Memory that the JVM may take.", labels=[label])
    for name, area in areas.items():
        used.add_metric([name], area.used)
        committed.add_metric([name], area.committed)
        if area.limit is not None:
            limit.add_metric([name], area.limit)
    yield from (used, committed, limit)


def _of_executors(executors: tuple[Executor, ...]) -> Iterator[Metric]:
    who = ["executor", "host"]
    heap = GaugeMetricFamily("fencepost_executor_heap_peak_bytes", "Most heap that it has used.", labels=who)
    seconds = SummaryMetricFamily(
        "fencepost_executor_gc_collection_seconds", "Collections of its garbage.", labels=[*who, "gc"]
    )
    tasks = CounterMetricFamily("fencepost_executor_tasks", "Tasks that ended.", labels=[*who, "outcome"])
    busy = CounterMetricFamily("fencepost_executor_task_seconds", "Time of its tasks.", labels=who)
    for one in executors:
        place = [one.id, one.host]
        heap.add_metric(place, one.heap_peak)
        busy.add_metric(place, one.task_seconds)
        tasks.add_metric([*place, "completed"], one.tasks_completed)
        tasks.add_metric([*place, "failed"], one.tasks_failed)
        for kind, spent in one.collections.items():
            seconds.add_metric([*place, kind], spent.count, spent.seconds)
    yield from (heap, seconds, tasks, busy)


def _counter(name: str, words: str, value: float) -> Metric:
    return CounterMetricFamily(name, words, value=value)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(name, words, value=value)
