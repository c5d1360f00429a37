"""kopf's watches of the API server, and nothing else of kopf.

An event only wakes the pipeline's own task in `runtime.controller`. kopf's daemons are not used: a daemon adds a
finalizer of kopf's and annotations to the object, and after a restart of the operator it is not started for an object
that is being deleted, so its cleanup would be skipped. With watches alone, kopf writes nothing to any object.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

import kopf

from fencepost_operator.api import GROUP, KIND, PLURAL, REWIND_PLURAL, TRIAL_KIND, TRIAL_PLURAL, VERSION, ObjectKey
from fencepost_operator.desired import labels
from fencepost_operator.runtime.child_status import OF_CHILD, Status
from fencepost_operator.runtime.controller import Controller

CHILDREN: Final = (("", "v1", "pods"), ("batch", "v1", "jobs"), ("apps", "v1", "statefulsets"))
PARTS: Final = (("", "v1", "services"), ("policy", "v1", "poddisruptionbudgets"), ("apps", "v1", "statefulsets"))
"""The objects of a Spark cluster whose loss no pod shows, or that users may change; Secrets and ConfigMaps, which may
be large, are listed periodically, and when a pod cannot start."""
_ASKED: Final = ("uid", "generation", "deletionTimestamp", "finalizers", "labels", "annotations")
"""Metadata that changes with a request: the generation grows with the spec, not with the status."""
_IDENTITY: Final = ("uid", "generation", "deletionTimestamp", "ownerReferences")
"""Metadata of a child that a decision reads. Tenants may write any other as often as they like."""
NotePart: TypeAlias = Callable[[ObjectKey, Mapping[str, Any] | None], None]
"""Is given the pipeline of an object of its cluster, and the metadata of the object; None when that was deleted."""
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


class _NoDiff(kopf.DiffBaseStorage):
    """kopf's comparison of an object with what it was before: of nothing, as no handler here asks for a difference.

    kopf otherwise copies each object of each event, with what tenants wrote into it.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:  # noqa: ANN401 - kopf's
        """Return the part of an object that is compared."""
        return kopf.BodyEssence({})

    def fetch(self, **_: Any) -> kopf.BodyEssence | None:  # noqa: ANN401 - kopf's
        """Return what was stored in an object."""
        return None

    def store(self, **_: Any) -> None:  # noqa: ANN401 - kopf's
        """Store nothing."""


