"""What `fencepost run --local` gives the process that runs the pipeline, and what that says of its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from fencepost.contract import DriverConfig, Verdict
from fencepost.contract.codec import decode, encode

PROCESS: Final = "fencepost.local"
"""The module that reads a Request as the first line of its standard input, and writes an Event per line of its output.

Once its standard input closes, it stops after the batch in progress.
"""
DEBUGGER: Final = "fencepost.local.terminal_debugger.set_trace"
"""What PYTHONBREAKPOINT names with `debug`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A file of records; `topic` is that of records which name none."""

    path: str
    topic: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastBatch:
    """A batch that a run has begun: the version and the clock of the fence row on which it did, and what it read."""

    version: int
    clock: int
    spans: Mapping[str, tuple[int, int]]
    """{'topic/partition': (start, until)}."""
    is_repeated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A run. Each one takes over the fence row of its file, so that the config's epoch has no meaning.

    With `past`, that batch is run instead, once and under the config's epoch, and no fence row is touched.
    """

    config: DriverConfig
    database: str
    """The SQLite file."""
    code: str
    """The folder with the author's modules."""
    scratch: str
    """A folder that exists for as long as the run."""
    log: str
    """The file for what Java and the Python workers print."""
    registry_credentials: str = ""
    """The folder with the keys of the schema registry's Secret as files; '' for a registry that asks for none."""
    files: tuple[RecordFile, ...] = ()
    """Empty for a run that reads Kafka."""
    ends: bool = True
    """Whether the run ends when it has read everything that there is."""
    left_out: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Offsets by 'topic/partition' that this run and later ones on the file do not read."""
    past: PastBatch | None = None
    debug: bool = False
    """Whether `breakpoint()` opens a debugger on the terminal, in Spark's Python workers too."""

    def to_json(self) -> str:
        """Return the JSON on one line."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        return decode(cls, text, "the request of a local run")


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch; `rows` by sink, and how long it took."""

    records: int
    rows: Mapping[str, int] = field(default_factory=dict)
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One of these."""

    loaded: int | None = None
    """Records of files that were loaded."""
    committed: Committed | None = None
    ended: Verdict | None = None

    def to_json(self) -> str:
        """Return the JSON on one line."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote. Raises ContractError."""
        return decode(cls, text, "an event of a local run")
