"""An example's manifest, made small and pointed at the testbed, and a handle on its pipeline."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fencepost.contract import Verdict
from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.waiting import eventually
from testbed.environment import Environment
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
DEPARTURES: Final = "departures"
"""The example that most pipelines of tests are."""
KIND: Final = "streamingpipeline"
SECRET: Final = "cassandra-credentials"  # noqa: S105 - an object's name
PIPELINE_LABEL: Final = "streaming.fencepost.dev/pipeline"
NAMESPACE_LABEL: Final = "streaming.fencepost.dev/namespace"
_TINY: Final = {"requests": {"cpu": "20m"}}
OWNED_KINDS: Final = (
    "jobs",
    "pods",
    "statefulsets",
    "controllerrevisions",
    "deployments",
    "services",
    "endpointslices",
    "configmaps",
    "secrets",
    "persistentvolumeclaims",
    "poddisruptionbudgets",
)
SHORT_LIVED: Final = {
    f"spark.{process}.extraJavaOptions": "-XX:TieredStopAtLevel=1" for process in ("driver", "executor")
}
"""For JVMs that end before the optimizing compiler pays off: a start takes 12.5 CPU-s instead of 17.7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a pipeline reads and writes, the same for every pipeline of a session."""

    environment: Environment
    namespace: str
    tables: str
    """Keyspace of the sinks' tables."""
    fences: str
    """Keyspace of the fence rows; the operator makes it."""

    @property
    def second_image(self) -> str:
        """Return another name for the job's image, this session's own."""
        return f"{self.environment.job_image.rpartition(':')[0]}:{self.namespace}"


def example_file(name: str, file: str) -> str:
    """Return the text of one of the example's files."""
    return (EXAMPLES / name / file).read_text()


def code(example: str = DEPARTURES) -> Object:
    """Return the ConfigMap of an example's function, as its kustomization makes it."""
    spec = _manifest(example)["spec"]
    module = str(spec["job"]["entrypoint"]).partition(":")[0]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": spec["job"]["codeFrom"]["configMapName"]},
        "data": {f"{module}.py": example_file(example, f"{module}.py")},
    }


def _manifest(example: str) -> Object:
    return dict(yaml.safe_load(example_file(example, "pipeline.yaml")))


def manifest(place: Place, *, name: str, topic: str, table: str, example: str = DEPARTURES, **spec: Any) -> Object:
    """Return an example as a pipeline of this name, small, quick to restart, reading and writing here.

    `spec` is merged over it as a JSON merge patch.
    """
    made = _manifest(example)
    made["metadata"] = {"name": name}
    sink = made["spec"]["sinks"][0]["name"]
    small = {
        "job": {"image": place.environment.job_image, "memory": "512Mi", "resources": _TINY},
        "cluster": {
            "workers": 1,
            "worker": {"cores": 1, "memory": "1Gi", "resources": _TINY},
            "master": {"resources": _TINY},
            "sparkConf": SHORT_LIVED,
        },
        "source": {"kafka": {"bootstrapServers": place.environment.kafka_cluster, "topics": [topic]}},
        "sinks": [{"name": sink, "cassandra": {"keyspace": place.tables, "table": table}}],
        "checkpoint": {
            "cassandra": {
                "contactPoints": [place.environment.cassandra_cluster],
                "port": place.environment.cassandra_cluster_port,
                "keyspace": place.fences,
                "credentialsFrom": {"secretName": SECRET},
            }
        },
        "batchInterval": "1s",
        "restart": {"maxBackoff": "2s"},
    }
    made["spec"] = merged(merged(made["spec"], small), spec)
    return made


