"""Single records of Kafka, read by the driver itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from fencepost.batch import Range, Record
from fencepost.errors import WorkerError, from_text
from fencepost.kafka.reader import check, read


@dataclass(frozen=True, slots=True)
class KafkaRecords:
    """The records of a cluster. `patience` is in seconds."""

    properties: Mapping[str, str]
    patience: float

    def first(self, part: Range) -> Record | None:
        """Return the first record of a range, None when compaction or transactions left none there.

        Raises DataLoss, DependencyDown.
        """
        try:
            with closing(read([part], self.properties, patience=self.patience)) as batches:
                for batch in batches:
                    found = batch.slice(0, 1).to_pylist()[0]
                    headers = tuple((one["key"], one["value"]) for one in found.pop("headers") or ())
                    return Record(headers=headers, **found)
        except WorkerError as error:
            raise from_text(str(error)) or error from error
        return None

    def check(self, parts: Sequence[Range], at_least: Mapping[str, int] | None = None) -> Mapping[str, int]:
        """Read ranges whose first offset was reached under their leader epoch; return their first records' epochs.

        `at_least` has epochs that these must have: Kafka is asked until its answer is of so late a leader.
        Raises DataLoss with the offsets of all logs that were cut before that, DependencyDown.
        """
        return check(parts, self.properties, patience=self.patience, at_least=at_least)
