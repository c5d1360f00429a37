"""Which nodes are silent, before Kubernetes says so.

A kubelet renews its Lease every 10 s (a quarter of nodeLeaseDurationSeconds). The node controller waits for 40 to 50 s
before it calls a node unreachable. The time in a Lease is of the node's clock, so what counts is how long this operator
has seen the same one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.leases import LEASES

NAMESPACE: Final = "kube-node-lease"
SILENCE: Final = 15.0
"""Seconds: longer than a kubelet that lives takes to renew its Lease, one failed attempt included."""
CONTINUOUS: Final = 12.0
"""Seconds between two looks at a Lease. After a longer pause, as in an outage of the API server, they begin again."""
_FRESH: Final = 2.0
"""Seconds for which an answer holds: in an outage of Kafka, many pipelines ask about the same nodes."""
_STALE: Final = 4.5
"""The same where there are many nodes. Whatever the pause between a pipeline's looks, two reads are at most CONTINUOUS
apart: a pause after which a look is answered from memory is shorter than this, and with its jitter of a fifth the next
one is at most 1.5 times as long."""
_LOOKS_PER_SECOND: Final = 20.0
"""At Leases of all nodes together, as far as _STALE allows it."""
_REMEMBERED: Final = 10_000
"""Nodes, of which those that were looked at last are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beat:
    """A Lease's renewTime; by the monotonic clock, since when it is the same, and when it was last looked at."""

    renewed: str
    since: float
    seen: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubelets:
    """Remembers when each kubelet last reported."""

    api: ApiServer
    monotonic: Callable[[], float] = time.monotonic
    _beats: dict[str, _Beat] = field(default_factory=dict)

    async def silent(self, nodes: Collection[str]) -> frozenset[str]:
        """Return those of the nodes whose Lease has been the same for SILENCE, at each of several looks.

        A node without a Lease is not among them.
        """
        names = sorted(set(nodes))
        found = await asyncio.gather(*(self._is_silent(name) for name in names))
        return frozenset(name for name, is_silent in zip(names, found, strict=True) if is_silent)

    async def _is_silent(self, name: str) -> bool:
        known = self._beats.get(name)
        holds = min(max(_FRESH, len(self._beats) / _LOOKS_PER_SECOND), _STALE)
        if known is None or self.monotonic() - known.seen >= holds:
            lease = await self.api.get(LEASES, namespace=NAMESPACE, name=name)
            known = self._note(name, ((lease or {}).get("spec") or {}).get("renewTime"))
        return known is not None and known.seen - known.since >= SILENCE

    def _note(self, name: str, renewed: str | None) -> _Beat | None:
        now, before = self.monotonic(), self._beats.pop(name, None)
        if not renewed:
            return None
        same = before is not None and before.renewed == renewed and now - before.seen <= CONTINUOUS
        beat = _Beat(renewed=renewed, since=before.since if before is not None and same else now, seen=now)
        self._beats[name] = beat
        while len(self._beats) > _REMEMBERED or now - next(iter(self._beats.values())).seen > CONTINUOUS:
            del self._beats[next(iter(self._beats))]
        return beat
