"""The composition root: creates the adapters, passes them to the loop, and runs until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from fencepost_operator.adapters.cassandra.fences import CassandraFences
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.fence_store import DatabaseFenceStore
from fencepost_operator.adapters.helm.chart import chart_digest
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.adapters.kubernetes.access_reviews import Reviews
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.crds import require_current_crds
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.inventory import KubernetesInventory
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.leases import KubernetesShardLeases
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines, cluster_uid
from fencepost_operator.adapters.kubernetes.purge_jobs import KubernetesPurges
from fencepost_operator.adapters.kubernetes.revisions import KubernetesRevisions
from fencepost_operator.adapters.kubernetes.rewinds import KubernetesRewinds
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.trial_jobs import KubernetesTrialJobs
from fencepost_operator.adapters.kubernetes.trials import KubernetesTrials
from fencepost_operator.adapters.postgresql.fences import PostgresqlFences
from fencepost_operator.api import ObjectKey, Reason, ReconcileConfig
from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.endpoints import EndpointPolicy, parse_address
from fencepost_operator.errors import PortError
from fencepost_operator.pager_setup import heartbeat_of, pager_of
from fencepost_operator.ports import Ports, TrialPorts, Uncounted
from fencepost_operator.runtime.census import Census
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.metrics.page_delivery import PrometheusPageMetrics
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.metrics.scrapes import Scrapes
from fencepost_operator.runtime.metrics.tls_endpoint import SecureMetrics
from fencepost_operator.runtime.passes.reconciler import Reconciler
from fencepost_operator.runtime.passes.trial_reconciler import TrialReconciler
from fencepost_operator.runtime.probes import Probes
from fencepost_operator.runtime.replicas.leadership import LeaseLost
from fencepost_operator.runtime.replicas.shard_loops import ShardLoops
from fencepost_operator.runtime.replicas.shards import Shards
from fencepost_operator.runtime.watches import watch
from fencepost_operator.settings import Settings

log = logging.getLogger(__name__)

LEASE_LOST: Final = 3
"""Exit code of a replica that finds that another one holds the lease."""


class Stopped(Exception):
    """A signal asked for a stop before the work began."""


@dataclass(slots=True)
class _Progress:
    """Why the operator is not ready yet; None once it is."""

    waiting_for: str | None = "the API server"


async def run(settings: Settings) -> None:  # noqa: PLR0915 - each part, and its end
    """Run the operator until SIGTERM or SIGINT. Raises a fatal error; Kubernetes then restarts the operator."""
    clock, metrics, progress = SystemClock(), PrometheusMetrics(), _Progress()
    probes, scrapes = Probes(metrics, unready=lambda: progress.waiting_for), Scrapes(metrics)
    kubeconfig = kubeconfig_path()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(probes.served(settings.probes_port))
        if settings.metrics_tls is None:
            await stack.enter_async_context(scrapes.served(settings.metrics_port))
        shards = await _candidate(stack, settings, clock=clock, kubeconfig=kubeconfig)
        may_write = shards.require if shards is not None else _alone

        def leading() -> bool:
            return shards is None or shards.is_sure

        def holds(shard: int) -> bool:
            return shards is None or shards.is_held(shard)

        metrics.leads(range(settings.shards), holds, is_sure=leading)
        api = await ApiServer.connect(kubeconfig, may_write)
        stack.push_async_callback(api.close)
        await _serve_securely(stack, settings, api, scrapes)
        recorder = EventRecorder(api=api, clock=clock, instance=socket.gethostname())
        pipelines = KubernetesPipelines(api, recorder)
        helm = Helm(
            binary=settings.helm,
            chart=settings.chart,
            kubeconfig=kubeconfig,
            timed=metrics.helm_took,
            may_write=may_write,
        )
        uid: str | None = None
        chart = ""
        with contextlib.suppress(Stopped):
            async with _stoppable():
                found = await _served(api, pipelines, settings, progress)
                chart = await _known(helm, progress)
                await _lead(stack, shards)
                uid = found
        if uid is None:
            return
        objects = KubernetesObjects(api)
        policy = _policy(settings)
        fences = DatabaseFenceStore(
            cassandra=CassandraFences(objects, policy=policy), postgresql=PostgresqlFences(objects, policy=policy)
        )
        offsets = KafkaOffsets(objects, policy)
        stack.push_async_callback(fences.close)
        stack.push_async_callback(offsets.close)
        runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))
        releases = HelmReleases(api=api, helm=helm, clock=clock, namespace=settings.namespace)
        counted = PrometheusPageMetrics(metrics.registry)
        pager = pager_of(settings, api=api, policy=policy, metrics=counted, clock=clock, may_write=may_write)
        trials, rewinds = KubernetesTrials(api, recorder), KubernetesRewinds(api, recorder)
        reconciler = Reconciler(
            ports=Ports(
                pipelines=pipelines,
                releases=releases,
                runs=runs,
                revisions=KubernetesRevisions(api),
                rewinds=rewinds,
                purges=KubernetesPurges(api, runs, clock),
                trials=trials,
                objects=objects,
                fences=fences,
                offsets=offsets,
                metrics=metrics,
                clock=clock,
                pager=pager,
                may_write=may_write,
            ),
            config=_reconcile_config(settings, uid, chart),
        )
        owns = shards.owns if shards is not None else _everything
        loops = Controller(
            reconciler.reconcile, metrics=metrics, clock=clock, is_glance=reconciler.is_glance, owns=owns
        )
        stack.push_async_callback(loops.close)
        loops_of_trials = _loops_of_trials(trials, api, runs, pipelines, reconciler, owns=owns)
        stack.push_async_callback(loops_of_trials.close)
        pager.wake = loops.wake
        await stack.enter_async_context(_beside(pager.run(), name="pager"))
        if settings.heartbeat_secret:
            heartbeat = heartbeat_of(
                settings,
                objects=objects,
                pager=pager,
                metrics=metrics,
                beaten=counted.beat,
                is_leading=lambda: holds(0),
                elsewhere=shards.troubles_of_others if shards is not None else _nowhere,
            )
            if shards is not None:
                shards.troubles = heartbeat.report
            await stack.enter_async_context(_beside(heartbeat.run(), name="heartbeat"))
        census = Census(
            loops=loops,
            inventory=KubernetesInventory(api, settings.namespace),
            lists=(pipelines.keys, releases.keys),
            namespaces=settings.watch_namespaces,
            note_change=releases.note_change,
            done=reconciler.note_census,
        )
        work = ShardLoops(
            count=settings.shards,
            reconciler=reconciler,
            loops=loops,
            trials=loops_of_trials,
            census=census,
            restarting=pipelines.restarting,
            rewound=rewinds.pipelines,
            tried=trials.keys,
            namespaces=settings.watch_namespaces,
        )
        if shards is None:
            await work.prepare((0,), 0)
        else:
            await stack.enter_async_context(_beside(shards.serve(work), name="shards"))
        await stack.enter_async_context(_beside(census.run(), name="census"))
        log.info("watching pipelines", extra={"reason": "Started"})
        await watch(
            loops,
            loops_of_trials,
            note_pod=runs.note_pod,
            note_part=releases.note_object,
            namespaces=settings.watch_namespaces,
        )
        log.info("stopping", extra={"reason": "Stopping"})


def _loops_of_trials(
    trials: KubernetesTrials,
    api: ApiServer,
    runs: KubernetesRuns,
    pipelines: KubernetesPipelines,
    reconciler: Reconciler,
    *,
    owns: Callable[[ObjectKey], bool],
) -> Controller:
    """Return the loops of trials, which share the pipelines' ports and nothing of their passes."""
    shared = reconciler.ports
    ports = TrialPorts(
        trials=trials,
        jobs=KubernetesTrialJobs(api, runs),
        pipelines=pipelines,
        objects=shared.objects,
        fences=shared.fences,
        clock=shared.clock,
        may_write=shared.may_write,
    )
    reconciled = TrialReconciler(ports=ports, config=reconciler.config)
    return Controller(reconciled.reconcile, metrics=Uncounted(), clock=shared.clock, owns=owns)