class ChangeFilter:
    """What was last seen of each object, as far as it matters.

    Of a pipeline that is all but its status: our own writes of it need no second look.
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
    trials: Controller,
    *,
    note_pod: Callable[[Mapping[str, Any]], None],
    note_part: NotePart,
    namespaces: Sequence[str],
) -> None:
    """Wake loops, and those of trials, by events until SIGTERM or SIGINT. Raises what ends a watch for good.

    `note_pod` is given each pod as an event shows it, the last time when it is deleted; `note_part` the pipeline of
    which an object of the Spark cluster was deleted, or changed but for its status.
    """
    await kopf.operator(
        registry=_registry(loops, trials, note_pod, note_part),
        settings=_settings(),
        clusterwide=not namespaces,
        namespaces=namespaces,
        standalone=True,
        # Otherwise kopf asks the password database for a user name, and an arbitrary uid is not in there.
        # The parameter's type is private to kopf; it is a string.
        identity=cast("Any", socket.gethostname()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """One kind: what of an object counts as a change, and which pipeline that wakes, by its name.

    `handler` ends the id of kopf's handler: it distinguishes two watches of one kind.
    """

    kind: tuple[str, str, str]
    handler: str = "changed"
    pipeline: Callable[[kopf.Body], str | None]
    changes: ChangeFilter = field(default_factory=ChangeFilter)
    content: Callable[[kopf.Body], object] = lambda _: None
    on_event: Callable[[kopf.Body], None] = lambda _: None
    on_change: NotePart = lambda _key, _metadata: None
    trial: Callable[[kopf.Body], str | None] = lambda _: None
    """Which trial a change wakes, by its name."""


def _watches(note_pod: Callable[[Mapping[str, Any]], None], note_part: NotePart) -> Iterator[_Watch]:
    yield _Watch(kind=(GROUP, VERSION, PLURAL), pipeline=lambda body: body.meta.name)
    yield _Watch(kind=(GROUP, VERSION, REWIND_PLURAL), pipeline=_rewound_pipeline)
    yield _Watch(kind=(GROUP, VERSION, TRIAL_PLURAL), pipeline=lambda _: None, trial=lambda body: body.meta.name)
    yield _Watch(
        kind=(GROUP, VERSION, TRIAL_PLURAL),
        handler="tried",
        pipeline=_upgraded_pipeline,
        changes=ChangeFilter(_IDENTITY),
        content=lambda body: (body.get("status") or {}).get("phase"),
    )
    for kind in CHILDREN:
        child = _Watch(
            kind=kind,
            pipeline=_owner,
            changes=ChangeFilter(_IDENTITY),
            content=partial(_decided_by, OF_CHILD[kind[2]]),
            trial=_owning_trial,
        )
        yield replace(child, on_event=note_pod) if kind[2] == "pods" else child
    for kind in PARTS:
        # A Service has no generation, and little of a status.
        asked = (*_ASKED, "resourceVersion") if kind[2] == "services" else _ASKED
        yield _Watch(kind=kind, handler="applied", pipeline=_owner, changes=ChangeFilter(asked), on_change=note_part)


def _registry(
    loops: Controller,
    trials: Controller,
    note_pod: Callable[[Mapping[str, Any]], None],
    note_part: NotePart,
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's
        return _login(**arguments)

    for each in _watches(note_pod, note_part):
        _add(registry, loops, trials, each)
    return registry


def _add(registry: kopf.OperatorRegistry, loops: Controller, trials: Controller, watched: _Watch) -> None:
    group, version, plural = watched.kind

    @kopf.on.event(group=group, version=version, plural=plural, id=f"{plural}-{watched.handler}", registry=registry)
    async def changed(
        namespace: str | None,
        name: str,
        body: kopf.Body,
        event: kopf.RawEvent,
        **_: Any,  # noqa: ANN401 - kopf's
    ) -> None:
        watched.on_event(body)
        key, pipeline = ObjectKey(namespace or "", name), watched.pipeline(body)
        is_change = watched.changes.is_change(
            key, body.meta, deleted=event["type"] == "DELETED", content=watched.content(body)
        )
        if is_change and pipeline and namespace:
            watched.on_change(ObjectKey(namespace, pipeline), None if event["type"] == "DELETED" else body.meta)
            loops.wake(ObjectKey(namespace, pipeline))
        if is_change and namespace and (trial := watched.trial(body)):
            trials.wake(ObjectKey(namespace, trial))


def _rewound_pipeline(rewind: kopf.Body) -> str | None:
    """Return the pipeline that a rewind names; its user may have written anything there."""
    name = (rewind.get("spec") or {}).get("pipeline")
    return name if isinstance(name, str) else None


def _upgraded_pipeline(trial: kopf.Body) -> str | None:
    """Return the pipeline whose upgrade waits for a trial."""
    owners = trial.meta.get("ownerReferences") or ()
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == KIND), None)


def _owner(child: kopf.Body) -> str | None:
    return child.meta.labels.get(labels.PIPELINE)


def _owning_trial(child: kopf.Body) -> str | None:
    """Return the trial that owns a Job."""
    owners = child.meta.get("ownerReferences") or ()
    return next((str(owner.get("name")) for owner in owners if owner.get("kind") == TRIAL_KIND), None)


def _decided_by(status: Callable[[Status], object], child: kopf.Body) -> object:
    """Return what a decision reads of a child, beside its identity: of its status, and the operator's own marks."""
    return [status(child.get("status") or {}), _own(child.meta.labels), _own(child.meta.annotations)]


def _own(marks: Mapping[str, str]) -> dict[str, str]:
    """Return the labels or annotations that are the operator's."""
    return {name: value for name, value in marks.items() if name.startswith(f"{GROUP}/")}


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = _NoDiff()
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
    return replace(found, server=f"https://{host}:{port}")
