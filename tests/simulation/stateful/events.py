"""What happens in a history. Each event is at a turn; durations are in turns, and `jump` in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["any", "driver", "executor", "worker", "operator"]
Call: TypeAlias = Literal[
    "any", "read", "swap", "write", "read_chunks", "delete", "add_range", "ranges", "leave_range", "server_time",
    "insert_snapshot", "read_snapshot", "checkpoints", "delete_snapshot", "request", "report",
]  # fmt: skip
How: TypeAlias = Literal["kill", "freeze", "pause", "lose", "late"]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The next such call of such a process, before or after its effect."""

    at: int
    call: Call = "any"
    when: Literal["before", "after"] = "before"
    how: How = "kill"
    who: Kind = "any"
    seconds: int = 20
    """Turns for which it is frozen or paused, or until a late effect."""


@dataclass(frozen=True, slots=True)
class Kill:
    """A process ends between two calls."""

    at: int
    who: Kind = "driver"


@dataclass(frozen=True, slots=True)
class Freeze:
    """A process is frozen between two calls."""

    at: int
    who: Kind = "driver"
    seconds: int = 40


@dataclass(frozen=True, slots=True)
class Outage:
    """Cassandra does not answer processes of a kind."""

    at: int
    who: Kind = "any"
    seconds: int = 20


@dataclass(frozen=True, slots=True)
class Replace:
    """The operator replaces a driver that may still live."""

    at: int


@dataclass(frozen=True, slots=True)
class Twin:
    """A second driver of the newest epoch starts."""

    at: int


@dataclass(frozen=True, slots=True)
class NewCode:
    """The driver stops, and its successor runs other code."""

    at: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The operator takes a snapshot."""

    at: int


@dataclass(frozen=True, slots=True)
class DropSnapshot:
    """The operator deletes a snapshot."""

    at: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Rewind:
    """A user goes back to a snapshot, or with `same` to the offsets that are committed; with `empty` to empty state."""

    at: int
    number: int = 0
    same: bool = False
    delete_output: bool = False
    empty: bool = False


@dataclass(frozen=True, slots=True)
class CancelRewinds:
    """A user removes the rewinds to the committed offsets with their finalizers.

    Another one may have deleted output of committed records; then the user has to go back once more.
    """

    at: int


@dataclass(frozen=True, slots=True)
class Lose:
    """Kafka deletes records that are not committed; a user accepts that after a run has found it."""

    at: int
    partition: int = 0
    records: int = 1


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    at: int
    jump: float = 1000.0


@dataclass(frozen=True, slots=True)
class StepClock:
    """The wall clock of the processes of a kind steps, and steps back later."""

    at: int
    who: Kind = "driver"
    ahead: float = 60.0
    seconds: int = 60


Wish: TypeAlias = Replace | Twin | NewCode | Snapshot | DropSnapshot | Rewind | CancelRewinds
"""What users and Kubernetes ask for."""
Event: TypeAlias = Interrupt | Kill | Freeze | Outage | Lose | Pass | StepClock | Wish
