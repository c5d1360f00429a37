"""Whether a live object is what Helm applied, beside defaults of the API server and fields of others."""

from __future__ import annotations

import base64
import copy
import gzip
import json
from typing import Any

import pytest

from fencepost_operator.adapters.helm.release_manifest import applied_objects, damage
from fencepost_operator.desired import labels

WANTED: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {
        "name": "orders-g1-worker",
        "labels": {"a": "b", labels.COMPONENT: labels.WORKER},
        "ownerReferences": [{"uid": "u-1"}],
    },
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "spec": {
                "nodeSelector": {},
                "tolerations": [{"key": "batch", "operator": "Exists"}],
                "containers": [
                    {
                        "name": "worker",
                        "args": ["run"],
                        "env": [{"name": "MODE", "value": ""}],
                        "resources": {"limits": {"memory": "1024Mi", "cpu": "0.5"}},
                    }
                ],
            }
        },
    },
}


def live() -> dict[str, Any]:
    """The object as an API server has it, with what others added."""
    found = copy.deepcopy(WANTED)
    found["metadata"] |= {"uid": "1", "resourceVersion": "7", "annotations": {"meta.helm.sh/release-name": "r"}}
    found["metadata"]["labels"]["team"] = "x"
    found["spec"] |= {"replicas": 5, "updateStrategy": {"type": "RollingUpdate"}}
    pod = found["spec"]["template"]["spec"]
    del pod["nodeSelector"]
    container = pod["containers"][0]
    container |= {"terminationMessagePath": "/dev/termination-log"}
    container["resources"]["limits"] = {"memory": "1Gi", "cpu": "500m"}
    container["env"] = [{"name": "PROXY", "value": "p"}, {"name": "MODE"}]
    pod["containers"].insert(0, {"name": "sidecar", "image": "mesh:1"})
    return found


def container(found: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][1]
    return made


def test_defaults_quantities_and_what_others_added_are_no_change() -> None:
    assert damage(WANTED, live()) == ""


def test_an_object_that_is_gone_is_damage_and_one_that_is_being_deleted_is_not_yet() -> None:
    assert damage(WANTED, None) == "StatefulSet orders-g1-worker was deleted"
    ending = live()
    ending["metadata"] |= {"deletionTimestamp": "2026-01-01T12:00:00Z", "labels": {}}
    assert damage(WANTED, ending) == ""


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda found: found["metadata"]["labels"].pop("a"), "metadata.labels.a"),
        (lambda found: found["metadata"].pop("ownerReferences"), "metadata.ownerReferences"),
        (lambda found: found["spec"]["selector"]["matchLabels"].update(a="c"), "spec.selector.matchLabels.a"),
        (lambda found: found["spec"]["template"]["spec"]["tolerations"].append({}), "spec.template.spec.tolerations"),
        (lambda found: container(found).update(args=["other"]), "spec.template.spec.containers.worker.args.0"),
        (
            lambda found: container(found)["resources"]["limits"].update(memory="2Gi"),
            "spec.template.spec.containers.worker.resources.limits.memory",
        ),
        (lambda found: found["spec"]["template"]["spec"]["containers"].pop(1), "spec.template.spec.containers.worker"),
    ],
)
def test_a_change_names_its_field(change: Any, path: str) -> None:
    found = live()
    change(found)
    assert damage(WANTED, found) == f"StatefulSet orders-g1-worker was changed ({path})"


def test_a_master_that_was_scaled_to_nothing_is_a_change() -> None:
    """The workers follow the spec; the master is not scaled, so its replicas are compared."""
    wanted, found = copy.deepcopy(WANTED), live()
    for manifest in (wanted, found):
        manifest["metadata"]["labels"][labels.COMPONENT] = "master"
    found["spec"]["replicas"] = 0
    assert damage(wanted, found) == "StatefulSet orders-g1-worker was changed (spec.replicas)"


def revision(packed: bytes) -> dict[str, Any]:
    return {"data": {"release": base64.b64encode(base64.b64encode(packed)).decode()}}


def test_the_objects_of_a_revision_are_read_from_helms_secret() -> None:
    release = {"name": "r", "manifest": f"---\n{json.dumps(WANTED)}\n"}
    assert applied_objects(revision(gzip.compress(json.dumps(release).encode()))) == (WANTED,)


@pytest.mark.parametrize("damaged", [slice(0, 40), slice(0, 15)])
def test_a_revision_that_is_not_whole_is_refused(damaged: slice) -> None:
    packed = gzip.compress(json.dumps({"manifest": json.dumps(WANTED)}).encode())[damaged]
    with pytest.raises(ValueError, match="not whole"):
        applied_objects(revision(packed))


def test_a_revision_whose_bytes_changed_is_refused() -> None:
    packed = bytearray(gzip.compress(json.dumps({"manifest": json.dumps(WANTED)}).encode()))
    packed[12] ^= 0xFF
    with pytest.raises((ValueError, OSError)):
        applied_objects(revision(bytes(packed)))
