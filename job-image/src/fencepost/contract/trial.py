"""What the operator asks of `fencepost trial`, and what that reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, Self

import msgspec

from fencepost.contract.codec import ContractError, decode, encode

TRIAL_FILE: Final = "trial.json"
"""Beside the run's configuration, in the same mounted ConfigMap."""
LIMIT: Final = 4096
"""Bytes of a termination message: the kubelet's limit."""
SAMPLES: Final = 10
"""Rows of one kind that are shown."""
LONGEST_SAMPLE: Final = 240
"""Characters of a sample's key, and of its columns."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Figure = Annotated[float, msgspec.Meta(ge=0, le=2**63 - 1)]
_Word = Annotated[str, msgspec.Meta(max_length=100)]
_Text = Annotated[str, msgspec.Meta(max_length=1000)]

Kind = Literal["Changed", "Missing", "Added"]
"""How a row differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequest:
    """Which records the new code reads, and what of its rows is compared.

    `start` and `until` map 'topic/partition' to offsets.  `written_after` and `written_until` are the fence row's clock
    at both, in µs: what the pipeline wrote of these records has a write timestamp between them.
    """

    start: Mapping[str, int]
    until: Mapping[str, int]
    written_after: int
    written_until: int
    sinks: tuple[str, ...]
    """Names of the sinks that are compared."""
    ignored: tuple[str, ...] = ()
    """Columns that are not compared."""
    show_values: bool = False
    """Whether samples show values of columns beside the key."""
    rows_per_second: int = 5_000
    """Most rows that are read from Cassandra."""
    seconds: float = 3600.0
    """After so long the trial ends with what it has."""
    snapshot: str = ""
    """Id of the snapshot whose state a stateful pipeline begins with; '' of a stateless one."""
    progress_key: str = ""
    """The partition of `fence_progress` for reports of progress; never that of a pipeline."""

    def to_json(self) -> str:
        """Return the JSON of TRIAL_FILE."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        return decode(cls, text, TRIAL_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFindings:
    """Rows of one sink by what was found; all 0 for a sink that is not compared, with the reason in `message`."""

    name: _Word
    is_compared: bool = True
    equal: _Count = 0
    changed: _Count = 0
    added: _Count = 0
    missing: _Count | None = None
    """None where missing rows were not looked for."""
    overwritten: _Count = 0
    """With other cells, which the pipeline has written since the trial began."""
    undecided: _Count = 0
    """Cannot be compared: expired, perhaps, or deleted later, or without a write time."""
    message: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row that differs. `columns` names those that differ, with both values where that is asked for."""

    sink: _Word
    kind: Kind
    key: _Text
    columns: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFigures:
    """What processes of one kind used: 'driver', 'jvm' or 'workers'. Memory in bytes, CPU in seconds and in CPUs."""

    name: _Word
    peak_memory: _Count = 0
    cpu_seconds: _Figure = 0.0
    peak_cpu: _Figure = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """What a trial found. `records` are offsets that were processed, of `total`; `seconds` is without the start."""

    records: _Count
    total: _Count
    seconds: _Figure
    is_complete: bool = True
    """Whether all records were processed and compared, and each sink is in the report."""
    note: _Text = ""
    """What else there is to know, such as why it is not complete."""
    sinks: tuple[SinkFindings, ...] = ()
    samples: tuple[Sample, ...] = ()
    poison: _Count = 0
    """Records that failed alone."""
    first_poison: _Text = ""
    """The first one, 'topic/partition@offset'."""
    poison_error: _Text = ""
    processes: tuple[ProcessFigures, ...] = ()
    peak_memory: _Count | None = None
    """Bytes of the container without the page cache."""
    memory_limit: _Count | None = None

    def to_json(self) -> str:
        """Return JSON of at most LIMIT bytes: samples are left out from the end, then texts are cut.

        A report without all its sinks is not complete.
        """
        found = self
        while len(text := encode(found).encode()) > LIMIT and found.samples:
            found = replace(found, samples=_without_one(found.samples))
        if len(text) > LIMIT:
            sinks = tuple(replace(sink, message=sink.message[:60]) for sink in found.sinks)
            found = replace(found, sinks=sinks, note=found.note[:200], poison_error=found.poison_error[:200])
        while len(text := encode(found).encode()) > LIMIT and found.sinks:
            found = replace(found, sinks=found.sinks[:-1], is_complete=False)
        return text.decode()

    @classmethod
    def from_json(cls, text: str) -> Self | None:
        """Return the report in a termination log, None without one: the pod can write anything there."""
        if len(text.encode(errors="replace")) > LIMIT:
            return None
        try:
            return decode(cls, text, "the report")
        except ContractError:
            return None


def _without_one(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """Leave out the last sample of the kind that has most."""
    counts: dict[str, int] = {}
    for sample in samples:
        counts[sample.kind] = counts.get(sample.kind, 0) + 1
    most = max(counts, key=lambda kind: counts[kind])
    last = max(index for index, sample in enumerate(samples) if sample.kind == most)
    return (*samples[:last], *samples[last + 1 :])
