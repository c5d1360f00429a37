"""Spark clusters as Helm releases: installed, compared with what Helm applied, restored and removed.

Helm keeps its revisions in Secrets of the operator's namespace.  Helm deletes what the last revision names and the next
one does not, in any namespace, so whoever may write a revision has the operator's rights.  In the pipeline's namespace
that would be every user with the role `edit`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost_operator.actions import Manifest
from fencepost_operator.adapters.helm.command import Helm, refused
from fencepost_operator.adapters.helm.first_revision import DEPLOYED, PENDING, FirstRevision, chart_of
from fencepost_operator.adapters.helm.post_renderer import (
    Expected,
    UnexpectedManifestError,
    annotations_digest,
    checked,
    json_line,
)
from fencepost_operator.adapters.helm.release_manifest import applied_objects, damage
from fencepost_operator.adapters.kubernetes.api_server import (
    CONFIG_MAPS,
    METADATA_ONLY,
    PERSISTENT_VOLUME_CLAIMS,
    POD_DISRUPTION_BUDGETS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    AlreadyExists,
    ApiServer,
    Json,
)
from fencepost_operator.adapters.kubernetes.spark_clusters import generation_of, spark_cluster, without_status
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import Rejected
from fencepost_operator.observation import ClusterObject, ClusterObjects, ReleaseState, SparkCluster
from fencepost_operator.ports import SteadyClock

log = logging.getLogger(__name__)

_HISTORY: Final = 3
"""Revisions that Helm keeps."""
_STATES: Final = {
    "deployed": ReleaseState.DEPLOYED,
    "superseded": ReleaseState.DEPLOYED,  # between two writes of an upgrade; nothing is wrong with it
    "pending-install": ReleaseState.PENDING,
    "pending-upgrade": ReleaseState.PENDING,
    "pending-rollback": ReleaseState.PENDING,
    "uninstalling": ReleaseState.UNINSTALLING,
    "uninstalled": ReleaseState.UNINSTALLING,
}
_PARTS: Final = {
    "StatefulSet": STATEFUL_SETS,
    "Service": SERVICES,
    "PodDisruptionBudget": POD_DISRUPTION_BUDGETS,
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
}
"""The kinds of the spark-cluster chart."""
_HELM_RELEASE: Final = "meta.helm.sh/release-name"
"""The annotation by which Helm knows what is its own."""
_POLICY: Final = "helm.sh/resource-policy"
_KEEP: Final = "keep"
"""Its value on an object that Helm is not to delete."""
_RELIST: Final = 600.0
"""Seconds for which a list of objects holds without an event or a change by this operator: only Helm creates them."""
_RELIST_URGENT: Final = 10.0
"""The same while the cluster is not ready, which may be due to an object that causes no event."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """A pipeline's objects, when that was known, and of each what changes with it but for its status."""

    at: float
    objects: ClusterObjects
    versions: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class HelmReleases:
    """Implements the Releases port; `namespace` is the operator's own, where Helm keeps the revisions.

    A pipeline has one pass at a time, so one change of its release.
    """

    api: ApiServer
    helm: Helm
    clock: SteadyClock
    namespace: str
    _listed: dict[ObjectKey, _Listed] = field(default_factory=dict)
    _intact: dict[ObjectKey, tuple[int, frozenset[tuple[str, ...]]]] = field(default_factory=dict)
    """The revision and the versions of the objects that were found as applied, or have just been created so."""
    _accepted: dict[ObjectKey, frozenset[str]] = field(default_factory=dict)
    """Damage that was there right after Helm had applied the objects."""

    async def release(self, key: ObjectKey) -> ReleaseState | None:
        """Return the state of the pipeline's release, or None without one."""
        revisions = await self._revisions(key)
        return _state(revisions[-1]) if revisions else None

    async def keys(self, namespaces: Sequence[str]) -> tuple[ObjectKey, ...]:
        """Return the pipelines, of these namespaces or of all, that have a release, whether or not they exist."""
        selector = f"owner=helm,{labels.PIPELINE},{labels.NAMESPACE}"
        pages = self.api.pages(SECRETS, namespace=self.namespace, labels=selector, accept=METADATA_ONLY)
        marks = [item["metadata"]["labels"] async for page in pages for item in page]
        keys = {ObjectKey(mark[labels.NAMESPACE], mark[labels.PIPELINE]) for mark in marks}
        return tuple(sorted((key for key in keys if not namespaces or key.namespace in namespaces), key=str))

    async def cluster(self, key: ObjectKey) -> SparkCluster | None:
        """Return the cluster of the newest generation, with the older ones, or None when no StatefulSet is there."""
        return await spark_cluster(self.api, key, self.clock.now())

    async def install(self, key: ObjectKey, values: Manifest, *, keep: int | None = None) -> None:
        """Bring the release to these values, recovering one that a crash left pending or half removed.

        Raises Rejected when the rendered objects are not the expected ones; nothing is applied then.  Helm applies and
        returns: there is no --wait and no --atomic, the loop observes the result.
        """
        known = self._listed.get(key)
        self.note_change(key)
        revisions = await self._recover(key)
        if keep is not None:
            await self._keep(key, keep)
        values = {**values, "namespace": key.namespace}  # not the release's
        is_alone = known is not None and not known.objects.found
        if revisions or not await self._install_first(key, values, is_alone=is_alone):
            await self._upgrade(key, values)

    async def _install_first(self, key: ObjectKey, values: Manifest, *, is_alone: bool) -> bool:
        """Create the first revision and its objects; False where Helm has to, because one of the objects is there.

        `is_alone`: there were no objects of other generations, so those of this one are all.

        Helm only renders.  When all pipelines of a cluster start at once, its installation is what they wait for, and
        that takes a multiple of the CPU time.  The order is Helm's: whatever ends this between two writes leaves a
        pending revision, and objects that Helm adopts by their marks.
        """
        if not self.helm.chart.is_dir():
            return False
        name, started = names.release_name(key), self.clock.monotonic()
        rendered = await self.helm.template(values, name=name, namespace=self.namespace, tenant=key.namespace)
        try:
            manifest = await asyncio.to_thread(checked, rendered, _expected(key, values))
        except UnexpectedManifestError as error:
            raise refused(str(error)) from error
        first = FirstRevision(
            name=name,
            namespace=self.namespace,
            labels={labels.PIPELINE: key.name, labels.NAMESPACE: key.namespace},
            chart=chart_of(self.helm.chart),
            values=values,
            manifest=manifest,
            at=self.clock.now(),
        )
        made = (await self.api.create(SECRETS, namespace=self.namespace, body=first.secret(PENDING)))["metadata"]
        created: list[tuple[str, Json]] = []
        try:
            for item in first.objects():
                kind = item["kind"]
                created.append((kind, await self.api.create(_PARTS[kind], namespace=key.namespace, body=item)))
        except AlreadyExists:
            await self.api.delete(SECRETS, namespace=self.namespace, name=made["name"], uid=made["uid"])
            return False
        deployed = first.secret(DEPLOYED)
        deployed["metadata"]["resourceVersion"] = made["resourceVersion"]
        await self.api.replace(SECRETS, namespace=self.namespace, name=made["name"], body=deployed)
        self._intact[key] = (1, _compared(created))
        if is_alone:
            there = ClusterObjects(found=_found(key, created))
            self._listed[key] = _Listed(self.clock.monotonic(), there, _versions(created))
        self.helm.timed("install", self.clock.monotonic() - started)
        return True

    async def _upgrade(self, key: ObjectKey, values: Manifest) -> None:
        """Have Helm bring the release to these values, and adopt or delete what is there.

        Helm's own check of fields takes half of an installation's CPU time, for it reads the schemas of all kinds each
        time.  The post-renderer and the API server check the objects in any case.
        """
        program, *words = _expected(key, values).command
        await self.helm.change(
            "install",
            *("upgrade", "--install", names.release_name(key), str(self.helm.chart), "--values", "-"),
            *("--labels", f"{labels.PIPELINE}={key.name},{labels.NAMESPACE}={key.namespace}"),
            *("--disable-openapi-validation", "--history-max", str(_HISTORY), "--post-renderer", program),
            *(f"--post-renderer-args={word}" for word in words),
            tenant=key.namespace,
            namespace=self.namespace,
            stdin=json_line(values),
        )

    async def uninstall(self, key: ObjectKey) -> None:
        """Remove the release, and forget what was compared with it; nothing to do when it is not there."""
        self.forget(key)
        if await self._revisions(key, exclusive=True):
            words = ("uninstall", names.release_name(key), "--ignore-not-found")
            await self.helm.change("uninstall", *words, tenant=key.namespace, namespace=self.namespace)

    async def restore(self, key: ObjectKey) -> None:
        """Apply the objects of the newest revision again, as they were rendered: with the same secret.

        Helm creates what is missing, and patches what was changed as for an upgrade.  What differs right afterwards is
        taken for the API server's admission.
        """
        self.note_change(key)
        newest = _deployed(await self._recover(key))
        if newest is None:
            return
        words = ("rollback", names.release_name(key), str(_revision(newest)), "--history-max", str(_HISTORY))
        await self.helm.change("restore", *words, tenant=key.namespace, namespace=self.namespace)
        left = await self._damage(key, newest)
        self._accepted[key] = frozenset(left)
        if left:
            log.warning("%s: the API server changes what Helm applies: %s", key, ", ".join(left))

    async def prune(self, key: ObjectKey, objects: Sequence[ClusterObject]) -> None:
        """Delete these objects, each on condition of its uid."""
        self.note_change(key)
        deletions = (
            self.api.delete(_PARTS[found.kind], namespace=key.namespace, name=found.name, uid=found.uid)
            for found in objects
        )
        await asyncio.gather(*deletions)

    async def objects(self, key: ObjectKey, *, urgent: bool) -> ClusterObjects:
        """Return the objects of all generations that are not being deleted; listed again after each change."""
        now, known = self.clock.monotonic(), self._listed.get(key)
        if known is not None and now - known.at < (_RELIST_URGENT if urgent else _RELIST):
            return known.objects
        selector = f"{labels.PIPELINE}={key.name},{labels.GENERATION}"
        lists = await asyncio.gather(
            *(
                self.api.list(_PARTS[kind], namespace=key.namespace, labels=selector, accept=METADATA_ONLY)
                for kind in _PARTS
            )
        )
        items = [(kind, item) for kind, items in zip(_PARTS, lists, strict=True) for item in items]
        looked = ClusterObjects(found=_found(key, items), damage=await self._new_damage(key, items))
        self._listed[key] = _Listed(now, looked, _versions(items))
        return looked

    def note_change(self, key: ObjectKey) -> None:
        """Forget the list of a pipeline's objects: the operator changes some, or an event was missed."""
        self._listed.pop(key, None)

    def note_object(self, key: ObjectKey, metadata: Mapping[str, Any] | None) -> None:
        """Forget the list of a pipeline's objects if an event shows one that is not in it, or that one was deleted."""
        known = self._listed.get(key)
        if known is not None and (metadata is None or without_status(metadata) not in known.versions):
            self.note_change(key)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is known of a pipeline that is gone."""
        for known in (self._listed, self._intact, self._accepted):
            known.pop(key, None)

    async def _new_damage(self, key: ObjectKey, items: Sequence[tuple[str, Json]]) -> tuple[str, ...]:
        """Return the damage that is not accepted; objects that were compared and have not changed are not fetched."""
        newest = _deployed(await self._revisions(key))
        if newest is None:
            return ()
        state = (_revision(newest), _compared(items))
        if self._intact.get(key) == state:
            return ()
        accepted = self._accepted.get(key, frozenset())
        found = tuple(one for one in await self._damage(key, newest) if one not in accepted)
        if not found:
            self._intact[key] = state
        return found

    async def _damage(self, key: ObjectKey, revision: Json) -> tuple[str, ...]:
        """Return what is missing or differs from what Helm applied, for messages."""
        secret = await self.api.get(SECRETS, namespace=self.namespace, name=revision["metadata"]["name"])
        if secret is None:
            return ()
        try:
            wanted = [item for item in applied_objects(secret) if item["kind"] in _PARTS]
        except (ValueError, KeyError, OSError) as error:
            raise Rejected(f"the Secret of Helm's revision cannot be read: {error}") from error
        lives = await asyncio.gather(
            *(
                self.api.get(_PARTS[item["kind"]], namespace=key.namespace, name=item["metadata"]["name"])
                for item in wanted
            )
        )
        return tuple(filter(None, (damage(item, live) for item, live in zip(wanted, lives, strict=True))))

    async def _keep(self, key: ObjectKey, generation: int) -> None:
        """Mark a generation's objects, so that Helm does not delete them when the next revision does not name them.

        Helm looks at the live objects.  They are pruned once nothing runs on that generation.
        """
        selector = f"{labels.PIPELINE}={key.name},{labels.GENERATION}={generation}"

        async def mark(kind: str) -> None:
            place = key.namespace
            items = await self.api.list(_PARTS[kind], namespace=place, labels=selector, accept=METADATA_ONLY)
            for item in items:
                annotations = item["metadata"].get("annotations") or {}
                if _installed_generation(key, item) == generation and annotations.get(_POLICY) != _KEEP:
                    body = {"metadata": {"annotations": {_POLICY: _KEEP}}}
                    await self.api.merge(_PARTS[kind], namespace=place, name=item["metadata"]["name"], body=body)

        await asyncio.gather(*(mark(kind) for kind in _PARTS))

    async def _recover(self, key: ObjectKey) -> list[Json]:
        """Remove what a killed helm process left behind, so that the next one can start; return what is left.

        A pending revision is only Helm's note that it began.  Without the note `upgrade --install` applies the chart
        again and adopts what is there by its own annotations; nothing that runs is disturbed, as a rollback would.
        """
        revisions = await self._revisions(key, exclusive=True)
        while revisions and _state(revisions[-1]) is ReleaseState.PENDING:
            metadata = revisions.pop()["metadata"]
            await self.api.delete(SECRETS, namespace=self.namespace, name=metadata["name"], uid=metadata["uid"])
        if revisions and _state(revisions[-1]) is ReleaseState.UNINSTALLING:
            await self.uninstall(key)
            return []
        return revisions

    async def _revisions(self, key: ObjectKey, *, exclusive: bool = False) -> list[Json]:
        """Return the metadata of the pipeline's revisions, oldest first; their content is not fetched.

        `exclusive`, before a change: raises Rejected where the release's name is another's as well.  Helm knows a
        release by its name alone, and would change or remove the cluster of whoever has it.
        """
        name = names.release_name(key)
        found = await self.api.list(
            SECRETS, namespace=self.namespace, labels=f"owner=helm,name={name}", accept=METADATA_ONLY
        )
        others = {_pipeline(each) for each in found} - {key}
        if exclusive and others:
            owner = others.pop()
            whose = f"belongs to pipeline {owner}" if owner else "is not the operator's"
            raise Rejected(
                f"the Helm release {name} in {self.namespace} {whose}",
                remedy="create the pipeline under another name, or uninstall that release if nothing needs it",
            )
        return sorted((each for each in found if _pipeline(each) == key), key=_revision)


def _expected(key: ObjectKey, values: Manifest) -> Expected:
    """Return what the values may become; the names of objects come from the key, not from a text in them."""
    data_service = values.get("dataService") or {}
    return Expected(
        namespace=key.namespace,
        stem=names.cluster_name(key.name, int(values["generation"])),
        owner=values.get("ownerReference"),
        service_account=values.get("serviceAccountName") or "",
        pod_annotations=annotations_digest(values.get("podAnnotations") or {}),
        secrets=[secret for name in ("credentialsSecret", "tlsSecret") if (secret := data_service.get(name))],
        volume=bool(((values.get("master") or {}).get("storage") or {}).get("storageClassName")),
    )


def _found(key: ObjectKey, items: Sequence[tuple[str, Json]]) -> tuple[ClusterObject, ...]:
    """Return the pipeline's objects among those of each kind."""
    return tuple(
        ClusterObject(kind=kind, name=item["metadata"]["name"], uid=item["metadata"]["uid"], generation=generation)
        for kind, item in items
        if (generation := _installed_generation(key, item)) is not None
    )


