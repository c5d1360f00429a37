"""One StreamingPipeline object as the API server has it, read into our words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from fencepost_operator.api.codec import decode_leniently, encode
from fencepost_operator.api.managers import manager_of
from fencepost_operator.api.parsing import parse, parse_checkpoint, parse_deletion_policy
from fencepost_operator.api.revision import Revision
from fencepost_operator.api.spec import DeletionPolicy, Spec, Violation
from fencepost_operator.api.spec.checkpoint import CheckpointSpec
from fencepost_operator.api.status import Status
from fencepost_operator.api.vocabulary import FINALIZER, ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Identity, spec and status. `spec` holds the violations instead when it cannot be understood."""

    key: ObjectKey
    uid: str
    resource_version: str
    generation: int
    spec: Spec | tuple[Violation, ...]
    status: Status = field(default_factory=Status)
    deleting_since: datetime | None = None
    finalizers: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """As far as it can be read even in a spec that is invalid; else that of the last valid one, which may be kept."""
    written: Mapping[str, Any] = field(default_factory=dict)
    """The spec as it was written, with the API server's defaults."""
    refused: tuple[Violation, ...] = ()
    """What is wrong with the spec of the object while `spec` and `written` are the last valid ones."""
    irretrievable: str = ""
    """Why the last valid or stable spec is not in effect although a revision of it was kept, and what to do."""
    managed_by: str = ""
    """The tool that writes the spec from a repository: 'Argo CD', 'Flux' or 'Helm'; '' where none is known to."""
    superseded: Spec | None = None
    """The spec of the object, which failed or is tried first, while `spec` and `written` are kept ones."""

    @property
    def checkpoint(self) -> CheckpointSpec | None:
        """Where the fence row is, None where that is not known.

        Of a deleted pipeline an invalid spec may say it too, unless the last valid one is kept and cannot be read now.
        """
        if isinstance(self.spec, Spec):
            return self.spec.checkpoint
        is_known = self.deleting_since is not None and not self.irretrievable
        return parse_checkpoint(self.written) if is_known else None

    @property
    def has_finalizer(self) -> bool:
        """Whether the API server waits for our cleanup."""
        return FINALIZER in self.finalizers

    def restored(self, revision: Revision, spec: Spec) -> Pipeline:
        """Return the pipeline with the last valid spec in place of the one that is refused."""
        refused = () if isinstance(self.spec, Spec) else self.spec
        policy = parse_deletion_policy(self.written) or spec.deletion_policy
        return replace(self, spec=spec, written=revision.written, refused=refused, deletion_policy=policy)

    def under_kept(self, revision: Revision, spec: Spec) -> Pipeline:
        """Return the pipeline with a kept spec in place of its own one, which failed or is tried first."""
        own = self.spec if isinstance(self.spec, Spec) else None
        return replace(self, spec=spec, written=revision.written, superseded=own)

    def under(self, seen: Pipeline) -> Pipeline:
        """Return the pipeline with the spec that was in effect when it was seen."""
        return replace(
            self,
            spec=seen.spec,
            deletion_policy=seen.deletion_policy,
            written=seen.written,
            refused=seen.refused,
            irretrievable=seen.irretrievable,
            superseded=seen.superseded,
        )


def read_pipeline(body: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline in a body from the API server; a spec of any shape is read, none raises."""
    metadata = body["metadata"]
    deleted = metadata.get("deletionTimestamp")
    spec = parse(body)
    written = raw if isinstance(raw := body.get("spec"), Mapping) else {}
    policy = spec.deletion_policy if isinstance(spec, Spec) else parse_deletion_policy(written)
    return Pipeline(
        key=ObjectKey(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        spec=spec,
        status=read_status(body.get("status")),
        deleting_since=datetime.fromisoformat(deleted) if deleted else None,
        finalizers=tuple(metadata.get("finalizers") or ()),
        annotations=dict(metadata.get("annotations") or {}),
        written=written,
        deletion_policy=policy or DeletionPolicy.RETAIN,
        managed_by=manager_of(metadata),
    )


def read_status(raw: object) -> Status:
    """Return the status in a body; what cannot be understood is read as absent."""
    return decode_leniently(Status, raw)


def write_status(status: Status) -> dict[str, Any]:
    """Return the body's `status` of a status: the whole of it, to replace what is there."""
    body: dict[str, Any] = encode(status)
    return body
