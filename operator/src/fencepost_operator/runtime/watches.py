"""kopf's watches of the API server, and nothing else of kopf.

An event only wakes the pipeline's own task in `runtime.controller`. kopf's daemons are not used: a daemon adds a
finalizer of kopf's and annotations to the object, and after a restart of the operator it is not started for an object
that is being deleted, so its cleanup would be skipped. With watches alone, kopf writes nothing to any object.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import kopf

from fencepost_operator.api import GROUP, PLURAL, REWIND_PLURAL, VERSION, ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.runtime.controller import Controller

CHILDREN: Final = (("", "v1", "pods"), ("batch", "v1", "jobs"), ("apps", "v1", "statefulsets"))
PARTS: Final = (("", "v1", "services"), ("policy", "v1", "poddisruptionbudgets"), ("apps", "v1", "statefulsets"))
"""The objects of a Spark cluster whose loss no pod shows, or that users may change; Secrets and ConfigMaps, which may
be large, are listed periodically, and when a pod cannot start."""
_ASKED: Final = ("uid", "generation", "deletionTimestamp", "finalizers", "labels", "annotations")
"""Metadata that changes with a request: the generation grows with the spec, not with the status."""
_IDENTITY: Final = ("uid", "generation", "deletionTimestamp", "ownerReferences")
"""Metadata of a child that a decision reads. Tenants may write any other as often as they like."""
_SERVER_TIMEOUT: Final = 300
"""Seconds after which the API server ends a watch, and kopf begins a new one."""
_LISTED_AT_ONCE: Final = 25
"""Objects in one answer before a watch begins; each may have 1.5 MiB."""
_STOPPING: Final = 25.0
"""Seconds for an orderly end; Kubernetes kills after 30."""


class Backoffs:
    """Seconds between two attempts of kopf's requests, without an end.

    kopf ends the operator when a request has failed for the last time.  A namespace that is closed to the operator, or
    gone, would end the watches of all others by that; so it is asked until it opens.
    """

    first: float = 1.0
    longest: float = 60.0

    def __iter__(self) -> Iterator[float]:
        """Begin from the shortest one, for each request."""
        delay = self.first
        while True:
            yield delay
            delay = min(2 * delay, self.longest)


class ChangeFilter:
    """What was last seen of each object, as far as it matters.

    Of a pipeline that is all but its status: our own writes of it are no reason to look again.
    """

    def __init__(self, asked: Sequence[str] = _ASKED) -> None:
        self._asked = asked
        self._seen: dict[ObjectKey, int] = {}

    def is_change(self, key: ObjectKey, metadata: Mapping[str, Any], *, deleted: bool, content: object = None) -> bool:
        """Return whether an event shows other metadata or content than the one before; the first one always does."""
        if deleted:
            self._seen.pop(key, None)
            return True
        # The hash alone: annotations hold whole manifests, and there may be thousands of pipelines.
        now = hash(json.dumps([*(metadata.get(part) for part in self._asked), content], sort_keys=True))
        before, self._seen[key] = self._seen.get(key), now
        return now != before


async def watch(
    loops: Controller,
    *,
    note_pod: Callable[[Mapping[str, Any]], None],
    note_part: Callable[[ObjectKey], None],
    namespaces: Sequence[str],
) -> None:
    """Wake loops by events until SIGTERM or SIGINT. Raises what ends a watch for good.

    `note_pod` is given each pod as an event shows it, the last time when it is deleted; `note_part` the pipeline of
    which an object of the Spark cluster was deleted, or changed but for its status.
    """
    await kopf.operator(
        registry=_registry(loops, note_pod, note_part),
        settings=_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        # Otherwise kopf asks the password database for a user name, and an arbitrary uid is not in there.
        # The parameter's type is private to kopf; it is a string.
        identity=cast("Any", socket.gethostname()),
    )


def _registry(
    loops: Controller, note_pod: Callable[[Mapping[str, Any]], None], note_part: Callable[[ObjectKey], None]
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's
        return _login(**arguments)

    _watch_objects(registry, loops)
    _watch_children(registry, loops, note_pod)
    _watch_parts(registry, loops, note_part)
    return registry


def _watch_objects(registry: kopf.OperatorRegistry, loops: Controller) -> None:
    changes, asked = ChangeFilter(), ChangeFilter()

    @kopf.on.event(GROUP, VERSION, PLURAL, id=f"{PLURAL}-changed", registry=registry)
    async def pipeline_changed(
        namespace: str | None,
        name: str,
        meta: kopf.Meta,
        event: kopf.RawEvent,
        **_: Any,  # noqa: ANN401 - kopf's
    ) -> None:
        key = ObjectKey(namespace or "", name)
        if changes.is_change(key, meta, deleted=event["type"] == "DELETED"):
            loops.wake(key)

    @kopf.on.event(GROUP, VERSION, REWIND_PLURAL, id=f"{REWIND_PLURAL}-changed", registry=registry)
    async def rewind_changed(
        namespace: str | None,
        name: str,
        meta: kopf.Meta,
        body: kopf.Body,
        event: kopf.RawEvent,
        **_: Any,  # noqa: ANN401 - kopf's
    ) -> None:
        changed = asked.is_change(ObjectKey(namespace or "", name), meta, deleted=event["type"] == "DELETED")
        pipeline = (body.get("spec") or {}).get("pipeline")
        if changed and isinstance(pipeline, str) and pipeline:
            loops.wake(ObjectKey(namespace or "", pipeline))


def _watch_children(
    registry: kopf.OperatorRegistry, loops: Controller, note_pod: Callable[[Mapping[str, Any]], None]
) -> None:
    children = {plural: ChangeFilter(_IDENTITY) for _, _, plural in CHILDREN}

    async def child_changed(
        namespace: str | None,
        name: str,
        meta: kopf.Meta,
        body: kopf.Body,
        event: kopf.RawEvent,
        resource: kopf.Resource,
        **_: Any,  # noqa: ANN401 - kopf's
    ) -> None:
        if resource.plural == "pods":
            note_pod(body)
        owner, key = meta.labels.get(labels.PIPELINE), ObjectKey(namespace or "", name)
        content = [body.get("status"), _own(meta.labels), _own(meta.annotations)]
        changed = children[resource.plural].is_change(key, meta, deleted=event["type"] == "DELETED", content=content)
        if changed and owner and namespace:
            loops.wake(ObjectKey(namespace, owner))

    for group, version, plural in CHILDREN:
        kopf.on.event(group=group, version=version, plural=plural, id=f"{plural}-changed", registry=registry)(
            child_changed
        )


def _own(marks: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations that are the operator's."""
    return {name: value for name, value in marks.items() if name.startswith(f"{GROUP}/")}


