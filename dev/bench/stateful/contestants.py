"""The contestants of `bench stateful`: one pipeline, whose code, checkpoint or mode differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

MANY_KEYS: Final = "count, 10 M keys"
BLOCKS: Final[Mapping[str, str]] = {
    "count": "10x100000,5x100000,15x1000,100x1000",
    "windows": "10x100000,5x100000,15x1000,100x1000",
    "processor": "1x20000,2x100000,3x100000,15x1000,60x1000",
    MANY_KEYS: "100x100000,5x100000,15x1000,100x1000",
}
"""The batches of each query: a warm-up, the large ones, a warm-up, the small ones. The first records have a key each,
as many as the query has keys."""
KEYS: Final = 1_000_000
KEYS_OF: Final = {MANY_KEYS: 10_000_000}
"""Of the queries with another number of keys."""
QUERIES: Final[Mapping[str, str]] = {
    "count": "count by key",
    "windows": "1-minute windows, 5 % late",
    "processor": "transformWithState",
    MANY_KEYS: "count by key, 10 M keys",
}
FENCED: Final = "Fencepost"
NATIVE: Final = "native, local checkpoint"
SLOW: Final = "native, slow checkpoint"
FLOOR: Final = "stateless"
FLINK: Final = "PyFlink"
"""Not a pipeline: see `bench.stateful.flink`."""
CHECKPOINTS: Final = {FENCED: "fenced", NATIVE: "local", SLOW: "slow"}


@dataclass(frozen=True, slots=True)
class Block:
    """Batches of one size, counted from the run's first one: [first, last). `before` are the records before them."""

    name: str
    records: int
    first: int
    last: int
    before: int


def blocks(schedule: str) -> list[Block]:
    """Return the two blocks of a schedule that are measured."""
    found, first, before = [], 0, 0
    for place, (batches, records) in enumerate(_parts(schedule)):
        if place % 2:
            found.append(Block(f"{records:,}", records, first, first + batches, before))
        first, before = first + batches, before + batches * records
    return found


def records(schedule: str) -> int:
    """Return how many records all batches of a schedule have."""
    return sum(batches * size for batches, size in _parts(schedule))


def _parts(schedule: str) -> Iterator[tuple[int, int]]:
    """Yield how many batches follow each other, and the records of each."""
    for part in schedule.split(","):
        batches, size = part.split("x")
        yield int(batches), int(size)


def patch(contestant: str, query: str, *, image: str | None = None) -> dict[str, Any]:
    """Return what differs from the pipeline's spec."""
    args = [query.partition(",")[0], BLOCKS[query], CHECKPOINTS.get(contestant, "none")]
    job: dict[str, Any] = {"args": args, **({"image": image} if image else {})}
    # A native query commits nothing, so the operator sees no progress.
    spec: dict[str, Any] = {} if contestant == FENCED else {"restart": {"stallTimeout": "1h"}}
    if contestant == FLOOR:
        return {**spec, "job": {**job, "entrypoint": "queries:transform", "mode": "Stateless"}, "state": None}
    return {**spec, "job": job}
