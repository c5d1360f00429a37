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
from datetime import datetime
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from fencepost_operator.adapters.cassandra.fence_store import CassandraFenceStore
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm.chart import chart_digest
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.releases import HelmReleases
from fencepost_operator.adapters.kafka.offsets import KafkaOffsets
from fencepost_operator.adapters.kubernetes.access_reviews import Reviews
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.crds import require_current_crds
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.leases import KubernetesLeases
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines, cluster_uid
from fencepost_operator.adapters.kubernetes.purge_jobs import KubernetesPurges
from fencepost_operator.adapters.kubernetes.revisions import KubernetesRevisions
from fencepost_operator.adapters.kubernetes.rewinds import KubernetesRewinds
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.adapters.kubernetes.trial_jobs import KubernetesTrialJobs
from fencepost_operator.adapters.kubernetes.trials import KubernetesTrials
from fencepost_operator.api import ObjectKey, Reason, ReconcileConfig
from fencepost_operator.backoff import jittered, retry_delay
from fencepost_operator.endpoints import EndpointPolicy, parse_address
from fencepost_operator.errors import PortError
from fencepost_operator.pager_setup import heartbeat_of, pager_of
from fencepost_operator.ports import Ports, TrialPorts, Uncounted
from fencepost_operator.runtime.controller import Controller
from fencepost_operator.runtime.leadership import Leadership, LeaseLost
from fencepost_operator.runtime.metrics.page_delivery import PrometheusPageMetrics
from fencepost_operator.runtime.metrics.registry import PrometheusMetrics
from fencepost_operator.runtime.metrics.scrapes import Scrapes
from fencepost_operator.runtime.metrics.tls_endpoint import SecureMetrics
from fencepost_operator.runtime.probes import Probes
from fencepost_operator.runtime.reconciler import Reconciler
from fencepost_operator.runtime.trial_reconciler import TrialReconciler
from fencepost_operator.runtime.watches import watch
from fencepost_operator.settings import Settings

log = logging.getLogger(__name__)

_RELIST_INTERVAL: Final = 60.0
"""Seconds between two lists of all pipelines, in case a watch fell silent without an error."""


Keys: TypeAlias = Callable[[Sequence[str]], Awaitable[Sequence[ObjectKey]]]
"""Lists pipelines of some namespaces, or of all."""
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
        leadership = await _candidate(stack, settings, clock=clock, kubeconfig=kubeconfig)
        may_write = leadership.require if leadership is not None else _alone

        def leading() -> bool:
            return leadership is None or leadership.is_held

        metrics.leads(leading)
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
                await _lead(stack, leadership)
                uid = found
        if uid is None:
            return
        objects = KubernetesObjects(api)
        policy = _policy(settings)
        fences, offsets = CassandraFenceStore(objects, policy=policy), KafkaOffsets(objects, policy)
        stack.push_async_callback(fences.close)
        stack.push_async_callback(offsets.close)
        runs = KubernetesRuns(api=api, clock=clock, kubelets=Kubelets(api=api))
        releases = HelmReleases(api=api, helm=helm, clock=clock, namespace=settings.namespace)
        counted = PrometheusPageMetrics(metrics.registry)
        pager = pager_of(settings, api=api, policy=policy, metrics=counted, clock=clock, may_write=may_write)
        reconciler = Reconciler(
            ports=Ports(
                pipelines=pipelines,
                releases=releases,
                runs=runs,
                revisions=KubernetesRevisions(api),
                rewinds=KubernetesRewinds(api, recorder),
                purges=KubernetesPurges(api, runs, clock),
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
        reconciler.permits.begin(await _restarting(pipelines, settings), clock.now(), clock.monotonic())
        loops = Controller(reconciler.reconcile, metrics=metrics, clock=clock)
        stack.push_async_callback(loops.close)
        trials = _loops_of_trials(api, recorder, runs, pipelines, reconciler)
        stack.push_async_callback(trials.close)
        pager.wake = loops.wake
        await stack.enter_async_context(_beside(pager.run(), name="pager"))
        if settings.heartbeat_secret:
            heartbeat = heartbeat_of(
                settings, objects=objects, pager=pager, metrics=metrics, beaten=counted.beat, is_leading=leading
            )
            await stack.enter_async_context(_beside(heartbeat.run(), name="heartbeat"))
        census = _relist((pipelines.keys, releases.keys), loops, settings)
        await stack.enter_async_context(_beside(census, name="census"))
        log.info("watching pipelines", extra={"reason": "Started"})
        await watch(
            loops,
            trials,
            note_pod=runs.note_pod,
            note_part=releases.note_change,
            namespaces=settings.watch_namespaces,
        )
        log.info("stopping", extra={"reason": "Stopping"})


def _loops_of_trials(
    api: ApiServer,
    recorder: EventRecorder,
    runs: KubernetesRuns,
    pipelines: KubernetesPipelines,
    reconciler: Reconciler,
) -> Controller:
    """Return the loops of trials, which share the pipelines' ports and nothing of their passes."""
    shared = reconciler.ports
    ports = TrialPorts(
        trials=KubernetesTrials(api, recorder),
        jobs=KubernetesTrialJobs(api, runs),
        pipelines=pipelines,
        objects=shared.objects,
        fences=shared.fences,
        clock=shared.clock,
        may_write=shared.may_write,
    )
    trials = TrialReconciler(ports=ports, config=reconciler.config)
    return Controller(trials.reconcile, metrics=Uncounted(), clock=shared.clock)


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


async def _restarting(pipelines: KubernetesPipelines, settings: Settings) -> dict[ObjectKey, datetime]:
    """Return the pipelines that are being restarted by plan; none where unknown, so that the start continues."""
    try:
        return await pipelines.restarting(settings.watch_namespaces)
    except PortError as error:
        log.warning("the planned restarts are not known: %s", error, extra={"reason": Reason.LIST_FAILED})
        return {}


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
) -> Leadership | None:
    """Return this replica's leadership, None for a single replica; it has connections of its own."""
    if not settings.lease:
        return None
    api = await ApiServer.connect(kubeconfig)
    stack.push_async_callback(api.close)
    holder = settings.holder or f"{socket.gethostname()}_{uuid.uuid4()}"
    return Leadership(KubernetesLeases(api, settings.namespace, settings.lease), holder=holder, clock=clock)


async def _lead(stack: AsyncExitStack, leadership: Leadership | None) -> None:
    """Wait for the lease, keep it while the stack is open, and release it when everything opened later is closed."""
    if leadership is None:
        return
    log.info("waiting for the lease", extra={"reason": Reason.STANDBY})
    stack.push_async_callback(leadership.release)
    await leadership.acquire()
    log.info("this replica holds the lease", extra={"reason": Reason.LEADING})
    await stack.enter_async_context(_beside(_keep(leadership), name="lease"))


async def _keep(leadership: Leadership) -> None:
    """Keep the lease; end the process when another replica has it."""
    try:
        await leadership.keep()
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - after any error, nothing renews the lease
        _give_up(error)


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


async def _relist(lists: Sequence[Keys], loops: Controller, settings: Settings) -> None:
    """Look at once, and then now and then, for pipelines without a loop and for what is left of pipelines."""
    while True:
        for keys in lists:
            try:
                found = await keys(settings.watch_namespaces)
            except PortError as error:
                log.warning("the pipelines could not be listed: %s", error, extra={"reason": Reason.LIST_FAILED})
                continue
            for key in found:
                loops.ensure(key)
        await asyncio.sleep(jittered(_RELIST_INTERVAL))


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
