"""Two replicas of the operator with a wall clock that faults can set, and the operator as it was afterwards."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from campaign.world import clock_library
from harness.kubernetes.kubectl import Kubectl
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE

CONTAINER: Final = "operator"
CLOCK: Final = "campaign-clock"
"""Names the ConfigMap with the library, and its volume."""
_FOLDER: Final = "/opt/campaign"
_LIBRARY: Final = "libclock.so"


@contextmanager
def two_operators(kubectl: Kubectl) -> Iterator[None]:
    """Run two replicas of the operator; afterwards there are as many as before, without the library."""
    operator = kubectl.within(OPERATOR_NAMESPACE)
    deployment = operator.get("deployment", RELEASE)
    assert deployment is not None, "the operator is not installed: make up"

    def change(patch: Mapping[str, Any]) -> None:
        operator.run("patch", "deployment", RELEASE, "--type=strategic", f"--patch={json.dumps(patch)}")
        operator.run("rollout", "status", f"deployment/{RELEASE}", "--timeout=180s", seconds=190)

    library = base64.b64encode(clock_library()).decode()
    operator.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CLOCK}, "binaryData": {_LIBRARY: library}}
    )
    try:
        change(_deployment(2, _WITH))
        yield
    finally:
        change(_deployment(int(deployment["spec"]["replicas"]), _WITHOUT))
        operator.delete("configmap", CLOCK)


_WITH: Final[Mapping[str, Any]] = {
    "env": {"value": f"{_FOLDER}/{_LIBRARY}"},
    "volumeMounts": {"name": CLOCK, "readOnly": True},
    "volumes": {"configMap": {"name": CLOCK}},
}
_WITHOUT: Final[Mapping[str, Any]] = {part: {"$patch": "delete"} for part in _WITH}


def _deployment(replicas: int, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a strategic merge patch: lists of these kinds merge by the keys that are named here."""
    container = {
        "name": CONTAINER,
        "env": [{"name": "LD_PRELOAD", **parts["env"]}],
        "volumeMounts": [{"mountPath": _FOLDER, **parts["volumeMounts"]}],
    }
    volumes = [{"name": CLOCK, **parts["volumes"]}]
    return {"spec": {"replicas": replicas, "template": {"spec": {"containers": [container], "volumes": volumes}}}}
