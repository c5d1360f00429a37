"""Actions on a pipeline that had no effect, and when each may be tried again."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost_operator.actions import Action, PruneCluster
from fencepost_operator.api import Reason
from fencepost_operator.backoff import retry_delay
from fencepost_operator.decision.decision import ActionFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An action, how often it was tried in a row, and when the same one may be tried again."""

    action: Action
    count: int
    retry_at: float
    """By the monotonic clock."""
    failure: ActionFailure | None


@dataclass(slots=True)
class Attempts:
    """The last attempt of each type of action since a pass that had nothing to do.

    An action is the same by its content: after a change of the spec neither the error nor the backoff of what the old
    one asked for applies.  A prune is also the same while it has an object of the last one to delete: each install that
    fails may add objects.  Types are kept apart so that actions that fail in turn do not reset each other's count.
    """

    _last: dict[type[Action], Attempt] = field(default_factory=dict)

    @property
    def failures(self) -> tuple[ActionFailure, ...]:
        """All failures, to report those whose action is still due."""
        return tuple(attempt.failure for attempt in self._last.values() if attempt.failure is not None)

    def last(self, action: Action) -> Attempt | None:
        """Return the last attempt of the same action."""
        attempt = self._last.get(type(action))
        return attempt if attempt is not None and _is_same(attempt.action, action) else None

    def failed(self, action: Action, now: float, *, reason: Reason, message: str, remedy: str) -> ActionFailure:
        """Note that an action failed; return the failure with its count."""
        failure = ActionFailure(
            action=action, reason=reason, message=message, remedy=remedy, attempts=self._count(action)
        )
        self._note(action, now, failure)
        return failure

    def conflicted(self, action: Action, now: float) -> None:
        """Note the first Conflict of an action, which may be retried at once and does not count as a failure yet."""
        self._last[type(action)] = Attempt(action=action, count=1, retry_at=now, failure=None)

    def succeeded(self, action: Action, now: float) -> None:
        """Note that an action succeeded: when it is due again, it changed nothing."""
        count = self._count(action)
        failure = ActionFailure(
            action=action,
            reason=Reason.NO_EFFECT,
            message="it succeeds, but nothing changes",
            remedy="look for what reverts or caps it, such as an admission webhook, a quota or another controller",
            attempts=count,
        )
        # Once may be a fact that was read before the effect.
        self._note(action, now, failure if count > 1 else None)

    def _count(self, action: Action) -> int:
        before = self.last(action)
        return before.count + 1 if before is not None else 1

    def _note(self, action: Action, now: float, failure: ActionFailure | None) -> None:
        count = self._count(action)
        retry_at = now + retry_delay(count)
        self._last[type(action)] = Attempt(action=action, count=count, retry_at=retry_at, failure=failure)


def _is_same(before: Action, action: Action) -> bool:
    if isinstance(before, PruneCluster) and isinstance(action, PruneCluster):
        return not set(before.objects).isdisjoint(action.objects)
    return before == action
