"""What the tasks of one batch get, beside the function that is the same for each batch of a run.

It travels as a local property of the Spark job, so that the query around the function is planned once.  Spark's event
log has the local properties: no secret belongs here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from fencepost.batch import Range

PROPERTY: Final = "fencepost.batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One batch: what each task reads, and what the transform and the sinks get to know about it.

    `number` counts the batches of a session.  The others are those of a RecordContext.
    """

    slices: Sequence[tuple[Range, ...]]
    number: int
    version: int
    token: int
    offsets: Mapping[str, tuple[int, int]]
    is_repeated: bool

    def to_json(self) -> str:
        """Return the text of the local property."""
        slices = [[one.fields() for one in part] for part in self.slices]
        fields = [slices, self.number, self.version, self.token, self.offsets, self.is_repeated]
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return what `to_json` wrote."""
        slices, number, version, token, offsets, is_repeated = json.loads(text)
        return cls(
            slices=[tuple(map(Range.of_fields, part)) for part in slices],
            number=number,
            version=version,
            token=token,
            offsets={key: (start, until) for key, (start, until) in offsets.items()},
            is_repeated=is_repeated,
        )
