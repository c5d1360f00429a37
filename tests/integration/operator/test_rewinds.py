"""The PipelineRewind objects in a real API server; their pipelines do not exist, so an operator only waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.rewinds import KubernetesRewinds
from fencepost_operator.api import (
    GROUP,
    REWIND_KIND,
    REWIND_PLURAL,
    VERSION,
    ObjectKey,
    Rewind,
    RewindSpec,
    read_rewind,
)
from fencepost_operator.errors import Conflict, Rejected
from harness.waiting import eventually_async
from present import present

pytestmark = pytest.mark.integration

REWINDS = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=REWIND_PLURAL)


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    asked = {"pipeline": "absent", "to": {"offsets": {"flights/0": 5}}, **spec}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": REWIND_KIND, "metadata": {"name": name}}
    return {**body, "spec": asked}


@pytest.fixture
def rewinds(api: ApiServer) -> KubernetesRewinds:
    return KubernetesRewinds(api, EventRecorder(api=api, clock=SystemClock(), instance="test"))


async def there(rewinds: KubernetesRewinds, pipeline: ObjectKey) -> Rewind:
    (found,) = await rewinds.unfinished(pipeline, expected=True)
    return found


async def test_a_rewind_is_read_written_marked_and_no_longer_listed(
    api: ApiServer, rewinds: KubernetesRewinds, namespace: str
) -> None:
    pipeline = ObjectKey(namespace, "absent")
    await api.create(REWINDS, namespace=namespace, body=manifest("back"))
    await api.create(REWINDS, namespace=namespace, body=manifest("other", pipeline="another"))
    seen = await there(rewinds, pipeline)
    assert isinstance(seen.spec, RewindSpec)
    assert (seen.spec.delete_output, seen.spec.dry_run, seen.is_held) == (True, False, False)

    async def write() -> bool:
        before = await there(rewinds, pipeline)
        try:
            written = await rewinds.write_status(before, replace(before.status, epoch=7, message="as written"))
        except Conflict:  # an operator was faster
            return False
        assert written.status.epoch == 7
        with pytest.raises(Conflict):
            await rewinds.write_status(before, before.status)
        return True

    await eventually_async(write)

    async def current() -> Rewind:
        found = present(await api.get(REWINDS, namespace=namespace, name="back"))
        return read_rewind(found)

    async def mark(*, held: bool, finished: bool) -> bool:
        """Whether it is marked so; the operator in the cluster marks it as well, and may be faster."""
        try:
            await rewinds.mark(await current(), held=held, finished=finished)
        except Conflict:
            return False
        return (await current()).is_held is held

    await eventually_async(lambda: mark(held=True, finished=False))
    await eventually_async(lambda: mark(held=False, finished=True))
    assert await rewinds.unfinished(pipeline, expected=True) == ()


@pytest.mark.parametrize(
    ("spec", "refusal"),
    [
        ({"to": {}}, "exactly one of snapshot, timestamp and offsets"),
        ({"to": {"snapshot": "a", "offsets": {"t/0": 1}}}, "exactly one of snapshot, timestamp and offsets"),
        ({"to": {"offsets": {"t/0": -1}}}, "greater than or equal to 0"),
        ({"to": {"timestamp": "yesterday"}}, "date-time"),
        ({"pipeline": "../other"}, "should match"),
    ],
)
async def test_the_api_server_refuses_what_cannot_be(
    api: ApiServer, namespace: str, spec: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(Rejected, match=refusal):
        await api.create(REWINDS, namespace=namespace, body=manifest("wrong", **spec))


async def test_a_spec_does_not_change(api: ApiServer, namespace: str) -> None:
    await api.create(REWINDS, namespace=namespace, body=manifest("back"))
    with pytest.raises(Rejected, match="a rewind does not change"):
        await api.merge(REWINDS, namespace=namespace, name="back", body={"spec": {"dryRun": True}})
