"""The last barrier: of a manifest that is not exactly the expected one, Helm applies nothing."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fencepost_operator.adapters.helm.command import translated
from fencepost_operator.adapters.helm.post_renderer import (
    REFUSED,
    Expected,
    UnexpectedManifestError,
    annotations_digest,
    checked,
    json_line,
)
from fencepost_operator.errors import Rejected
from unit.charts.rendering import Object, helm, objects, one, render

OWNER: Final = {
    "apiVersion": "streaming.fencepost.dev/v1beta1",
    "kind": "StreamingPipeline",
    "name": "departures",
    "uid": "5d6a2fd6-9b23-438b-9361-8f3460c92464",
}
EXPECTED: Final = Expected(
    namespace="flights", stem="departures-g3", owner=OWNER, service_account="streaming",
    pod_annotations=annotations_digest({"sidecar.istio.io/inject": "false", "checksum/config": "of the author"}),
    volume=True,
)  # fmt: skip
TEXT: Final = render("spark-cluster", "full")
FOUND: Final = objects("spark-cluster", "full")
EVIL: Final[Object] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "evil", "namespace": "kube-system"}}


def written(found: list[Object]) -> str:
    return "".join(f"---\n{json_line(item)}\n" for item in found)


def pod(found: list[Object]) -> Any:
    return one(found, "StatefulSet", "-worker")["spec"]["template"]["spec"]


def container(found: list[Object]) -> Any:
    return pod(found)["containers"][0]


def service(found: list[Object]) -> Any:
    return one(found, "Service", "-worker")["spec"]


def pod_annotations(found: list[Object]) -> Any:
    return one(found, "StatefulSet", "-worker")["spec"]["template"]["metadata"]["annotations"]


def claim(found: list[Object]) -> Any:
    return one(found, "PersistentVolumeClaim", "-recovery")


def metadata(found: list[Object]) -> Any:
    return one(found, "ConfigMap", "-conf")["metadata"]


def test_the_expected_manifest_is_applied_as_it_was_checked() -> None:
    passed = checked(TEXT, EXPECTED)
    assert [item for item in yaml.safe_load_all(passed) if item] == FOUND
    assert passed.isprintable() or set(passed) - {"\n"} == {c for c in passed if c.isprintable()}


CHANGES: Final[dict[str, Callable[[list[Object]], Any]]] = {
    "one object more": lambda found: found.append(EVIL),
    "one object less": lambda found: found.pop(),
    "an object twice": lambda found: found.append(found[0]),
    "a List": lambda found: found.append({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [EVIL]}),
    "another name": lambda found: metadata(found).update(name="coredns"),
    "another namespace": lambda found: metadata(found).update(namespace="kube-system"),
    "no namespace": lambda found: metadata(found).pop("namespace"),
    "a null namespace": lambda found: metadata(found).update(namespace=None),
    "another kind": lambda found: found[0].update(kind="ClusterRoleBinding"),
    "another API version": lambda found: found[0].update(apiVersion="example.com/v1"),
    "another owner": lambda found: metadata(found)["ownerReferences"][0].update(uid="x"),
    "two owners": lambda found: metadata(found)["ownerReferences"].append(metadata(found)["ownerReferences"][0]),
    "a finalizer": lambda found: metadata(found).update(finalizers=["example.com/stay"]),
    "a hook": lambda found: metadata(found)["annotations"].update({"helm.sh/hook": "pre-install"}),
    "a kept resource": lambda found: metadata(found)["annotations"].update({"helm.sh/resource-policy": "keep"}),
    "binary data": lambda found: one(found, "ConfigMap", "-conf").update(binaryData={}),
    "a service account token": lambda found: one(found, "Secret", "-auth").update(
        type="kubernetes.io/service-account-token"
    ),
    "a service with an address": lambda found: service(found).update(externalIPs=["10.0.0.1"]),
    "a service of another type": lambda found: service(found).update(type="ExternalName", externalName="example.com"),
    "a service with a cluster IP": lambda found: service(found).update(clusterIP="10.96.0.1"),
    "another service account": lambda found: pod(found).update(serviceAccountName="default"),
    "no service account": lambda found: pod(found).pop("serviceAccountName"),
    "an annotation of a pod more": lambda found: pod_annotations(found).update({"example/note": "x"}),
    "an annotation of a pod less": lambda found: pod_annotations(found).pop("sidecar.istio.io/inject"),
    "another annotation of a pod": lambda found: pod_annotations(found).update({"sidecar.istio.io/inject": "true"}),
    "a token": lambda found: pod(found).update(automountServiceAccountToken=True),
    "no word on a token": lambda found: pod(found).pop("automountServiceAccountToken"),
    "the host's network": lambda found: pod(found).update(hostNetwork=True),
    "the host's processes": lambda found: pod(found).update(hostPID=True),
    "a node": lambda found: pod(found).update(nodeName="control-plane"),
    "a runtime class": lambda found: pod(found).update(runtimeClassName="privileged"),
    "a pod without security context": lambda found: pod(found).pop("securityContext"),
    "a pod of root": lambda found: pod(found)["securityContext"].update(runAsUser=0),
    "a host path": lambda found: pod(found)["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    "a projected volume": lambda found: pod(found)["volumes"].append({"name": "x", "projected": {"sources": []}}),
    "a Secret of another": lambda found: pod(found)["volumes"].append({"name": "x", "secret": {"secretName": "admin"}}),
    "a part of a Secret": lambda found: pod(found)["volumes"].append({"name": "x", "secret": {"items": []}}),
    "a privileged container": lambda found: container(found)["securityContext"].update(privileged=True),
    "a capability": lambda found: container(found)["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
    "a command": lambda found: container(found).update(command=["sh"]),
    "a lifecycle hook": lambda found: container(found).update(lifecycle={}),
    "an ephemeral container": lambda found: pod(found).update(ephemeralContainers=[]),
    "a claim of an existing volume": lambda found: claim(found)["spec"].update(volumeName="other"),
    "a claim with the data of another": lambda found: claim(found)["spec"].update(dataSource={"name": "other"}),
    "another one's claim": lambda found: pod(found)["volumes"].append(
        {"name": "x", "persistentVolumeClaim": {"claimName": "other"}}
    ),
}


def test_a_secret_that_the_spec_names_is_mounted() -> None:
    text = render("spark-cluster", "stateful")
    named = Expected(namespace="flights", stem="departures-g3", secrets=["cassandra", "certificates"])
    assert checked(text, named)
    with pytest.raises(UnexpectedManifestError, match=r"secret\.secretName is not one of the spec's"):
        checked(text, Expected(namespace="flights", stem="departures-g3", secrets=["cassandra"]))


def test_a_volume_that_the_spec_does_not_have_is_refused_by_its_name() -> None:
    found = objects("spark-cluster", "stateful")
    pod(found)["volumes"].append({"name": "x", "persistentVolumeClaim": {"claimName": "departures-g3-recovery"}})
    named = Expected(namespace="flights", stem="departures-g3", secrets=["cassandra", "certificates"])
    with pytest.raises(UnexpectedManifestError, match=r"claimName is not one of the spec's"):
        checked(written(found), named)


@pytest.mark.parametrize("name", CHANGES)
def test_any_other_manifest_is_refused(name: str) -> None:
    found = copy.deepcopy(FOUND)
    CHANGES[name](found)
    with pytest.raises(UnexpectedManifestError):
        checked(written(found), EXPECTED)


AMBIGUOUS: Final = [
    "podManagementPolicy: &x Parallel",
    "podManagementPolicy: !!str Parallel",
    "podManagementPolicy: 0x1f",
    "podManagementPolicy: 12:30:45",
    "podManagementPolicy: 010",
    "podManagementPolicy: 1_0",
    "podManagementPolicy: .inf",
    "podManagementPolicy: on",
    "podManagementPolicy: y",
    "podManagementPolicy: {a: Parallel, a: OrderedReady}",
    "podManagementPolicy: Parallel\n  podManagementPolicy: OrderedReady",
    "podManagementPolicy: Parallel\n  <<: {podManagementPolicy: OrderedReady}",
    "podManagementPolicy: {1: Parallel}",
]
"""Fields that readers of YAML take for different things."""


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_yaml_that_has_two_readings_is_refused(text: str) -> None:
    changed = TEXT.replace("podManagementPolicy: Parallel", text, 1)
    assert changed != TEXT
    with pytest.raises(UnexpectedManifestError, match=r"ambiguous|anchor|occurs twice"):
        checked(changed, EXPECTED)


@pytest.mark.parametrize("text", ["- kind: Secret", "text", "kind: 'open", "kind: Secret", "metadata: *a"])
def test_a_document_that_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(UnexpectedManifestError, match=r"not YAML|not a Kubernetes object|alias"):
        checked(f"{TEXT}---\n{text}\n", EXPECTED)


@pytest.mark.parametrize("text", ["\x85", "\u2028", "\u2029", "\x7f\x9f", "\ufeff", "é\U0001f600", "a\n---\nb\r\n"])
def test_text_is_applied_on_one_line_and_as_it_was(text: str) -> None:
    found = copy.deepcopy(FOUND)
    container(found)["env"][0]["value"] = text
    passed = checked(written(found), EXPECTED)
    assert len(passed.splitlines()) == 2 * len(found)
    assert [item for item in yaml.safe_load_all(passed) if item] == found


def test_helm_applies_nothing_of_what_is_refused(tmp_path: Path) -> None:
    """The real Helm, a chart with one template more, and the post-renderer as the operator passes it."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: evil, version: 0.1.0}")
    (chart / "templates" / "all.yaml").write_text(TEXT + written([EVIL]))
    program, *arguments = EXPECTED.command
    words = ["template", "a", str(chart), "--namespace=flights", f"--post-renderer={program}"]
    words += [f"--post-renderer-args={word}" for word in arguments]
    with pytest.raises(Exception, match=REFUSED) as caught:
        helm(*words)
    error = translated(str(caught.value), code=1)
    assert isinstance(error, Rejected)
    assert "unexpected objects: Secret 'evil'" in str(error)
    (chart / "templates" / "all.yaml").write_text(TEXT)
    assert [item for item in yaml.safe_load_all(helm(*words)) if item] == FOUND


def test_hooks_never_run(tmp_path: Path) -> None:
    """Helm hides hooks from a post-renderer; --no-hooks is what keeps them from being applied."""
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: evil, version: 0.1.0}")
    hook = EVIL | {"metadata": EVIL["metadata"] | {"annotations": {"helm.sh/hook": "pre-install"}}}
    (chart / "templates" / "all.yaml").write_text(TEXT + written([hook]))
    with_hooks, without = (helm("template", "a", str(chart), *words) for words in ([], ["--no-hooks"]))
    assert "kube-system" in with_hooks
    assert "kube-system" not in without


def test_the_program_ends_with_one_line_that_says_why() -> None:
    result = subprocess.run(EXPECTED.command, input=written([EVIL]).encode(), capture_output=True, check=False)
    assert (result.returncode, result.stdout) == (1, b"")
    assert result.stderr.decode().startswith(REFUSED)
    assert len(result.stderr.splitlines()) == 1
