"""Looks at all pipelines at once, now and then: for those without a loop, and for changes that no event has shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.backoff import jittered
from fencepost_operator.errors import PortError
from fencepost_operator.ports import Digests, Inventory
from fencepost_operator.runtime.controller import Controller

log = logging.getLogger(__name__)

INTERVAL: Final = 60.0
"""Seconds between two looks."""

Keys: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[ObjectKey]]]
"""Lists pipelines of some namespaces, or of all."""


@dataclass(slots=True, kw_only=True)
class Census:
    """Wakes the loops of pipelines with a change, and begins those that are missing; `done` is called after each look.

    `lists` name pipelines, and what is left of pipelines. `note_change` is given each pipeline with a change of its
    Spark cluster's objects before it is woken.
    """

    loops: Controller
    inventory: Inventory
    lists: Sequence[Keys]
    namespaces: Sequence[str]
    note_change: Callable[[ObjectKey], None]
    done: Callable[[], None]
    _known: Mapping[ObjectKey, Digests] | None = None
    """None before the first look."""

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(jittered(INTERVAL))

    async def look(self) -> None:
        """Look once; what cannot be listed is logged."""
        await self.begin_missing()
        try:
            digests = await self.inventory.digests(self.namespaces)
        except PortError as error:
            log.warning("the pipelines' objects could not be listed: %s", error, extra={"reason": Reason.LIST_FAILED})
            return
        self._compare(digests)
        self.done()

    async def begin_missing(self) -> None:
        """Begin the loops that are missing; what cannot be listed is logged."""
        for keys in self.lists:
            try:
                found = await keys(self.namespaces)
            except PortError as error:
                log.warning("the pipelines could not be listed: %s", error, extra={"reason": Reason.LIST_FAILED})
                continue
            for key in found:
                self.loops.ensure(key)

    def _compare(self, digests: Mapping[ObjectKey, Digests]) -> None:
        known, self._known = self._known, digests
        if known is None:
            return
        for key in known.keys() | digests.keys():
            before, now = known.get(key), digests.get(key)
            if before == now:
                continue
            if before is None or now is None or before.parts != now.parts:
                self.note_change(key)
            self.loops.wake(key)