def _watch_parts(registry: kopf.OperatorRegistry, loops: Controller, note_part: Callable[[ObjectKey], None]) -> None:
    # A Service has no generation, and little of a status.
    parts = {plural: ChangeFilter((*_ASKED, "resourceVersion")) for _, _, plural in PARTS}
    parts["statefulsets"] = ChangeFilter()

    async def part_changed(
        namespace: str | None,
        name: str,
        meta: kopf.Meta,
        event: kopf.RawEvent,
        resource: kopf.Resource,
        **_: Any,  # noqa: ANN401 - kopf's
    ) -> None:
        owner, key = meta.labels.get(labels.PIPELINE), ObjectKey(namespace or "", name)
        if parts[resource.plural].is_change(key, meta, deleted=event["type"] == "DELETED") and owner and namespace:
            note_part(ObjectKey(namespace, owner))
            loops.wake(ObjectKey(namespace, owner))

    for group, version, plural in PARTS:
        kopf.on.event(group=group, version=version, plural=plural, id=f"{plural}-applied", registry=registry)(
            part_changed
        )


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.finalizer = f"{GROUP}/kopf"  # never written: no handler here asks for one
    settings.process.ultimate_exiting_timeout = _STOPPING
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = Backoffs()
    settings.watching.chunk_size = _LISTED_AT_ONCE
    settings.watching.server_timeout = _SERVER_TIMEOUT
    settings.watching.client_timeout = _SERVER_TIMEOUT + 30
    settings.watching.connect_timeout = 10
    for group, version, plural in (*CHILDREN, *PARTS):
        selector = (group, version, plural) if group else (version, plural)
        settings.watching.label_selectors[selector] = labels.PIPELINE
    return settings


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's
    """Return the pod's own credentials by the API server's address (no DNS needed), else those of a kubeconfig."""
    found = kopf.login_with_service_account(**arguments)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if found is None or not host:
        return kopf.login_with_kubeconfig(**arguments)
    host = f"[{host}]" if ":" in host else host
    return dataclasses.replace(found, server=f"https://{host}:{port}")
