"""What `decide` returns, and what it is given of actions that failed."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_operator.actions import Action
from fencepost_operator.api import Event, Reason, Status
from fencepost_operator.decision.rewind.step_status import RewindUpdate
from fencepost_operator.observation import Backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFailure:
    """An action that failed, or that succeeded and changed nothing, and how often in a row.

    It is reported in place of the rule's message while that very action is due: one with other content, as after a
    change of the spec, has not failed yet.
    """

    action: Action
    reason: Reason
    message: str
    remedy: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to record, to report and to do, in that order, and after how many seconds to look again.

    `backlog` is None while it is unknown.
    """

    reason: Reason
    status: Status
    events: tuple[Event, ...]
    action: Action | None
    requeue_after: float
    backlog: Backlog | None = None
    rewinds: tuple[RewindUpdate, ...] = ()
    is_queued: bool = False
    """The pipeline waits for its turn to be restarted."""
