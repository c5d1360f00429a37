"""The StreamingPipeline objects in a real API server; an operator may be writing to them as well."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.adapters.kubernetes.api_server import EVENTS, PODS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines, cluster_uid
from fencepost_operator.api import Condition, Event, EventType, ObjectKey, Pipeline, State
from fencepost_operator.errors import Conflict, Rejected, Unreachable
from harness.waiting import eventually_async
from integration.operator.cluster import PIPELINES
from present import present

pytestmark = pytest.mark.integration


async def there(pipelines: KubernetesPipelines, key: ObjectKey) -> Pipeline:
    return present(await pipelines.read(key))


async def test_what_is_not_there_is_none(pipelines: KubernetesPipelines, namespace: str) -> None:
    assert await pipelines.read(ObjectKey(namespace, "absent")) is None
    assert await pipelines.read(ObjectKey("absent", "absent")) is None


async def test_a_kind_that_is_not_served_is_unknown_and_not_absent(api: ApiServer, namespace: str) -> None:
    unserved = Resource(prefix="/apis/streaming.fencepost.dev/v9", plural="streamingpipelines")
    with pytest.raises(Unreachable):
        await api.get(unserved, namespace=namespace, name="departures")


async def test_status_is_written_whole_and_only_over_what_was_read(
    pipelines: KubernetesPipelines, key: ObjectKey
) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ready = Condition(
        type="Ready",
        status="True",
        reason="Suspended",
        message="as asked",
        last_transition_time=now,
        observed_generation=1,
    )

    async def write() -> tuple[Pipeline, Pipeline] | None:
        before = await there(pipelines, key)
        status = replace(before.status, state=State.SUSPENDED, conditions=(ready,), lag=None, epoch=7)
        try:
            return before, await pipelines.write_status(before, status)
        except Conflict:  # the operator was faster
            return None

    pair = present(await eventually_async(write))
    before, written = pair
    assert (written.status.state, written.status.epoch, written.status.conditions) == (State.SUSPENDED, 7, (ready,))
    assert written.resource_version != before.resource_version
    assert written.spec == before.spec
    with pytest.raises(Conflict):
        await pipelines.write_status(before, before.status)


async def test_the_finalizer_comes_and_goes(pipelines: KubernetesPipelines, key: ObjectKey) -> None:
    async def change(*, present: bool) -> bool:
        try:
            await pipelines.set_finalizer(await there(pipelines, key), present=present)
        except Conflict:
            return False
        return True

    await eventually_async(lambda: change(present=True))
    seen = await there(pipelines, key)
    assert seen.has_finalizer
    assert await eventually_async(lambda: change(present=False))


async def test_who_is_restarted_by_plan_is_found_in_the_statuses(
    pipelines: KubernetesPipelines, key: ObjectKey, namespace: str
) -> None:
    """A new leader begins with what the one before has written."""
    since = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    async def found() -> bool:
        before = await there(pipelines, key)
        try:
            await pipelines.write_status(before, replace(before.status, planned_restart_since=since))
        except Conflict:  # the operator was faster
            return False
        return await pipelines.restarting([namespace]) == {key: since}

    assert await pipelines.restarting([namespace]) == {}
    assert await eventually_async(found)


async def test_writes_to_what_is_gone_conflict(pipelines: KubernetesPipelines, api: ApiServer, key: ObjectKey) -> None:
    seen = await there(pipelines, key)
    await api.merge(PIPELINES, namespace=key.namespace, name=key.name, body={"metadata": {"finalizers": []}})
    await api.delete(PIPELINES, namespace=key.namespace, name=key.name)

    async def gone() -> bool:
        freed: dict[str, Any] = {"metadata": {"finalizers": []}}
        try:
            await api.merge(PIPELINES, namespace=key.namespace, name=key.name, body=freed)
        except Conflict:
            return True
        return False

    await eventually_async(gone)
    with pytest.raises(Conflict):
        await pipelines.write_status(seen, seen.status)
    with pytest.raises(Conflict):
        await pipelines.set_finalizer(replace(seen, finalizers=()), present=True)


async def test_events_are_counted_not_repeated(pipelines: KubernetesPipelines, api: ApiServer, key: ObjectKey) -> None:
    seen = await there(pipelines, key)
    event = Event(EventType.WARNING, "RunFailed", "the driver ended with exit code 1 " + "é" * 2000)
    await pipelines.publish(seen, [event, event, event])
    found = await api.list(EVENTS, namespace=key.namespace, fields=f"involvedObject.uid={seen.uid},reason=RunFailed")
    assert [(item["count"], item["type"]) for item in found] == [(3, "Warning")]


async def test_events_in_a_namespace_that_is_not_there_stop_nothing(
    pipelines: KubernetesPipelines, key: ObjectKey
) -> None:
    seen = replace(await there(pipelines, key), key=ObjectKey("absent", "departures"))
    await pipelines.publish(seen, [Event(EventType.NORMAL, "RunStarted", "…")])


async def test_the_cluster_has_one_uid(api: ApiServer) -> None:
    assert await cluster_uid(api) == await cluster_uid(api)


async def test_an_api_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: a, user: {token: x}}]}"
    )
    client = await ApiServer.connect(config)
    try:
        with pytest.raises(Unreachable, match="get pods default/a"):
            await client.get(PODS, namespace="default", name="a")
    finally:
        await client.close()


async def test_what_the_api_server_refuses_is_rejected_in_its_words(api: ApiServer, namespace: str) -> None:
    with pytest.raises(Rejected, match="spec"):
        await api.create(PIPELINES, namespace=namespace, body={"metadata": {"name": "a"}, "kind": "StreamingPipeline",
                         "apiVersion": "streaming.fencepost.dev/v1beta1"})  # fmt: skip
