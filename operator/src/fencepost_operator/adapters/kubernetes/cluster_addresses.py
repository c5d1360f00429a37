"""Addresses of the cluster itself, where no tenant's receiver may lead: the API server's, and those of the nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import NODES, ApiServer, Json, Resource

ENDPOINT_SLICES: Final = Resource(prefix="/apis/discovery.k8s.io/v1", plural="endpointslices")
FRESH: Final = 60.0
"""Seconds for which a look counts: a node that joined since then is not known."""
_AT_ONCE: Final = 50
"""Nodes of one answer: each lists its images, and takes up to 50 KiB."""
_ADDRESSES: Final = frozenset({"InternalIP", "ExternalIP"})


@dataclass(slots=True)
class ClusterAddresses:
    """Looks when it is asked, which is when a tenant is paged. kubelets and etcd listen on the nodes' addresses."""

    api: ApiServer
    now: Callable[[], float] = time.monotonic
    _found: tuple[str, ...] = ()
    _looked_at: float | None = field(default=None)

    async def addresses(self) -> tuple[str, ...]:
        """Return all of them as texts. Raises PortError."""
        if self._looked_at is None or self.now() - self._looked_at >= FRESH:
            began = self.now()
            found = set(_endpoints(await self.api.get(ENDPOINT_SLICES, namespace="default", name="kubernetes")))
            async for nodes in self.api.pages(NODES, size=_AT_ONCE):
                for node in nodes:
                    found.update(_node(node))
            self._found, self._looked_at = tuple(sorted(found)), began
        return self._found


def _endpoints(found: Json | None) -> Iterator[str]:
    for endpoint in (found or {}).get("endpoints") or []:
        yield from endpoint.get("addresses") or []


def _node(found: Json) -> Iterator[str]:
    for each in (found.get("status") or {}).get("addresses") or []:
        if each.get("type") in _ADDRESSES:
            yield each["address"]
