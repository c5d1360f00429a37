"""What the dashboards show: rows of panels, each with its queries. A test runs every query on a real Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

RATE: Final = "$__rate_interval"
"""At least four scrapes, as Grafana computes it."""
FAILED: Final = 'outcome="failed"'
NOT_EARLIER: Final = 'reason!="Earlier"'
CHOSEN: Final = 'namespace="$namespace", name="$name"'
PIPELINE: Final = {
    "namespace": "label_values(fencepost_pipeline_ready, namespace)",
    "name": 'label_values(fencepost_pipeline_ready{namespace="$namespace"}, name)',
}
"""The variables of the pipeline's dashboard, in the order in which one depends on the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel: queries with the legends of their series, and the unit as Grafana names it. `width` of 24 columns."""

    title: str
    unit: str
    queries: Mapping[str, str]
    about: str = ""
    width: int = 12
    is_number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A dashboard."""

    name: str
    title: str
    about: str
    rows: Mapping[str, tuple[Panel, ...]]


def number(title: str, query: str, unit: str = "short", about: str = "") -> Panel:
    """Return a panel of one figure."""
    return Panel(title=title, unit=unit, queries={query: ""}, about=about, width=4, is_number=True)


def rate(metric: str, by: str = "", *, where: str = "") -> str:
    """Return the sum of the rates of a pipeline's counter, by some labels; `where` selects of the pipeline's series."""
    grouped = f" by ({by}) " if by else ""
    selector = ", ".join(part for part in (CHOSEN, where) if part)
    return f"sum{grouped}(rate({metric}{{{selector}}}[{RATE}]))"


def quantiles(metric: str, *, where: str = "") -> dict[str, str]:
    """Return the queries of the median and the 99th percentile of a pipeline's histogram, with their legends."""
    buckets = rate(f"{metric}_bucket", "le", where=where)
    return {f"histogram_quantile({share}, {buckets})": f"p{round(share * 100)}" for share in (0.5, 0.99)}


def of_limit(owner: str, where: str = "") -> str:
    """Return the share of its memory limit that a container has in use, of drivers or workers."""
    used, limit = (f"fencepost_{owner}_container_{part}_bytes" for part in ("unreclaimable", "memory_limit"))
    selector = f"{{{where}}}" if where else ""
    return f"{used}{selector} / {limit}{selector}"


def of_operator(metric: str, by: str = "namespace, name") -> str:
    """Return the pipeline's figure, whichever replica of the operator exports it."""
    return f"max by ({by}) ({metric})"


