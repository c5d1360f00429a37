"""The ports of trials in memory: the objects, their Jobs, and the pipelines whose code they promote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from fencepost.contract.trial import TrialReport
from fencepost_operator.actions import Manifest
from fencepost_operator.api import Event, ObjectKey, Pipeline, Trial, TrialStatus, read_trial, write_trial_status
from fencepost_operator.errors import Conflict, Rejected
from fencepost_operator.observation import Run, TrialJob

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(slots=True)
class FakeTrials:
    """Bodies as the API server has them; `events` are those that were published."""

    bodies: dict[ObjectKey, dict[str, Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def apply(self, key: ObjectKey, spec: Mapping[str, Any], *, created: str = "2026-01-01T11:59:00Z") -> None:
        """Create a trial."""
        number = len(self.bodies) + 1
        metadata = {
            "namespace": key.namespace, "name": key.name, "uid": f"trial-{number}", "generation": 1,
            "resourceVersion": "1", "creationTimestamp": created,
        }  # fmt: skip
        self.bodies[key] = {"metadata": metadata, "spec": dict(spec), "status": {"observedGeneration": -1}}

    async def read(self, key: ObjectKey) -> Trial | None:
        return read_trial(self.bodies[key]) if key in self.bodies else None

    async def write_status(self, trial: Trial, status: TrialStatus) -> Trial:
        found = self.bodies.get(trial.key)
        if found is None or found["metadata"]["resourceVersion"] != trial.resource_version:
            raise Conflict("the object has been modified")
        metadata = {**found["metadata"], "resourceVersion": str(int(trial.resource_version) + 1)}
        self.bodies[trial.key] = {**found, "metadata": metadata, "status": write_trial_status(status)}
        return read_trial(self.bodies[trial.key])

    async def publish(self, trial: Trial, events: Sequence[Event]) -> None:
        del trial
        self.events += events

    async def delete(self, trial: Trial) -> None:
        if trial.key in self.bodies and self.bodies[trial.key]["metadata"]["uid"] == trial.uid:
            del self.bodies[trial.key]


@dataclass(slots=True)
class FakeTrialJobs:
    """Jobs by name; `finish` ends one with a report."""

    jobs: dict[str, tuple[str, TrialJob]] = field(default_factory=dict)

    async def find(self, pipeline: ObjectKey, name: str, owner: str) -> TrialJob | None:
        del pipeline
        found = self.jobs.get(name)
        return found[1] if found is not None and found[0] == owner else None

    async def start(self, pipeline: ObjectKey, job: Manifest, config_map: Manifest) -> None:
        del pipeline
        name, owner = job["metadata"]["name"], job["metadata"]["ownerReferences"][0]["uid"]
        assert config_map["metadata"]["name"] == name
        if name in self.jobs and self.jobs[name][0] != owner:
            raise Rejected(f"Job {name} belongs to another object")
        run = Run(
            name=name, epoch=0, spec_hash="", cluster_generation=0, created_at=NOW, deleting=False, finished=False,
            pod=None,
        )  # fmt: skip
        self.jobs.setdefault(name, (owner, TrialJob(run=run)))

    async def stop(self, pipeline: ObjectKey, name: str, owner: str) -> None:
        if await self.find(pipeline, name, owner) is not None:
            del self.jobs[name]

    def finish(self, report: TrialReport) -> None:
        """End the only Job."""
        ((name, (owner, job)),) = self.jobs.items()
        self.jobs[name] = (owner, replace(job, run=replace(job.run, finished=True), report=report))


@dataclass(slots=True)
class FakePipelinesToTry:
    """One pipeline."""

    pipeline: Pipeline | None
    promoted: list[Mapping[str, Any]] = field(default_factory=list)

    async def read(self, key: ObjectKey) -> Pipeline | None:
        return self.pipeline if self.pipeline is not None and self.pipeline.key == key else None

    async def set_job(self, pipeline: Pipeline, job: Mapping[str, Any]) -> None:
        found = self.pipeline
        if found is None or found.resource_version != pipeline.resource_version:
            raise Conflict("the object has been modified")
        written = {**found.written, "job": {**found.written.get("job", {}), **job}}
        version = str(int(found.resource_version or "0") + 1)
        self.pipeline = replace(found, written=written, generation=found.generation + 1, resource_version=version)
        self.promoted.append(job)
