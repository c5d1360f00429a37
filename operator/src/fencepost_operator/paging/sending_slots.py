"""Who may send now, and who is next: the operator's receivers have slots of their own, the namespaces share a few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from fencepost_operator.paging.lanes import Lane
from fencepost_operator.paging.receivers import Receiver

_OWN_SLOTS: Final = 2
_SLOTS: Final = 2
_FAILING_SLOTS: Final = 1
_NEVER: Final = datetime.min.replace(tzinfo=UTC)

LaneKey: TypeAlias = tuple[str, str]
"""The receiver's id and the namespace of the pipelines."""


@dataclass(slots=True)
class SendingSlots:
    """Who sends now: each receiver of the operator once, each namespace once, and few of the failing ones."""

    own: set[str]
    """Ids of receivers: one message may have pages of many namespaces."""
    others: set[str]
    """Namespaces."""
    failing: set[str]
    """Receivers of the operator, and namespaces, whose last message failed or was slow."""

    @classmethod
    def of(cls, lanes: Mapping[LaneKey, Lane]) -> SendingSlots:
        """Return who sends, by the lanes."""
        busy = [(key, lane.receiver) for key, lane in lanes.items() if lane.is_busy]
        return cls(
            own={key[0] for key, receiver in busy if receiver.is_trusted},
            others={key[1] for key, receiver in busy if not receiver.is_trusted},
            failing={key[0] if lane.receiver.is_trusted else key[1] for key, lane in lanes.items() if lane.is_failing},
        )

    def are_taken(self) -> bool:
        """Whether no slot is free."""
        return len(self.own) >= _OWN_SLOTS and len(self.others) >= _SLOTS

    def take(self, receiver: Receiver, namespace: str) -> bool:
        """Take a slot; return whether there was one."""
        users, most, name = (
            (self.own, _OWN_SLOTS, receiver.id) if receiver.is_trusted else (self.others, _SLOTS, namespace)
        )
        if len(users) >= most or name in users:
            return False
        if name in self.failing and sum(user in self.failing for user in users) >= _FAILING_SLOTS:
            return False
        users.add(name)
        return True


def turns(lanes: Mapping[LaneKey, Lane]) -> Callable[[Lane, str], tuple[datetime, datetime]]:
    """Return when each lane had its last turn, as what to sort by.

    Of the namespaces' receivers it is the namespace's turn: with many of them it has no more turns than others.
    """
    of_namespaces: dict[str, datetime] = {}
    for (_, namespace), lane in lanes.items():
        if not lane.receiver.is_trusted:
            of_namespaces[namespace] = max(of_namespaces.get(namespace, _NEVER), lane.last_start or _NEVER)

    def last(lane: Lane, namespace: str) -> tuple[datetime, datetime]:
        own = lane.last_start or _NEVER
        return (own if lane.receiver.is_trusted else of_namespaces[namespace]), own

    return last
