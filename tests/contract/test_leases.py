"""One suite for the Leases port: what the Lease in memory promises, the API server keeps.

Two replicas have each a connection of their own to the same Lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from fakes.lease import FakeLeases
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.leases import LEASES, KubernetesLeases
from fencepost_operator.errors import Conflict
from fencepost_operator.ports import LeaseRecord, Leases
from integration.operator.cluster import own_namespace
from testbed.environment import load

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
CLAIM = LeaseRecord(holder="first_1", duration=12.0, acquired_at=NOW, renewed_at=NOW + timedelta(seconds=2))


@dataclass(frozen=True, slots=True)
class Replicas:
    """The Lease as each of two replicas reaches it; `delete` is what an administrator does."""

    first: Leases
    second: Leases
    delete: Callable[[], Awaitable[None]]


@asynccontextmanager
async def _in_memory() -> AsyncIterator[Replicas]:
    leases = FakeLeases()

    async def delete() -> None:
        leases.record = None

    yield Replicas(leases, leases, delete)


@asynccontextmanager
async def _on_the_api_server() -> AsyncIterator[Replicas]:
    async with AsyncExitStack() as stack:
        first, second = [await ApiServer.connect(load().kubeconfig) for _ in range(2)]
        for api in (first, second):
            stack.push_async_callback(api.close)
        namespace = await stack.enter_async_context(own_namespace(first))

        name = "fencepost"

        async def delete() -> None:
            await first.delete(LEASES, namespace=namespace, name=name)

        yield Replicas(KubernetesLeases(first, namespace, name), KubernetesLeases(second, namespace, name), delete)


@pytest.fixture(params=["memory", pytest.param("api-server", marks=pytest.mark.integration)])
async def replicas(request: pytest.FixtureRequest) -> AsyncIterator[Replicas]:
    async with _in_memory() if request.param == "memory" else _on_the_api_server() as made:
        yield made


async def attempt(leases: Leases, record: LeaseRecord) -> LeaseRecord | None:
    """Write; None where the other replica was faster."""
    try:
        return await leases.write(record)
    except Conflict:
        return None


async def test_what_one_wrote_the_other_reads(replicas: Replicas) -> None:
    """With fractions of seconds; also without a holder."""
    assert await replicas.second.read() is None
    written = await replicas.first.write(CLAIM)
    assert written == replace(CLAIM, uid=written.uid, resource_version=written.resource_version)
    assert written.uid
    assert await replicas.second.read() == written
    released = replace(written, holder="", transitions=3)
    after = await replicas.first.write(released)
    assert after == replace(released, resource_version=after.resource_version)
    assert await replicas.second.read() == after


async def test_who_read_it_before_another_one_wrote_changes_nothing(replicas: Replicas) -> None:
    """Neither takes it nor renews it, however often it tries with what it read."""
    stale = await replicas.first.write(CLAIM)
    taken = await replicas.second.write(replace(stale, holder="second_1", transitions=1))
    for holder in ("first_1", "third_1", ""):
        assert await attempt(replicas.first, replace(stale, holder=holder)) is None
    assert await replicas.first.read() == taken


async def test_of_two_that_create_it_or_take_it_at_once_one_does(replicas: Replicas) -> None:
    found = CLAIM
    for number in range(5):
        claim = replace(found, renewed_at=NOW + timedelta(seconds=number))  # the same again would change nothing
        tried = await asyncio.gather(
            attempt(replicas.first, replace(claim, holder="first_1")),
            attempt(replicas.second, replace(claim, holder="second_1")),
        )
        (found,) = [record for record in tried if record is not None]
        assert await replicas.first.read() == found


async def test_a_lease_that_was_deleted_is_not_renewed(replicas: Replicas) -> None:
    """Whoever held it would otherwise bring it back over the head of its successor."""
    held = await replicas.first.write(CLAIM)
    await replicas.delete()
    assert await replicas.first.read() is None
    assert await attempt(replicas.first, held) is None
    assert await replicas.second.read() is None, "the renewal created it again"
    created = await replicas.second.write(replace(CLAIM, holder="unknown"))
    assert await attempt(replicas.first, held) is None, "the Lease of that name is another one"
    assert await replicas.first.read() == created
