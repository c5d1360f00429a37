"""The section of docs/benchmarks.md about stateful pipelines, and its aims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bench.stateful.contestants import BLOCKS, FENCED, FLINK, FLOOR, NATIVE, QUERIES, SLOW, blocks
from generators.figures import Distribution, Figures

CONTESTANTS: Final = (FENCED, NATIVE, SLOW, FLOOR, FLINK)
SPARK: Final = ("driver", "worker", "master")
PER_BATCH: Final = ("lightweight transactions", "rows of the history", "files", "chunks", "bytes", "server ms")
PHASES: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Spark's, in their order."""
BATCHES_PER_SECOND: Final = 5

Aim = tuple[str, float, str, bool, float | None]
"""What, its bound, the unit, whether at least that is asked for, and what was measured."""


def find(found: Figures | None, name: str) -> Distribution | None:
    """Return a sample, None where it was not measured."""
    if found is None:
        return None
    return next((one for one in found.samples if one.name == name and one.n), None)


def measured(found: Figures) -> Iterator[tuple[str, str, str]]:
    """Yield (contestant, query, records per batch) of each block that was measured."""
    for query, schedule in BLOCKS.items():
        for block in blocks(schedule):
            for contestant in CONTESTANTS:
                if find(found, f"{contestant}: {query}, {block.name}") is not None:
                    yield contestant, query, block.name


def batches(found: Figures) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of batches; the first one is its head."""
    yield "", "records per batch", "p50, ms", "p95, ms", "times native", "own CPU-µs/row", "times native"
    for contestant, query, size in measured(found):
        name = f"{contestant}: {query}, {size}"
        took = found.sample(name)
        yield (
            f"{QUERIES[query]}: {contestant}",
            size,
            number(took.at(0.5)),
            number(took.at(0.95)),
            times(took.at(0.5), median(found, f"{NATIVE}: {query}, {size}")),
            number(spent(found, name) or 0.0),
            times(spent(found, name), spent(found, f"{NATIVE}: {query}, {size}")),
        )


def phases(found: Figures) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of phases, in ms."""
    yield "", "records per batch", *PHASES
    for contestant, query, size in measured(found):
        name = f"{contestant}: {query}, {size}"
        medians = [median(found, f"{name}: Spark's {phase}") for phase in PHASES]
        if any(value is not None for value in medians):
            yield (
                f"{QUERIES[query]}: {contestant}",
                size,
                *("" if value is None else number(value) for value in medians),
            )


def costs(found: Figures) -> Iterator[Sequence[str]]:
    """Yield the rows of the table of what a batch of Fencepost costs."""
    yield "", "records per batch", *PER_BATCH, "requests to the server"
    for contestant, query, size in measured(found):
        name = f"{contestant}: {query}, {size}"
        if contestant == FENCED and find(found, f"{name}: files") is not None:
            requests = [one.median for one in found.samples if one.name.startswith(f"{name}: request ")]
            values = [median(found, f"{name}: {what}") or 0.0 for what in PER_BATCH]
            yield QUERIES[query], size, *map(number, values), number(sum(requests))


def aims(found: Figures | None, large: Figures | None) -> Iterator[Aim]:
    """Yield the aims of batches, and of recoveries with a large state."""
    for query, what in QUERIES.items():
        for size in ("1,000", "100,000"):
            ours = median(found, f"{FENCED}: {query}, {size}")
            for theirs, bound in ((NATIVE, 1.0), (SLOW, 0.5)):
                peer = median(found, f"{theirs}: {query}, {size}")
                if (theirs, query, size) in AIMED:
                    ratio = ours / peer if ours and peer else None
                    yield f"{what}, batch of {size}, p50, against {theirs}", bound, "times", False, ratio
    local, remote = (f"1 GB, {{}}, files of {where}" for where in ("the worker", "Cassandra"))
    first = find(large, remote.format("first batch"))
    yield "1 GB of state restored from Cassandra, first batch included, p50", 20, "s", False, at(first, 0.5)
    recovered = find(large, local.format("kill to commit"))
    yield "SIGKILL of the driver to the next commit with 1 GB of state, p95", 15, "s", False, at(recovered, 0.95)
    for what in ("written", "read"):
        yield f"chunks of the state {what}, p50", 100, "MiB/s", True, at(find(large, f"chunks {what}"), 0.5)
    server = median(found, f"{FENCED}: count, 1,000: server ms")
    share = None if server is None else server * BATCHES_PER_SECOND / 10
    yield f"CPU of the driver's server at {BATCHES_PER_SECOND} batches per second", 10, "% of a core", False, share


AIMED: Final = {
    *((NATIVE, query, size) for query in ("count", "windows") for size in ("1,000", "100,000")),
    (NATIVE, "processor", "1,000"),
    (SLOW, "count", "1,000"),
}
"""The pairs for which the aims name a bound."""


def median(found: Figures | None, name: str) -> float | None:
    """Return a sample's median, None where it was not measured."""
    return at(find(found, name), 0.5)


def at(sample: Distribution | None, share: float) -> float | None:
    """Return a percentile, None without a sample."""
    return None if sample is None else sample.at(share)


def spent(found: Figures, name: str) -> float | None:
    """Return the CPU-µs per row of Spark's processes."""
    parts = [value for role in SPARK if (value := median(found, f"{name}: {role}")) is not None]
    return sum(parts) if parts else None


def times(ours: float | None, theirs: float | None) -> str:
    """Return a ratio."""
    return f"{ours / theirs:.2f}" if ours is not None and theirs else ""


def number(value: float) -> str:
    """Return a figure with about three digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else (f"{value:.1f}" if value >= 10 else f"{value:.2f}")
