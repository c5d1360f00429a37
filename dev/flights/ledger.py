"""Which event went where: for each partition the offsets, and the number of the event at each, as Kafka confirmed them.

A row of the sink is found again by its coordinates, and the number says what it has to be.  Sixteen bytes an event, in
memory and in the file, so a million of them take little.
"""

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self

_MAGIC = "fencepost ledger 1"


@dataclass(slots=True)
class Placed:
    """The events of one partition, by offset ascending."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, offset: int, number: int) -> None:
        """Note one more. An idempotent producer confirms a partition's events in order; anything else raises."""
        if self.offsets and offset <= self.offsets[-1]:
            raise ValueError(f"offset {offset} was confirmed after {self.offsets[-1]}")
        self.offsets.append(offset)
        self.numbers.append(number)

    def number_at(self, offset: int) -> int | None:
        """The event at an offset; None where this producer put none."""
        place = bisect_left(self.offsets, offset)
        return self.numbers[place] if place < len(self.offsets) and self.offsets[place] == offset else None


@dataclass(slots=True)
class Ledger:
    """All that was produced of one feed to one topic. `next_number` is where a later load continues."""

    topic: str
    feed: str
    partitions: dict[int, Placed] = field(default_factory=dict)

    def __len__(self) -> int:
        """Events that Kafka confirmed."""
        return sum(
            len(placed.offsets) for placed in tuple(self.partitions.values())
        )  # the loader may add one meanwhile

    @property
    def next_number(self) -> int:
        """One more than the highest number produced."""
        return max((max(placed.numbers) for placed in self.partitions.values() if placed.numbers), default=-1) + 1

    @property
    def ends(self) -> dict[int, int]:
        """The offset after the last one, by partition."""
        return {partition: placed.offsets[-1] + 1 for partition, placed in self.partitions.items() if placed.offsets}

    def add(self, partition: int, offset: int, number: int) -> None:
        """Note that an event arrived."""
        placed = self.partitions.get(partition)
        if placed is None:
            placed = self.partitions.setdefault(partition, Placed())
        placed.add(offset, number)

    def number_at(self, partition: int, offset: int) -> int | None:
        """The event at a place; None where this producer put none."""
        placed = self.partitions.get(partition)
        return None if placed is None else placed.number_at(offset)

    def without(self, partition: int, start: int, until: int) -> Self:
        """Return a copy that has no event of a partition's offsets [start, until): Kafka lost them."""
        placed, kept = self.partitions.get(partition, Placed()), Placed()
        for offset, number in zip(placed.offsets, placed.numbers, strict=True):
            if not start <= offset < until:
                kept.add(offset, number)
        return type(self)(self.topic, self.feed, {**self.partitions, partition: kept})

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """(partition, offset, number) of each event."""
        for partition, placed in self.partitions.items():
            for offset, number in zip(placed.offsets, placed.numbers, strict=True):
                yield partition, offset, number

    def save(self, path: Path) -> None:
        """Write the ledger to a file: a line of JSON, then the arrays. A reader sees the old file or the new one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(path.name + ".new")
        sizes = {partition: len(placed.offsets) for partition, placed in self.partitions.items()}
        heading = {"format": _MAGIC, "topic": self.topic, "feed": self.feed, "partitions": sizes}
        with fresh.open("wb") as file:
            file.write(json.dumps(heading).encode() + b"\n")
            for placed in self.partitions.values():
                file.write(placed.offsets.tobytes())
                file.write(placed.numbers.tobytes())
        fresh.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what `save` wrote on a machine of the same byte order. Raises ValueError when it is something else."""
        with path.open("rb") as file:
            try:
                heading = json.loads(file.readline())
            except ValueError as error:
                raise ValueError(f"{path} is not a ledger") from error
            if not isinstance(heading, dict) or heading.get("format") != _MAGIC:
                raise ValueError(f"{path} is not a ledger")
            partitions = {
                int(partition): Placed(_array(file, size), _array(file, size))
                for partition, size in heading["partitions"].items()
            }
        return cls(heading["topic"], heading["feed"], partitions)


def _array(file: BinaryIO, size: int) -> "array[int]":
    numbers = array("q")
    numbers.frombytes(file.read(size * numbers.itemsize))
    if len(numbers) != size:
        raise ValueError("the ledger ends too early")
    return numbers
