"""For readers of a Kafka sink's topic: the headers of its records, and how a repeated record is recognized.

A batch that is repeated is produced again. The copies of one record have the same coordinates, those of the record that
they were made of, and the copy of the highest (epoch, version) is the one that the committed batch wrote.
Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

PIPELINE: Final = "fencepost-pipeline"
"""`<scope>/<namespace>/<name>` of the pipeline."""
COORDINATES: Final = "fencepost-coordinates"
"""`topic/partition/offset` of the input record, and `/i` where the frame has a column `i`. Absent without them."""
EPOCH: Final = "fencepost-epoch"
"""The epoch of the run that wrote the record, in decimal."""
VERSION: Final = "fencepost-version"
"""The fence row's version when the batch began, in decimal."""
PREFIX: Final = "fencepost-"

R = TypeVar("R")
Value = str | bytes | None
Headers = Mapping[str, Value] | Iterable[tuple[str, Value]]


def newest(records: Iterable[R], headers: Callable[[R], Headers | None]) -> list[R]:
    """Return the records without older copies, each at the place of its first copy.

    `headers` gives a record's headers, as `confluent_kafka.Message.headers` does. A record without coordinates is kept.
    Of copies of equal (epoch, version), which a repeated task leaves, the first is kept.
    """
    places: dict[tuple[Value, Value], tuple[int, tuple[int, int]]] = {}
    kept: list[R] = []
    for record in records:
        found = dict(headers(record) or ())
        coordinates = found.get(COORDINATES)
        if coordinates is None:
            kept.append(record)
            continue
        key = (found.get(PIPELINE), coordinates)
        order = (int(found.get(EPOCH) or 0), int(found.get(VERSION) or 0))
        if key not in places:
            places[key] = (len(kept), order)
            kept.append(record)
        elif order > places[key][1]:
            kept[places[key][0]] = record
            places[key] = (places[key][0], order)
    return kept
