"""Write docs/metrics.md from the code that makes the metrics; `make reference` runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from fencepost.batch import EventTime, SinkWork
from fencepost.driver.reporting.commit_report import Report, StateSize
from fencepost.driver.reporting.exposition import DriverCollector
from fencepost.driver.reporting.run_metrics import RunMetrics
from fencepost.driver.reporting.telemetry.outbox import Sent
from fencepost.memory_use import ContainerMemory
from fencepost.spark.jvm.metrics import Area, Collections, Executor, JvmMetrics
from fencepost.worker.exposition import Counted, WorkerCollector
from fencepost.worker.processes import Kind, Process
from fencepost_operator.runtime.metrics.container_memory import MemoryCollector
from fencepost_operator.runtime.metrics.page_delivery import OldestUnsent, PrometheusPageMetrics
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from generators.reference import ROOT

FILE: Final = ROOT / "docs/metrics.md"
UNITS: Final = {
    "seconds": "seconds", "bytes": "bytes", "records": "records", "timestamp_seconds": "seconds since 1970",
}  # fmt: skip
HEAD: Final = """<!-- Written by `make reference` from the code. -->
# Metrics

| who | where | found by |
|---|---|---|
| the operator | port 8080, `/metrics`; with `metrics.tls.secretName` port 8443 alone, over TLS | the chart's ServiceMonitor |
| a driver | port 9404 (`metrics`), `/metrics`, from two seconds after its loop began | the chart's PodMonitor |
| beside each worker | port 9404 (`metrics`), `/metrics` | the PodMonitor |
| Spark's master and workers | the web UIs' ports (`ui`), `/metrics/prometheus/` | the PodMonitor |

