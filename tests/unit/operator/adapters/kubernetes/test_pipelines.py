"""Lists of pipelines where the operator watches some namespaces, and one of them is closed to it or gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any, cast

import pytest

from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Denied

SHOP, BANK = ObjectKey("shop", "orders"), ObjectKey("bank", "orders")


class Server(ApiServer):
    """An API server with a pipeline in each namespace, of which some are closed and some are gone."""

    def __init__(self, *, closed: Collection[str] = (), gone: Collection[str] = ()) -> None:
        self.closed, self.gone = closed, gone

    async def pages(
        self, resource: Resource, *, namespace: str | None = None, **_: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        if namespace in {*self.closed, *self.gone}:
            raise Denied(f"cannot list {resource.plural} in {namespace}", remedy="restore the RoleBinding")
        status = {"plannedRestartSince": "2026-01-01T12:00:00Z"}
        yield [{"metadata": {"namespace": namespace, "name": "orders"}, "status": status}]

    async def get(self, resource: Resource, *, name: str, **_: Any) -> dict[str, Any] | None:
        assert resource.plural == "namespaces"
        return None if name in self.gone else {"metadata": {"name": name}}


def pipelines(server: ApiServer) -> KubernetesPipelines:
    return KubernetesPipelines(server, cast(EventRecorder, None))


@pytest.mark.parametrize("harm", ["closed", "gone"])
async def test_one_namespace_does_not_keep_the_operator_from_the_others(harm: str) -> None:
    found = pipelines(Server(**{harm: {"shop"}}))
    assert await found.keys(("shop", "bank")) == (BANK,)
    assert set(await found.restarting(("shop", "bank"))) == {BANK}


class Keeping(Server):
    """An API server with a kept spec that pins a snapshot and that a status names at a place, and another kept one."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    async def pages(
        self, resource: Resource, *, namespace: str | None = None, **_: Any
    ) -> AsyncIterator[list[dict[str, Any]]]:
        if resource.plural == "controllerrevisions":
            pins = ({"source": {"pinnedStates": [{"pipeline": "orders", "snapshot": one}]}} for one in ("1", "2"))
            yield [{"metadata": {"name": f"orders-{n}"}, "data": {"spec": spec}} for n, spec in enumerate(pins)]
            return
        metadata = {"namespace": namespace, "name": "orders"}
        yield [{"metadata": metadata, "spec": {}, "status": {self._place: {"revision": "orders-0"}}}]


@pytest.mark.parametrize("place", ["run", "stable", "finishing", "rolledBack", "upgradeTrial", "handoff"])
async def test_the_pins_of_kept_specs_count_while_a_status_names_them(place: str) -> None:
    assert await pipelines(Keeping(place)).pinned_snapshots(SHOP) == {"1"}


async def test_the_only_namespace_must_be_readable() -> None:
    with pytest.raises(Denied):
        await pipelines(Server(closed={"shop"})).keys(("shop",))


async def test_what_an_uninstallation_leaves_behind_is_known_or_it_is_refused() -> None:
    assert await pipelines(Server(gone={"shop"})).left(("shop", "bank")) == (BANK,)
    assert await pipelines(Server()).left(("shop", "bank")) == (SHOP, BANK)
    with pytest.raises(Denied):
        await pipelines(Server(closed={"shop"})).left(("shop", "bank"))
