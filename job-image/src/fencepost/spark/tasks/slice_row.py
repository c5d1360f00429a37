"""What the task of a streaming query reads: its slice of a batch, as the one row that the task gets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from fencepost.batch import Range


@dataclass(frozen=True, slots=True)
class SliceRow:
    """One slice: its place `index` in the batch `number`, which counts the batches of a session, and its ranges."""

    number: int
    index: int
    ranges: tuple[Range, ...]

    def to_json(self) -> str:
        """Return the text of the row."""
        return json.dumps([self.number, self.index, [part.fields() for part in self.ranges]], separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return what `to_json` wrote."""
        number, index, ranges = json.loads(text)
        return cls(number, index, tuple(map(Range.of_fields, ranges)))
