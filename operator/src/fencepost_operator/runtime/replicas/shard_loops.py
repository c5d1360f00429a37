"""What a replica does for a shard while it has it: the loops of the shard's pipelines and trials."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.errors import PortError
from fencepost_operator.runtime.census import Census, Keys
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.passes.reconciler import Reconciler
from fencepost_operator.runtime.replicas.shards import shard_of, share_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLoops:
    """Implements ShardWork. `restarting` lists pipelines that restart by plan, `rewound` those that rewinds name."""

    count: int
    """Of all shards."""
    reconciler: Reconciler
    loops: Controller
    trials: Controller
    census: Census
    restarting: Callable[[Sequence[str]], Awaitable[Mapping[ObjectKey, datetime]]]
    rewound: Keys
    tried: Keys
    """Lists the trials."""
    namespaces: Sequence[str]

    async def prepare(self, shards: Iterable[int], shard: int) -> None:
        """Count the planned restarts that are in progress, and take the shard's part of how many there may be."""
        try:
            found = await self.restarting(self.namespaces)
        except PortError as error:
            log.warning("the planned restarts are not known: %s", error, extra={"reason": Reason.LIST_FAILED})
            found = {}
        clock, permits = self.reconciler.ports.clock, self.reconciler.permits
        ours = {key: since for key, since in found.items() if shard_of(key, self.count) == shard}
        permits.begin(ours, clock.now(), clock.monotonic())
        self._share(shards)

    async def begin(self) -> bool:
        """Begin the loops that are missing, as watches show only what changes from now on.

        Returns whether all are known; the census repeats its own lists.
        """
        await self.census.begin_missing()
        is_known = True
        for keys, loops in ((self.rewound, self.loops), (self.tried, self.trials)):
            try:
                found = await keys(self.namespaces)
            except PortError as error:
                log.warning("rewinds or trials could not be listed: %s", error, extra={"reason": Reason.LIST_FAILED})
                is_known = False
                continue
            for key in found:
                loops.ensure(key)
        return is_known

    async def end(self, shards: Iterable[int], shard: int) -> None:
        """End the loops of a shard, forget its pipelines, and give back its part of the planned restarts."""

        def is_of_shard(key: ObjectKey) -> bool:
            return shard_of(key, self.count) == shard

        await self.trials.end(is_of_shard)
        for key in await self.loops.end(is_of_shard):
            self.reconciler.forget(key)
        self._share(shards)

    def _share(self, shards: Iterable[int]) -> None:
        limit = self.reconciler.config.max_concurrent_restarts
        self.reconciler.permits.limit = share_of(limit, shards, self.count)
