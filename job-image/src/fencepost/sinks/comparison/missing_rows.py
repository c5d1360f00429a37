"""The rows that the table has of ranges of records, and that the new code does not write.

They are found as a purge finds them: by a key that is the record's place, or by the purge index.  A table with neither
cannot say which of its rows come from these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from fencepost.contract.trial import LONGEST_SAMPLE, SAMPLES
from fencepost.errors import BadSpec
from fencepost.sinks.cassandra.purge_index import split_key
from fencepost.sinks.cassandra.queries import PAGE, Queries
from fencepost.sinks.comparison.cells import ColumnType
from fencepost.sinks.comparison.findings import Findings
from fencepost.sinks.comparison.pace import Pace
from fencepost.sinks.comparison.stored_rows import StoredRow, StoredRows, TableShape
from fencepost.sinks.purge.cassandra_output import PurgeableTable
from fencepost.sinks.purge.indexed_output import IndexedTable, slices

Ranges = Mapping[str, tuple[int, int]]
"""'topic/partition' to offsets [start, until)."""
CANNOT: Final = (
    "missing rows are not looked for: the table's key does not hold the record's place, and it has no purge index"
)


@dataclass(slots=True)
class Missing:
    """How many rows are missing, the keys of some, and why they were not looked for ('' where they were)."""

    count: int = 0
    samples: list[str] = field(default_factory=list)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MissingRows:
    """Looks in one table, through `raw` queries; `output` finds the rows of records."""

    output: PurgeableTable | IndexedTable
    raw: Queries
    shape: TableShape
    written_until: int
    rows_per_second: float

    def look(self, findings: Findings, sink: str, ranges: Ranges) -> Missing:
        """Return what is missing of these records. Raises DriverError."""
        try:
            self.output.check(ranges)
        except BadSpec as error:
            return Missing(reason=f"missing rows are not looked for: {error.message}")
        found = Missing()
        for key, row in self._stored(findings, sink, ranges):
            if findings.has(sink, key) or (row.written is not None and row.written > self.written_until):
                continue
            found.count += 1
            if len(found.samples) < SAMPLES:
                found.samples.append(self._shown(key))
        return found

    def _stored(self, findings: Findings, sink: str, ranges: Ranges) -> Iterator[tuple[bytes, StoredRow]]:
        """Yield what the table has of the records, each key once, and perhaps not what the new code writes too."""
        pace = Pace(self.rows_per_second)
        if isinstance(self.output, PurgeableTable):
            for part in self.output.slices(ranges):
                where, values = self.output.where(part)
                for found in self.raw.ask(self.shape.select(where), values):
                    pace.take(1)
                    yield self.shape.row(found)
            return
        seen: set[bytes] = set()
        reader = StoredRows(self.raw, self.shape, pace)
        entries = (key for part in slices(ranges) for key in self.output.keys(part))
        while page := list(islice(entries, PAGE)):
            keys = [key for key in dict.fromkeys(page) if key not in seen and not findings.has(sink, key)]
            seen.update(keys)
            yield from reader.read(list(self._requested(keys))).items()

    def _requested(self, keys: Iterable[bytes]) -> Iterator[tuple[Sequence[bytes], bytes]]:
        first = len(self.shape.partition_key)
        for key in keys:
            parts = split_key(key, columns=len(self.shape.primary_key))
            clustering = sum(4 + len(part) for part in parts[first:])
            yield parts[:first], key[len(key) - clustering :] if clustering else b""

    def _shown(self, key: bytes) -> str:
        names = self.shape.primary_key
        kinds = {name: kind for _, _, name, kind in self.raw.prepare(self.shape.by_key()).result_metadata}
        version = self.raw.session.cluster.protocol_version
        parts = zip(names, split_key(key, columns=len(names)), strict=True)
        shown = (f"{name}={ColumnType(kinds[name], version, is_frozen=True).shown(part)[:100]}" for name, part in parts)
        return ", ".join(shown)[:LONGEST_SAMPLE]
