"""The records of `bench stateful`: each key once, then keys at random. One in twenty is late.

The value is the key: Flink's formats drop a record without a value.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

TOPIC: Final = "bench-stateful"
PARTITIONS: Final = 4
STEP_MS: Final = 10
"""Of event time between two records: 1,000 records are ten seconds."""
LATE: Final = 0.05
LATEST_MS: Final = 600_000
"""How late a late record is at most; the windows wait for half of that."""


def records(keys: int, more: int) -> Iterator[Mapping[str, Any]]:
    """Yield `keys` records with a key each, and `more` with random ones of these."""
    chance = random.Random(27)
    begin = int(time.time() * 1000) - STEP_MS * (keys + more)
    for number in range(keys + more):
        key = number if number < keys else chance.randrange(keys)
        late = chance.randrange(LATEST_MS) if chance.random() < LATE else 0
        moment = begin + STEP_MS * number - late
        name = f"k{key:09d}"
        yield {"key": name, "value": name, "partition": number % PARTITIONS, "timestamp": moment}