The PodMonitor gives each series of a pod the labels `namespace`, `pod`, `name` (the pipeline's) and `component` (driver, master, worker). A
counter's name ends with `_total`; a histogram has `_bucket`, `_sum` and `_count`, a summary `_sum` and `_count`.

Pods of pipelines serve plain HTTP to whoever reaches them: [why, and who may be kept out](operations.md#who-may-read-the-metrics-of-a-pipelines-pods).
The operator serves TLS, and asks for a token, [where you want that](operations.md#metrics-logs-and-dashboards).

`metrics.dashboards.enabled` installs three Grafana dashboards: the fleet, one pipeline, and the operator.


![The fleet's dashboard](metrics/fleet.png)

![A pipeline's dashboard](metrics/pipeline.png)

![The operator's dashboard](metrics/operator.png)

Three minutes of a testbed: a pipeline restarts with another spec, works off what came meanwhile and gets a second worker. The pictures have
the dashboards' panels and queries, drawn by Prometheus' console templates (`make pictures`).

## Memory that runs out
![Heap, garbage collection and Python workers until the JVM gives up](metrics/memory.png)

A driver's JVM that keeps 12 MiB a second, and 512 KiB once its heap is nearly full, and a Python worker that keeps 6 MiB a second, as
Prometheus draws them. The heap is full a minute later, and from then on the share of time in garbage collection climbs until the JVM gives up.
Nothing else is wrong meanwhile: batches are committed, ever more slowly. Both curves show it before the alert fires, whose look back
takes ten seconds here; in a pipeline a leak takes days, and the alert waits for five minutes above its bound. Watch
`rate(jvm_gc_collection_seconds_sum[5m])` (above 0.2 is trouble), and beside their limits `fencepost_driver_container_unreclaimable_bytes`
and `fencepost_worker_container_unreclaimable_bytes`: three alerts do.
"""


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as a scrape and the code have it."""

    name: str
    kind: str
    words: str
    labels: tuple[str, ...]

    @property
    def unit(self) -> str:
        """The unit by the name, as Prometheus' rules have it; '' without one."""
        stem = self.name.removesuffix("_total")
        return next((unit for end, unit in sorted(UNITS.items(), reverse=True) if stem.endswith(f"_{end}")), "")

    def row(self) -> str:
        """Return the line of the table."""
        labels = ", ".join(f"`{label}`" for label in self.labels)
        return f"| `{self.name}` | {self.kind} | {self.unit} | {labels} | {self.words} |"


def operator() -> Iterator[Described]:
    """Yield what the operator has; all series of pipelines have `namespace` and `name`."""
    metrics = PrometheusMetrics()
    PrometheusPageMetrics(metrics.registry)
    for collector in _collectors(metrics.registry):
        if isinstance(collector, MetricWrapperBase):
            (family,) = collector.describe()
            yield _described(family.name, family.type, family.documentation, collector._labelnames)
    for series in metrics._pipelines:
        yield Described(series.name, series.kind, series.words, tuple(series.labels))
    yield from _sampled(MemoryCollector(lambda: _MEMORY).collect)
    unsent = OldestUnsent()
    unsent.by_namespace = lambda: {"flights": 1.0}
    yield from _sampled(unsent.collect)


def driver() -> Iterator[Described]:
    """Yield what a driver has once it has committed a batch."""
    run_metrics = RunMetrics(["orders"])
    run_metrics.committed(
        Report(
            epoch=1, version=1, records=1, size=1, limit=1, phases={}, lag=0, clock_skew_ms=0,
            work={"orders": SinkWork()}, event_time=EventTime(watermark=0), state=StateSize(used=0, room=0),
        )
    )  # fmt: skip
    sent = {"openTelemetry": Sent(), "openLineage": Sent()}
    return _sampled(
        DriverCollector(
            run_metrics, epoch=1, jvm=lambda: _JVM, jvm_process=1, memory=lambda: _MEMORY, sent=lambda: sent
        ).collect
    )


def worker() -> Iterator[Described]:
    """Yield what is served beside a worker."""
    process = Process(Kind.PYTHON, 1)
    return _sampled(WorkerCollector(Counted(), lambda: iter([process]), memory=lambda: _MEMORY).collect)


def page() -> str:
    """Return docs/metrics.md."""
    titles = {
        "The operator": operator(),
        "A driver": driver(),
        "Beside a worker": worker(),
    }
    lines = [HEAD]
    for title, found in titles.items():
        lines += [f"## {title}", "| metric | type | unit | labels | what |", "|---|---|---|---|---|"]
        lines += [each.row() for each in sorted(set(found), key=lambda each: each.name)]
        lines += [*_NOTES[title], ""]
    return "\n".join([*lines, _SPARK])


_NOTES: Final = {
    "The operator": [
        "",
        "A series of a pipeline has `namespace` and `name`, and comes from the replica that holds the lease. A figure that is not known has",
        "no series. `process_*` and `python_gc_*` are the operator's own process.",
    ],
    "A driver": [
        "",
        "A driver's figures begin with its run: each epoch has a pod of its own. `process_*` and `python_gc_*` are the driver's Python. The",
        "JVM is asked at a scrape, for half a second at most; while it stands still, or after it, its figures are those of before for up to",
        "a minute, then absent. An executor's figures come with its heartbeats; of more than 50 executors, 50 have series.",
    ],
    "Beside a worker": [
        "",
        "`process` is `worker` (Spark's daemon), `executor` (its JVM), `python` (Python workers and the daemons that fork them) or `other`.",
    ],
}
_SPARK: Final = """## Spark's master and workers
Names are Spark's own: `metrics_master_aliveWorkers_Value`, `metrics_worker_coresUsed_Value`, `metrics_worker_memUsed_MB_Value`,
`metrics_jvm_heap_used_Value` and so on; [Spark's page on monitoring](https://spark.apache.org/docs/latest/monitoring.html#metrics) has
them. `spec.cluster.sparkConf` may change them with `spark.metrics.conf.*`.
"""


def _collectors(registry: CollectorRegistry) -> Iterable[Collector]:
    return list(registry._collector_to_names)


def _sampled(collect: Callable[[], Iterator[object]]) -> Iterator[Described]:
    for family in collect():
        samples = family.samples  # type: ignore[attr-defined]
        labels = {label: None for sample in samples for label in sample.labels if label != "le"}
        yield _described(family.name, family.type, family.documentation, tuple(labels))  # type: ignore[attr-defined]


def _described(name: str, kind: str, words: str, labels: Iterable[str]) -> Described:
    return Described(f"{name}_total" if kind == "counter" else name, kind, words, tuple(labels))


_MEMORY: Final = ContainerMemory(used=1, unreclaimable=1, limit=1)
_AREA: Final = Area(used=1, committed=1, limit=1)
_COLLECTIONS: Final = Collections(count=1, seconds=1.0)
_JVM: Final = JvmMetrics(
    areas={"heap": _AREA},
    pools={"Metaspace": _AREA},
    collections={"Copy": _COLLECTIONS},
    threads=1,
    classes=1,
    executors=(
        Executor(
            id="0", host="h", heap_peak=1, collections={"minor": _COLLECTIONS}, tasks_completed=1, tasks_failed=1,
            task_seconds=1.0,
        ),
    ),
    executor_count=1,
)  # fmt: skip

if __name__ == "__main__":
    FILE.write_text(page())
