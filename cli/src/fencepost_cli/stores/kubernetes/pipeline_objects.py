"""Pipelines, and the objects that belong to them, by the user's kubeconfig."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from fencepost_cli.errors import CliError
from fencepost_cli.ports import Json, Listing, Related
from fencepost_cli.stores.kubernetes.kubeconfig import answered, configured
from fencepost_cli.stores.kubernetes.text_answers import text_answers
from fencepost_operator.adapters.kubernetes.api_server import EVENTS, JOBS, PODS, AlreadyExists, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.objects import KubernetesObjects
from fencepost_operator.api import (
    GROUP,
    KIND,
    PLURAL,
    REWIND_PLURAL,
    TRIAL_KIND,
    TRIAL_PLURAL,
    VERSION,
    ObjectKey,
    Spec,
    Trial,
    TrialSpec,
    parse,
    read_trial,
)
from fencepost_operator.api.codec import encode
from fencepost_operator.desired import labels
from fencepost_operator.desired.identity.hashes import referenced
from fencepost_operator.errors import Denied, PortError

PIPELINES: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=PLURAL)
DEPLOYMENTS: Final = Resource(prefix="/apis/apps/v1", plural="deployments")
MOST: Final = 1000
"""Objects of one kind that belong to a pipeline; whoever may create Events decides how many there are."""
METRICS_PORT: Final = 9404
_REWINDS: Final = Resource(prefix=PIPELINES.prefix, plural=REWIND_PLURAL)
_TRIALS: Final = Resource(prefix=PIPELINES.prefix, plural=TRIAL_PLURAL)
_LOG: Final = Resource(prefix=PODS.prefix, plural=PODS.plural, subresource="log")
_OPERATORS: Final = "app.kubernetes.io/part-of=fencepost,app.kubernetes.io/component=operator"
_LABELLED: Final = f"{labels.PIPELINE}={{name}}"
_RELATED: Final[Mapping[Related, tuple[Resource, str, str]]] = {
    Related.EVENTS: (EVENTS, "", f"involvedObject.kind={KIND},involvedObject.name={{name}}"),
    Related.JOBS: (JOBS, _LABELLED, ""),
    Related.PODS: (PODS, _LABELLED, ""),
    Related.REWINDS: (_REWINDS, "", "spec.pipeline={name}"),
    Related.TRIALS: (_TRIALS, "", "spec.pipeline={name}"),
}
"""Where they are, and the selectors of labels and fields."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KubeconfigObjects:
    """Implements the Objects port; `context` None is the current one."""

    context: str | None = None

    def locate(self, name: str, namespace: str | None) -> ObjectKey:
        """Return a pipeline's place. Raises CliError without a kubeconfig."""
        return ObjectKey(namespace or asyncio.run(configured(self.context))[1], name)

    def pipelines(self, namespace: str | None) -> Listing:
        """Return the pipelines that the account may list. Raises CliError."""

        async def listed() -> Listing:
            configuration, usual = await configured(self.context)

            async def of(api: ApiServer) -> Listing:
                try:
                    return Listing(await _all(api, namespace), namespace or "")
                except Denied:
                    if namespace is not None:
                        raise
                return Listing(await _all(api, usual), usual)

            return await answered(configuration, namespace or usual, of, "list StreamingPipelines")

        return asyncio.run(listed())

    def pipeline(self, key: ObjectKey) -> Json:
        """Return one pipeline. Raises CliError."""

        async def read(api: ApiServer) -> Json:
            body = await api.get(PIPELINES, namespace=key.namespace, name=key.name)
            if body is None:
                raise CliError(
                    f"pipeline {key} not found",
                    remedy=f"see `kubectl get spl -n {key.namespace}`, or choose another context",
                )
            return body

        return self._with(key, read, "get the pipeline")

    def related(self, key: ObjectKey, kind: Related) -> Sequence[Json]:
        """Return what belongs to a pipeline. Raises CliError."""
        resource, labelled, fields = _RELATED[kind]

        async def listed(api: ApiServer) -> Sequence[Json]:
            found = list[Json]()
            pages = api.pages(
                resource,
                namespace=key.namespace,
                labels=labelled.format(name=key.name),
                fields=fields.format(name=key.name),
            )
            async for page in pages:
                found += page
                if len(found) >= MOST:
                    break
            return found[:MOST]

        return self._with(key, listed, f"list {resource}")

    def merge(self, key: ObjectKey, body: Json) -> None:
        """Merge into a pipeline. Raises CliError."""

        async def merged(api: ApiServer) -> None:
            await api.merge(PIPELINES, namespace=key.namespace, name=key.name, body=body)

        self._with(key, merged, "patch the pipeline")

    def create_trial(self, pipeline: ObjectKey, spec: TrialSpec, name: str | None) -> ObjectKey:
        """Create a PipelineTrial, without a name under one that is made up; return its place. Raises CliError."""

        async def create(api: ApiServer) -> ObjectKey:
            return await created(api, _TRIALS, TRIAL_KIND, pipeline, encode(spec), name)

        return self._with(pipeline, create, "create PipelineTrials")

    def trial(self, key: ObjectKey) -> Trial | None:
        """Return a trial, None when it does not exist. Raises CliError."""

        async def read(api: ApiServer) -> Trial | None:
            body = await api.get(_TRIALS, namespace=key.namespace, name=key.name)
            return None if body is None else read_trial(body)

        return self._with(key, read, "get PipelineTrials")

    def delete_trial(self, trial: Trial) -> None:
        """Delete a trial with its Job. Raises CliError."""

        async def deleted(api: ApiServer) -> None:
            await api.delete(_TRIALS, namespace=trial.key.namespace, name=trial.key.name, uid=trial.uid)

        self._with(trial.key, deleted, "delete PipelineTrials")

    def container_log(
        self, pod: ObjectKey, show: Callable[[str], object], *, container: str, tail: int | None, follow: bool = False
    ) -> None:
        """Pass on a container's log. Raises CliError."""
        query = {"container": container, "follow": "true" if follow else "", "tailLines": str(tail or "")}
        asyncio.run(self._text(pod, _LOG.path(namespace=pod.namespace, name=pod.name), query, show, "pods/log"))

    def driver_metrics(self, pod: ObjectKey) -> str:
        """Return the metrics of a driver, by the API server's proxy. Raises CliError."""
        parts = list[str]()
        port = PODS.path(namespace=pod.namespace, name=f"{pod.name}:{METRICS_PORT}").replace("%3A", ":")
        asyncio.run(self._text(pod, f"{port}/proxy/metrics", {}, parts.append, "pods/proxy"))
        return "".join(parts)

    def end_run(self, pod: ObjectKey) -> None:
        """Delete a driver's pod. Raises CliError."""

        async def deleted(api: ApiServer) -> None:
            await api.delete(PODS, namespace=pod.namespace, name=pod.name)

        self._with(pod, deleted, "delete pods")

    def secret_values(self, body: Json) -> Collection[str]:
        """Return the values of the Secrets that a pipeline names. Raises CliError without a cluster."""
        key, spec = ObjectKey(body["metadata"]["namespace"], body["metadata"]["name"]), parse(body)
        names = referenced(spec) if isinstance(spec, Spec) else ()

        async def read(api: ApiServer) -> Collection[str]:
            found = set[str]()
            for name in names:
                kind, _, secret = name.partition("/")
                if kind == "Secret":
                    with suppress(PortError):
                        found |= set((await KubernetesObjects(api).secret(key, secret)).values())
            return found

        return self._with(key, read, "get Secrets")

    def operators(self) -> Sequence[Json]:
        """Return the Deployments of operators. Raises CliError."""
        everywhere = ObjectKey("all", "")

        async def listed(api: ApiServer) -> Sequence[Json]:
            return await api.list(DEPLOYMENTS, labels=_OPERATORS)

        return self._with(everywhere, listed, "list deployments")

    async def _text(
        self, pod: ObjectKey, path: str, query: Mapping[str, str], show: Callable[[str], object], right: str
    ) -> None:
        configuration, _ = await configured(self.context)
        async with text_answers(configuration) as answers:
            await answers.stream(path, query, show, about=f"pod {pod}", right=right)

    def _with(self, key: ObjectKey, work: Callable[[ApiServer], Awaitable[T]], rights: str) -> T:
        async def done() -> T:
            configuration, _ = await configured(self.context)
            return await answered(configuration, key.namespace, work, rights)

        return asyncio.run(done())


async def created(
    api: ApiServer, resource: Resource, kind: str, pipeline: ObjectKey, spec: object, name: str | None
) -> ObjectKey:
    """Create a PipelineRewind or PipelineTrial, without a name under one that is made up; return its place.

    Raises CliError when the name is taken, and PortError.
    """
    metadata = {"name": name} if name else {"generateName": f"{pipeline.name}-"}
    body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "metadata": metadata, "spec": spec}
    try:
        made = await api.create(resource, namespace=pipeline.namespace, body=body)
    except AlreadyExists as error:
        raise CliError(
            f"there is a {kind.removeprefix('Pipeline').lower()} {pipeline.namespace}/{name} already",
            remedy="choose another --name, or leave it out",
        ) from error
    return ObjectKey(pipeline.namespace, str(made["metadata"]["name"]))


async def _all(api: ApiServer, namespace: str | None) -> list[Json]:
    return [body async for page in api.pages(PIPELINES, namespace=namespace) for body in page]