def merged(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with a JSON merge patch (RFC 7386) applied."""
    result = dict(base)
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def helm_revisions(kubectl: Kubectl, pipeline: str) -> list[Object]:
    """Return the Secrets of the pipeline's release: they are in the operator's namespace, out of its tenants' reach."""
    selector = f"--selector=owner=helm,{PIPELINE_LABEL}={pipeline},{NAMESPACE_LABEL}={kubectl.namespace}"
    return kubectl.within(OPERATOR_NAMESPACE).items("secrets", selector)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One pipeline, by kubectl alone."""

    kubectl: Kubectl
    name: str

    def object(self) -> Object:
        """Return the StreamingPipeline."""
        found = self.kubectl.get(KIND, self.name)
        assert found is not None, f"pipeline {self.name} not found"
        return found

    def status(self) -> Object:
        """Return its status."""
        return dict(self.object().get("status", {}))

    def epoch(self) -> int:
        """Return the fence's epoch as the status has it."""
        return int(self.status().get("epoch") or 0)

    def restarts(self) -> int:
        """Return how many runs replaced a failed one."""
        return int(self.status().get("restarts") or 0)

    def condition(self, kind: str) -> Object:
        """Return a condition that is about the newest spec; empty without one."""
        found = self.object()
        generation = found["metadata"]["generation"]
        if found["status"].get("observedGeneration") != generation:
            return {}
        conditions = found["status"].get("conditions", [])
        return next((dict(one) for one in conditions if one["type"] == kind), {})

    def wait_ready(self, *, epoch: int = 0, seconds: float = 240) -> Object:
        """Wait until Ready=True for the newest spec, streaming under `epoch` or a later one; return the status."""

        def streaming() -> Object | None:
            found = self.object()
            status: Object = found["status"]
            conditions = {one["type"]: one for one in status.get("conditions", [])}
            there = (
                status.get("observedGeneration") == found["metadata"]["generation"]
                and conditions.get("Ready", {}).get("status") == "True"
                and conditions.get("Streaming", {}).get("status") == "True"
                and (status.get("epoch") or 0) >= epoch
            )
            assert there, summary(found)
            return status

        return eventually(f"{self.name} is Ready under epoch {epoch} or later", streaming, seconds=seconds)

    def wait_condition(self, kind: str, status: str, *, reason: str | None = None, seconds: float = 150) -> Object:
        """Wait until a condition about the newest spec has this status (and reason); return it."""

        def holds() -> Object | None:
            found = self.condition(kind)
            there = found.get("status") == status and reason in {None, found.get("reason")}
            assert there, summary(self.object())
            return found

        return eventually(f"{self.name} has {kind}={status} {reason or ''}", holds, seconds=seconds)

    def run_name(self, epoch: int) -> str:
        """Return the name of an epoch's Job."""
        return f"{self.name}-run-{epoch}"

    def pods_of(self, job: str) -> list[Object]:
        """Return a Job's pods."""
        return self.kubectl.items("pods", f"--selector=batch.kubernetes.io/job-name={job}")

    def driver(self, *, seconds: float = 150) -> Object:
        """Wait until the run of the newest epoch has a running pod, and return the pod."""

        def running() -> Object | None:
            pods = self.pods_of(self.run_name(self.epoch()))
            return next((pod for pod in pods if pod["status"].get("phase") == "Running"), None)

        return eventually(f"{self.name} has a running driver", running, seconds=seconds)

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Change the spec as `kubectl patch` does."""
        self.kubectl.patch(KIND, self.name, {"spec": spec})

    def delete(self, *, seconds: float = 120) -> None:
        """Delete it and wait until it is gone."""
        self.kubectl.delete(KIND, self.name, seconds=seconds)

    def owned(self) -> list[str]:
        """Return kind/name of everything in the namespace that is there for this pipeline, the user's own left out."""
        users = {SECRET, code()["metadata"]["name"]}
        found = []
        for one in self.kubectl.items(",".join(OWNED_KINDS)):
            metadata = one["metadata"]
            labels = metadata.get("labels", {})
            mine = (
                labels.get(PIPELINE_LABEL) == self.name
                or any(owner["name"] == self.name for owner in metadata.get("ownerReferences", []))
                or metadata["name"].startswith(f"{self.name}-")
            )
            if mine and metadata["name"] not in users:
                found.append(f"{one['kind']}/{metadata['name']}")
        return found


def summary(pipeline: Object) -> str:
    """Return a pipeline's state in a line, for failures."""
    status = pipeline.get("status", {})
    conditions = ", ".join(
        f"{one['type']}={one['status']}/{one['reason']}: {one['message']}" for one in status.get("conditions", [])
    )
    return (
        f"{status.get('state')} epoch {status.get('epoch')} lag {status.get('lag')} restarts {status.get('restarts')}"
        f" generation {status.get('observedGeneration')}/{pipeline['metadata'].get('generation')} [{conditions}]"
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """How a driver's container ended."""

    exit_code: int
    verdict: Verdict | None
    text: str


def ending(pod: Object) -> Ending | None:
    """Return how a pod's container ended, None while it has not."""
    for status in pod.get("status", {}).get("containerStatuses", []):
        if terminated := status.get("state", {}).get("terminated"):
            text = terminated.get("message", "")
            return Ending(exit_code=terminated["exitCode"], verdict=Verdict.from_json(text), text=text)
    return None


_OF_ITS_CONTROLLER: Final = frozenset(
    {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
)


def copy_of(job: Object, *, name: str) -> Object:
    """Return a Job that runs the very same pod under another Job, as a user would copy it; it has no owner."""
    template = copy.deepcopy(job["spec"]["template"])
    template["metadata"].pop("creationTimestamp", None)
    for labels in (template["metadata"].get("labels", {}),):
        for label in _OF_ITS_CONTROLLER:
            labels.pop(label, None)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"fencepost.test/copy": "true"}},
        "spec": {"backoffLimit": 0, "podReplacementPolicy": "Failed", "template": template},
    }


def events(kubectl: Kubectl) -> str:
    """Return the namespace's Events, for failures."""
    try:
        return kubectl.run("get", "events", "--sort-by=.lastTimestamp")
    except KubectlError as error:
        return str(error)


def pretty(found: Object) -> str:
    """Return an object as indented JSON, without what the API server keeps for itself."""
    found = copy.deepcopy(found)
    found["metadata"].pop("managedFields", None)
    return json.dumps(found, indent=1)
