"""Compares what the sinks and the dead letters hold with Kafka's log, by rules of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from harness.kafka_log import Record

POISON: Final = "poison"
"""Texts that begin so fail in the campaign's code."""
MOST_SHOWN: Final = 5
"""Differences of one kind that are named."""

Place = tuple[int, int]
"""Partition and offset."""
_Key = TypeVar("_Key", Place, str)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of either sink: which record it is from, and what that record says."""

    place: Place
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Output:
    """Rows by record, rows by key, and the records that were set aside."""

    records: Mapping[Place, Row]
    names: Mapping[str, Row]
    letters: frozenset[Place]


def expected(log: Iterable[Record]) -> Output:
    """Return what must be there: of each key the row with the greatest id, which the producer counts up."""
    records: dict[Place, Row] = {}
    names: dict[str, Row] = {}
    letters: set[Place] = set()
    for record in log:
        row = _row(record)
        if row is None:
            letters.add((record.partition, record.offset))
            continue
        records[row.place] = row
        if record.key not in names or names[record.key].id < row.id:
            names[record.key] = row
    return Output(records, names, frozenset(letters))


def differences(found: Output, wanted: Output) -> list[str]:
    """Return a sentence for each kind of difference, and the first places where it is."""
    return [
        *_compared("records", found.records, wanted.records),
        *_compared("names", found.names, wanted.names),
        *_named("letters: missing", wanted.letters - found.letters),
        *_named("letters: of a record that is not poison", found.letters - wanted.letters),
    ]


def places(found: Output, wanted: Output) -> set[Place]:
    """Return the records at which something differs; of a key whose row is wrong, those of both rows."""
    names = [(found.names.get(key), wanted.names.get(key)) for key in found.names.keys() | wanted.names.keys()]
    return {
        *(at for at in found.records.keys() | wanted.records.keys() if found.records.get(at) != wanted.records.get(at)),
        *(row.place for pair in names if pair[0] != pair[1] for row in pair if row is not None),
        *(found.letters ^ wanted.letters),
    }


def _row(record: Record) -> Row | None:
    try:
        event = json.loads(record.value)
    except ValueError:
        return None
    if event["text"].startswith(POISON):
        return None
    return Row((record.partition, record.offset), event["id"], event["text"])


def _compared(table: str, found: Mapping[_Key, Row], wanted: Mapping[_Key, Row]) -> list[str]:
    wrong: list[_Key] = sorted(key for key, row in found.items() if wanted.get(key, row) != row)
    return [
        *_named(f"{table}: missing", wanted.keys() - found.keys()),
        *_named(f"{table}: not in the log", found.keys() - wanted.keys()),
        *(f"{table}: {key!r} is {found[key]}, not {wanted[key]}" for key in wrong[:MOST_SHOWN]),
    ]


def _named(what: str, keys: Iterable[object]) -> list[str]:
    every = sorted(map(repr, keys))
    return [f"{what}: {len(every)}, such as {', '.join(every[:MOST_SHOWN])}"] if every else []
