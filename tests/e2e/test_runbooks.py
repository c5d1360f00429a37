"""Each command of each runbook, tried out on a pipeline that streams: read as it is, change nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from e2e.reader import Printed, Reader
from e2e.stream import SCOPE, Stream, cassandra
from generators.decisions import RUNBOOKS
from harness.kubernetes.kubectl import Kubectl
from harness.monitoring.prometheus import prometheus
from harness.pipelines import PIPELINE_LABEL
from harness.waiting import eventually
from testbed.environment import Environment
from testbed.release import CHART, NAMESPACE, RELEASE
from unit.docs.runbook_commands import commands, filled, statements

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OF_A_CONTAINER_THAT_ENDED: Final = ("--previous", "rollout restart")
"""Tried out on a Deployment of the test's own: kubectl has no dry run of a restart, and the operator's pod is new."""
NAMED: Final = ("kubectl get pods -n NAMESPACE", "kubectl get jobs", "kubectl describe spl", "helm list", "grep NAME")
"""What these print names the pipeline."""
MAY_FIND_NOTHING: Final = (
    *(
        "name=fencepost-purge",
        "name=fencepost-trial",
        "events",
        "pvc",
        "rw",
        "resourcequota",
        "webhookconfigurations",
        "networkpolicies",
    ),
    "sed -n",
    *("(jvm_", "'fencepost_worker_", "{__name__"),  # this Prometheus scrapes the operator alone
)
PAGES: Final = sorted(RUNBOOKS.glob("*.md"))
SKIP: Final = "fencepost dead-letters skip"
"""Refused while the pipeline is healthy: a case of its own."""
MOVE: Final = "fencepost failover"
"""Refused without a second cluster: a case of its own; `integration/lifecycle/test_failover` has two."""
COMMANDS: Final = [command for command in commands(PAGES) if not command.startswith((SKIP, MOVE))]


@contextmanager
def restarted(kubectl: Kubectl, environment: Environment) -> Iterator[str]:
    """A Deployment of the operator's name whose container has ended once; its pod's name."""
    labels = {"app": RELEASE}
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {
        "name": "operator",
        "image": environment.job_image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "test -e /seen/once || { touch /seen/once; echo ends; exit 3; }; exec sleep 3600"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "seen", "mountPath": "/seen"}],
    }
    pod = {
        "terminationGracePeriodSeconds": 0,
        "securityContext": security,
        "containers": [container],
        "volumes": [{"name": "seen", "emptyDir": {}}],
    }
    kubectl.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": RELEASE},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        }
    )

    def again() -> str | None:
        for one in kubectl.items("pods", f"--selector=app={RELEASE}"):
            for status in one["status"].get("containerStatuses", []):
                if status["restartCount"] and "running" in status["state"]:
                    return str(one["metadata"]["name"])
        return None

    try:
        yield eventually("a container runs after it ended", again, seconds=120)
    finally:
        kubectl.delete("deployment", RELEASE)


def test_every_command_of_every_runbook_works(
    stream: Stream, kubectl: Kubectl, environment: Environment, tmp_path: Path
) -> None:
    """Placeholders are replaced; what changes something is a dry run. A healthy pipeline has empty fields."""
    pipeline = stream.pipeline
    selector = f"--selector={PIPELINE_LABEL}={pipeline.name},streaming.fencepost.dev/component=worker"
    worker = kubectl.items("pods", selector)[0]["metadata"]["name"]
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fencepost-pages"}}
    trial = {
        "apiVersion": "streaming.fencepost.dev/v1alpha1",
        "kind": "PipelineTrial",
        "metadata": {"name": "waiting"},
        "spec": {"pipeline": "absent", "job": {"image": "absent"}, "since": {"duration": "1h"}},
    }
    with restarted(kubectl, environment) as ended, prometheus(environment, tmp_path / "prometheus") as asked:
        kubectl.apply(secret)
        kubectl.apply(trial)
        seen = f'fencepost_pipeline_committed_offset{{namespace="{kubectl.namespace}",name="{pipeline.name}"}}'
        eventually("Prometheus knows the pipeline", lambda: asked.query(seen), seconds=120)
        reader = Reader.of(
            environment,
            pipeline,
            POD=worker,
            JOB=pipeline.run_name(pipeline.epoch()),
            ID="3f0c5a9b7d21",
            CLUSTER_UID="3f0c5a9b-7d21-4c11-9d5e-000000000000",
            PROMETHEUS_URL=asked.url,
            CHART=str(CHART),
            TRIAL="waiting",
        )
        beside = Reader.of(environment, pipeline, POD=ended)

        def tried(command: str) -> Printed | AssertionError:
            try:
                if any(mark in command for mark in OF_A_CONTAINER_THAT_ENDED):
                    return beside.run(command.replace(f"-n {NAMESPACE}", "-n NAMESPACE"))
                return reader.try_out(command)
            except AssertionError as error:
                return error
            except subprocess.TimeoutExpired as error:
                return AssertionError(str(error))

        try:
            with ThreadPoolExecutor(4) as several:
                answers = dict(zip(COMMANDS, several.map(tried, COMMANDS), strict=True))
        finally:
            kubectl.delete("secret", "fencepost-pages")
            kubectl.delete("pipelinetrial", "waiting")
    failed = [str(answer) for answer in answers.values() if isinstance(answer, AssertionError)]
    assert not failed, "\n".join(failed)
    printed = {command: answer for command, answer in answers.items() if isinstance(answer, Printed)}
    for command, answer in printed.items():
        found = answer.output.strip() and "No resources found" not in answer.warnings
        if not any(kind in command for kind in MAY_FIND_NOTHING) and "jsonpath=" not in command:
            assert found, f"{command} finds nothing: {answer.warnings}"
        if any(mark in command for mark in NAMED):
            assert pipeline.name in answer.output, f"{command}: {answer.output}"


def test_a_committed_record_is_not_left_out(stream: Stream, environment: Environment) -> None:
    topic = stream.load.ledger.topic
    reader = Reader.of(environment, stream.pipeline, TOPIC=topic, PARTITION="0", OFFSET="0")
    (command,) = (each for each in commands(PAGES) if each.startswith(SKIP))
    with pytest.raises(AssertionError, match=f"{topic}/0@0 is (committed|beyond)"):
        reader.run(command)


def test_a_move_is_refused_where_no_other_cluster_waits(stream: Stream, environment: Environment) -> None:
    reader = Reader.of(environment, stream.pipeline, CLUSTER_UID="of-another-cluster")
    (command,) = (each for each in commands(PAGES) if each.startswith(MOVE))
    with pytest.raises(AssertionError, match=r"has no spec\.failover"):
        reader.run(command)


def test_every_statement_of_every_runbook_works(stream: Stream) -> None:
    """In CQL: the pipeline is as healthy as before, so that most rows are not there."""
    place = stream.place
    values = {
        "SCOPE": SCOPE,
        "NAMESPACE": place.namespace,
        "NAME": stream.pipeline.name,
        "TOPIC": stream.load.ledger.topic,
        "N": "0",
    }
    asked = statements(PAGES)
    assert len(asked) >= 3
    with cassandra(place) as opened:
        for statement in asked:
            opened.execute(filled(statement, values).replace("fencepost", place.fences, 1))