def _reconcile_config(settings: Settings, uid: str, chart: str) -> ReconcileConfig:
    """Return what decisions need of the settings; `uid` is the cluster's, `chart` the digest of what Helm renders."""
    return ReconcileConfig(
        cluster_uid=uid,
        scope=settings.scope,
        runbook_url=settings.runbook_url,
        cluster_domain=settings.cluster_domain,
        chart=chart,
        resync_interval=settings.resync_seconds,
        max_concurrent_restarts=settings.max_concurrent_restarts,
        page_not_ready_after=settings.pages_not_ready_for,
        page_resolve_after=settings.pages_resolve_after,
    )


async def _serve_securely(stack: AsyncExitStack, settings: Settings, api: ApiServer, scrapes: Scrapes) -> None:
    """Serve the metrics over TLS where that is asked for."""
    if settings.metrics_tls is None:
        return
    access = Reviews(api).access if settings.metrics_authentication else None
    secure = SecureMetrics(scrapes.answer, folder=settings.metrics_tls, access=access)
    await stack.enter_async_context(secure.served(settings.metrics_tls_port))


async def _served(api: ApiServer, pipelines: KubernetesPipelines, settings: Settings, progress: _Progress) -> str:
    """Wait for the API server and for CRDs that are not older than the operator; return the cluster's uid."""

    async def uid() -> str:
        found = await cluster_uid(api)
        await pipelines.keys(settings.watch_namespaces)
        await require_current_crds(api)
        return found

    return await _answered(uid, progress)


