"""Two worlds under one roof: the tests' in-memory one, and the adapters on the testbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fakes.connections import connection_to
from fakes.fence_stores import CassandraFenceStore
from fakes.manifests import spec
from fakes.ports import ports_of
from fakes.world import World
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.adapters.kubernetes.purge_jobs import KubernetesPurges
from fencepost_operator.adapters.kubernetes.revisions import KubernetesRevisions
from fencepost_operator.adapters.kubernetes.rewinds import KubernetesRewinds
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.trials import KubernetesTrials
from fencepost_operator.api import GROUP, KIND, VERSION, CassandraConnection, KafkaConnection, ObjectKey
from fencepost_operator.errors import Unreachable
from fencepost_operator.ports import Ports
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from flights.topics import Topics
from harness.waiting import answered
from integration.operator.cluster import PIPELINES, own_namespace
from testbed.environment import Environment

T = TypeVar("T")

KEYSPACE = "fencepost_contract"

REPOSITORY = Path(__file__).parents[2]
CONFIG_MAPS = Resource(prefix="/api/v1", plural="configmaps")


@dataclass(slots=True, kw_only=True)
class Stage:
    """The ports on a world in which one suspended pipeline is there.

    `owner` is the uid that Jobs are made under, `reference` who that is, `stranger` (name, uid) another object of that
    kind.  `wait` lets some time pass, `topic` names
    one with two empty partitions.
    """

    ports: Ports
    key: ObjectKey
    owner: str
    reference: Mapping[str, str]
    stranger: Mapping[str, str]
    cassandra: CassandraConnection
    kafka: KafkaConnection
    wait: Callable[[], Awaitable[None]]
    attempts: int = field(default=60)

    async def eventually(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what `look` returns as soon as it is truthy."""
        for _ in range(self.attempts):
            if found := await look():
                return found
            await self.wait()
        raise AssertionError(f"still {found!r}")


def _cassandra(namespace: str, *, port: int, account: str | None) -> CassandraConnection:
    return connection_to(
        "127.0.0.1", namespace=namespace, port=port, keyspace=KEYSPACE, credentials_secret=account, create_schema=True
    )


@asynccontextmanager
async def in_memory() -> AsyncIterator[Stage]:
    """The tests' double."""
    world, key = World(ends={"empty/0": 0, "empty/1": 0}, rate=0.0), ObjectKey("shop", "orders")
    metadata = {"namespace": "shop", "name": "orders", "uid": "uid-1", "generation": 1, "resourceVersion": "1"}
    world.apply({"metadata": metadata, "spec": spec(suspend=True), "status": {"observedGeneration": -1}})
    world.references["shop", "Secret/account"] = "a hash"

    async def wait() -> None:
        world.advance(1.0)

    yield Stage(
        ports=ports_of(world),
        key=key,
        owner="uid-1",
        reference={"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "name": "orders", "uid": "uid-1"},
        stranger={"name": "stranger", "uid": "uid-9"},
        cassandra=_cassandra("shop", port=9042, account=None),
        kafka=KafkaConnection(namespace="shop", bootstrap_servers="kafka:9092", topics=("empty",)),
        wait=wait,
    )


@asynccontextmanager
async def on_the_testbed(testbed: Environment, home: Path) -> AsyncIterator[Stage]:
    """The adapters, on real Kubernetes, Helm, Kafka and Cassandra."""
    async with AsyncExitStack() as stack:
        api = await ApiServer.connect(testbed.kubeconfig)
        stack.push_async_callback(api.close)
        key = ObjectKey(await stack.enter_async_context(own_namespace(api)), "orders")
        body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": key.name}}
        await api.create(PIPELINES, namespace=key.namespace, body={**body, "spec": spec(suspend=True)})
        account = {"username": testbed.cassandra_username, "password": testbed.cassandra_password}
        secret = {"metadata": {"name": "account"}, "stringData": account}
        await api.create(Resource(prefix="/api/v1", plural="secrets"), namespace=key.namespace, body=secret)
        # Jobs belong to a ConfigMap here, so that an operator that runs on this cluster leaves them alone.
        made = await api.create(CONFIG_MAPS, namespace=key.namespace, body={"metadata": {"name": key.name}})
        other = await api.create(CONFIG_MAPS, namespace=key.namespace, body={"metadata": {"name": "stranger"}})
        topic = f"empty-{key.namespace}"
        await asyncio.to_thread(Topics(testbed.kafka_host).create, topic, 2)
        clock, objects = SystemClock(), KubernetesObjects(api)
        fences, offsets = CassandraFenceStore(objects), KafkaOffsets(objects)
        stack.push_async_callback(fences.close)
        stack.push_async_callback(offsets.close)
        kafka = KafkaConnection(namespace=key.namespace, bootstrap_servers=testbed.kafka_host, topics=(topic,))
        await answered(lambda: offsets.ends(kafka), Unreachable)  # the partitions of a new topic have no leader yet
        chart = REPOSITORY / "charts" / "spark-cluster"
        helm = Helm(binary=testbed.helm, chart=chart, kubeconfig=testbed.kubeconfig, home=home)
        recorder = EventRecorder(api=api, clock=clock, instance="test")

        runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))

        async def wait() -> None:
            await asyncio.sleep(1.0)

        yield Stage(
            ports=Ports(
                pipelines=KubernetesPipelines(api, recorder),
                releases=HelmReleases(api=api, helm=helm, clock=clock, namespace=key.namespace),
                rewinds=KubernetesRewinds(api, recorder),
                purges=KubernetesPurges(api, runs, clock),
                trials=KubernetesTrials(api, recorder),
                runs=runs,
                revisions=KubernetesRevisions(api),
                objects=objects,
                fences=fences,
                offsets=offsets,
                metrics=PrometheusMetrics(),
                clock=clock,
            ),
            key=key,
            owner=made["metadata"]["uid"],
            reference={"apiVersion": "v1", "kind": "ConfigMap", "name": key.name, "uid": made["metadata"]["uid"]},
            stranger={"name": "stranger", "uid": other["metadata"]["uid"]},
            cassandra=_cassandra(key.namespace, port=testbed.cassandra_port, account="account"),
            kafka=kafka,
            wait=wait,
        )