def _versions(items: Sequence[tuple[str, Json]]) -> frozenset[int]:
    return frozenset(without_status(item["metadata"]) for _, item in items)


def _compared(items: Sequence[tuple[str, Json]]) -> frozenset[tuple[str, ...]]:
    """Return what changes where an object has to be compared with what Helm applied again."""
    return frozenset((kind, *_version(item)) for kind, item in items)


def _version(found: Json) -> tuple[str, str, str]:
    """Return what changes with an object's content; of a StatefulSet not with its status."""
    metadata = found["metadata"]
    return metadata["name"], metadata["uid"], str(metadata.get("generation") or metadata.get("resourceVersion"))


def _pipeline(found: Json) -> ObjectKey | None:
    """Return the pipeline that a revision's labels name; None for a release that the operator did not install."""
    marks = found["metadata"]["labels"]
    namespace, name = marks.get(labels.NAMESPACE), marks.get(labels.PIPELINE)
    return ObjectKey(namespace, name) if namespace and name else None


def _deployed(revisions: Sequence[Json]) -> Json | None:
    """Return the newest revision where it is deployed: another one is installed again anyway."""
    is_deployed = bool(revisions) and _state(revisions[-1]) is ReleaseState.DEPLOYED
    return revisions[-1] if is_deployed else None


def _revision(found: Json) -> int:
    return int(found["metadata"]["labels"].get("version", 0))


def _state(found: Json) -> ReleaseState:
    return _STATES.get(found["metadata"]["labels"].get("status", ""), ReleaseState.FAILED)


def _installed_generation(key: ObjectKey, found: Json) -> int | None:
    """Return the generation of an object that our chart created and that is not being deleted; else None.

    Label, name and Helm's own annotation must agree: a label alone is quickly copied.
    """
    metadata, generation = found["metadata"], generation_of(found)
    ours = (metadata.get("annotations") or {}).get(_HELM_RELEASE) == names.release_name(key)
    named = metadata["name"].startswith(f"{names.cluster_name(key.name, generation)}-")
    return generation if ours and named and "deletionTimestamp" not in metadata else None