async def _known(helm: Helm, progress: _Progress) -> str:
    """Wait until Helm renders the Spark cluster's chart; return the digest of what it renders."""
    return await _answered(lambda: chart_digest(helm), progress)


async def _answered(question: Callable[[], Awaitable[str]], progress: _Progress) -> str:
    """Ask until there is an answer; until then the operator is not ready, and says why."""
    attempts = 0
    while True:
        try:
            answer = await question()
        except PortError as error:
            attempts += 1
            progress.waiting_for = str(error)
            log.warning("waiting: %s", error, extra={"reason": Reason.NOT_SERVED, "remedy": error.remedy})
            await asyncio.sleep(jittered(retry_delay(attempts, longest=10.0)))
        else:
            progress.waiting_for = None
            return answer


async def _candidate(
    stack: AsyncExitStack, settings: Settings, *, clock: SystemClock, kubeconfig: Path | None
) -> Shards | None:
    """Return this replica's shards, None for a single replica; their Leases have connections of their own."""
    if not settings.lease:
        return None
    api = await ApiServer.connect(kubeconfig)
    stack.push_async_callback(api.close)
    holder = settings.holder or f"{socket.gethostname()}_{uuid.uuid4()}"
    leases = KubernetesShardLeases(api, settings.namespace, settings.lease)
    return Shards(leases, count=settings.shards, holder=holder, clock=clock, lost=_give_up)


async def _lead(stack: AsyncExitStack, shards: Shards | None) -> None:
    """Wait for the lease of a shard; all are released when everything that is opened later is closed."""
    if shards is None:
        return
    log.info("waiting for the lease", extra={"reason": Reason.STANDBY})
    stack.push_async_callback(shards.close)
    await shards.first()


def _give_up(error: BaseException) -> NoReturn:
    """End at once: an orderly end would write, and what is remembered here may be out of date."""
    known = isinstance(error, LeaseLost)
    log.critical(
        "another replica may act, so this one ends: %s", error, exc_info=None if known else error,
        extra={"reason": Reason.LEASE_LOST},
    )  # fmt: skip
    logging.shutdown()
    os._exit(LEASE_LOST)


def _alone() -> None:
    """Allow each write: there is no other replica."""


async def _nowhere() -> Sequence[str]:
    """Return no troubles: there is no other replica."""
    return ()


def _everything(_key: ObjectKey) -> bool:
    """Reconcile each pipeline: there is no other replica."""
    return True


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None], *, name: str) -> AsyncIterator[None]:
    """Have some work done while the context lasts."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def _stoppable() -> AsyncIterator[None]:
    """End the block with Stopped at SIGTERM or SIGINT; later, kopf listens to them."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    is_reported = False

    def stop() -> None:
        nonlocal is_reported
        is_reported = True
        if task is not None:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not is_reported:
            raise
        if task is not None:
            task.uncancel()
        raise Stopped from None
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _policy(settings: Settings) -> EndpointPolicy:
    """Return where the operator may connect; a name must not lead to the API server."""
    server = parse_address(os.environ.get("KUBERNETES_SERVICE_HOST", ""))
    return EndpointPolicy(
        entries=settings.allowed_endpoints, reserved=frozenset({server} if server is not None else ())
    )


def kubeconfig_path() -> Path | None:
    """Return None inside a cluster, else the file that KUBECONFIG names."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return None
    return Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
