"""Two operator processes and one Lease on a real API server: the leader is killed, or frozen and awake again.

The testbed's own operator may reconcile the pipeline as well; each process here has a proxy of its own, which records
what it asks for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from fencepost_operator.adapters.api_server import ApiServer
from fencepost_operator.adapters.leases import LEASES, KubernetesLeases
from fencepost_operator.api import ObjectKey
from fencepost_operator.app import LEASE_LOST
from harness.waiting import eventually_async
from integration.operator.cluster import CHART, PIPELINES
from integration.operator.recording import Recorder, recorded
from testbed.environment import Environment

pytestmark = pytest.mark.integration

LEASE = "operators"
PATIENCE = 60.0
"""Seconds; generous, since the figure itself is no assertion."""


@dataclass(frozen=True, slots=True)
class Replica:
    """An operator process, and what it asks of the API server."""

    process: Process
    recorder: Recorder
    holder: str


async def replica(stack: AsyncExitStack, testbed: Environment, key: ObjectKey, folder: Path, name: str) -> Replica:
    recorder = await stack.enter_async_context(recorded(testbed.kubeconfig, folder / name))
    environment = {
        **{variable: value for variable, value in os.environ.items() if not variable.startswith("KUBERNETES_")},
        "KUBECONFIG": str(recorder.kubeconfig),
        "FENCEPOST_SCOPE": key.namespace,
        "FENCEPOST_NAMESPACE": key.namespace,
        "FENCEPOST_WATCH_NAMESPACES": key.namespace,
        "FENCEPOST_LEASE": LEASE,
        "FENCEPOST_HOLDER": name,
        "FENCEPOST_RESYNC_SECONDS": "1",
        "FENCEPOST_CHART": str(CHART),
        "FENCEPOST_HELM": str(testbed.helm),
        "FENCEPOST_METRICS_PORT": str(free_port()),
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost_operator", env=environment, stdout=log, stderr=log
        )
    stack.push_async_callback(end, process)
    return Replica(process, recorder, name)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


@pytest.fixture
async def pair(testbed: Environment, key: ObjectKey, tmp_path: Path) -> AsyncIterator[tuple[Replica, Replica]]:
    """The replica that holds the lease, and the one that waits."""
    async with AsyncExitStack() as stack:
        leader = await replica(stack, testbed, key, tmp_path, "first")
        await passes(leader, key, since=0.0)
        standby = await replica(stack, testbed, key, tmp_path, "second")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{key.namespace}/leases/{LEASE}"
        assert await eventually_async(lambda: seen(standby.recorder, lease), seconds=PATIENCE)
        yield leader, standby


async def seen(recorder: Recorder, path: str) -> bool:
    return any(found.path == path for found in recorder.requests)


async def passes(found: Replica, key: ObjectKey, *, since: float) -> float:
    """Return when a replica first looked at the pipeline."""
    path = PIPELINES.path(namespace=key.namespace, name=key.name)

    async def first() -> float | None:
        return next((request.at for request in found.recorder.passes(path, since=since)), None)

    at = await eventually_async(first, seconds=PATIENCE)
    assert at is not None
    return at


async def test_a_leader_that_is_killed_is_succeeded(
    api: ApiServer, pair: tuple[Replica, Replica], key: ObjectKey
) -> None:
    leader, standby = pair
    assert not standby.recorder.writes(since=0.0), "a replica that waits writes nothing"
    killed = time.monotonic()
    leader.process.send_signal(signal.SIGKILL)
    acted = await passes(standby, key, since=killed)
    print(f"figure: {acted - killed:.1f} s from SIGKILL of the leader to the next pass")
    held = await KubernetesLeases(api, key.namespace, LEASE).read()
    assert held is not None
    assert (held.holder, held.transitions) == (standby.holder, 1)


async def test_a_leader_that_ends_in_order_hands_over(pair: tuple[Replica, Replica], key: ObjectKey) -> None:
    leader, standby = pair
    told = time.monotonic()
    leader.process.terminate()
    assert await asyncio.wait_for(leader.process.wait(), PATIENCE) == 0
    acted = await passes(standby, key, since=told)
    print(f"figure: {acted - told:.1f} s from SIGTERM of the leader to the next pass")
    assert acted > leader.recorder.requests[-1].at


async def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes_up(
    api: ApiServer, pair: tuple[Replica, Replica], key: ObjectKey
) -> None:
    leader, standby = pair
    frozen = time.monotonic()
    leader.process.send_signal(signal.SIGSTOP)
    try:
        await passes(standby, key, since=frozen)
        mark = {"metadata": {"annotations": {"example/woken": "true"}}}
        await api.merge(PIPELINES, namespace=key.namespace, name=key.name, body=mark)
    finally:
        awake = time.monotonic()
        leader.process.send_signal(signal.SIGCONT)
    assert await asyncio.wait_for(leader.process.wait(), PATIENCE) == LEASE_LOST
    lease = LEASES.path(namespace=key.namespace, name=LEASE)
    wrote = leader.recorder.writes(since=awake)
    assert {(found.path, found.status) for found in wrote} <= {(lease, 409)}, "it wrote more than a refused renewal"
