"""The Warning Events of a namespace, listed at most once per observation, whatever the number of pods."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import EVENTS, ApiServer, Json
from fencepost_operator.errors import PortError

log = logging.getLogger(__name__)

_LIMIT: Final = 1000
"""Events of one list. Whoever may create Events decides how many there are."""


@dataclass(slots=True)
class NamespaceWarnings:
    """Makes the list when the first object asks, and joins it with all others in memory."""

    api: ApiServer
    namespace: str
    _events: Mapping[str, list[Json]] | None = None
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def newest(self, uid: str, reasons: frozenset[str]) -> Json | None:
        """Return the newest Warning about the object with this uid that has one of the reasons."""
        async with self._turn:
            if self._events is None:
                self._events = await self._by_object()
        relevant = [event for event in self._events.get(uid, ()) if event.get("reason") in reasons]
        return max(relevant, key=_last_seen, default=None)

    async def _by_object(self) -> Mapping[str, list[Json]]:
        """Return the Warnings by the uid of what they are about; none when they cannot be listed.

        They explain what the pods show and prove nothing, so an observation does without them.
        """
        found: dict[str, list[Json]] = defaultdict(list)
        try:
            events = await self.api.list(EVENTS, namespace=self.namespace, fields="type=Warning", limit=_LIMIT)
        except PortError as error:
            log.warning("the Events of namespace %s cannot be listed: %s", self.namespace, error)
            return found
        for event in events:
            found[(event.get("involvedObject") or {}).get("uid", "")].append(event)
        return found


def _last_seen(event: Json) -> str:
    series = event.get("series") or {}
    return str(series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or "")