FLEET: Final = Board(
    name="fleet",
    title="Fleet",
    about="All pipelines: which ones need attention, and which ones use the resources.",
    rows={
        "Now": (
            number("Pipelines", f"count({of_operator('fencepost_pipeline_ready')})"),
            number("Not ready", f"count({of_operator('fencepost_pipeline_ready')} == 0) or vector(0)"),
            number("Falling behind", f"sum({of_operator('fencepost_pipeline_falling_behind')})"),
            number("Restarting by plan", "sum(fencepost_planned_restarts)"),
            number(
                "Least time to data loss",
                "min(fencepost_pipeline_time_to_data_loss_seconds) or vector(Inf)",
                "s",
                "Until Kafka may delete a record that is not committed.",
            ),
            number(
                "Shards without a replica",
                "count(max by (shard) (fencepost_operator_leader) == 0) or vector(0)",
                about="0; no failed driver of the pipelines in others is replaced.",
            ),
        ),
        "Progress": (
            Panel(
                title="Pipelines by state",
                unit="short",
                queries={
                    f"sum by (state) ({of_operator('fencepost_pipeline_state', 'namespace, name, state')})": "{{state}}"
                },
            ),
            Panel(
                title="Restarts by reason",
                unit="short",
                about="Runs that replaced a failed one; those from before this operator began have no reason.",
                queries={
                    f"sum by (reason) (increase(fencepost_pipeline_restarts_total{{{NOT_EARLIER}}}[{RATE}]))": "{{reason}}"
                },
            ),
            Panel(
                title="Largest time lag",
                unit="s",
                queries={f"topk(10, {of_operator('fencepost_pipeline_time_lag_seconds')})": "{{namespace}}/{{name}}"},
            ),
            Panel(
                title="Largest lag",
                unit="short",
                queries={f"topk(10, {of_operator('fencepost_pipeline_lag_records')})": "{{namespace}}/{{name}}"},
            ),
            Panel(
                title="Records per second",
                unit="cps",
                queries={
                    f"topk(10, sum by (namespace, name) (rate(fencepost_driver_records_total[{RATE}])))": "{{namespace}}/{{name}}"
                },
            ),
            Panel(
                title="Batch duration, p99",
                unit="s",
                about="Of the batches that the operator saw committed.",
                queries={
                    "topk(10, histogram_quantile(0.99, sum by (le, namespace, name) "
                    f"(rate(fencepost_pipeline_batch_duration_seconds_bucket[{RATE}]))))": "{{namespace}}/{{name}}"
                },
            ),
        ),
        "Resources": (
            Panel(
                title="Memory of containers, share of the limit",
                unit="percentunit",
                about="Without page cache; the ten fullest drivers and workers. At the limit the kernel kills.",
                queries={
                    f"topk(10, max by (namespace, name, pod) ({of_limit('driver')})"
                    f" or max by (namespace, name, pod) ({of_limit('worker')}))": "{{namespace}}/{{pod}}"
                },
            ),
            Panel(
                title="Scratch of workers",
                unit="bytes",
                queries={"topk(10, fencepost_worker_scratch_bytes)": "{{namespace}}/{{pod}}"},
            ),
        ),
    },
)
ONE: Final = Board(
    name="pipeline",
    title="Pipeline",
    about="One pipeline: what it commits, where the time of a batch goes, and the memory of each of its processes.",
    rows={
        "Now": (
            number("Ready", f"max(fencepost_pipeline_ready{{{CHOSEN}}})"),
            number("Lag", f"max(fencepost_pipeline_lag_records{{{CHOSEN}}})"),
            number("Time lag", f"max(fencepost_pipeline_time_lag_seconds{{{CHOSEN}}})", "s"),
            number("Time to data loss", f"max(fencepost_pipeline_time_to_data_loss_seconds{{{CHOSEN}}})", "s"),
            number("Epoch", f"max(fencepost_pipeline_epoch{{{CHOSEN}}})"),
            number("Dead letters", f"max(fencepost_pipeline_dead_letters{{{CHOSEN}}})"),
        ),
        "Batches": (
            Panel(
                title="Records and rows per second",
                unit="cps",
                queries={
                    rate("fencepost_driver_records_total"): "records",
                    rate("fencepost_driver_rows_total", "sink"): "rows to {{sink}}",
                },
            ),
            Panel(
                title="Bytes per second",
                unit="Bps",
                queries={
                    rate("fencepost_driver_read_bytes_total"): "read",
                    rate("fencepost_driver_written_bytes_total", "sink"): "to {{sink}}",
                },
            ),
            Panel(
                title="Mean time of a phase",
                unit="s",
                about="write is transform (the author's function) and job (Spark reads, transforms and writes).",
                queries={
                    f"{rate('fencepost_driver_phase_duration_seconds_sum', 'phase')}"
                    f" / {rate('fencepost_driver_phase_duration_seconds_count', 'phase')}": "{{phase}}"
                },
            ),
            Panel(
                title="Commit latency",
                unit="s",
                queries=quantiles("fencepost_driver_phase_duration_seconds", where='phase="commit"'),
            ),
            Panel(
                title="Batch duration",
                unit="s",
                queries=quantiles("fencepost_driver_batch_duration_seconds"),
            ),
            Panel(
                title="Records of a batch",
                unit="short",
                queries={
                    f"{rate('fencepost_driver_batch_records_sum')} / {rate('fencepost_driver_batch_records_count')}": "mean",
                    f"max(fencepost_driver_batch_limit_records{{{CHOSEN}}})": "limit",
                },
            ),
            Panel(
                title="Busy tasks",
                unit="short",
                about="Tasks that read and transform rows, or wait for the sink, at a time.",
                queries={rate("fencepost_driver_task_seconds_total", "sink, phase"): "{{sink}} {{phase}}"},
            ),
            Panel(
                title="Retries and failed tasks per minute",
                unit="short",
                queries={
                    f"60 * {rate('fencepost_driver_fence_retries_total')}": "requests to the fence",
                    f"60 * {rate('fencepost_driver_sink_retries_total', 'sink')}": "requests to {{sink}}",
                    f"60 * {rate('fencepost_executor_tasks_total', where=FAILED)}": "tasks",
                },
            ),
        ),
        "Memory of the driver": (
            Panel(
                title="JVM",
                unit="bytes",
                queries={
                    f'max(jvm_memory_used_bytes{{{CHOSEN}, area="heap"}})': "heap used",
                    f'max(jvm_memory_max_bytes{{{CHOSEN}, area="heap"}})': "heap limit",
                    f'max(jvm_memory_pool_used_bytes{{{CHOSEN}, pool="Metaspace"}})': "metaspace",
                },
            ),
            Panel(
                title="Resident memory",
                unit="bytes",
                queries={
                    f"max(fencepost_driver_jvm_resident_memory_bytes{{{CHOSEN}}})": "JVM",
                    f'max(process_resident_memory_bytes{{{CHOSEN}, component="driver"}})': "Python",
                },
            ),
            Panel(
                title="Time in garbage collection",
                unit="percentunit",
                about="Share of the time. A driver that comes near 1 collects and does nothing else.",
                queries={rate("jvm_gc_collection_seconds_sum", "gc"): "{{gc}}"},
            ),
            Panel(
                title="Container, share of the limit",
                unit="percentunit",
                about="JVM, Python and what they started, without page cache. At the limit the kernel kills.",
                queries={f"max by (pod) ({of_limit('driver', CHOSEN)})": "{{pod}}"},
            ),
        ),
        "Memory of the workers": (
            Panel(
                title="Python workers",
                unit="bytes",
                about="Resident memory of all Python workers of a pod; pages that they share count for each.",
                queries={
                    f'sum by (pod) (fencepost_worker_resident_memory_bytes{{{CHOSEN}, process="python"}})': "{{pod}}"
                },
            ),
            Panel(
                title="Executors' JVMs",
                unit="bytes",
                queries={
                    f'sum by (pod) (fencepost_worker_resident_memory_bytes{{{CHOSEN}, process="executor"}})': "{{pod}}",
                    f"max by (executor) (fencepost_executor_heap_peak_bytes{{{CHOSEN}}})": "heap peak of {{executor}}",
                },
            ),
            Panel(
                title="Executors' time in garbage collection",
                unit="percentunit",
                queries={rate("fencepost_executor_gc_collection_seconds_sum", "executor"): "{{executor}}"},
            ),
            Panel(
                title="Container, share of the limit",
                unit="percentunit",
                queries={f"max by (pod) ({of_limit('worker', CHOSEN)})": "{{pod}}"},
            ),
            Panel(
                title="Scratch",
                unit="bytes",
                queries={f"max by (pod) (fencepost_worker_scratch_bytes{{{CHOSEN}}})": "{{pod}}"},
            ),
            Panel(
                title="Executors started",
                unit="short",
                queries={
                    f"sum by (pod) (increase(fencepost_worker_executors_started_total{{{CHOSEN}}}[{RATE}]))": "{{pod}}"
                },
            ),
        ),
        "Spark's master and workers": (
            Panel(
                title="Workers that the master knows",
                unit="short",
                queries={f"max(metrics_master_aliveWorkers_Value{{{CHOSEN}}})": "alive"},
            ),
            Panel(
                title="Heap of the daemons",
                unit="bytes",
                queries={f"max by (pod) (metrics_jvm_heap_used_Value{{{CHOSEN}}})": "{{pod}}"},
            ),
        ),
    },
)
OPERATOR: Final = Board(
    name="operator",
    title="Operator",
    about="The operator itself: whether its loops keep up, and what they take.",
    rows={
        "Loops": (
            Panel(
                title="Passes per second, by outcome",
                unit="ops",
                queries={f"sum by (outcome) (rate(fencepost_reconcile_total[{RATE}]))": "{{outcome}}"},
            ),
            Panel(
                title="Duration of a pass",
                unit="s",
                queries={
                    f"histogram_quantile({quantile}, sum by (le) (rate(fencepost_reconcile_duration_seconds_bucket[{RATE}])))": f"p{round(quantile * 100)}"
                    for quantile in (0.5, 0.99)
                },
            ),
            Panel(
                title="Longest time without a successful pass",
                unit="s",
                queries={
                    "topk(5, time() - max by (namespace, name) (fencepost_pipeline_last_success_timestamp_seconds))": "{{namespace}}/{{name}}"
                },
            ),
            Panel(
                title="Duration of Helm's calls, mean",
                unit="s",
                queries={
                    f"sum by (operation) (rate(fencepost_helm_duration_seconds_sum[{RATE}]))"
                    f" / sum by (operation) (rate(fencepost_helm_duration_seconds_count[{RATE}]))": "{{operation}}"
                },
            ),
            Panel(
                title="Planned restarts",
                unit="short",
                queries={
                    "sum(fencepost_planned_restarts)": "in progress",
                    "sum(fencepost_planned_restarts_queued)": "waiting",
                },
            ),
            Panel(
                title="Shards of each replica",
                unit="short",
                queries={"sum by (pod) (fencepost_operator_leader)": "{{pod}}"},
            ),
        ),
        "Process": (
            Panel(
                title="Memory",
                unit="bytes",
                queries={
                    "max by (pod) (process_resident_memory_bytes and on (pod) fencepost_operator_leader)": "{{pod}}"
                },
            ),
            Panel(
                title="CPU",
                unit="percentunit",
                queries={
                    f"sum by (pod) (rate(process_cpu_seconds_total[{RATE}]) and on (pod) fencepost_operator_leader)": "{{pod}}"
                },
            ),
            Panel(
                title="Open files",
                unit="short",
                queries={"max by (pod) (process_open_fds and on (pod) fencepost_operator_leader)": "{{pod}}"},
            ),
        ),
    },
)
BOARDS: Final = (FLEET, ONE, OPERATOR)
