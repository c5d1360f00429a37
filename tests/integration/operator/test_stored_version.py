"""Objects move from the old stored version to the new one by the commands of docs/operations.md."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest

from fencepost_operator.api import GROUP, PLURAL, SERVED_TOO, VERSION, ObjectKey
from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.waiting import eventually
from integration.operator.cluster import REPOSITORY, pipeline_manifest
from testbed.environment import Environment
from unit.crds.schema import CRD

pytestmark = pytest.mark.integration

OWN_GROUP: Final = f"stored-{uuid.uuid4().hex[:8]}.fencepost.test"
"""The pipelines of others on this cluster keep their stored version."""
OWN_PLURAL: Final = "storedpipelines"
NAME: Final = f"{OWN_PLURAL}.{OWN_GROUP}"
OLD: Final = SERVED_TOO[0]


def crd(stored: str, *served: str) -> dict[str, Any]:
    """The CRD of pipelines, under names of its own, as a release has it that stores and serves these versions."""
    found = copy.deepcopy(CRD)
    names = {"plural": OWN_PLURAL, "singular": "storedpipeline", "kind": "StoredPipeline"}
    found["metadata"]["name"] = NAME
    found["spec"] |= {"group": OWN_GROUP, "names": names}
    versions = [version for version in found["spec"]["versions"] if version["name"] in served]
    found["spec"]["versions"] = [{**version, "storage": version["name"] == stored} for version in versions]
    return found


@pytest.fixture
def kubectl(testbed: Environment, namespace: str) -> Iterator[Kubectl]:
    found = Kubectl.of(testbed, namespace)
    yield found
    found.run("delete", "crd", NAME, "--ignore-not-found", "--timeout=60s")


def apply(kubectl: Kubectl, wanted: dict[str, Any]) -> None:
    kubectl.apply(wanted)
    eventually("the CRD is established", lambda: is_established(kubectl), seconds=60)


def is_established(kubectl: Kubectl) -> bool:
    """`kubectl wait` fails on a CRD that has no conditions yet."""
    conditions = json.loads(kubectl.run("get", "crd", NAME, "-o", "json")).get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def create(kubectl: Kubectl, name: str) -> None:
    """Create a pipeline in the old version, as soon as the API server serves it."""
    manifest = pipeline_manifest(ObjectKey(kubectl.namespace, name))
    body = {**manifest, "apiVersion": f"{OWN_GROUP}/{OLD}", "kind": "StoredPipeline"}
    eventually(f"{name} is created", lambda: kubectl.create(body), seconds=60)


def read(kubectl: Kubectl, name: str, version: str) -> Object:
    return dict(eventually(f"{version} is served", lambda: got(kubectl, name, version), seconds=60))


def got(kubectl: Kubectl, name: str, version: str) -> Object:
    answer: Object = json.loads(
        kubectl.run("get", "--raw", f"/apis/{OWN_GROUP}/{version}/namespaces/{kubectl.namespace}/{OWN_PLURAL}/{name}")
    )
    return answer


def stored_versions(kubectl: Kubectl) -> list[str]:
    return kubectl.run("get", "crd", NAME, "-o", "jsonpath={.status.storedVersions[*]}").split()


def documented_commands() -> list[str]:
    """The commands of the section, for the test's own kind instead of the three."""
    section = (REPOSITORY / "docs/operations.md").read_text().partition("### The stored version of the kinds\n")[2]
    (block,) = re.findall(r"```console\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)[:1]
    text = block.replace("spl,rw,tr", NAME).replace(f"{PLURAL} pipelinerewinds pipelinetrials", OWN_PLURAL)
    return [command.strip() for command in re.split(r"^\$ ", text.replace(GROUP, OWN_GROUP), flags=re.MULTILINE)[1:]]


def run_documented(environment: Environment) -> str:
    script = "\n".join(documented_commands())
    variables = {**os.environ, **environment.variables(os.environ["PATH"])}
    done = subprocess.run(["bash", "-euc", script], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_objects_of_the_old_version_are_stored_in_the_new_one(kubectl: Kubectl, testbed: Environment) -> None:
    """Injected: the old version is dropped while objects are still stored in it."""
    apply(kubectl, crd(OLD, OLD, VERSION))
    create(kubectl, "departures")
    create(kubectl, "arrivals")
    before = {name: read(kubectl, name, VERSION) for name in ("departures", "arrivals")}
    assert before["departures"]["apiVersion"] == f"{OWN_GROUP}/{VERSION}"
    assert before["departures"]["spec"] == read(kubectl, "departures", OLD)["spec"]
    assert before["departures"]["status"] == {"observedGeneration": -1}

    apply(kubectl, crd(VERSION, OLD, VERSION))
    eventually("both may be stored", lambda: stored_versions(kubectl) == [OLD, VERSION], seconds=60)
    with pytest.raises(KubectlError, match=r"storedVersions"):
        apply(kubectl, crd(VERSION, VERSION))

    kubectl.patch("crd", NAME, {"status": {"storedVersions": [VERSION]}}, subresource="status")
    apply(kubectl, crd(VERSION, VERSION))
    eventually("they cannot be read", lambda: is_unreadable(kubectl, "departures"), seconds=60)
    apply(kubectl, crd(VERSION, OLD, VERSION))
    assert read(kubectl, "departures", VERSION)["spec"] == before["departures"]["spec"]
    kubectl.patch("crd", NAME, {"status": {"storedVersions": [OLD, VERSION]}}, subresource="status")

    assert OWN_GROUP in run_documented(testbed)
    assert stored_versions(kubectl) == [VERSION]
    apply(kubectl, crd(VERSION, VERSION))
    eventually("the old version is not served", lambda: is_unreadable(kubectl, "departures", OLD), seconds=60)
    for name, was in before.items():
        now = read(kubectl, name, VERSION)
        assert (now["spec"], now["status"]) == (was["spec"], was["status"])
        kept = ("uid", "generation", "creationTimestamp")
        assert [now["metadata"][field] for field in kept] == [was["metadata"][field] for field in kept]
        assert "annotations" not in now["metadata"]


def test_the_api_server_takes_every_crd(kubectl: Kubectl) -> None:
    """Some rules are about all versions together, such as that equal selectableFields need equal schemas."""
    folder = f"--filename={REPOSITORY / 'charts/fencepost/files/crds'}"
    said = kubectl.run("apply", "--server-side", "--force-conflicts", "--dry-run=server", folder)
    assert said.count("serverside-applied") == 3


def is_unreadable(kubectl: Kubectl, name: str, version: str = VERSION) -> bool:
    try:
        got(kubectl, name, version)
    except KubectlError:
        return True
    return False
