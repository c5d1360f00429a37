"""Which addresses are the cluster's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes.api_server import NODES
from fencepost_operator.adapters.kubernetes.cluster_addresses import ENDPOINT_SLICES, FRESH, ClusterAddresses
from fencepost_operator.errors import Unreachable


def node(*addresses: tuple[str, str]) -> dict[str, Any]:
    return {"status": {"addresses": [{"type": kind, "address": address} for kind, address in addresses]}}


@dataclass
class Api:
    """Two answers with nodes, and the EndpointSlice of the API server."""

    looks: int = 0
    down: bool = False
    nodes: list[list[dict[str, Any]]] = field(
        default_factory=lambda: [
            [node(("InternalIP", "10.1.0.1"), ("InternalIP", "fd00::1"), ("Hostname", "a")), {}],
            [node(("InternalIP", "10.1.0.2"), ("ExternalIP", "192.0.2.2"), ("ExternalDNS", "b.example"))],
        ]
    )

    async def get(self, resource: object, *, namespace: str, name: str) -> dict[str, Any] | None:
        assert (resource, namespace, name) == (ENDPOINT_SLICES, "default", "kubernetes")
        if self.down:
            raise Unreachable("no answer")
        self.looks += 1
        return {"endpoints": [{"addresses": ["192.168.1.10"]}, {"addresses": ["192.168.1.11"]}, {}]}

    async def pages(self, resource: object, *, size: int) -> AsyncIterator[Sequence[dict[str, Any]]]:
        assert resource is NODES
        assert size
        for each in self.nodes:
            yield each


async def test_the_api_servers_and_each_nodes_are_found_and_looked_for_again() -> None:
    api: Any = Api()
    clock = [0.0]
    found = ClusterAddresses(api, now=lambda: clock[0])
    expected = {"192.168.1.10", "192.168.1.11", "10.1.0.1", "fd00::1", "10.1.0.2", "192.0.2.2"}
    assert set(await found.addresses()) == expected
    await found.addresses()
    assert api.looks == 1
    clock[0] += FRESH
    api.nodes.append([node(("InternalIP", "10.1.0.3"))])
    assert set(await found.addresses()) == {*expected, "10.1.0.3"}


async def test_what_cannot_be_seen_is_not_absent() -> None:
    api: Any = Api(down=True)
    with pytest.raises(Unreachable):
        await ClusterAddresses(api).addresses()
